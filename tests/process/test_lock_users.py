"""`lock-users` against a real etcd: services log in as themselves while they serve, and reach nobody else's keys."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trustme
from etcd_server import EtcdCluster
from replica_set import ReplicaSet, called
from tests.unit.deathless_operator.cli.test_certificates import NOW, Secrets
from tests.unit.deathless_operator.cluster.lock_users_world import HOME, Cluster, Fuse, bearer, service

from deathless.base.config import EtcdConfig
from deathless.base.errors import LockUnavailable, Unauthorized
from deathless.shell.lock_stores.erasing import EraseOrder, erase
from deathless.shell.lock_stores.etcd.client import EtcdClient, EtcdSettings
from deathless.shell.lock_stores.etcd.settings import EtcdTls
from deathless_operator.cli.certificates import DAY_S, USER_URI, Wanted, ensure
from deathless_operator.cluster.lock_store import LockStore
from deathless_operator.cluster.lock_users import LockUsers
from deathless_operator.cluster.trust import decoded
from deathless_operator.model import names
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.plan.service.access import store_mark, with_users

pytestmark = pytest.mark.etcd

T = TypeVar("T")


class Installation:
    """An API server of memory and a real etcd; each look is a process of its own."""

    def __init__(self, etcd: EtcdCluster, *services: str) -> None:
        self.etcd = etcd
        self.settings = OperatorSettings(namespace=HOME, lock_endpoints=etcd.urls, lock_users=True)
        self.cluster = Cluster(Fuse())
        self.cluster.objects["DeathlessService"] = [service("shop", name) for name in services]

    def look(self, *, withdraw: bool = False) -> str:
        """`deathless-operator lock-users --every=0`."""

        async def run(store: LockStore) -> str:
            return await LockUsers(self.cluster, store, self.settings).look(withdraw=withdraw)

        return self.ask(run)

    def ask(self, run: Callable[[LockStore], Awaitable[T]], *, password: str = "", tls: Path | None = None) -> T:
        """Do something as the administrator, whose password may be unknown as yet."""

        async def opened() -> T:
            async with LockStore(self.etcd.urls, tls=tls, user=names.LOCK_ADMIN, password=password) as store:
                return await run(store)

        return asyncio.run(opened())

    def mount(self, name: str, *, user: bool) -> None:
        """A pod of a service, with its user or without."""
        mark = store_mark(with_users(self.settings) if user else self.settings)
        secrets = [names.lock_tls_secret(name, mark), *([names.lock_user_secret(name, mark)] if user else [])]
        self.cluster.objects["Pod"] = [bearer("shop", name, f"{name}-0", secrets)]

    @property
    def password(self) -> str:
        """Of the administrator's user."""
        return decoded(self.cluster.secrets[names.LOCK_ADMIN_SECRET])["password"].decode()

    def client(self, name: str) -> EtcdClient:
        """A service's own way to its keys."""
        user = names.lock_user("shop", name)
        password = self.cluster.granted()[user]
        return EtcdClient(EtcdSettings(endpoints=self.etcd.urls, username=user, password=password))

    def config(self, name: str, folder: Path) -> dict[str, Any]:
        """Settings of a replica that logs in as its service."""
        user = names.lock_user("shop", name)
        login = {"username": user, "password": self.cluster.granted()[user]}
        for key, text in login.items():
            (folder / key).write_text(text)
        return {
            "endpoints": list(self.etcd.urls), "prefix": "/deathless/shop/", "usernameFile": str(folder / "username"),
            "passwordFile": str(folder / "password"),
        }  # fmt: skip


def test_service_serves_on_while_it_is_moved_to_its_user_and_back(tmp_path: Path) -> None:
    with EtcdCluster(tmp_path / "etcd", members=3) as etcd:
        installed = Installation(etcd, "bank", "cafe")
        installed.mount("bank", user=False)
        assert installed.look() == "logins stay off: without a user are Pod shop/bank-0"
        config = installed.config("bank", tmp_path)
        bank = ReplicaSet(tmp_path, service="bank", lock="etcd", fence="etcd", etcd=config)
        with bank as replicas:
            with called(replicas) as load:
                installed.mount("bank", user=True)
                assert installed.look() == "logins are on: 2 services log in, each with a user of its own"
                load.wait_more()
                replicas.kill_primary()
                load.wait_more()
                installed.look()  # it logs in itself, and changes nothing
                load.wait_more()
                neighbour_is_refused(installed)
                installed.look(withdraw=True)
                assert not installed.ask(LockStore.logins)
                load.wait_more()
                assert "logins are on" in installed.look()
                load.wait_more()
            replicas.stop()
        erased_by_the_administrator(installed, tmp_path)


def neighbour_is_refused(installed: Installation) -> None:
    """Each key of the service withstands its neighbour, and the neighbour has its own."""

    async def run() -> None:
        async with installed.client("bank") as owner, installed.client("cafe") as other:
            keys = [entry.key for entry in (await owner.range(b"/deathless/shop/bank/", prefix=True)).kvs]
            assert b"/deathless/shop/bank/0/lock" in keys and len(keys) >= 4
            for key in keys:
                for attempt in (other.put(key, b"mine"), other.delete(key), other.range(key)):
                    with pytest.raises(Unauthorized, match="permission denied"):
                        await attempt
            await other.put(b"/deathless/shop/cafe/0/lock", b"its own")
            await other.delete(b"/deathless/shop/cafe/0/lock")

    asyncio.run(run())
    member = installed.etcd.members[0]
    token = member.log_in(installed.cluster.granted()["shop.cafe"], "shop.cafe")
    for path, body in (
        ("auth/disable", {}),
        ("auth/user/list", {}),
        ("auth/user/changepw", {"name": "shop.bank", "password": "mine"}),
        ("cluster/member/remove", {"ID": 1}),
        ("lease/leases", {}),
        ("maintenance/defragment", {}),
        ("maintenance/snapshot", {}),
    ):
        with pytest.raises(ValueError, match="permission denied"):
            member.request(f"/v3/{path}", body, token=token, timeout_s=30.0)


def erased_by_the_administrator(installed: Installation, folder: Path) -> None:
    """What a service leaves is erased with the administrator's login, since its own goes with it."""
    installed.cluster.objects |= {"DeathlessService": [], "Pod": []}
    assert "logins are on: 0 services" in installed.look()
    password = folder / "administrator"
    password.write_text(installed.password)
    config = EtcdConfig(
        endpoints=installed.etcd.urls, prefix="/deathless/shop/", username=names.LOCK_ADMIN, password_file=str(password)
    )
    erased = asyncio.run(erase(EraseOrder(service="bank", etcd=config), wait_s=30.0, quiet_s=0.0))
    assert len(erased.keys) == 4
    users = installed.ask(LockStore.users, password=installed.password)
    assert users == {"root", names.LOCK_ADMIN}


def test_pods_without_a_user_are_what_logins_wait_for(tmp_path: Path) -> None:
    with EtcdCluster(tmp_path / "etcd") as etcd:
        installed = Installation(etcd, "bank")
        installed.mount("bank", user=False)
        for _ in range(2):
            assert "logins stay off" in installed.look()
            assert not installed.ask(LockStore.logins)
        installed.cluster.objects["Pod"] = []
        assert "logins are on" in installed.look()


def test_store_that_was_restored_is_mended(tmp_path: Path) -> None:
    with EtcdCluster(tmp_path / "etcd") as etcd:
        installed = Installation(etcd, "bank")
        installed.look()
        member = etcd.members[0]
        member.kill()
        member.back_up(tmp_path / "backup")
        member.restart()
        installed.cluster.objects["DeathlessService"].append(service("shop", "cafe"))
        installed.look()
        member.kill()
        member.wipe()
        member.bring_back(tmp_path / "backup")
        member.restart()
        installed.look()

        async def run() -> None:
            async with installed.client("cafe") as cafe:
                await cafe.put(b"/deathless/shop/cafe/0/lock", b"its own")

        asyncio.run(run())


def test_each_change_may_be_made_twice_and_takes_more_than_was_meant_away(tmp_path: Path) -> None:
    with EtcdCluster(tmp_path / "etcd") as etcd:
        installed = Installation(etcd, "bank")
        installed.look()
        token = etcd.members[0].log_in(installed.password, names.LOCK_ADMIN)
        whole = {"permType": "READWRITE", "key": "AA==", "range_end": "AA=="}
        etcd.members[0].request("/v3/auth/role/grant", {"name": "shop.bank", "perm": whole}, token=token)
        etcd.members[0].request("/v3/auth/user/grant", {"user": "shop.bank", "role": "root"}, token=token)
        password = installed.cluster.granted()["shop.bank"]
        changed = {"name": "shop.bank", "password": "another"}
        etcd.members[0].request("/v3/auth/user/changepw", changed, token=token)
        for _ in range(2):
            installed.look()
        role = etcd.members[0].request("/v3/auth/role/get", {"role": "shop.bank"}, token=token)
        perms: Any = role["perm"]
        (perm,) = perms
        assert base64.b64decode(perm["key"]) == b"/deathless/shop/bank/"
        assert base64.b64decode(perm["range_end"]) == b"/deathless/shop/bank0"
        user = etcd.members[0].request("/v3/auth/user/get", {"name": "shop.bank"}, token=token)
        assert user["roles"] == ["shop.bank"]
        assert etcd.members[0].log_in(password, "shop.bank")

        async def remove_twice(store: LockStore) -> frozenset[str]:
            for _ in range(2):
                await store.remove("shop.bank")
            return await store.users()

        assert "shop.bank" not in installed.ask(remove_twice, password=installed.password)


def test_wrong_password_and_members_that_are_away_are_told_apart(tmp_path: Path) -> None:
    with EtcdCluster(tmp_path / "etcd", members=3) as etcd:
        installed = Installation(etcd, "bank")
        installed.look()
        with pytest.raises(Unauthorized, match="authentication failed"):
            installed.ask(LockStore.users, password="a guess")
        etcd.members[0].kill()
        assert "shop.bank" in installed.ask(LockStore.users, password=installed.password), "the next one is asked"
        for member in etcd.members:
            member.kill()
        with pytest.raises(LockUnavailable):
            installed.ask(LockStore.users, password=installed.password)


# ---------------------------------------------------------------- the chart's certificates


def written(secrets: Secrets, name: str, folder: Path, authorities: bytes) -> Path:
    """A certificate's files, as a pod mounts them, beside the authorities of the test's etcd."""
    place = folder / name
    place.mkdir()
    for key, content in decoded(secrets.stored[name]).items():
        (place / key).write_bytes(content)
    (place / "ca.crt").write_bytes((place / "ca.crt").read_bytes() + authorities)
    return place


def test_certificate_without_a_name_is_let_in_while_logins_are_on_and_the_former_one_is_not(tmp_path: Path) -> None:
    secrets, life_s = Secrets(), 3650 * DAY_S
    wanted = [
        Wanted(secret="named", common_name="deathless-replica", dns_names=(), purpose="clients", life_s=life_s),
        Wanted(secret="user", common_name="", dns_names=(), uris=(USER_URI,), purpose="clients", life_s=life_s),
    ]
    asyncio.run(ensure(secrets, namespace="system", ca_secret="ca", wanted=wanted, now=NOW - 300 * DAY_S))
    etcd = EtcdCluster(tmp_path / "etcd", tls=True)
    assert etcd.tls is not None
    members = trustme.CA()
    server = members.issue_cert("127.0.0.1", common_name=names.LOCK_MEMBERS)
    etcd.tls.server_key.write_bytes(server.private_key_pem.bytes())
    etcd.tls.server_cert.write_bytes(server.cert_chain_pems[0].bytes())
    named, user = (written(secrets, each.secret, tmp_path, members.cert_pem.bytes()) for each in wanted)
    etcd.tls = replace(etcd.tls, ca_file=user / "ca.crt", client_cert=user / "tls.crt", client_key=user / "tls.key")

    async def read(shown: Path, **login: str) -> None:
        tls = EtcdTls(ca_file=shown / "ca.crt", cert_file=shown / "tls.crt", key_file=shown / "tls.key")
        async with EtcdClient(EtcdSettings(endpoints=etcd.urls, tls=tls, **login)) as client:  # type: ignore[arg-type]
            await client.range(b"/deathless/shop/bank/", prefix=True)

    with etcd:
        installed = Installation(etcd, "bank")
        asyncio.run(read(named))
        installed.ask(partial(hand_out, installed), tls=user)
        login = {"username": "shop.bank", "password": installed.cluster.granted()["shop.bank"]}
        asyncio.run(read(user, **login))
        for shown, tried in ((named, login), (named, {}), (user, {})):
            with pytest.raises(Unauthorized):
                asyncio.run(read(shown, **tried))
        # Without a header `Accept` etcd takes the name in the member's certificate for the user.
        for path, body in (
            ("kv/range", {"key": "AA==", "range_end": "AA=="}),
            ("auth/disable", {}),
            ("auth/user/list", {}),
        ):
            with pytest.raises(ValueError, match=r"permission denied|user name not found"):
                etcd.members[0].request(f"/v3/{path}", body)


async def hand_out(installed: Installation, store: LockStore) -> str:
    """Look once over a connection that stands."""
    return await LockUsers(installed.cluster, store, installed.settings).look(withdraw=False)

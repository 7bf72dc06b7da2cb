"""Replicas that log in to a real etcd: tokens end, members die, and one service's user can't reach another's keys."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest
from etcd_server import EtcdCluster, EtcdMember, wait_until
from replica_set import ALL, PATIENT, Load, ReplicaSet, called, check_exactly_once
from test_etcd_set import over

from deathless.base.config import EtcdConfig
from deathless.base.errors import Unauthorized
from deathless.shell.lock_stores.erasing import EraseOrder, erase
from deathless.shell.lock_stores.etcd.client import EtcdClient, EtcdSettings

pytestmark = pytest.mark.etcd

PAGE = Path(__file__).resolve().parents[2] / "docs" / "kubernetes" / "lock-store.md"
ROOT_PASSWORD = "the root's"
PATIENCE_S = 60.0  # for one request on a busy machine
SHORT_S = 2  # a token that a member has not seen used for so long ends


def wait_token_ends(cluster: EtcdCluster, member: EtcdMember) -> None:
    """Wait until a member forgets a token of now that nobody shows to it."""
    token = cluster.token()

    def ended() -> bool:
        try:
            member.request("/v3/kv/range", {"key": base64.b64encode(b"x").decode()}, token=token)
        except ValueError:
            return True
        return False

    # To show a token is to prolong it, so it is shown seldom.
    wait_until(ended, "the end of a token", poll_s=2.0 * SHORT_S)


@pytest.mark.parametrize("fault", ["killed", "frozen"])
def test_leader_that_is_gone_takes_no_login_over_tls_with_it(tmp_path: Path, fault: str) -> None:
    with (
        EtcdCluster(tmp_path / "etcd", members=3, tls=True, password=ROOT_PASSWORD, token_ttl_s=SHORT_S) as cluster,
        ReplicaSet(tmp_path, **over(cluster, tmp_path)) as replicas,
        called(replicas) as load,
    ):
        leader = cluster.leader()
        # Each member ends a token by itself: by now the others know none that replicas show to this one.
        for member in cluster.members:
            wait_token_ends(cluster, member)
        load.wait_more()
        {"killed": leader.kill, "frozen": leader.freeze}[fault]()
        load.wait_more()
        replicas.kill_primary()
        load.wait_more()


def test_members_that_all_restarted_know_no_token_and_nobody_is_lost(tmp_path: Path) -> None:
    with (
        EtcdCluster(tmp_path / "etcd", members=3, password=ROOT_PASSWORD, token_ttl_s=SHORT_S) as cluster,
        ReplicaSet(tmp_path, **over(cluster, tmp_path)) as replicas,
    ):
        replicas.wait_roles(**ALL)
        with Load(replicas) as load:
            for member in cluster.members:
                load.wait_more()
                member.restart()
            load.wait_more()
        check_exactly_once(load, replicas)


def test_password_that_changes_is_read_anew(tmp_path: Path) -> None:
    with (
        EtcdCluster(tmp_path / "etcd", password=ROOT_PASSWORD) as cluster,
        ReplicaSet(tmp_path, **over(cluster, tmp_path)) as replicas,
    ):
        replicas.wait_roles(**ALL)
        member = cluster.members[0]
        with Load(replicas) as load:
            load.wait_more()
            changed = {"name": "root", "password": "another"}
            member.request("/v3/auth/user/changepw", changed, token=cluster.token())
            with pytest.raises(ValueError, match="authentication failed"):
                cluster.token()
            (tmp_path / "etcd.password").write_text("another")
            load.wait_more()
            replicas.kill_primary()
            load.wait_more()
        check_exactly_once(load, replicas)


# ---------------------------------------------------------------- a user for each service


def documented() -> list[list[str]]:
    """The page's commands, by words."""
    page = PAGE.read_text()
    part = page[page.index("### A user for each service") :]
    return [line.split()[1:] for line in re.findall(r"^    (etcdctl .*)$", part, re.MULTILINE)]


def carry_out(member: EtcdMember, token: str, words: list[str]) -> None:
    """Do one of the page's commands, past our own client."""

    def ask(path: str, **body: Any) -> None:
        member.request(f"/v3/auth/{path}", body, token=token, timeout_s=PATIENCE_S)

    match words:
        case ["role", "add", role]:
            ask("role/add", name=role)
        case ["role", "grant-permission", role, "readwrite", prefix, "--prefix=true"]:
            first = prefix.encode()
            end = first[:-1] + bytes([first[-1] + 1])
            key, range_end = base64.b64encode(first).decode(), base64.b64encode(end).decode()
            ask("role/grant", name=role, perm={"permType": "READWRITE", "key": key, "range_end": range_end})
        case ["user", "add", user]:
            name, _, password = user.partition(":")
            ask("user/add", name=name, password=password)
        case ["user", "grant-role", user, role]:
            ask("user/grant", user=user, role=role)
        case _:
            raise AssertionError(f"the page has a command that is not known here: {words}")


def etcd_of(cluster: EtcdCluster, folder: Path) -> dict[str, Any]:
    """Settings of a replica with the page's user."""
    password = folder / "bank.password"
    password.write_text("PASSWORD")
    return {
        "endpoints": list(cluster.urls), "prefix": "/deathless/shop/", "username": "deathless-shop-bank",
        "passwordFile": str(password),
    }  # fmt: skip


def test_service_with_the_users_rights_of_the_page_serves_and_is_erased(tmp_path: Path) -> None:
    with EtcdCluster(tmp_path / "etcd", members=3, password=ROOT_PASSWORD, token_ttl_s=SHORT_S) as cluster:
        commands = documented()
        assert len(commands) == 4
        for words in commands:
            carry_out(cluster.members[0], cluster.token(), words)
        etcd = etcd_of(cluster, tmp_path)
        with ReplicaSet(tmp_path, service="bank", lock="etcd", fence="etcd", etcd=etcd) as replicas:
            with called(replicas) as load:
                replicas.kill_primary()
                load.wait_more()
            replicas.stop()
        run_as_that_user(cluster, tmp_path)


def run_as_that_user(cluster: EtcdCluster, folder: Path) -> None:
    """What the user may, and what it may not."""

    async def run() -> None:
        settings = EtcdSettings(endpoints=cluster.urls, username="deathless-shop-bank", password="PASSWORD")
        async with EtcdClient(settings) as client:
            for prefix in ("/deathless/shop/bank-2/", "/deathless/shop/ban/", "/deathless/other/bank/", "/other/"):
                for write in (
                    client.put(f"{prefix}0/lock".encode(), b"mine"),
                    client.delete(prefix.encode(), prefix=True),
                ):
                    with pytest.raises(Unauthorized, match="permission denied"):
                        await write
                with pytest.raises(Unauthorized, match="permission denied"):
                    await client.range(prefix.encode(), prefix=True)
        config = EtcdConfig(
            endpoints=cluster.urls, prefix="/deathless/shop/", username="deathless-shop-bank",
            password_file=str(folder / "bank.password"),
        )  # fmt: skip
        assert len((await erase(EraseOrder(service="bank", etcd=config), wait_s=30.0, quiet_s=0.0)).keys) == 4
        with pytest.raises(Unauthorized):
            await erase(EraseOrder(service="bank-2", etcd=config), wait_s=0.0, quiet_s=0.0)

    asyncio.run(run())


def refused(member: EtcdMember, token: str, path: str, **body: Any) -> bool:
    """Ask past our own client; was it refused for lack of rights?"""
    try:
        member.request(f"/v3/{path}", body, token=token, timeout_s=PATIENCE_S)
    except ValueError as error:
        if "permission denied" not in str(error):
            raise
        return True
    return False


def test_service_can_not_touch_keys_and_leases_of_another(tmp_path: Path) -> None:
    with EtcdCluster(tmp_path / "etcd", password=ROOT_PASSWORD) as cluster:
        member, root = cluster.members[0], cluster.token()
        for name in ("bank", "shop"):
            for words in documented():
                carry_out(member, root, [word.replace("bank", name) for word in words])
        owner = member.log_in("PASSWORD", "deathless-shop-bank")
        other = member.log_in("PASSWORD", "deathless-shop-shop")
        lease = member.request("/v3/lease/grant", {"TTL": 600}, token=owner, timeout_s=PATIENCE_S)["ID"]
        lock = base64.b64encode(b"/deathless/shop/bank/0/lock").decode()
        member.request("/v3/kv/put", {"key": lock, "value": "eA==", "lease": lease}, token=owner, timeout_s=PATIENCE_S)
        put = {"request_put": {"key": lock, "value": "eQ=="}}
        attempts: list[tuple[str, dict[str, Any]]] = [
            ("kv/range", {"key": lock}),
            ("kv/put", {"key": lock, "value": "eQ=="}),
            ("kv/txn", {"success": [put]}),
            (
                "kv/txn",
                {"compare": [{"key": lock, "target": "VERSION", "result": "GREATER"}]},
            ),  # tells that it is there
            ("kv/deleterange", {"key": lock}),
            ("kv/deleterange", {"key": "AA==", "range_end": "AA=="}),
            ("lease/keepalive", {"ID": lease}),
            ("lease/revoke", {"ID": lease}),
            ("lease/leases", {}),
            ("kv/compaction", {"revision": 1}),
            ("maintenance/alarm", {"action": "ACTIVATE", "alarm": "NOSPACE"}),
            ("auth/user/changepw", {"name": "deathless-shop-bank", "password": "mine"}),
            ("auth/disable", {}),
        ]
        assert [path for path, body in attempts if not refused(member, other, path, **body)] == []
        standing = json.dumps(member.request("/v3/kv/range", {"key": lock}, token=owner, timeout_s=PATIENCE_S))
        assert '"value": "eA=="' in standing and '"version": "1"' in standing, "it is as its owner left it"
        # It is the logins that keep it out: without them whoever has the way in has everything.
        member.request("/v3/auth/disable", {}, token=root)
        assert not refused(member, "", "kv/put", key=lock, value="eQ==")


def test_logins_are_switched_on_and_off_while_a_service_serves(tmp_path: Path) -> None:
    with EtcdCluster(tmp_path / "etcd", members=3) as cluster:
        member = cluster.members[0]
        member.request("/v3/auth/user/add", {"name": "root", "password": ROOT_PASSWORD})
        member.request("/v3/auth/user/grant", {"user": "root", "role": "root"})
        for words in documented():
            carry_out(member, "", words)
        etcd = etcd_of(cluster, tmp_path)
        bank = ReplicaSet(tmp_path, service="bank", lock="etcd", fence="etcd", etcd=etcd)
        with bank as replicas, called(replicas) as load:
            member.request("/v3/auth/enable", {})
            with pytest.raises(ValueError, match="user name is empty"):
                member.request("/v3/kv/range", {"key": "eA=="})
            load.wait_more()
            replicas.kill_primary()
            load.wait_more()
            member.request("/v3/auth/disable", {}, token=member.log_in(ROOT_PASSWORD))
            load.wait_more()


def test_service_without_a_user_holds_its_replies_while_logins_are_on(tmp_path: Path) -> None:
    with (
        EtcdCluster(tmp_path / "etcd", members=3) as cluster,
        ReplicaSet(tmp_path, limits=PATIENT, **over(cluster, tmp_path)) as replicas,
        called(replicas) as load,
    ):
        member, primary = cluster.members[0], replicas.primary()
        epoch = replicas.status()[primary]["epoch"]
        member.request("/v3/auth/user/add", {"name": "root", "password": ROOT_PASSWORD})
        member.request("/v3/auth/user/grant", {"user": "root", "role": "root"})
        member.request("/v3/auth/enable", {})
        counts: list[int] = []

        def stands_still() -> bool:
            counts.append(len(load.acknowledged))
            return len(counts) >= 2 and counts[-1] == counts[-2]

        wait_until(stands_still, "replies that are held", poll_s=1.0)
        member.request("/v3/auth/disable", {}, token=member.log_in(ROOT_PASSWORD))
        load.wait_more()
        # A refused login says nothing about the lock, so nobody was deposed by it.
        assert (replicas.primary(), replicas.status()[primary]["epoch"]) == (primary, epoch), replicas.describe()

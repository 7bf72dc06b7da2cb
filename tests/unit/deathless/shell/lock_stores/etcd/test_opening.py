"""A replica's config becomes an open etcd lock, or an error that names the setting."""

from __future__ import annotations

import functools
import sys
from pathlib import Path

import pytest
from etcd_fake import FakeMember, Refusal
from lab.ports import free_ports

from deathless.base.config import EtcdConfig, ReplicaConfig, TlsConfig
from deathless.base.errors import InvalidConfig, LockUnavailable
from deathless.shell.lock_stores.etcd.errors import EtcdAuth
from deathless.shell.lock_stores.etcd.opening import key_prefix, open_etcd_lock, settings_of
from deathless.shell.lock_stores.etcd.settings import EtcdSettings


def config_of(etcd: EtcdConfig | None) -> ReplicaConfig:
    return ReplicaConfig(service="bank", module="bank:bank", directory="d", replica="r0", lock="etcd", etcd=etcd)


@pytest.mark.asyncio
async def test_lock_is_opened_below_the_prefix_and_gives_its_lease_back(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("pw\n")
    async with FakeMember(password="pw") as member:
        etcd = EtcdConfig(endpoints=(member.url,), prefix="/deathless/prod/", username="u", password_file=str(secret))
        async with open_etcd_lock(config_of(etcd)) as lock:
            assert await lock.take("r0", b"n", await lock.view()) is not None
            assert b"/deathless/prod/bank/0/lock" in member.store.keys
        assert member.store.leases == set()


@pytest.mark.asyncio
async def test_etcd_that_says_no_is_told_at_once_and_one_that_is_away_is_not() -> None:
    async with FakeMember(password="pw") as member:
        with pytest.raises(EtcdAuth):
            async with open_etcd_lock(config_of(EtcdConfig(endpoints=(member.url,)))):
                pass
        member.password = None
        member.plan("kv/range", Refusal(14, "etcdserver: request timed out", 503))
        async with open_etcd_lock(config_of(EtcdConfig(endpoints=(member.url,)))) as lock:
            assert (await lock.view()).epoch == 0


@pytest.mark.asyncio
async def test_etcd_that_is_away_does_not_keep_a_replica_from_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = functools.partial(EtcdSettings, attempt_timeout_s=0.1, call_timeout_s=0.1)
    monkeypatch.setattr("deathless.shell.lock_stores.etcd.opening.EtcdSettings", quick)
    [port] = free_ports(1)
    async with open_etcd_lock(config_of(EtcdConfig(endpoints=(f"http://127.0.0.1:{port}",)))) as lock:
        with pytest.raises(LockUnavailable):
            await lock.view()


def test_tls_files_and_server_name_reach_the_client() -> None:
    tls = settings_of(EtcdConfig(tls=TlsConfig(ca="ca", certificate="c", key="k", server_name="etcd.test"))).tls
    assert (tls.ca_file, tls.cert_file, tls.key_file) == (Path("ca"), Path("c"), Path("k"))
    assert tls.server_name == "etcd.test"


def test_unset_names_mean_the_defaults() -> None:
    settings = settings_of(EtcdConfig(tls=TlsConfig()))
    assert (settings.username, settings.password) == (None, "")
    assert (settings.tls.ca_file, settings.tls.cert_file, settings.tls.server_name) == (None, None, None)


def test_password_file_that_can_not_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="passwordFile"):
        settings_of(EtcdConfig(username="u", password_file=str(tmp_path / "none")))


def test_service_and_shard_stand_below_the_prefix() -> None:
    assert key_prefix(EtcdConfig(), "bank") == "/deathless/bank/0/"
    assert key_prefix(EtcdConfig(prefix="/deathless/prod/"), "bank", 3) == "/deathless/prod/bank/3/"


@pytest.mark.parametrize(("prefix", "service"), [("/deathless/b", "ank"), ("/deathless/", "b/ank"), ("", "bank")])
def test_prefix_or_service_that_could_give_the_keys_of_another_is_refused(prefix: str, service: str) -> None:
    with pytest.raises(InvalidConfig, match="slash"):
        key_prefix(EtcdConfig(prefix=prefix), service)


@pytest.mark.asyncio
async def test_services_of_one_name_below_two_prefixes_share_nothing() -> None:
    async with FakeMember() as member:
        for namespace in ("blue", "green"):
            etcd = EtcdConfig(endpoints=(member.url,), prefix=f"/deathless/{namespace}/")
            async with open_etcd_lock(config_of(etcd)) as lock:
                view = await lock.view()
                assert (view.epoch, view.holder) == (0, None)
                assert await lock.take("r0", b"n", view) is not None
        epochs = [key for key in member.store.keys if key.endswith(b"/epoch")]
    assert sorted(epochs) == [b"/deathless/blue/bank/0/epoch", b"/deathless/green/bank/0/epoch"]


@pytest.mark.asyncio
@pytest.mark.parametrize("etcd", [EtcdConfig(endpoints=()), EtcdConfig(prefix="deathless"), EtcdConfig(lease_ttl_s=0)])
async def test_config_that_can_not_work_is_refused_before_anything_is_sent(etcd: EtcdConfig) -> None:
    with pytest.raises(InvalidConfig, match="etcd"):
        async with open_etcd_lock(config_of(etcd)):
            pass


@pytest.mark.asyncio
async def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name in {
            "deathless.shell.lock_stores.etcd.client",
            "deathless.shell.lock_stores.etcd.gateway",
            "deathless.shell.lock_stores.etcd.lock",
        }:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    with pytest.raises(InvalidConfig, match=r"deathless\[etcd\]"):
        async with open_etcd_lock(config_of(None)):
            pass

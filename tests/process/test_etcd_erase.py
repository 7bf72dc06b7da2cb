"""`deathless erase` on a real etcd: it takes all of a service that is gone, and nothing of one that lives."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from etcd_server import EtcdCluster, EtcdMember
from replica_set import Load, ReplicaSet, check_exactly_once, wait_for
from test_etcd_lock_faults import RECORD, locks, taken

from deathless.base.config import EtcdConfig
from deathless.base.errors import ForeignDirectory, InvalidArgument, LockUnavailable, StillServing
from deathless.cli.main import main
from deathless.engine.ports import Holder
from deathless.shell.lock_stores.erasing import EraseOrder, erase, look, read_order
from deathless.shell.lock_stores.etcd.client import EtcdClient, EtcdSettings
from deathless.shell.lock_stores.etcd.lock import EtcdLock
from deathless.shell.lock_stores.etcd.opening import settings_of
from deathless_operator.model.names import LOCK_TLS_FOLDER, LOCK_USER_FOLDER
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.plan.service.erasure import Record, eraser_manifest
from deathless_operator.plan.service.objects import Lock

pytestmark = pytest.mark.etcd

PREFIX = "/deathless/default/"
FOR_EVER_S = 60.0  # a test that waits for so long hangs


@pytest.fixture(name="member")
def one_member(tmp_path: Path) -> Iterator[EtcdMember]:
    with EtcdCluster(tmp_path / "etcd") as cluster:
        yield cluster.members[0]


def order(member: EtcdMember, service: str = "bank", service_id: str = "") -> EraseOrder:
    etcd = EtcdConfig(endpoints=(member.url,), prefix=PREFIX)
    return EraseOrder(service=service, etcd=etcd, service_id=service_id)


async def keys(member: EtcdMember) -> list[str]:
    """Every key there is."""
    async with EtcdClient(EtcdSettings(endpoints=(member.url,))) as client:
        return [entry.key.decode() for entry in (await client.range(b"", prefix=True)).kvs]


async def begun(lock: EtcdLock) -> Holder:
    """A service that went live, its lock held."""
    await lock.create_service(RECORD)
    holder = await taken(lock, "r0")
    assert await lock.set_head(holder) is not None and await lock.go_live(holder)
    return holder


def test_set_that_serves_is_not_disturbed_and_one_that_ended_leaves_nothing(
    tmp_path: Path, member: EtcdMember, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"endpoints": [member.url], "prefix": PREFIX}
    text = json.dumps({"service": "ledger", "etcd": settings})
    word = tmp_path / "word"
    command = ["erase", "--yes", "--order", text, "--wait", "0", "--termination-file", str(word)]
    with ReplicaSet(tmp_path, lock="etcd", fence="etcd", etcd=settings) as replicas:
        with Load(replicas) as load:
            load.wait_more()
            assert main(command) == StillServing.exit_code
            assert word.read_text().startswith("DL1011 ")
            load.wait_more()
        check_exactly_once(load, replicas)
        assert main(["erase", "--dry-run", "--order", text]) == 0
        assert "held by r" in capsys.readouterr().out
        replicas.stop()
    left = ["confirmed", "epoch", "head", "service"]
    assert [key.rpartition("/")[2] for key in asyncio.run(keys(member))] == left, "the holder let go as it ended"
    assert main(["erase", "--dry-run", "--order", text]) == 0
    assert len(asyncio.run(keys(member))) == len(left)
    capsys.readouterr()
    assert main([*command, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["erased"] and told["epoch"] > 0 and len(bytes.fromhex(told["serviceId"])) == 16
    assert asyncio.run(keys(member)) == []
    assert main(command) == 0, "again is harmless"
    assert "nothing is there" in capsys.readouterr().out


def test_name_is_free_for_a_new_service_with_an_empty_log(tmp_path: Path, member: EtcdMember) -> None:
    settings = {"endpoints": [member.url], "prefix": PREFIX}
    for life in ("first", "second"):
        folder = tmp_path / life
        folder.mkdir()
        with ReplicaSet(folder, lock="etcd", fence="etcd", etcd=settings) as replicas:
            with Load(replicas) as load:
                load.wait_more()
            check_exactly_once(load, replicas)
            replicas.stop()
        asyncio.run(erase(order(member, "ledger"), wait_s=FOR_EVER_S, quiet_s=0.0))


def test_lock_of_a_killed_replica_is_waited_for_until_its_lease_ends(tmp_path: Path, member: EtcdMember) -> None:
    settings = {"endpoints": [member.url], "prefix": PREFIX, "leaseTtlS": 2}
    with ReplicaSet(tmp_path, replicas=1, lock="etcd", fence="etcd", etcd=settings) as replicas:
        with Load(replicas) as load:
            load.wait_more()
        replicas.kill_replica("r0")
        wait_for(lambda: replicas.processes["r0"].poll() is not None, "the end of the replica")
        found = asyncio.run(erase(order(member, "ledger"), wait_s=FOR_EVER_S, quiet_s=0.0))
    assert found.keys and asyncio.run(keys(member)) == []


@pytest.mark.asyncio
async def test_keys_of_neighbours_stay(member: EtcdMember) -> None:
    async with EtcdClient(EtcdSettings(endpoints=(member.url,))) as client:
        for name in ("bank2", "ban", "bank-primary"):
            await client.put(f"{PREFIX}{name}/0/epoch".encode(), b"1")
        await client.put(b"/deathless/other/bank/0/epoch", b"1")
        await client.put(f"{PREFIX}bank/0/epoch".encode(), b"1")
    before = await keys(member)
    assert (await erase(order(member), wait_s=0.0, quiet_s=0.0)).keys == (f"{PREFIX}bank/0/epoch",)
    assert await keys(member) == [key for key in before if key != f"{PREFIX}bank/0/epoch"]


@pytest.mark.asyncio
async def test_what_is_not_ours_is_left_with_all_the_rest(member: EtcdMember) -> None:
    async with locks(member.url) as [lock]:
        await lock.release(await begun(lock))
        async with EtcdClient(EtcdSettings(endpoints=(member.url,))) as client:
            await client.put(f"{PREFIX}bank/notes".encode(), b"mine")
        before = await keys(member)
        with pytest.raises(ForeignDirectory, match="bank/notes"):
            await erase(order(member), wait_s=0.0, quiet_s=0.0)
    assert await keys(member) == before


@pytest.mark.asyncio
async def test_service_that_began_anew_is_not_erased(member: EtcdMember) -> None:
    async with locks(member.url) as [lock]:
        await lock.release(await begun(lock))
        before = await keys(member)
        with pytest.raises(ForeignDirectory, match="was created anew"):
            await erase(order(member, service_id="00" * 16), wait_s=0.0, quiet_s=0.0)
        assert await keys(member) == before
        found = await erase(order(member, service_id=RECORD.service_id.hex()), wait_s=0.0, quiet_s=0.0)
    assert found.service_id == RECORD.service_id.hex() and await keys(member) == []


@pytest.mark.asyncio
async def test_replica_that_takes_the_free_lock_meanwhile_keeps_everything(member: EtcdMember) -> None:
    async with locks(member.url) as [lock]:
        await lock.release(await begun(lock))
        # Nothing but a change ends so long a silence: whoever lives without a holder takes the lock.
        erasing = asyncio.create_task(erase(order(member), wait_s=0.0, quiet_s=FOR_EVER_S))
        holder = await taken(lock, "r1", b"later")
        # Its first look may come before the take, then it saw the change, or after it, then it saw who holds.
        with pytest.raises(StillServing, match=r"replica r1 holds the lock of 'bank'|the lock of 'bank' changes again"):
            await erasing
        assert await lock.owns(holder)


@pytest.mark.asyncio
async def test_keys_that_changed_since_the_look_are_not_erased(member: EtcdMember) -> None:
    async with locks(member.url, count=2) as [ours, theirs]:
        await ours.release(await begun(ours))
        seen = await ours.view()
        await theirs.release(await taken(theirs, "r1"))
        assert not await ours.erase(seen), "a replica reigned meanwhile"
        assert not await ours.erase((await ours.view())._replace(holder=Holder(1, "r0", b"n")))
        assert await ours.erase(await ours.view())
        empty = await ours.view()
        await theirs.create_service(RECORD)
        assert not await ours.erase(empty), "a service began meanwhile"
    assert len(await keys(member)) == 1


@pytest.mark.asyncio
async def test_store_that_is_away_is_waited_for(member: EtcdMember) -> None:
    async with locks(member.url) as [lock]:
        await lock.release(await begun(lock))
    member.kill()
    with pytest.raises(LockUnavailable):
        await erase(order(member), wait_s=0.0, quiet_s=0.0)
    erasing = asyncio.create_task(erase(order(member), wait_s=FOR_EVER_S, quiet_s=0.0))
    await asyncio.to_thread(member.restart)
    assert len((await erasing).keys) == 3 and await keys(member) == []


@pytest.mark.asyncio
async def test_look_changes_nothing(member: EtcdMember) -> None:
    assert (await look(order(member))).keys == ()
    async with locks(member.url) as [lock]:
        await begun(lock)
        found = await look(order(member))
        assert (found.epoch, found.head, found.holder) == (1, 1, "r0") and len(await keys(member)) == 4


def test_nobody_to_ask_is_no_word(member: EtcdMember, capsys: pytest.CaptureFixture[str]) -> None:
    async def begin() -> None:
        async with locks(member.url) as [lock]:
            await lock.release(await begun(lock))

    asyncio.run(begin())
    text = json.dumps({"service": "bank", "etcd": {"endpoints": [member.url], "prefix": PREFIX}})
    assert main(["erase", "--order", text, "--json"]) == InvalidArgument.exit_code
    assert "--yes" in capsys.readouterr().err
    assert len(asyncio.run(keys(member))) == 3


def test_operators_pod_erases_over_tls_with_its_secrets(tmp_path: Path) -> None:
    with EtcdCluster(tmp_path / "etcd", tls=True, password="a secret") as cluster:
        assert cluster.tls is not None
        secrets = {
            "tls/ca.crt": cluster.tls.ca_file.read_text(),
            "tls/tls.crt": cluster.tls.client_cert.read_text(),
            "tls/tls.key": cluster.tls.client_key.read_text(),
            "user/username": "root",
            "user/password": "a secret",
        }
        for name, content in secrets.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(content)
        lock = Lock(
            endpoints=cluster.urls, prefix=PREFIX, tls_secret="t", tls_has_certificate=True, user_secret="u",
        )  # fmt: skip
        found = Record(
            namespace="default", service="bank", uid="1", claim="bank-log", lock=lock, place="system",
            service_id=RECORD.service_id.hex(),
        )  # fmt: skip
        pod: Any = eraser_manifest(found, OperatorSettings())
        folders = {LOCK_TLS_FOLDER: "tls", LOCK_USER_FOLDER: "user", "/dev/termination-log": "word"}
        arguments = list(pod["spec"]["containers"][0]["args"])
        for mounted, here in folders.items():
            arguments = [each.replace(mounted, str(tmp_path / here)) for each in arguments]

        async def begin_and_look(*, begin: bool) -> int:
            async with EtcdClient(settings_of(read_order(arguments[2].removeprefix("--order=")).etcd)) as client:
                lock = EtcdLock(client, prefix=f"{PREFIX}bank/0/")
                if begin:
                    await lock.release(await begun(lock))
                return len((await client.range(b"/", prefix=True)).kvs)

        assert asyncio.run(begin_and_look(begin=True)) == 3
        assert main(arguments) == 0
        assert asyncio.run(begin_and_look(begin=False)) == 0

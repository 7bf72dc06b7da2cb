"""A copied folder whose lock store is a real etcd: adopted as a service of its own beside the running original."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_tool import PATIENT_LINE, Bank
from etcd_server import EtcdCluster, EtcdMember
from test_copies import copied, deposit

from deathless.base.errors import InvalidArgument
from deathless.shell.lock_stores.etcd.client import EtcdClient, EtcdSettings

pytestmark = pytest.mark.etcd

ORIGINAL, COPY = "/deathless/one/", "/deathless/two/"
MOVING = ("confirmed",)  # what a primary writes of its own while it serves


@pytest.fixture(name="member")
def one_member(tmp_path: Path) -> Iterator[EtcdMember]:
    with EtcdCluster(tmp_path / "etcd") as cluster:
        yield cluster.members[0]


def lock(member: EtcdMember, prefix: str) -> str:
    """Give the lines of a manifest, whose set moves its primary only when it is told to."""
    return f"{PATIENT_LINE}  lock: {{type: etcd, etcd: {{endpoints: ['{member.url}'], prefix: {prefix}}}}}\n"


def record(member: EtcdMember, prefix: str) -> dict[str, tuple[bytes, int]]:
    """Give what stands below a prefix and at which revision it was written; not what changes without a takeover."""

    async def read() -> dict[str, tuple[bytes, int]]:
        async with EtcdClient(EtcdSettings(endpoints=(member.url,))) as client:
            found = (await client.range(prefix.encode(), prefix=True)).kvs
            return {each.key.decode(): (each.value, each.mod_revision) for each in found}

    return {key: value for key, value in asyncio.run(read()).items() if key.rpartition("/")[2] not in MOVING}


def test_a_copy_with_a_prefix_of_its_own_and_its_original_do_not_touch_each_other(
    tmp_path: Path, member: EtcdMember
) -> None:
    with Bank(tmp_path / "bank", replicas=2, more=lock(member, ORIGINAL)) as bank:
        bank.up()
        assert deposit(bank, 5) == 5
        status, ours = bank.json("status"), record(member, ORIGINAL)
        with copied(bank, tmp_path / "copy") as copy:
            refused = copy.run("adopt", "--as-new", "--yes", code=InvalidArgument.exit_code).stderr
            assert "prefix of its own" in " ".join(refused.split())
            copy.write_manifest(2, lock(member, COPY))
            copy.run("adopt", "--as-new", "--yes")
            assert record(member, ORIGINAL) == ours
            copy.up()
            assert (deposit(copy, 100), deposit(bank, 1)) == (105, 6)
            copy.run("switchover")
            assert (deposit(copy, 1), deposit(bank, 1)) == (106, 7)
            after = bank.json("status")
            assert (after["primary"], after["epoch"]) == (status["primary"], status["epoch"])
            assert record(member, ORIGINAL) == ours

            theirs, led = record(member, COPY), copy.json("status")
            bank.run("switchover")
            bank.down()
            bank.up()
            assert (deposit(bank, 1), deposit(copy, 1)) == (8, 107)
            assert record(member, COPY) == theirs
            now = copy.json("status")
            assert (now["primary"], now["epoch"]) == (led["primary"], led["epoch"])
            for one in (bank, copy):
                one.down()
                assert one.json("log", "verify")["problems"] == []

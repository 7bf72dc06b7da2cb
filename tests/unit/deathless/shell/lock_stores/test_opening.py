"""Opening the lock that a config names: the directory's works over real files, an unknown kind is refused."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import msgspec
import pytest

from deathless.base.config import EtcdConfig, ReplicaConfig
from deathless.base.errors import InvalidConfig
from deathless.engine.ports import ServiceRecord
from deathless.shell.disk.filesystem import RealFileSystem
from deathless.shell.lock_stores.opening import open_lock

RECORD = ServiceRecord("bank", bytes(16), 7, bytes(32), 0, "seal", live=False)


def config(directory: Path, replica: str = "r0", lock: str = "directory") -> ReplicaConfig:
    return ReplicaConfig(service="bank", module="m:a", directory=str(directory), replica=replica, lock=lock)


def test_two_replicas_share_the_directorys_lock(tmp_path: Path) -> None:
    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            locks = [
                await stack.enter_async_context(open_lock(config(tmp_path, name), RealFileSystem(tmp_path), "worker"))
                for name in ("r0", "r1")
            ]
            await locks[0].create_service(RECORD)
            views = [await lock.view() for lock in locks]
            assert views[0] == views[1]
            assert views[0].service == RECORD
            mine = await locks[0].take("r0", b"n" * 16, views[0])
            assert mine is not None
            assert await locks[1].take("r1", b"m" * 16, views[1]) is None
            assert await locks[0].owns(mine)

    asyncio.run(main())


def test_two_processes_of_one_replica_may_open_it_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        filesystem = RealFileSystem(tmp_path)
        async with (
            open_lock(config(tmp_path), filesystem, "supervisor") as one,
            open_lock(config(tmp_path), filesystem, "worker") as two,
        ):
            assert await one.create_service(RECORD) == RECORD
            other = msgspec.structs.replace(RECORD, incarnation=8)
            assert await two.create_service(other) == RECORD, "who comes second gets what stands"

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["zookeeper", "", "Directory"])
def test_an_unknown_kind_is_refused(kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with open_lock(config(tmp_path, lock=kind), RealFileSystem(tmp_path), "worker"):
            pass

    with pytest.raises(InvalidConfig, match="is not directory or etcd"):
        asyncio.run(main())
    assert list(tmp_path.iterdir()) == []


def test_etcds_lock_is_opened_with_what_the_config_says_of_etcd(tmp_path: Path) -> None:
    wrong = msgspec.structs.replace(config(tmp_path, lock="etcd"), etcd=EtcdConfig(password_file=str(tmp_path / "no")))

    async def main() -> None:
        async with open_lock(wrong, RealFileSystem(tmp_path), "worker"):
            pass

    with pytest.raises(InvalidConfig, match=r"etcd\.passwordFile"):
        asyncio.run(main())

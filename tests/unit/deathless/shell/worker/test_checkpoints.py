"""Checkpoints of a running replica: announced only once confirmed, one at a time, read back by a real child."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from deathless.base.ids import ChainHash, Digest, Epoch, Fingerprint, Incarnation, Lsn
from deathless.base.limits import Limits
from deathless.base.times import Times
from deathless.codec.peer_messages import Target
from deathless.codec.snapshot import Snapshot
from deathless.core.tables.outbox import Outbox
from deathless.core.tables.spool import Stored
from deathless.engine.log.checkpoint_store import CheckpointStore, checkpoint_name
from deathless.engine.log.spare import Spare
from deathless.shell.disk.filesystem import RealFileSystem
from deathless.shell.disk.spool_files import FileSpool
from deathless.shell.process.forked import NICE
from deathless.shell.worker import checkpoints as module
from deathless.shell.worker.checkpoints import Checkpoints
from deathless.simulation.models.log_driver import LogDriver


def chain(lsn: int) -> bytes:
    return lsn.to_bytes(16, "big")


def snapshot(lsn: int) -> Snapshot:
    return Snapshot(
        service="bank",
        service_id=bytes(16),
        incarnation=Incarnation(7),
        epoch=Epoch(1),
        lsn=Lsn(lsn),
        chain=ChainHash(chain(lsn)),
        digest=Digest(bytes(16)),
        times=Times.at(0),
        fingerprint=Fingerprint(bytes(16)),
        state={b"key": b"value"},
    )


class Told:
    """What `done` was told, in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, str]] = []
        self._changed = asyncio.Event()

    def __call__(self, lsn: int, name: str) -> None:
        self.calls.append((lsn, name))
        self._changed.set()

    async def wait(self, count: int) -> None:
        while len(self.calls) < count:
            self._changed.clear()
            await self._changed.wait()


def make(directory: Path, *, spare: Spare | None = None, replica: str = "r0") -> Checkpoints:
    return Checkpoints(str(directory), replica, asyncio.get_running_loop(), Limits(), spare=spare)


def write(checkpoints: Checkpoints, lsn: int, told: Told) -> str:
    checkpoints.write(lambda: snapshot(lsn), lsn, chain(lsn), told)
    return checkpoint_name(lsn, chain(lsn))


async def written(checkpoints: Checkpoints) -> None:
    """Wait until the child has ended and what it wrote waits to be confirmed."""
    # nobody tells of it: what is awaited is that nothing is told
    while checkpoints._waiting is None:  # noqa: ASYNC110  gives way, does not sleep
        await asyncio.sleep(0)


def run(work: Coroutine[object, object, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 30))


def refuse(number: int) -> Callable[..., NoReturn]:
    def refused(*_: object, **__: object) -> NoReturn:
        raise OSError(number, os.strerror(number))

    return refused


def test_a_checkpoint_is_announced_only_once_it_is_confirmed(tmp_path: Path) -> None:
    async def main() -> None:
        checkpoints, told = make(tmp_path), Told()
        assert checkpoints.load_newest() is None
        name = write(checkpoints, 5, told)
        await written(checkpoints)
        checkpoints.confirmed(4)
        assert told.calls == []
        assert checkpoints.load_newest() is None, "its last frame may be lost yet"
        checkpoints.confirmed(5)
        assert told.calls == [(5, name)]
        loaded = checkpoints.load_newest()
        assert loaded is not None
        assert (loaded.lsn, loaded.state) == (5, snapshot(5).state)
        checkpoints.confirmed(6)
        assert told.calls == [(5, name)], "announced once"

    run(main())


def test_what_was_confirmed_before_it_was_written_is_announced_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        checkpoints, told = make(tmp_path), Told()
        checkpoints.confirmed(9)
        checkpoints.confirmed(3)  # an old word takes nothing back
        name = write(checkpoints, 5, told)
        await told.wait(1)
        assert told.calls == [(5, name)]

    run(main())


def test_a_second_write_while_one_is_busy_does_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        checkpoints, told = make(tmp_path), Told()
        first = write(checkpoints, 5, told)
        write(checkpoints, 6, told)  # the child writes
        await written(checkpoints)
        write(checkpoints, 7, told)  # written, not confirmed
        checkpoints.confirmed(9)
        third = write(checkpoints, 8, told)
        await told.wait(2)
        assert told.calls == [(5, first), (8, third)]
        assert [path.name for path in sorted((tmp_path / "checkpoints").glob("*.ckpt"))] == [first, third]

    run(main())


@pytest.mark.parametrize("call", ["write", "fork"])
def test_a_checkpoint_that_was_not_written_is_told_and_the_next_may_be(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        checkpoints, told = make(tmp_path), Told()
        checkpoints.confirmed(9)
        with monkeypatch.context() as patched:
            owner: object = CheckpointStore if call == "write" else os
            patched.setattr(owner, call, refuse(errno.EIO))
            write(checkpoints, 5, told)
            await told.wait(1)
        assert told.calls == [(5, "")]
        name = write(checkpoints, 6, told)
        await told.wait(2)
        assert told.calls[1] == (6, name)

    run(main())


def test_the_first_checkpoint_is_written_without_giving_way_and_a_later_one_gives_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is served until the first one stands."""

    def noted(more: int) -> None:
        (tmp_path / f"{len(list(tmp_path.glob('*.nice')))}.{more}.nice").touch()  # by the child

    monkeypatch.setattr(os, "nice", noted)

    async def main() -> None:
        checkpoints, told = make(tmp_path), asyncio.get_running_loop().create_future()
        checkpoints.write_first(lambda: snapshot(5), told.set_result)
        assert await told == ""
        write(checkpoints, 8, Told())
        await written(checkpoints)

    run(main())
    assert sorted(path.name for path in tmp_path.glob("*.nice")) == ["0.0.nice", f"1.{NICE}.nice"]


def test_a_child_that_is_killed_leaves_no_checkpoint(tmp_path: Path) -> None:
    def die() -> Snapshot:
        os.kill(os.getpid(), signal.SIGKILL)
        return snapshot(5)

    async def main() -> None:
        checkpoints, told = make(tmp_path), Told()
        checkpoints.confirmed(9)
        checkpoints.write(die, 5, chain(5), told)
        await told.wait(1)
        assert told.calls == [(5, "")]
        assert checkpoints.load_newest() is None

    run(main())


def test_a_checkpoint_that_the_primary_pruned_before_it_was_announced_is_told_and_ends_nobody(tmp_path: Path) -> None:
    async def main() -> None:
        checkpoints, told = make(tmp_path), Told()
        name = write(checkpoints, 5, told)
        await written(checkpoints)
        (tmp_path / "checkpoints" / name).unlink()
        checkpoints.confirmed(9)
        assert told.calls == [(5, "")]

    run(main())


def test_an_announcement_without_room_is_told_and_any_other_error_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        checkpoints, told = make(tmp_path), Told()
        write(checkpoints, 5, told)
        await written(checkpoints)
        monkeypatch.setattr(CheckpointStore, "announce", refuse(errno.ENOSPC))
        checkpoints.confirmed(5)
        assert told.calls == [(5, "")]
        write(checkpoints, 6, told)
        await written(checkpoints)
        monkeypatch.setattr(CheckpointStore, "announce", refuse(errno.EIO))
        with pytest.raises(OSError, match="Input/output error"):
            checkpoints.confirmed(6)
        assert told.calls == [(5, "")]

    run(main())


def test_a_checkpoint_that_finds_no_room_is_given_the_spare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spare = Spare(RealFileSystem(tmp_path), "r0", 1 << 16)
    assert spare.prepare()
    real = RealFileSystem.create

    def create(self: RealFileSystem, path: str) -> object:
        if path.startswith("checkpoints/") and (tmp_path / "replicas" / "r0" / "spare").exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(self, path)

    async def main() -> None:
        checkpoints, told = make(tmp_path, spare=spare), Told()
        checkpoints.confirmed(9)
        monkeypatch.setattr(RealFileSystem, "create", create)
        name = write(checkpoints, 5, told)
        await told.wait(1)
        assert told.calls == [(5, name)]
        assert not spare.ready, "the child gave it up, and we have noticed"

    run(main())


async def verified(checkpoints: Checkpoints, name: str) -> bool:
    told = asyncio.get_running_loop().create_future()
    checkpoints.verify(name, told.set_result)
    return bool(await told)


def test_a_good_checkpoint_reads_back_and_one_that_does_not_gives_false(tmp_path: Path) -> None:
    async def main() -> None:
        checkpoints, told = make(tmp_path), Told()
        checkpoints.confirmed(9)
        name = write(checkpoints, 5, told)
        await told.wait(1)
        other = make(tmp_path, replica="r1")
        path = tmp_path / "checkpoints" / name
        good = path.read_bytes()
        for broken in (good[:-1], b"", bytes([good[0] ^ 1]) + good[1:]):
            path.write_bytes(broken)
            assert not await verified(other, name)
            assert not path.with_name(f"{name}.verified").exists()
        path.write_bytes(good)
        assert await verified(other, name)
        assert path.with_name(f"{name}.verified").exists()
        assert not await verified(other, checkpoint_name(6, chain(6))), "there is none"

    run(main())


def test_those_below_an_lsn_are_removed(tmp_path: Path) -> None:
    async def main() -> None:
        checkpoints, told = make(tmp_path), Told()
        checkpoints.confirmed(9)
        names = []
        for count, lsn in enumerate((5, 6, 7), 1):
            names.append(write(checkpoints, lsn, told))
            await told.wait(count)
            assert await verified(checkpoints, names[-1])
        checkpoints.prune(6)
        assert [path.name for path in sorted((tmp_path / "checkpoints").glob("*.ckpt"))] == names[1:]

    run(main())


def test_a_child_that_hangs_while_it_reads_back_keeps_no_later_one_from_being_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hang(*_: object) -> NoReturn:
        signal.alarm(60)
        signal.pause()
        raise AssertionError("it is killed")

    async def main() -> None:
        checkpoints, told = make(tmp_path), Told()
        checkpoints.confirmed(9)
        name = write(checkpoints, 5, told)
        await told.wait(1)
        good: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        with monkeypatch.context() as patch:
            patch.setattr(module, "CHILD_MAX_S", 0.2)
            patch.setattr(CheckpointStore, "verify", hang)
            checkpoints.verify(name, good.set_result)
            assert await good is False
        later = write(checkpoints, 6, told)
        await told.wait(2)
        assert told.calls[1] == (6, later)

    run(main())


def test_an_outbox_in_files_is_written_by_a_child_and_loaded_into_files(tmp_path: Path) -> None:
    """The child reads what the worker forgets meanwhile; who loads it keeps no more in memory than its limit."""

    async def main() -> None:
        limits = Limits(outbox_memory_bytes_max=10)
        spool = FileSpool(str(tmp_path / "scratch"), limits.outbox_bytes_max)
        checkpoints = Checkpoints(str(tmp_path), "r0", asyncio.get_running_loop(), limits, spool=spool)
        outbox, target, told = Outbox(spool, 10), Target("shop", 0), Told()
        messages = [b"message %d" % number for number in range(20)]
        for message in messages:
            outbox.append(target, message)
        checkpoints.write(lambda: replace(snapshot(5), outbox=outbox.snapshot()), 5, chain(5), told)
        outbox.trim(target, 20)
        checkpoints.confirmed(5)
        await told.wait(1)
        loaded = checkpoints.load_newest()
        assert loaded is not None
        (record,) = loaded.outbox
        assert isinstance(record.messages, Stored)
        assert sum(map(len, record.messages.young)) <= 10
        assert list(record.messages) == messages
        restored = Outbox(spool, 10)
        restored.restore(loaded.outbox)
        del loaded, record
        assert restored.messages_from(target, 1, 1 << 20) == messages
        assert restored.memory_bytes <= 10
        restored.check_invariants()

    asyncio.run(main())


def test_a_child_counts_those_on_the_log_once_for_all_who_ask_meanwhile(tmp_path: Path) -> None:
    async def main() -> None:
        driver = LogDriver(RealFileSystem(str(tmp_path)), "r0", [])
        driver.start()
        driver.take_over()
        driver.call(b"a")
        driver.checkpoint()
        strange = driver.checkpoints.write(snapshot(5))
        driver.checkpoints.announce(strange)
        driver.checkpoints.verify(strange)
        checkpoints = make(tmp_path)
        found: asyncio.Queue[list[int]] = asyncio.Queue()
        for _ in range(2):
            checkpoints.count(driver.epoch, found.put_nowait)
        assert await found.get() == [1]
        checkpoints.count(9, found.put_nowait)  # there is no such epoch: the child fails
        assert await found.get() == []
        assert found.empty()

    run(main())

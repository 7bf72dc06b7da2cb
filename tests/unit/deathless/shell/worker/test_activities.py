"""Activities in worker processes: as many at a time as there are processes, each with its limits, each told of once."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path

import msgspec
import pytest

from deathless.base.config import ReplicaConfig
from deathless.base.errors import ActivityFailed, OutcomeUnknown
from deathless.codec.peer_messages import ActivityStart, Reference
from deathless.codec.wire import ReplyError, decode_struct
from deathless.core import events as ev
from deathless.shell.worker import activities
from deathless.shell.worker.activities import (
    AHEAD_BYTES_MAX,
    AHEAD_MAX,
    ENDED_EARLY,
    SILENT,
    TOO_LONG,
    Activities,
    _Worker,
    worker_command,
)

WORKER = """
import os, socket, sys
from deathless.codec.peer_messages import ActivityStart
from deathless.codec.wire import PacketReader, decode_struct, packet
pair, reader = socket.socket(fileno=int(sys.argv[1])), PacketReader(1 << 20)
runs, waiting = None, []
def end(one):
    pair.sendall(packet(2, b"%d %s" % (os.getpid(), one.arguments)))
while data := pair.recv(65536):
    for kind, body in reader.take(data):
        if kind == 6:
            pair.sendall(packet(7, len(waiting).to_bytes(4, "little")))
            waiting.clear()
            continue
        start = decode_struct(ActivityStart, body)
        if start.name != "late":
            pair.sendall(packet(4))
        waiting.append(start)
        if runs is not None and runs.name == "until":  # another one comes
            end(runs)
            runs = None
        while runs is None and waiting:
            runs = waiting.pop(0)
            if runs.name == "die":
                os._exit(9)
            if runs.name == "babble":
                pair.sendall(bytes(64))
            if runs.name == "beat":
                for _ in range(3):
                    pair.sendall(packet(3))
            if runs.name in ("echo", "beat"):
                end(runs)
                runs = None
"""


def start(name: str, operation: int = 1, **settings: object) -> ActivityStart:
    fields: dict[str, object] = {"attempt": 1, "arguments": b"", "key": "", "at_most_once": False, "attempted": False}
    return ActivityStart(invocation=7, operation=operation, name=name, **{**fields, **settings})  # type: ignore[arg-type]


class Pool:
    """A pool of such workers, and what it told."""

    def __init__(self, workers: int = 2, *, command: list[str] | None = None) -> None:
        self.told: list[ev.ActivityEnded] = []
        self.changed = asyncio.Event()
        script = command or [sys.executable, "-c", WORKER]
        self.activities = Activities(
            lambda descriptor: [*script, str(descriptor)],
            workers=workers,
            tell=self._tell,
        )
        self.beats = -1  # the start of an activity counts as one
        self._beat = self.activities.beat
        self.activities.beat = self._count_beat  # type: ignore[method-assign]

    def _count_beat(self, worker: _Worker) -> None:
        self.beats += 1
        self._beat(worker)

    def _tell(self, event: ev.Event) -> None:
        assert isinstance(event, ev.ActivityEnded)
        self.told.append(event)
        self.changed.set()

    async def wait_told(self, count: int) -> list[ev.ActivityEnded]:
        while len(self.told) < count:
            self.changed.clear()
            await self.changed.wait()
        return self.told

    async def wait_ready(self, count: int) -> list[_Worker]:
        while sum(worker.ready for worker in self.activities._workers.values()) < count:  # noqa: ASYNC110  gives way
            await asyncio.sleep(0)
        return list(self.activities._workers.values())

    def pids(self) -> list[int]:
        return [worker.process.pid for worker in self.activities._workers.values()]


def run(work: Callable[[], Coroutine[object, object, Pool]]) -> None:
    """Run a test; every process it started is gone at the end."""

    async def whole() -> None:
        pool = await asyncio.wait_for(work(), 60)
        pool.activities.close()
        assert pool.activities.running == pool.activities.waiting == 0
        while pool.activities._alive:  # noqa: ASYNC110  gives way, does not sleep
            await asyncio.sleep(0)
        for _ in range(5):
            await asyncio.sleep(0)

    asyncio.run(whole())


def error_of(event: ev.ActivityEnded) -> ReplyError:
    assert event.reply[:1] == b"\x01"
    return decode_struct(ReplyError, event.reply[1:])


def test_an_activity_is_run_in_a_process_of_its_own_and_its_reply_told() -> None:
    async def main() -> Pool:
        pool = Pool()
        pool.activities.start(start("echo", arguments=b"hi", attempt=3))
        (ended,) = await pool.wait_told(1)
        pid, _, rest = ended.reply.partition(b" ")
        assert (ended.invocation, ended.operation, ended.attempt, rest) == (7, 1, 3, b"hi")
        assert int(pid) in pool.pids()
        assert int(pid) != os.getpid()
        return pool

    run(main)


def test_a_process_serves_one_activity_after_the_other() -> None:
    async def main() -> Pool:
        pool = Pool(workers=1)
        for operation in range(1, 6):
            pool.activities.start(start("echo", operation, arguments=b"%d" % operation))
        assert (pool.activities.running, pool.activities.waiting) == (1, 4)
        told = await pool.wait_told(5)
        assert [one.operation for one in told] == [1, 2, 3, 4, 5]
        assert len({one.reply.partition(b" ")[0] for one in told}) == 1
        return pool

    run(main)


def test_no_more_run_at_a_time_than_there_are_workers() -> None:
    async def main() -> Pool:
        pool = Pool(workers=2)
        for operation in range(1, 5):
            pool.activities.start(start("hang", operation))
        assert (pool.activities.running, pool.activities.waiting) == (2, 2)
        assert len(pool.pids()) == 2
        return pool

    run(main)


def test_an_activity_that_takes_too_long_is_ended_with_its_process_alone() -> None:
    async def main() -> Pool:
        pool = Pool(workers=2)
        pool.activities.start(start("hang", 1))
        pool.activities.start(start("hang", 2, timeout_us=1000))
        (other, slow) = pool.pids()
        (ended,) = await pool.wait_told(1)
        assert ended.operation == 2
        assert error_of(ended).type == TOO_LONG
        assert pool.pids() == [other]
        assert slow != other
        pool.activities.start(start("echo", 3))
        assert (await pool.wait_told(2))[1].operation == 3
        return pool

    run(main)


def test_an_activity_without_signs_of_life_is_ended() -> None:
    async def main() -> Pool:
        pool = Pool()
        pool.activities.start(start("hang", 1, heartbeat_us=1000))
        assert error_of((await pool.wait_told(1))[0]).type == SILENT
        return pool

    run(main)


def test_time_and_signs_of_life_count_from_when_its_process_is_ready() -> None:
    async def main() -> Pool:
        pool = Pool(workers=2)
        pool.activities.start(start("late", 1, timeout_us=1, heartbeat_us=1))  # its process says nothing
        pool.activities.start(start("hang", 2, timeout_us=1000))
        (ended,) = await pool.wait_told(1)
        assert ended.operation == 2
        assert pool.activities.running == 1
        return pool

    run(main)


def test_an_activity_that_gives_signs_of_life_goes_on() -> None:
    async def main() -> Pool:
        pool = Pool()
        pool.activities.start(start("beat", 1, heartbeat_us=10_000_000))
        assert (await pool.wait_told(1))[0].reply[:1] != b"\x01"
        assert pool.beats == 3
        return pool

    run(main)


@pytest.mark.parametrize("name", ["die", "babble"])
def test_a_process_that_ends_or_breaks_its_pipe_fails_its_activity(name: str) -> None:
    async def main() -> Pool:
        pool = Pool(workers=1)
        pool.activities.start(start(name, 1))
        pool.activities.start(start("echo", 2))
        first, second = await pool.wait_told(2)
        assert (error_of(first).type, error_of(first).code) == (ENDED_EARLY, ActivityFailed.code)
        assert second.operation == 2
        return pool

    run(main)


def test_a_process_that_can_not_be_started_fails_its_activity(tmp_path: Path) -> None:
    async def main() -> Pool:
        pool = Pool(command=[str(tmp_path / "missing")])
        pool.activities.start(start("echo"))
        (ended,) = await pool.wait_told(1)
        assert "could be started" in error_of(ended).text
        return pool

    run(main)


def test_a_process_that_cannot_be_watched_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []

    def open_none(pid: int) -> int:
        begun.append(pid)
        raise OSError(errno.EMFILE, "Too many open files")

    async def main() -> Pool:
        pool = Pool()
        monkeypatch.setattr(os, "pidfd_open", open_none)
        pool.activities.start(start("echo"))
        (ended,) = await pool.wait_told(1)
        assert "no process could be started: Too many open files" in error_of(ended).text
        (pid,) = begun
        with pytest.raises(ProcessLookupError):  # it is gone, and its exit code is taken
            os.kill(pid, 0)
        return pool

    run(main)


def test_a_stopped_activity_is_told_of_no_more() -> None:
    async def main() -> Pool:
        pool = Pool(workers=1)
        for operation in (1, 2, 3):
            pool.activities.start(start("hang" if operation < 3 else "echo", operation))
        assert pool.activities.waiting == 2
        for operation in (2, 1, 9):
            pool.activities.stop(Reference(7, operation))
        (ended,) = await pool.wait_told(1)
        assert ended.operation == 3
        assert pool.activities.waiting == 0
        return pool

    run(main)


def test_a_busy_process_is_given_the_next_one_ahead() -> None:
    async def main() -> Pool:
        pool = Pool(workers=1)
        pool.activities.start(start("until", 1))  # it ends when another one comes
        pool.activities.start(start("echo", 2))
        assert [one.operation for one in await pool.wait_told(2)] == [1, 2]
        return pool

    run(main)


@pytest.mark.parametrize(("name", "settings"), [("die", {}), ("hang", {"timeout_us": 1000}), ("babble", {})])
def test_whether_one_ran_that_must_run_at_most_once_is_unknown_when_its_process_is_gone(
    name: str, settings: dict[str, int]
) -> None:
    async def main() -> Pool:
        pool = Pool(workers=1)
        pool.activities.start(start(name, 1, at_most_once=True, **settings))
        error = error_of((await pool.wait_told(1))[0])
        assert (error.type, error.code) == (OutcomeUnknown.__name__, OutcomeUnknown.code)
        return pool

    run(main)


def test_one_that_must_run_at_most_once_has_failed_where_its_process_never_began() -> None:
    async def main() -> Pool:
        pool = Pool(workers=1, command=[sys.executable, "-c", ""])
        pool.activities.start(start("echo", 1, at_most_once=True))
        error = error_of((await pool.wait_told(1))[0])
        assert (error.type, error.code) == (ENDED_EARLY, ActivityFailed.code)
        return pool

    run(main)


def test_what_must_run_at_most_once_is_given_to_a_free_process_alone() -> None:
    async def main() -> Pool:
        pool = Pool(workers=1)
        pool.activities.start(start("until", 1))
        (worker,) = await pool.wait_ready(1)
        pool.activities.start(start("echo", 2, at_most_once=True))
        pool.activities.start(start("echo", 3))  # it overtakes nobody, or who must wait would wait for ever
        assert [each.operation for each in worker.given] == [1]
        assert (pool.activities.running, pool.activities.waiting) == (1, 2)
        return pool

    run(main)


@pytest.mark.parametrize("size", [(AHEAD_BYTES_MAX // 2, 2), (0, AHEAD_MAX)])
def test_no_more_waits_in_a_process_than_has_room(size: tuple[int, int]) -> None:
    async def main() -> Pool:
        size_bytes, most = size
        pool, worker = await one_that_hangs()
        for operation in range(2, AHEAD_MAX + 9):
            pool.activities.start(start("echo", operation, arguments=bytes(size_bytes)))
        assert len(worker.given) == 1 + most
        assert pool.activities.waiting == AHEAD_MAX + 7
        return pool

    run(main)


async def one_that_hangs(*others: ActivityStart) -> tuple[Pool, _Worker]:
    """A pool whose first process runs what does not end, and each other one of these."""
    pool = Pool(workers=1 + len(others))
    for each in (start("hang", 1), *others):
        pool.activities.start(each)
    first, *_ = await pool.wait_ready(1 + len(others))
    return pool, first


def test_what_waits_behind_a_slow_one_is_asked_back_and_run_elsewhere() -> None:
    async def main() -> Pool:
        pool, slow = await one_that_hangs(start("until", 2))
        pool.activities.start(start("echo", 3))
        assert [each.operation for each in slow.given] == [1, 3]
        assert [one.operation for one in await pool.wait_told(2)] == [2, 3]
        return pool

    run(main)


def test_a_free_process_takes_what_waits_in_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activities, "PATIENCE_S", 3600.0)

    async def main() -> Pool:
        pool, slow = await one_that_hangs(start("until", 2))
        pool.activities.start(start("echo", 3))
        pool.activities.start(start("echo", 4))
        assert [each.operation for each in slow.given] == [1, 3]
        assert [one.operation for one in await pool.wait_told(3)] == [2, 4, 3]
        return pool

    run(main)


def test_what_waited_in_a_process_that_was_killed_is_run_by_the_next() -> None:
    async def main() -> Pool:
        pool = Pool(workers=1)
        pool.activities.start(start("hang", 1, timeout_us=10_000))
        (worker,) = await pool.wait_ready(1)
        for operation in (2, 3):
            pool.activities.start(start("echo", operation))
        assert len(worker.given) == 3
        assert [one.operation for one in await pool.wait_told(3)] == [1, 2, 3]
        return pool

    run(main)


def test_one_that_waits_in_a_process_is_stopped_without_ending_what_runs_there() -> None:
    async def main() -> Pool:
        pool, worker = await one_that_hangs()
        for operation in (2, 3):
            pool.activities.start(start("echo", operation))
        pool.activities.stop(Reference(7, 2))
        while worker.unwanted:  # noqa: ASYNC110  gives way
            await asyncio.sleep(0)
        assert pool.pids() == [worker.process.pid]
        assert pool.activities.waiting == 1
        pool.activities.stop(Reference(7, 1))
        assert [one.operation for one in await pool.wait_told(1)] == [3]
        return pool

    run(main)


def test_one_that_began_before_it_could_be_asked_back_is_ended_with_its_process() -> None:
    async def main() -> Pool:
        pool, worker = await one_that_hangs()
        for operation in (2, 3):
            pool.activities.start(start("hang", operation))
        pool.activities.stop(Reference(7, 2))
        pool.activities.answered(worker, b"\0")  # the first one ended, before the answer to BACK
        assert pool.pids() != [worker.process.pid]
        assert [each.operation for each in pool.activities._workers[2].given] == [3]
        assert [one.operation for one in await pool.wait_told(1)] == [1]
        return pool

    run(main)


def test_no_time_counts_for_one_that_was_returned() -> None:
    async def main() -> Pool:
        pool, worker = await one_that_hangs()
        pool.activities.start(start("hang", 2, timeout_us=3_600_000_000, heartbeat_us=3_600_000_000))
        pool.activities._ask_back(worker)
        pool.activities.answered(worker, b"\0")  # the second one seems to run now
        before = worker.limit
        assert before is not None
        pool.activities.returned(worker, 1)
        assert before.cancelled()
        assert [each.operation for each in worker.given] == [2]  # it is given to the same one again, as it is free
        assert worker.limit is not before
        return pool

    run(main)


def test_a_process_that_returns_what_it_was_not_asked_for_is_ended() -> None:
    async def main() -> Pool:
        pool, worker = await one_that_hangs()
        pool.activities.returned(worker, 1)
        assert error_of((await pool.wait_told(1))[0]).type == ENDED_EARLY
        return pool

    run(main)


def test_a_worker_is_started_with_the_module_of_its_replica() -> None:
    config = ReplicaConfig(service="bank", module="m.py:a", directory="d", replica="r0", token="secret")
    command = worker_command(config)(5)
    assert command[1:] == [
        "-m", "deathless.shell.worker.activity_process", "5", str(os.getpid()), "m.py:a", "info", "r0", ""
    ]  # fmt: skip
    assert "secret" not in command
    kept = worker_command(msgspec.structs.replace(config, code="ab"))(5)
    assert kept == [*command[:-1], "d/code/ab"], "it imports the module from where its replica does"

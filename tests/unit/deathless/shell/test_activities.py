"""Activities in worker processes: as many at a time as there are processes, each with its limits, each told of once."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from deathless.base.config import ReplicaConfig
from deathless.base.errors import ActivityFailed
from deathless.codec.peer_messages import ActivityStart, Reference
from deathless.codec.wire import ReplyError, decode_struct
from deathless.core import events as ev
from deathless.shell.activities import ENDED_EARLY, SILENT, TOO_LONG, Activities, _Worker, worker_command

WORKER = """
import os, socket, sys
from deathless.codec.peer_messages import ActivityStart
from deathless.codec.wire import PacketReader, decode_struct, packet
pair, reader = socket.socket(fileno=int(sys.argv[1])), PacketReader(1 << 20)
while data := pair.recv(65536):
    for _, body in reader.take(data):
        start = decode_struct(ActivityStart, body)
        if start.name != "late":
            pair.sendall(packet(4))
        if start.name == "die":
            os._exit(9)
        if start.name == "babble":
            pair.sendall(bytes(64))
        if start.name == "beat":
            for _ in range(3):
                pair.sendall(packet(3))
        if start.name in ("echo", "beat"):
            pair.sendall(packet(2, b"%d %s" % (os.getpid(), start.arguments)))
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


def test_a_worker_is_started_with_the_module_of_its_replica() -> None:
    config = ReplicaConfig(service="bank", module="m.py:a", directory="d", replica="r0", token="secret")
    command = worker_command(config)(5)
    assert command[1:] == [
        "-m", "deathless.shell.activity_worker", "5", str(os.getpid()), "m.py:a", "info", "r0"
    ]  # fmt: skip
    assert "secret" not in command

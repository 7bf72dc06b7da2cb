"""Supervisor and worker over a real socket pair: records cut anywhere arrive whole, the end of the stream is told."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine

import msgspec
import pytest
import uvloop

from deathless.core.supervisor.records import (
    AddressesAre,
    Deaths,
    Diverged,
    PrimaryIs,
    RoleIs,
    Stop,
    Stopping,
    TakeOver,
    ToSupervisor,
    ToWorker,
)
from deathless.shell.link.orders import LineProtocol

TO_WORKER = [
    TakeOver(3, "primary fell silent", 17),
    PrimaryIs(3, "r1", "127.0.0.1:1", "127.0.0.1:2"),
    PrimaryIs(3, "r1", "127.0.0.1:1", "127.0.0.1:2", unproved=True),
    Deaths(5, 6, 2),
    Diverged("r2", "a text\nof two lines, and an ü"),
    Stop(),
]
TO_SUPERVISOR = [RoleIs("PRIMARY", 3, "", 9), AddressesAre("a:1", "b:2"), Stopping("DL0001", "why")]
Run = Callable[[Coroutine[object, object, None]], None]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    def runner(work: Coroutine[object, object, None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as on:
            on.run(asyncio.wait_for(work, 30))

    return runner


class End:
    """One end of a socket pair, and what came in there."""

    def __init__(self, kind: object) -> None:
        self.got: list[object] = []
        self.lost = 0
        self._changed = asyncio.Event()
        self.line = LineProtocol(kind, self._received, self._lost)

    async def open(self, sock: socket.socket) -> End:
        await asyncio.get_running_loop().create_connection(lambda: self.line, sock=sock)
        return self

    def _received(self, record: object) -> None:
        self.got.append(record)
        self._changed.set()

    def _lost(self) -> None:
        self.lost += 1
        self._changed.set()

    async def wait_for(self, wanted: Callable[[], bool]) -> None:
        while not wanted():
            self._changed.clear()
            await self._changed.wait()


def test_every_record_arrives_as_it_was_sent_in_both_directions(run: Run) -> None:
    async def main() -> None:
        one, two = socket.socketpair()
        supervisor, worker = await End(ToSupervisor).open(one), await End(ToWorker).open(two)
        for order in TO_WORKER:
            supervisor.line.send(order)
        for report in TO_SUPERVISOR:
            worker.line.send(report)
        await worker.wait_for(lambda: len(worker.got) == len(TO_WORKER))
        await supervisor.wait_for(lambda: len(supervisor.got) == len(TO_SUPERVISOR))
        assert worker.got == TO_WORKER
        assert supervisor.got == TO_SUPERVISOR
        assert worker.line.flushed
        supervisor.line.close()
        await worker.wait_for(lambda: worker.lost == 1)

    run(main())


def test_records_cut_across_reads_arrive_whole() -> None:
    stream = b"".join(msgspec.json.encode(order) + b"\n" for order in TO_WORKER)
    for step in (1, 2, 7, len(stream)):
        got: list[object] = []
        line = LineProtocol(ToWorker, got.append, lambda: None)
        for at in range(0, len(stream), step):
            line.data_received(stream[at : at + step])
        assert got == TO_WORKER


def test_a_held_line_keeps_what_comes_in_until_it_is_released() -> None:
    stream = b"".join(msgspec.json.encode(order) + b"\n" for order in TO_WORKER)
    got: list[object] = []
    lost: list[bool] = []
    line = LineProtocol(ToWorker, got.append, lambda: lost.append(True), held=True)
    line.data_received(stream[:20])
    line.data_received(stream[20:-5])
    assert got == []
    line.release()
    assert got == TO_WORKER[:-1]
    line.data_received(stream[-5:])
    assert (got, lost) == (TO_WORKER, [])


def test_the_end_of_a_held_line_is_told_at_once() -> None:
    lost: list[bool] = []
    line = LineProtocol(ToWorker, print, lambda: lost.append(True), held=True)
    line.data_received(b'{"type":')
    line.connection_lost(None)
    assert lost == [True]


def test_the_end_of_the_stream_comes_behind_everything_that_was_said(run: Run) -> None:
    async def main() -> None:
        one, two = socket.socketpair()
        worker = await End(ToWorker).open(two)
        assert (worker.line.open, worker.line.ended) == (True, False)
        one.sendall(msgspec.json.encode(Stop()) + b'\n{"type":"dea')
        one.close()
        await worker.wait_for(lambda: worker.lost == 1)
        assert worker.got == [Stop()], "half a record is none"
        assert (worker.line.open, worker.line.ended) == (False, True)

    run(main())


def test_what_is_sent_to_somebody_who_is_gone_is_dropped(run: Run) -> None:
    async def main() -> None:
        unconnected = LineProtocol(ToWorker, print, lambda: None)
        unconnected.send(Stop())
        unconnected.close()
        assert unconnected.flushed
        assert not unconnected.open
        one, two = socket.socketpair()
        worker = await End(ToWorker).open(two)
        one.close()
        await worker.wait_for(lambda: worker.lost == 1)
        worker.line.send(RoleIs("STANDBY", 1, "", 0))
        assert worker.line.flushed

    run(main())


def test_closing_our_end_is_told_to_us_once(run: Run) -> None:
    async def main() -> None:
        one, two = socket.socketpair()
        with one:
            worker = await End(ToWorker).open(two)
            worker.line.close()
            worker.line.close()
            assert not worker.line.open
            await worker.wait_for(lambda: worker.line.ended)
            assert worker.lost == 1

    run(main())


def test_what_the_other_end_has_not_read_yet_is_not_flushed(run: Run) -> None:
    async def main() -> None:
        one, two = socket.socketpair()
        with one:
            worker = await End(ToWorker).open(two)
            for _ in range(64):
                worker.line.send(Diverged("r2", "x" * 65536))
            assert not worker.line.flushed
            worker.line.close()
            await worker.wait_for(lambda: worker.lost == 1)
            assert worker.line.flushed

    run(main())

"""Activities beside the primary: worker processes, time limits, heartbeats, and the outcome back to the core.

    core --StartActivity--> queue --> a free process --> the author's function
         <--ActivityEnded-- its reply, or the error that its end is

A process runs one activity at a time, so that ending one ends nothing else: its time limit and its silence are enforced
by killing the process (an author's function can't be stopped in any other way). Processes are started when there is
work for them and stay for the next; the first of them begins when the first activity does.

Guarantees: at most `workers` activities run at a time, each told of once; one that was stopped is not told of. All
processes are gone when `close` returns, and die with this one: what a deposed primary began ends, or its outcome finds
nobody (the frame that would log it is not confirmed). Does not: decide whether an activity is begun, or tried again
(core and execution do). May import core, codec and base.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, cast

from deathless.base.config import ReplicaConfig
from deathless.base.errors import ActivityFailed, DeathlessError
from deathless.codec.peer_messages import ActivityStart, Reference
from deathless.codec.wire import PacketReader, error_reply, packet, struct_packet
from deathless.core import events as ev

_LOG: Final = logging.getLogger("deathless.activities")
START, ENDED, BEAT, READY, TRACE = 1, 2, 3, 4, 5
"""Packets of the pipe: a start (ActivityStart), what it gave (reply bytes), a sign of life (empty), that the
process has imported the service (empty): from then on time limits count; and the traceparent of the start behind it."""
ENDED_EARLY, TOO_LONG, SILENT = "ActivityFailed", "ActivityTimeout", "ActivitySilent"
"""Types of the recorded error, by which a handler tells them apart."""
PIPE_BYTES_MAX: Final = 16 << 20  # one packet of a worker process


class _Worker(asyncio.Protocol):
    """One process, with the activity it runs."""

    def __init__(self, pool: Activities, process: subprocess.Popen[bytes], number: int) -> None:
        self.process = process
        self.number = number
        self.ready = False  # True: it has said that it can run what it gets
        self.start: ActivityStart | None = None  # None: free
        self.limit: asyncio.TimerHandle | None = None  # of the attempt
        self.silence: asyncio.TimerHandle | None = None  # until its next sign of life
        self.ended = False
        self._pool = pool
        self._reader = PacketReader(PIPE_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._waiting: list[bytes] = []  # until the pipe stands

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop has classes of its own
        if self.ended:
            self._transport.abort()
        for data in self._waiting:
            self._transport.write(data)
        self._waiting.clear()

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        try:
            packets = self._reader.take(data)
        except DeathlessError as error:  # an author's function wrote to our descriptor
            self._pool.failed(self, ENDED_EARLY, f"its process broke the pipe: {error.message}")
            return
        for kind, body in packets:
            if kind == BEAT:
                self._pool.beat(self)
            elif kind == READY:
                self._pool.ready(self)
            elif kind == ENDED:
                self._pool.answered(self, body)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol: the process ended, or closed what it must keep."""
        self._transport = None
        self._pool.failed(self, ENDED_EARLY, "its process ended before it answered")

    def send(self, data: bytes) -> None:
        """Write, as soon as the pipe stands."""
        if self._transport is None:
            self._waiting.append(data)
        else:
            self._transport.write(data)

    def free(self) -> ActivityStart | None:
        """Let go of its activity; gives it."""
        start, self.start = self.start, None
        for timer in (self.limit, self.silence):
            if timer is not None:
                timer.cancel()
        self.limit = self.silence = None
        return start

    def close(self) -> None:
        """Close the pipe."""
        self.ended = True
        if self._transport is not None:
            self._transport.abort()


def no_trace(_invocation: int, _operation: int) -> str:
    """Give the trace context of an operation where there is none."""
    return ""


class Activities:
    """The activities of one primary.

    Args:
        command: what starts a worker process, given the number of its descriptor.
        workers: processes at most.
        tell: takes events for the core.
        traceparent: gives the trace context of an operation of an invocation, empty for none.
    """

    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        *,
        workers: int,
        tell: Callable[[ev.Event], None],
        traceparent: Callable[[int, int], str] = no_trace,
    ) -> None:
        self._command = command
        self._most = workers
        self._tell = tell
        self._traceparent = traceparent
        self._loop = asyncio.get_running_loop()
        self._workers: dict[int, _Worker] = {}
        self._count = 0
        self._alive: set[subprocess.Popen[bytes]] = set()  # until they are reaped
        self._queue: deque[ActivityStart] = deque()
        self._tasks: set[asyncio.Task[object]] = set()

    @property
    def running(self) -> int:
        """How many are under way."""
        return sum(worker.start is not None for worker in self._workers.values())

    @property
    def waiting(self) -> int:
        """How many wait for a process."""
        return len(self._queue)

    # ---- what the core wants ---------------------------------------------------------------------------------

    def start(self, start: ActivityStart) -> None:
        """Begin it as soon as a process is free."""
        self._queue.append(start)
        self._fill()

    def stop(self, reference: Reference) -> None:
        """Nobody wants it any more: end it, and tell nothing."""
        place = (reference.invocation, reference.operation)
        self._queue = deque(each for each in self._queue if (each.invocation, each.operation) != place)
        for worker in list(self._workers.values()):
            if worker.start is not None and (worker.start.invocation, worker.start.operation) == place:
                worker.free()
                self._kill(worker)
        self._fill()

    def close(self) -> None:
        """End all: this replica leads no more."""
        self._queue.clear()
        for worker in list(self._workers.values()):
            worker.free()
            self._kill(worker)

    # ---- processes -------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Give waiting activities to free processes; start those that are missing."""
        while self._queue:
            worker = next((each for each in self._workers.values() if each.start is None), None)
            if worker is None:
                if len(self._workers) >= self._most:
                    return
                worker = self._begin_worker()
                if worker is None:
                    continue  # who waited first was told; if nothing runs, nobody would look at the others again
            self._give(worker, self._queue.popleft())

    def _begin_worker(self) -> _Worker | None:
        """Start a process; None: it could not be, which is told as the failure of who waits first."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            descriptor = theirs.fileno()
            try:
                process = subprocess.Popen(self._command(descriptor), pass_fds=(descriptor,), stdin=subprocess.DEVNULL)
                watched = os.pidfd_open(process.pid)
            except OSError as error:
                ours.close()
                start = self._queue.popleft()
                self._end(start, _failure(ENDED_EARLY, f"no process could be started: {error.strerror}"))
                return None
        self._count += 1
        worker = self._workers[self._count] = _Worker(self, process, self._count)
        self._alive.add(process)
        self._loop.add_reader(watched, self._reaped, process, watched)
        task = self._loop.create_task(self._attach(worker, ours))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return worker

    async def _attach(self, worker: _Worker, pipe: socket.socket) -> None:
        await self._loop.create_connection(lambda: worker, sock=pipe)

    def _reaped(self, process: subprocess.Popen[bytes], watched: int) -> None:
        self._loop.remove_reader(watched)
        os.close(watched)
        process.wait()
        self._alive.discard(process)

    def _give(self, worker: _Worker, start: ActivityStart) -> None:
        worker.start = start
        if worker.ready:
            self._count_time(worker, start)
        trace = self._traceparent(start.invocation, start.operation)
        if trace:
            worker.send(packet(TRACE, trace.encode()))
        worker.send(struct_packet(START, start))

    def _count_time(self, worker: _Worker, start: ActivityStart) -> None:
        if start.timeout_us:
            worker.limit = self._loop.call_later(start.timeout_us / 1e6, self._too_long, worker)
        self.beat(worker)

    def _kill(self, worker: _Worker) -> None:
        if self._workers.pop(worker.number, None) is not None:
            worker.process.send_signal(signal.SIGKILL)
            worker.close()

    # ---- what workers say ------------------------------------------------------------------------------------

    def ready(self, worker: _Worker) -> None:
        """It has begun and imported the service, which is no part of the time that its first activity has."""
        if not worker.ready:
            worker.ready = True
            if worker.start is not None:
                self._count_time(worker, worker.start)

    def beat(self, worker: _Worker) -> None:
        """It gave a sign of life."""
        start = worker.start
        if worker.silence is not None:
            worker.silence.cancel()
            worker.silence = None
        if start is not None and start.heartbeat_us:
            worker.silence = self._loop.call_later(start.heartbeat_us / 1e6, self._too_silent, worker)

    def answered(self, worker: _Worker, reply: bytes) -> None:
        """Its function ended."""
        start = worker.free()
        if start is not None:
            self._end(start, reply)
        self._fill()

    def failed(self, worker: _Worker, kind: str, why: str) -> None:
        """Its process is gone, or must go."""
        self._kill(worker)
        start = worker.free()
        if start is not None:
            _LOG.warning("activity failed", extra={"activity": start.name, "key": start.key, "why": why})
            self._end(start, _failure(kind, f"activity {start.name!r}: {why}"))
        self._fill()

    def _too_long(self, worker: _Worker) -> None:
        start = worker.start
        assert start is not None
        self.failed(worker, TOO_LONG, f"it took longer than {start.timeout_us / 1e6:g} s")

    def _too_silent(self, worker: _Worker) -> None:
        start = worker.start
        assert start is not None
        self.failed(worker, SILENT, f"it gave no sign of life for {start.heartbeat_us / 1e6:g} s")

    def _end(self, start: ActivityStart, reply: bytes) -> None:
        # Later, because what the core does with it may come back to us.
        event = ev.ActivityEnded(start.invocation, start.operation, start.attempt, reply)
        self._loop.call_soon(self._tell, event)


def _failure(kind: str, text: str) -> bytes:
    return error_reply(ActivityFailed.code, kind, text)


def worker_command(config: ReplicaConfig) -> Callable[[int], list[str]]:
    """Give what starts a worker process of a replica."""
    parent = str(os.getpid())
    start = [sys.executable, "-m", "deathless.shell.activity_worker"]
    return lambda descriptor: [*start, str(descriptor), parent, config.module, config.log_level, config.replica]

"""Activities beside the primary: worker processes, time limits, heartbeats, and the outcome back to the core.

    core --StartActivity--> queue --> a free process --> the author's function
         <--ActivityEnded-- its reply, or the error that its end is

A process runs one activity at a time, so that ending one ends nothing else: its time limit and its silence are enforced
by killing the process (an author's function can't be stopped in any other way). Processes are started when there is
work for them and stay for the next; the first of them begins when the first activity does.

Once all processes are busy, each is given some activities ahead, so that it goes on with the next at once: this loop
waits for disks, and a process that had to hear from it after each activity would run one per frame. Who was first
given runs; the others wait in the process. They are asked back (BACK, RETURNED) when another process is free, when the
one in front of them takes longer than PATIENCE_S, and when one of them is to be stopped; so nothing waits behind a slow
activity for longer than that, as long as its function lets the other threads of its process run. What waited in a
process that was killed is given to another one: it may have begun, if what was in front of it ended just then, which
at least once allows. What must run at most once is therefore given to a free process alone.

Guarantees: at most `workers` activities run at a time, each told of once; one that was stopped is not told of. All
processes are gone when `close` returns, and die with this one: what a deposed primary began ends, or its outcome finds
nobody (the frame that would log it is not confirmed). What must run at most once and lost its process is told as
OutcomeUnknown, whoever ended that. Does not: decide whether an activity is begun, or tried again
(core and execution do). May import core, codec and base.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, cast

from deathless.base.config import ReplicaConfig
from deathless.base.errors import ActivityFailed, DeathlessError, OutcomeUnknown
from deathless.codec.peer_messages import ActivityStart, Reference
from deathless.codec.wire import PacketReader, error_reply, packet, struct_packet
from deathless.core import events as ev
from deathless.shell.process.reaping import end_all
from deathless.shell.service_code.code_record import FOLDER

_LOG: Final = logging.getLogger("deathless.activities")
START, ENDED, BEAT, READY, TRACE, BACK, RETURNED = 1, 2, 3, 4, 5, 6, 7
"""Packets of the pipe: a start (ActivityStart), what it gave (reply bytes), a sign of life (empty), that the process
has imported the service (empty): from then on time limits count; the traceparent of the start behind it; that nothing
may begin of what waits (empty), and the answer to that: how many did (COUNT). They were the last ones given, and are
forgotten there."""
COUNT: Final = struct.Struct("<I")
ENDED_EARLY, TOO_LONG, SILENT = "ActivityFailed", "ActivityTimeout", "ActivitySilent"
"""Types of the recorded error, by which a handler tells them apart."""
PIPE_BYTES_MAX: Final = 16 << 20  # one packet of a worker process
AHEAD_MAX: Final = 32  # activities that wait in a process, behind the one that runs
AHEAD_BYTES_MAX: Final = 1 << 20  # of their arguments; one that is longer waits here
PATIENCE_S: Final = 0.02  # how long they wait behind one activity before they are asked back


Key = tuple[int, int]
"""(invocation, operation)."""


class _Worker(asyncio.Protocol):
    """One process, with the activity it runs."""

    def __init__(self, pool: Activities, process: subprocess.Popen[bytes], number: int) -> None:
        self.process = process
        self.number = number
        self.ready = False  # True: it has said that it can run what it gets
        self.given: deque[ActivityStart] = deque()  # the first one runs, the others wait there; empty: free
        self.unwanted: set[Key] = set()  # of those that wait there: stopped meanwhile
        self.asked_back = False  # True: BACK is on its way, or its answer; nothing is given ahead meanwhile
        self.slow = False  # True: what runs takes long, so nothing is given ahead
        self.patience: asyncio.TimerHandle | None = None  # of those that wait there
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
            self.ready = True  # READY may be in what can't be read
            self._pool.failed(self, ENDED_EARLY, f"its process broke the pipe: {error.message}")
            return
        for kind, body in packets:
            if kind == BEAT:
                self._pool.beat(self)
            elif kind == READY:
                self._pool.ready(self)
            elif kind == ENDED:
                self._pool.answered(self, body)
            elif kind == RETURNED and len(body) == COUNT.size:
                self._pool.returned(self, COUNT.unpack(body)[0])

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

    @property
    def start(self) -> ActivityStart | None:
        """What it runs; None: it is free."""
        return self.given[0] if self.given else None

    def has_room(self, start: ActivityStart) -> bool:
        """Say whether this one may wait there."""
        if not self.ready or self.slow or self.asked_back or len(self.given) > AHEAD_MAX:
            return False
        return sum(len(each.arguments) for each in self.given) + len(start.arguments) <= AHEAD_BYTES_MAX

    def free(self) -> ActivityStart | None:
        """Let go of the activity it runs; gives it."""
        self.end_time()
        return self.given.popleft() if self.given else None

    def end_time(self) -> None:
        """No time counts any more."""
        for timer in (self.limit, self.silence, self.patience):
            if timer is not None:
                timer.cancel()
        self.limit = self.silence = self.patience = None
        self.slow = False

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
        """How many run."""
        return sum(worker.start is not None for worker in self._workers.values())

    @property
    def waiting(self) -> int:
        """How many wait, here or in a process."""
        return len(self._queue) + sum(len(worker.given) for worker in self._workers.values()) - self.running

    # ---- what the core wants ---------------------------------------------------------------------------------

    def start(self, start: ActivityStart) -> None:
        """Begin it as soon as a process is free."""
        self._queue.append(start)
        self._fill()

    def stop(self, reference: Reference) -> None:
        """Nobody wants it any more: end it, and tell nothing."""
        key = (reference.invocation, reference.operation)
        self._queue = deque(each for each in self._queue if _key(each) != key)
        for worker in list(self._workers.values()):
            if worker.start is not None and _key(worker.start) == key:
                worker.free()
                self._end_worker(worker)
            elif any(_key(each) == key for each in worker.given):
                worker.unwanted.add(key)
                self._ask_back(worker)
        self._fill()

    def close(self) -> None:
        """End all: this replica leads no more."""
        self._queue.clear()
        for worker in list(self._workers.values()):
            worker.free()
            worker.given.clear()
            self._kill(worker)

    # ---- processes -------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Give waiting activities to processes; start those that are missing."""
        while self._queue:
            worker = next((each for each in self._workers.values() if each.start is None), None)
            if worker is None and len(self._workers) < self._most:
                worker = self._begin_worker()
                if worker is None:
                    continue  # who waited first was told; if nothing runs, nobody would look at the others again
            worker = worker or self._shortest(self._queue[0])
            if worker is None:
                return
            self._give(worker, self._queue.popleft())
        self._even_out()

    def _shortest(self, start: ActivityStart) -> _Worker | None:
        """Where this one may wait with the fewest before it; None: nowhere."""
        if start.at_most_once:  # it must be known whether it began
            return None
        roomy = [worker for worker in self._workers.values() if worker.has_room(start)]
        return min(roomy, key=lambda worker: len(worker.given), default=None)

    def _even_out(self) -> None:
        """Ask back what waits in one process while another is free."""
        if all(worker.start is not None for worker in self._workers.values()):
            return
        longest = max(self._workers.values(), key=lambda worker: len(worker.given), default=None)
        if longest is not None and len(longest.given) > 1:
            self._ask_back(longest)

    def _ask_back(self, worker: _Worker) -> None:
        if not worker.asked_back:
            worker.asked_back = True
            worker.send(packet(BACK))

    def _begin_worker(self) -> _Worker | None:
        """Start a process; None: it could not be, which is told as the failure of who waits first."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            descriptor = theirs.fileno()
            process = None
            try:
                process = subprocess.Popen(self._command(descriptor), pass_fds=(descriptor,), stdin=subprocess.DEVNULL)
                watched = os.pidfd_open(process.pid)
            except OSError as error:
                ours.close()
                end_all([process] if process is not None else [])  # nobody would see its end
                start = self._queue.popleft()
                why = f"no process could be started: {error.strerror}"
                self._end(start, error_reply(ActivityFailed.code, ENDED_EARLY, why))
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
        process.wait()  # its descriptor told that it has ended: this does not wait
        self._alive.discard(process)

    def _give(self, worker: _Worker, start: ActivityStart) -> None:
        worker.given.append(start)
        if worker.ready and worker.start is start:
            self._count_time(worker, start)
        elif worker.patience is None and worker.start is not start:
            worker.patience = self._loop.call_later(PATIENCE_S, self._impatient, worker)
        trace = self._traceparent(start.invocation, start.operation)
        if trace:
            worker.send(packet(TRACE, trace.encode()))
        worker.send(struct_packet(START, start))

    def _count_time(self, worker: _Worker, start: ActivityStart) -> None:
        if start.timeout_us:
            worker.limit = self._loop.call_later(start.timeout_us / 1e6, self._too_long, worker)
        if len(worker.given) > 1:
            worker.patience = self._loop.call_later(PATIENCE_S, self._impatient, worker)
        self.beat(worker)

    def _impatient(self, worker: _Worker) -> None:
        """What it runs takes long: let others run what waits behind that."""
        worker.patience, worker.slow = None, True
        self._ask_back(worker)

    def _kill(self, worker: _Worker) -> None:
        if self._workers.pop(worker.number, None) is not None:
            worker.process.send_signal(signal.SIGKILL)
            worker.close()

    def _end_worker(self, worker: _Worker) -> None:
        """Kill it, and take back what waited there; what it ran was let go before."""
        self._kill(worker)
        self._take_back(worker, len(worker.given))

    def _take_back(self, worker: _Worker, count: int) -> None:
        """Those last given are the next ones again, but for those that nobody wants any more."""
        back = [worker.given.pop() for _ in range(count)]  # last one first
        self._queue.extendleft(each for each in back if _key(each) not in worker.unwanted)
        worker.unwanted.clear()

    # ---- what workers say ------------------------------------------------------------------------------------

    def ready(self, worker: _Worker) -> None:
        """It has begun and imported the service, which is no part of the time that its first activity has."""
        if not worker.ready:
            worker.ready = True
            if worker.start is not None:
                self._count_time(worker, worker.start)
            self._fill()

    def beat(self, worker: _Worker) -> None:
        """It gave a sign of life."""
        start = worker.start
        if worker.silence is not None:
            worker.silence.cancel()
            worker.silence = None
        if start is not None and start.heartbeat_us:
            worker.silence = self._loop.call_later(start.heartbeat_us / 1e6, self._too_silent, worker)

    def answered(self, worker: _Worker, reply: bytes) -> None:
        """Its function ended, and it goes on with what waits there first."""
        ended = worker.free()
        if ended is not None:
            self._end(ended, reply)
        start = worker.start
        if start is not None and _key(start) in worker.unwanted:  # it began before it could be asked back
            worker.free()
            self._end_worker(worker)
        elif start is not None:
            self._count_time(worker, start)
        self._fill()

    def returned(self, worker: _Worker, count: int) -> None:
        """What waited there does no more."""
        if not worker.asked_back or count > len(worker.given):
            self.failed(worker, ENDED_EARLY, "its process broke the pipe: it returns what it was not asked for")
            return
        worker.asked_back = False
        if count == len(worker.given):  # what ran had just ended
            worker.end_time()
        began = {_key(each) for each in worker.given} & worker.unwanted
        self._take_back(worker, count)
        worker.unwanted = began & {_key(each) for each in worker.given}
        self._fill()

    def failed(self, worker: _Worker, kind: str, why: str) -> None:
        """Its process is gone, or must go."""
        start = worker.free()
        self._end_worker(worker)
        if start is not None:
            _LOG.warning("activity failed", extra={"activity": start.name, "key": start.key, "why": why})
            self._end(start, ended_by(start, kind, why, begun=worker.ready))
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


def _key(start: ActivityStart) -> Key:
    return start.invocation, start.operation


def ended_by(start: ActivityStart, kind: str, why: str, *, begun: bool) -> bytes:
    """Give the reply to an attempt that was ended, not one whose function came to its end.

    Args:
        start: the attempt.
        kind: what its handler tells it by.
        why: for people.
        begun: its function may have run. If it must at most once, it is not begun again to find out.
    """
    text = f"activity {start.name!r}: {why}"
    if start.at_most_once and begun:
        return error_reply(OutcomeUnknown.code, OutcomeUnknown.__name__, text)
    return error_reply(ActivityFailed.code, kind, text)


def worker_command(config: ReplicaConfig) -> Callable[[int], list[str]]:
    """Give what starts a worker process of a replica."""
    parent = str(os.getpid())
    start = [sys.executable, "-m", "deathless.shell.worker.activity_process"]
    code = str(Path(config.directory) / FOLDER / config.code) if config.code else ""
    told = [parent, config.module, config.log_level, config.replica, code]
    return lambda descriptor: [*start, str(descriptor), *told]

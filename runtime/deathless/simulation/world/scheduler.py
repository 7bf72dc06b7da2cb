"""Virtual time, processes that can be killed or frozen at any blocking call, and chance drawn from one seed.

Why it exists: the order of a few steps (append, sync, prove, release) decides whether anything is ever lost, so
the simulation must be able to stop a replica between any two of them, and must be able to do it again.

The machines. A ``Scheduler`` owns the clock and a heap of (time, ordinal): what is due first runs first, ties in
the order in which they were made. A ``Process`` is one thread of one program: a queue of callbacks, run one after
the other. A callback may block in ``Process.pause`` (a disk, a lock store): virtual time goes on, other processes
run, and callbacks that arrive meanwhile wait. Real code with synchronous ports runs unchanged, because each process
has a greenlet of its own.

    RUNNING --freeze--> FROZEN (SIGSTOP: nothing runs, timers and packets wait) --thaw--> RUNNING
    RUNNING, FROZEN --kill, or an exception leaves a callback--> DEAD --start--> RUNNING (generation + 1)

Who sees what. A killed process gets ``ProcessKilled`` in the call it is blocked in; every port must call
``Process.check`` first, so that code which runs while the stack unwinds has no effect outside. What was due for an
older generation is dropped.

Guarantees: the same seed and the same program give the same order of events and the same trace hash, in any
interpreter and under any hash seed, as long as the program iterates over no set; a draw added to one named fork of
chance shifts no other fork. Does not: know what a disk or a network is. May import greenlet, engine and below.
"""

from __future__ import annotations

import hashlib
import heapq
import random
from collections import deque
from collections.abc import Callable
from enum import StrEnum
from typing import Final

import greenlet

from deathless.execution.values.failure import ProcessEnds

TRACE_TAIL_LINES: Final = 400
TRACE_BLOCK_LINES: Final = 128
EVENTS_MAX: Final = 400_000


class ProcessKilled(ProcessEnds):
    """Raised inside a killed process in the call it is blocked in; not an Exception, so nothing handles it."""


class RunawaySimulationError(RuntimeError):
    """More events than ``EVENTS_MAX``: something schedules itself without letting time pass."""


class ProcessState(StrEnum):
    """The table in the module's docstring."""

    RUNNING = "running"
    FROZEN = "frozen"
    DEAD = "dead"


class Trace:
    """What happened, line by line, as a rolling hash; the text is kept whole or only its end.

    Args:
        keep_all: keep every line (for ``--trace``); otherwise the last ``TRACE_TAIL_LINES``.
    """

    __slots__ = ("_block", "_hash", "lines")

    def __init__(self, *, keep_all: bool = False) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._block: list[str] = []  # lines not yet in the hash; Invariant: fewer than TRACE_BLOCK_LINES
        self.lines: deque[str] = deque(maxlen=None if keep_all else TRACE_TAIL_LINES)

    def add(self, now_us: int, who: str, what: str) -> None:
        """Record that ``who`` did ``what``; texts must not hold addresses, hashes of objects or set orders."""
        line = f"{now_us} {who} {what}"
        self.lines.append(line)
        self._block.append(line)
        if len(self._block) >= TRACE_BLOCK_LINES:
            self._flush()

    def _flush(self) -> None:
        self._hash.update("\n".join(self._block).encode())
        self._hash.update(b"\n")
        self._block.clear()

    def hexdigest(self) -> str:
        """Give the hash over all lines so far."""
        if self._block:
            self._flush()
        return self._hash.hexdigest()


class Timer:
    """Something due; ``cancel`` makes it nothing."""

    __slots__ = ("at_us", "callback")

    def __init__(self, at_us: int, callback: Callable[[], None]) -> None:
        self.at_us = at_us
        self.callback: Callable[[], None] | None = callback  # None: cancelled, or it has run

    def cancel(self) -> None:
        """Forget it; harmless when it has run."""
        self.callback = None


def draw(seed: int, name: str) -> random.Random:
    """Give the generator that belongs to ``name`` under ``seed``, independent of every other name's."""
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=16).digest()
    return random.Random(int.from_bytes(digest, "little"))


class Scheduler:
    """Runs everything that is due, in order of virtual time.

    Args:
        seed: of all chance in this run.
        keep_trace: keep the whole text of the trace.
    """

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        self.seed = seed
        self.now_us = 0  # virtual microseconds since the start
        self.events = 0  # callbacks run so far
        self.trace = Trace(keep_all=keep_trace)
        self.processes: dict[str, Process] = {}
        self._heap: list[tuple[int, int, Timer]] = []
        self._ordinal = 0  # of the next timer; breaks ties
        self.hub = greenlet.getcurrent()
        self.current: Process | None = None  # whose greenlet runs now; None: the hub

    def fork(self, name: str) -> random.Random:
        """Give a generator of chance for one component; the same name gives the same numbers."""
        return draw(self.seed, name)

    def note(self, who: str, what: str) -> None:
        """Record a line in the trace at the present time."""
        self.trace.add(self.now_us, who, what)

    def call_at(self, at_us: int, callback: Callable[[], None]) -> Timer:
        """Run ``callback`` in the hub at ``at_us``; a time in the past means now."""
        timer = Timer(max(at_us, self.now_us), callback)
        heapq.heappush(self._heap, (timer.at_us, self._ordinal, timer))
        self._ordinal += 1
        return timer

    def call_later(self, delay_us: int, callback: Callable[[], None]) -> Timer:
        """Run ``callback`` in the hub after ``delay_us``."""
        return self.call_at(self.now_us + delay_us, callback)

    def run_until(self, at_us: int, *, stop: Callable[[], bool] | None = None) -> bool:
        """Run what is due up to and including ``at_us``.

        Args:
            at_us: where virtual time stands afterwards, unless stopped before.
            stop: asked after every event; True ends the run there.

        Returns: True when ``stop`` ended it.
        Raises: RunawaySimulationError; whatever a hub callback raises (a fault of the simulation itself).
        """
        heap = self._heap
        while heap and heap[0][0] <= at_us:
            due_us, _, timer = heapq.heappop(heap)
            callback = timer.callback
            if callback is None:
                continue
            timer.callback = None
            self.now_us = due_us
            self.events += 1
            if self.events > EVENTS_MAX:
                raise RunawaySimulationError(f"{self.events} events at {self.now_us} us")
            callback()
            if stop is not None and stop():
                return True
        self.now_us = max(self.now_us, at_us)
        return False

    def process(self, name: str, host: str, on_exit: Callable[[Process, BaseException | None], None]) -> Process:
        """Make a process, not yet started.

        Args:
            name: unique.
            host: machine it runs on: the unit of partitions and power cuts.
            on_exit: called in the hub when it has died: with the exception that left a callback, None when killed.
        """
        assert name not in self.processes, name
        made = Process(self, name, host, on_exit)
        self.processes[name] = made
        return made

    def close(self) -> None:
        """Kill what still runs, so that no greenlet outlives the run."""
        for process in self.processes.values():
            process.on_exit = _ignore_exit
            process.kill()
        self._heap.clear()


def _ignore_exit(_process: Process, _error: BaseException | None) -> None:
    """End of the run: nobody restarts anything."""


class Process:
    """One thread of one program on one host; see the module's docstring.

    Attributes:
        generation: grows with every start; what was due for an older one is dropped.
    """

    def __init__(
        self, scheduler: Scheduler, name: str, host: str, on_exit: Callable[[Process, BaseException | None], None]
    ) -> None:
        self.scheduler = scheduler
        self.name = name
        self.host = host
        self.on_exit = on_exit
        self.state = ProcessState.DEAD
        self.generation = 0
        self._inbox: deque[Callable[[], None]] = deque()
        self._greenlet: greenlet.greenlet | None = None
        self._idle = True  # between two callbacks; False also while blocked
        self._woken = False  # the pause is over, but the process was frozen when it ended

    @property
    def alive(self) -> bool:
        """True unless dead; a frozen process is alive."""
        return self.state is not ProcessState.DEAD

    def start(self, main: Callable[[], None]) -> None:
        """Start a new generation whose first callback is ``main``."""
        assert not self.alive, self.name
        self.generation += 1
        self.state = ProcessState.RUNNING
        self._inbox.clear()
        self._idle, self._woken = True, False
        self._greenlet = greenlet.greenlet(self._loop, parent=self.scheduler.hub)
        self.scheduler.note(self.name, f"started {self.generation}")
        self.post(main)

    def post(self, callback: Callable[[], None]) -> None:
        """Queue a callback; it runs at once when the process is idle and the hub asks."""
        if self.state is ProcessState.DEAD:
            return
        self._inbox.append(callback)
        if self._idle and self.state is ProcessState.RUNNING:
            if self.scheduler.current is None:
                self._resume()
            else:
                self._resume_soon()

    def call_later(self, delay_us: int, callback: Callable[[], None]) -> Timer:
        """Post ``callback`` after ``delay_us``, unless this generation is dead by then."""
        generation = self.generation

        def fire() -> None:
            if self.generation == generation:
                self.post(callback)

        return self.scheduler.call_later(delay_us, fire)

    def check(self) -> None:
        """Raise ProcessKilled when this process is dead: every port calls it before it does anything."""
        if self.state is ProcessState.DEAD:
            raise ProcessKilled

    def pause(self, delay_us: int) -> None:
        """Block for ``delay_us`` of virtual time, longer when frozen meanwhile.

        Outside the process itself (set-up by the hub) it does nothing.
        Raises: ProcessKilled when the process is killed meanwhile.
        """
        self.check()
        if self.scheduler.current is not self:
            return
        generation = self.generation
        self.scheduler.call_later(delay_us, lambda: self._wake(generation))
        self.scheduler.hub.switch()
        self.check()

    def freeze(self) -> None:
        """Stop it as SIGSTOP does; a dead one stays dead."""
        if self.state is ProcessState.RUNNING:
            self.state = ProcessState.FROZEN
            self.scheduler.note(self.name, "frozen")

    def thaw(self) -> None:
        """Let it go on as SIGCONT does."""
        if self.state is not ProcessState.FROZEN:
            return
        self.state = ProcessState.RUNNING
        self.scheduler.note(self.name, "thawed")
        self._resume_soon()

    def kill(self) -> None:
        """End it as kill -9 does: at once, wherever it is. Called by itself it does not return."""
        if not self.alive:
            return
        current = self.scheduler.current
        if current is self:
            raise ProcessKilled
        if current is not None:
            generation = self.generation
            self.scheduler.call_later(0, lambda: self.kill() if self.generation == generation else None)
            return
        self._die("killed")
        own = self._greenlet
        self._greenlet = None
        if own is not None and own:
            self.scheduler.current = self
            own.throw(ProcessKilled)
            self.scheduler.current = None
        self.on_exit(self, None)

    def _die(self, why: str) -> None:
        self.state = ProcessState.DEAD
        self._inbox.clear()
        self.scheduler.note(self.name, why)

    def _resume_soon(self) -> None:
        generation = self.generation
        self.scheduler.call_later(0, lambda: self._maybe_resume(generation))

    def _maybe_resume(self, generation: int) -> None:
        if self.generation == generation and self.state is ProcessState.RUNNING:
            if self._woken:
                self._woken = False
                self._resume()
            elif self._idle and self._inbox:
                self._resume()

    def _wake(self, generation: int) -> None:
        if self.generation != generation or not self.alive:
            return
        if self.state is ProcessState.FROZEN:
            self._woken = True
        else:
            self._resume()

    def _resume(self) -> None:
        scheduler = self.scheduler
        own = self._greenlet
        assert own is not None
        assert scheduler.current is None
        scheduler.current = self
        own.switch()
        scheduler.current = None

    def _loop(self) -> None:
        """Body of the greenlet: runs callbacks until one raises."""
        inbox = self._inbox
        hub = self.scheduler.hub
        try:
            while True:
                while inbox:
                    self._idle = False
                    inbox.popleft()()
                    # A callback may have been frozen in its last step: the rest of the inbox waits.
                    while self.state is ProcessState.FROZEN:
                        self._idle = True
                        hub.switch()
                self._idle = True
                hub.switch()
        except ProcessKilled:
            if self.alive:  # it killed itself
                self._die("killed itself")
                self.scheduler.call_later(0, lambda: self.on_exit(self, None))
        except Exception as error:  # noqa: BLE001 - whatever leaves a program ends its process, and its owner judges it
            if not self.alive:  # raised by code that unwinds after a kill
                return
            self._die(f"ended: {type(error).__name__}")
            ended = error
            self.scheduler.call_later(0, lambda: self.on_exit(self, ended))

"""One process of the program that is checked, driven step by step, and everything that it sends.

Why it exists: a check is a list of steps (start, load, deliver, ask for a checkpoint, kill), and each of them ends when
the program has done its part or is found to do something else. Here a step is a coroutine that ends or raises Failed.

Guarantees: nothing of the process is left when `end` has returned. Does not: log to a disk: the log of a check is a
list. Imports base, protocols and the folder of applications.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from deathless.base.errors import ApplicationNotStarted
from deathless.protocols.ambrosia import events as on
from deathless.protocols.ambrosia.events import Effect
from deathless.protocols.ambrosia.lanes import LaneState
from deathless.protocols.ambrosia.machine import ApplicationMachine
from deathless.protocols.ambrosia.messages import SELF, Kind, Oversized, Rpc
from deathless.protocols.ambrosia.states import State
from deathless.shell.foreign.application import Application, ApplicationSettings, Death
from deathless.shell.foreign.check.plan import Record

COMMITTER: Final = 7_001
PIECE_BYTES: Final = 1 << 16


class Failed(Exception):
    """The program ended, or was ended for what it sent."""

    def __init__(self, death: Death, doing: str) -> None:
        super().__init__(str(death.error))
        self.death = death
        self.doing = doing


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A checkpoint: the program's own, and what it had emitted before it."""

    lsn: int
    records: int
    lanes: tuple[LaneState, ...]
    state: bytes

    @property
    def emitted(self) -> dict[str, int]:
        """Target to how many messages lie before it."""
        return {lane.target: lane.emitted for lane in self.lanes}


@dataclass(slots=True)
class Sent:
    """What a process sent."""

    by_target: dict[str, list[Rpc | Oversized]] = field(default_factory=dict)
    inputs: list[Rpc] = field(default_factory=list)  # calls to itself and impulses that are not logged yet
    impulses: int = 0
    refused: list[on.OutputRefused] = field(default_factory=list)

    @property
    def count(self) -> int:
        """Messages, impulses not counted."""
        return sum(len(items) for items in self.by_target.values())


class Program:
    """One process.

    Args:
        settings: how it is started.
    """

    def __init__(self, settings: ApplicationSettings) -> None:
        self.sent = Sent()
        self.initial: bytes | None = None
        self.doing = "starting it"  # for people
        self._machine = ApplicationMachine(name=settings.instance, committer=COMMITTER)
        self._application = Application(settings, self._machine, self)
        self._changed = asyncio.Event()
        self._death: Death | None = None
        self._saving: Saved | None = None
        self._pieces: list[bytes] = []
        self._finished: list[Saved] = []

    # ------------------------------------------------------------ steps

    async def start(self) -> None:
        """Start it, and wait until it is connected. Raises: Failed, ApplicationNotStarted."""
        self._application.start()
        await self._until(lambda: self._machine.state is not State.CONNECTING)

    async def first_start(self) -> Saved:
        """Have it make its first message and its first checkpoint. Raises: Failed."""
        self.doing = (
            "its first start: TakeBecomingPrimaryCheckpoint (11) was sent, InitialMessage and Checkpoint are due"
        )
        self._application.order(on.Begin())
        return await self._checkpoint()

    async def load(self, saved: Saved) -> None:
        """Give it a checkpoint to go on from. Raises: Failed."""
        self.doing = f"loading its checkpoint of {len(saved.state)} bytes"
        state = saved.state
        order = self._application.order
        order(on.Load(length=len(state), lsn=saved.lsn, records=saved.records, lanes=saved.lanes))
        for at in range(0, len(state), PIECE_BYTES):
            order(on.LoadPart(data=state[at : at + PIECE_BYTES]))
        await self._until(lambda: self._machine.state is State.FOLLOWING)

    async def deliver(self, record: Record) -> None:
        """Give it a record. Raises: Failed."""
        self._alive()
        methods = sorted({rpc.method for rpc in record.rpcs if rpc.kind in _CALLS})
        self.doing = f"running message {record.lsn} of its log; methods of the last record: {methods}"
        self._application.order(on.Confirmed(lsn=record.lsn))
        self._application.order(on.Deliver(lsn=record.lsn, rpcs=record.rpcs))
        await asyncio.sleep(0)

    async def deliver_initial(self, lsn: int, data: bytes) -> None:
        """Give it the first record, which holds its own InitialMessage. Raises: Failed."""
        self._alive()
        self.doing = "running its own InitialMessage"
        self._application.order(on.Confirmed(lsn=lsn))
        self._application.order(on.DeliverInitial(lsn=lsn, data=data))

    async def checkpoint(self) -> Saved:
        """Ask for a checkpoint: all that it emitted of what it was given stands before it. Raises: Failed."""
        self._alive()
        self.doing = f"{self.doing}; TakeCheckpoint (2) was sent behind it"
        self._application.order(on.TakeCheckpoint())
        return await self._checkpoint()

    async def lead(self) -> None:
        """Have it lead. Raises: Failed."""
        self._alive()
        self.doing = "BecomingPrimary (15) was sent"
        self._application.order(on.Lead())

    async def upgrade(self) -> Saved:
        """Have it go over to its new code, and lead. Raises: Failed."""
        self._alive()
        self.doing = "UpgradeTakeCheckpoint (10) was sent: a checkpoint of the new code is due"
        self._application.order(on.Upgrade())
        saved = await self._checkpoint()
        self._application.order(on.Commit())
        return saved

    async def test_upgrade(self) -> None:
        """Have it go over to its new code before the log is replayed. Raises: Failed."""
        self._alive()
        self.doing = "UpgradeService (12) was sent"
        self._application.order(on.TestUpgrade())

    async def has_read_all(self, look_s: float) -> None:
        """Wait until it has read everything. Raises: Failed."""
        while self._application.waiting:
            self._alive()
            await asyncio.sleep(look_s)
        await asyncio.sleep(look_s)
        self._alive()

    async def emits(self, count: int, look_s: float) -> None:
        """Wait until it has sent so many messages, or has read everything. Raises: Failed."""
        while self.sent.count < count and self._application.waiting:
            self._alive()
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), look_s)

    def hold(self, on: bool) -> None:
        """Read nothing of it, or go on."""
        self._application.hold(on)

    async def kill(self) -> None:
        """Kill its process as a machine does, and read what it had sent."""
        if self._death is None:
            os.kill(self._application.pid, signal.SIGKILL)
        await self._dead()

    async def ends_by_itself(self, within_s: float) -> bool:
        """Close its connections; gives whether it ends for that."""
        self._application.disconnect()
        try:
            await asyncio.wait_for(self._dead(), within_s)
        except TimeoutError:
            return False
        return True

    async def end(self) -> None:
        """End it, if it lives."""
        self._application.stop()
        await self._dead()

    def take_inputs(self, count: int) -> list[Rpc]:
        """Give what it sent to itself and is to be logged, at most so many messages."""
        taken, self.sent.inputs = self.sent.inputs[:count], self.sent.inputs[count:]
        return taken

    # ------------------------------------------------------------ what the application tells

    def application_connected(self) -> None:
        """See Owner."""
        self._changed.set()

    def carry_out(self, effects: list[Effect]) -> None:
        """See Owner."""
        for effect in effects:
            match effect:
                case on.Emitted():
                    self._emitted(effect)
                case on.ImpulseEmitted():
                    self.sent.impulses += 1
                    self.sent.inputs.append(effect.rpc)
                case on.OutputRefused():
                    self.sent.refused.append(effect)
                case on.InitialMade():
                    self.initial = effect.data
                case on.CheckpointBegan():
                    self._pieces = []
                    self._saving = Saved(lsn=effect.lsn, records=effect.records, lanes=effect.lanes, state=b"")
                case on.CheckpointPart():
                    self._pieces.append(effect.data)
                case on.CheckpointEnded():
                    assert self._saving is not None
                    self._finished.append(replace(self._saving, state=b"".join(self._pieces)))
                case _:
                    pass
        self._changed.set()

    def application_ended(self, death: Death) -> None:
        """See Owner."""
        self._death = death
        self._changed.set()

    def _emitted(self, effect: on.Emitted) -> None:
        self.sent.by_target.setdefault(effect.target, []).append(effect.item)
        if effect.target == SELF and isinstance(effect.item, Rpc):
            self.sent.inputs.append(effect.item)

    # ------------------------------------------------------------ waiting

    async def _checkpoint(self) -> Saved:
        self._finished.clear()
        await self._until(lambda: bool(self._finished))
        return self._finished.pop()

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._alive()
            self._changed.clear()
            await self._changed.wait()

    async def _dead(self) -> None:
        while self._death is None:
            self._changed.clear()
            await self._changed.wait()

    def _alive(self) -> None:
        if self._death is not None:
            if isinstance(self._death.error, ApplicationNotStarted):
                raise self._death.error
            raise Failed(self._death, self.doing)


_CALLS: Final = frozenset({Kind.ASYNC, Kind.FORK, Kind.IMPULSE})

"""One service of an environment: its disk, its clock, who leads it, and what becomes of it when that dies.

    start --> Primary r0 --killed--> Primary r1 --killed--> ...      each reads what the one before left on the disk
                 '--an error of its own--> told to the test

Guarantees: what a process wrote is there for the next one, as after kill -9 on one machine. At most one leads. Does
not: decide when somebody dies. May import the simulation's disk.
"""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from deathless.base.errors import DeathlessError, Diverged, HandlerFailed, Internal, InvalidUse
from deathless.base.limits import Limits
from deathless.codec.frames import FrameKind
from deathless.codec.peer_messages import SELF, Target
from deathless.codec.witness import Point as Confirmed
from deathless.engine.log.checkpoint_store import CHECKPOINT_FOLDER
from deathless.engine.log.reader import LogReader
from deathless.engine.ports import ServiceRecord
from deathless.engine.shard.assembly import open_shard
from deathless.execution.author.service import Service
from deathless.execution.handlers.entities import Entities
from deathless.execution.maps.table import Look
from deathless.execution.values.failure import Bug
from deathless.simulation.world.disk import CHANGES, SimDisk, SimFileSystem
from deathless.testing.activities import FakeActivity
from deathless.testing.loop import Clock, Loop
from deathless.testing.moments import Moment
from deathless.testing.primary import Primary

if TYPE_CHECKING:
    from deathless.testing.environment import Environment
    from deathless.testing.links import Links

REPLICAS: Final = 3  # names of replicas, which processes take in turn
LOG: Final = "log/"


class Served:
    """One service."""

    def __init__(self, env: Environment, service: Service, chance: random.Random, limits: Limits) -> None:
        self.service = service
        self.limits = limits
        self.clock = Clock(env.loop)
        self.disk = SimDisk(random.Random(chance.getrandbits(64)))
        self.fakes: dict[str, FakeActivity] = {}
        self.confirmed: dict[str, Confirmed] = {}  # by replica: what it left in its machine's memory
        self.primary: Primary | None = None
        self.stopped = False
        self.lives = 0
        self._env = env
        self._chance = chance
        self._bug: tuple[bytes, BaseException] | None = None  # of the last bug of a handler: its reply, and what it was
        self.record = ServiceRecord(
            name=service.name,
            service_id=self.draw(16),
            incarnation=1,
            seed=self.draw(32),
            hash_seed=1,
            fence="seal",
            live=False,
        )

    @property
    def name(self) -> str:
        """Of the service."""
        return self.service.name

    @property
    def loop(self) -> Loop:
        """The environment's."""
        return self._env.loop

    @property
    def links(self) -> Links:
        """The environment's."""
        return self._env.links

    def draw(self, count: int) -> bytes:
        """Give as many bytes, of the environment's seed."""
        return self._chance.randbytes(count)

    # ---- who leads ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Have a process start, unless one runs or the service is stopped."""
        if self.primary is None and not self.stopped:
            primary = self.primary = Primary(self, f"r{self.lives % REPLICAS}")
            self.lives += 1
            self.loop.post(primary.open, primary.life)

    def kill(self) -> None:
        """End the process that leads now, wherever it is; the next one starts when the environment says."""
        if self.primary is not None:
            self.loop.end(self.primary.life, None)

    def leader(self) -> Primary:
        """Give who leads. Raises: InvalidUse when the service is stopped."""
        if self.primary is None or not self.primary.leads:
            raise InvalidUse(f"{self.name} is stopped", remedy=f"env.start({self.name})")
        return self.primary

    @property
    def led(self) -> bool:
        """Does somebody lead?"""
        return self.primary is not None and self.primary.leads

    def died(self, primary: Primary, error: BaseException | None) -> None:
        """A process ended."""
        if self.primary is primary:
            self.primary = None
        if error is None:
            if not self.stopped:
                self._env.succeed(self)
        elif isinstance(error, DeathlessError):
            self._env.failed(error)
        else:
            failure = Internal(f"{primary.life.name}: {type(error).__name__}: {error}")
            failure.__cause__ = error
            self._env.failed(failure)

    def now_leads(self, primary: Primary, epoch: int) -> None:
        """A process leads."""
        assert self.primary is primary, f"epoch {epoch} is led by a process that is over"
        self._env.now_leads(self)

    def restart_after(self, gap: timedelta) -> None:
        """Have the next process start, now or after some time."""
        if not gap:
            self.start()
        else:
            self.loop.at(self.loop.now_us + gap // timedelta(microseconds=1), self.start)

    # ---- what a process gets -----------------------------------------------------------------------------------

    def view(self, name: str) -> SimFileSystem:
        """Give a process's own sight of the disk."""
        return self.disk.view(name, self._gate)

    def _gate(self, operation: str, path: str, moment: str) -> None:
        if moment == "after" and operation in CHANGES and not path.startswith(LOG):
            name: Moment = "checkpoint" if path.startswith(CHECKPOINT_FOLDER) else "lock"
            self.reached(name, f"{operation} {path}")

    def reached(self, moment: Moment, what: str = "", *, named: bool = True) -> None:
        """The process came to a point. Raises: Killed."""
        self._env.points.reached(self.name, moment, what, named=named)

    def check_peer(self, target: Target) -> None:
        """Look whether whom we send to is there. Raises: InvalidUse."""
        if target != SELF and not self._env.knows(target.service):
            raise InvalidUse(
                f"{self.name} sends to {target.service!r}, which is no service of this environment",
                remedy=f"Environment({self.name}, ...) with that service, or env.peer({target.service!r})",
            )

    def bug(self, bug: Bug) -> None:
        """A handler or query ended in an exception that its author did not mean."""
        self._bug = bug.reply, bug.error

    def noted(self, error: DeathlessError) -> DeathlessError:
        """Give an error that a caller got, with the exception that it stands for, where it is a bug's."""
        if isinstance(error, HandlerFailed) and self._bug is not None and error.message in str(self._bug[1]):
            error.__cause__ = self._bug[1]
        return error

    # ---- what is there -----------------------------------------------------------------------------------------

    def states(self) -> dict[bytes, bytes]:
        """Give the encoded states, with the items of maps, by key."""
        return dict(self.leader().engine.shard.executor.state())

    def state_of(self, key: str) -> object:
        """Give the state of a key as it is now."""
        entities = Entities(self.service, self.limits)
        entities.restore(self.states())
        return entities.look(b"" if self.service.single else key.encode(), Look(entities.maps))

    def checkpoint(self) -> None:
        """Have a checkpoint written, from which the next process begins."""
        primary = self.leader()
        primary.loop.post(primary.engine.take_checkpoint, primary.life)

    def save(self, folder: Path) -> None:
        """Write the disk's files into a folder. Raises: OSError."""
        for name, held in self.disk.folders.items():
            place = folder / name
            place.mkdir(parents=True, exist_ok=True)
            for file, inode in held.entries.items():
                (place / file).write_bytes(inode.read(0, inode.size))

    def replay(self) -> None:
        """Run the whole log again in a shard of its own, and compare.

        Raises: Diverged naming lsn, handler and key: a handler did not do the same again.
        """
        primary = self.primary
        if primary is None or not primary.leads:
            return
        shard, reader = open_shard(self.service, self.limits, self.record.seed), LogReader(self.disk.view("replay"))
        head = primary.lock.view().head
        route = reader.routes.find_oldest(head)
        if route.start.lsn:
            return  # the beginning was collected; a takeover from the checkpoint compares the rest
        for step in reader.walk(route, judge=False):
            frame = step.found.frame
            if frame.kind == FrameKind.DATA and frame.last_lsn > shard.place.lsn:
                shard.apply(frame)
        ours, again = self.states(), dict(shard.executor.state())
        if shard.place.lsn == primary.engine.place.lsn and ours != again:
            differ = sorted(key for key in ours.keys() | again.keys() if ours.get(key) != again.get(key))
            raise Diverged(f"{self.name}: a replay of the log gives another state of {differ[0].decode()!r}")

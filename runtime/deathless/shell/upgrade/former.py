"""The former code, as the worker of an upgrader has it: a process of its own, told of every confirmed frame.

    start -> BEGIN;  restore, apply -> RESTORE, APPLY (buffered, never waited for)
    tried    -> GIVE -> GIVEN -> a thread reads what was given, and migrates it -> the states are written ahead -> done
    migrated -> GIVE_CHANGES -> GIVEN_CHANGES -> the same thread migrates what changed since -> done
                            without a trial before: GIVE -> GIVEN, and all is migrated then
                            where it goes back to an older version: BACK -> LOWERED, BACK_CHANGES -> LOWERED_CHANGES

So nobody waits at the cut for what does not change between trial and cut. States with maps are migrated at the cut, all
of them.

The thread is there so that heartbeats go on while a large state is migrated: functions of the author run in it that are
pure, and nothing of the engine.

Guarantees: as the port Former's; a process that ends, or gives up, is told where the state is asked for, and before
that by `problem`. Does not: run anything of the former code here.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple, Protocol, cast

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.base.errors import DeathlessError, UpgradeCalledOff, UpgradeRefused
from deathless.codec import checkpoint
from deathless.codec.frames import Frame
from deathless.codec.generations import Level
from deathless.codec.snapshot import Begun, Since, Snapshot
from deathless.codec.untrusted import read_msgpack
from deathless.core.client.events import error_of
from deathless.core.tables.outbox import Outbox
from deathless.engine.replica.failures import as_ours
from deathless.execution.interface.misfit import Misfit
from deathless.execution.migration.ahead import Ahead, known_in
from deathless.execution.ready import Ready
from deathless.execution.snapshot_migration import Migrated
from deathless.shell.upgrade.former_link import FormerLink
from deathless.shell.upgrade.migration import told
from deathless.shell.upgrade.packets import (
    GIVES_CHANGES,
    PLACE,
    Back,
    Begin,
    ChangesGiven,
    Failed,
    Kind,
    LoweredThere,
    Reader,
    frame_body,
    packet,
)

WAITING_BYTES_MAX: Final = 1 << 30
"""So much may wait for the former code, in this process's memory: it falls behind while it writes its state out."""

MakeReady = Callable[[Ready], Iterator[None]]
"""Makes ready what the new code goes on with, in short steps."""

WriteAhead = Callable[[Mapping[bytes, bytes], Callable[[Begun | None], None]], None]
"""Begins the first checkpoint with these states; told None where that can't be."""


class Look(Protocol):
    """Says what can be made of what the former code holds (see `migrate_snapshot`)."""

    def __call__(self, snapshot: Snapshot, ahead: Ahead | None = None, gone: Collection[bytes] = (), /) -> Migrated:
        """Raises: DeathlessError."""
        ...


Answer = Migrated | DeathlessError


class _Waiting(NamedTuple):
    """Who asked for its state."""

    done: Callable[[Answer], None]
    cut: bool  # it is for good: nothing is prepared any more


class _Said(NamedTuple):
    """What it said of itself last."""

    lsn: int = 0  # up to which it has run the log
    level: int = Level.FIRST  # newest format level that its build knows


class FormerProcess(asyncio.Protocol):
    """One run of it.

    Args:
        config: of the upgrader's replica, with the former code's module.
        link: the way to it.
        seed: of the service.
        fingerprint: of the former code.
        scratch: folder for the file in which it gives its state.
        look: what is made of that.
        back: it goes back to an older version, to this one; its path does not count. None: it does not.
    """

    def __init__(
        self,
        config: ReplicaConfig,
        *,
        link: FormerLink,
        seed: bytes,
        fingerprint: bytes,
        scratch: str,
        look: Look,
        back: Back | None = None,
    ) -> None:
        self.problem: DeathlessError | None = None  # why it can't go on; None: it does
        self._said = _Said()
        self._begin = Begin(msgspec.json.encode(config), seed, fingerprint)
        self._link = link
        self._path = Path(scratch) / f"upgrade.{os.getpid()}.former"
        self._look = look
        self._back = back
        self._transport: asyncio.Transport | None = None
        self._reader = Reader()
        self._waiting: deque[_Waiting] = deque()  # for what was asked for, in order
        self._taking: asyncio.Task[None] | None = None  # of what was given; it lives only while somebody holds it
        self.write_ahead: WriteAhead | None = None  # set by who can
        self.make_ready: MakeReady | None = None  # likewise
        self._ahead: Ahead | None = None  # what came of its states when it was tried
        self._begun: Begun | None = None  # that was written of these

    async def start(self) -> None:
        """Have the process. Raises: UpgradeCalledOff where there can be none."""
        self._sweep()
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: self, sock=await self._link.open())
        self._send(Kind.BEGIN, msgspec.msgpack.encode(self._begin))

    def _sweep(self) -> None:
        """Take away what was given to workers that were killed: it is as large as the state."""
        for path in self._path.parent.glob("upgrade.*.former"):
            if not Path("/proc", path.name.split(".")[1]).exists():
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """End the process."""
        self._part()
        self._link.close()
        self._path.unlink(missing_ok=True)

    @property
    def stands(self) -> int:
        """Lsn up to which it has run the log, as it said last."""
        return self._said.lsn

    # ---- the port ----------------------------------------------------------------------------------------------

    @property
    def level(self) -> int:
        """See Former; an older build says none, and knows the first alone."""
        return self._said.level

    def restore(self, snapshot: Snapshot) -> None:
        """See Former: it reads the checkpoint itself."""
        self._send(Kind.RESTORE, PLACE.pack(snapshot.lsn, snapshot.chain))

    def apply(self, frame: Frame) -> None:
        """See Former. One that lags without an end is given up: what it has not read is this process's memory."""
        self._send(Kind.APPLY, frame_body(frame))
        if self.waiting_bytes > WAITING_BYTES_MAX:
            self._fail(UpgradeCalledOff(f"the former code has {WAITING_BYTES_MAX >> 20} MiB of the log to read yet"))
            self._part()

    def migrated(self, done: Callable[[Snapshot | DeathlessError], None]) -> None:
        """See Former."""

        def answered(answer: Answer) -> None:
            if isinstance(answer, DeathlessError):
                done(answer)
            elif answer.misfits:
                done(UpgradeRefused(told(answer.misfits)))
            else:
                done(answer.snapshot)

        self._wait(_Waiting(answered, cut=True))

    def tried(self, done: Callable[[Answer], None]) -> None:
        """Say what would come of the upgrade now: `done` with that, or with why it can't be said.

        The cut is prepared by it.
        """
        self._wait(_Waiting(done, cut=False))

    def _wait(self, waiting: _Waiting) -> None:
        if self.problem is not None:
            waiting.done(self.problem)
            return
        self._waiting.append(waiting)
        if len(self._waiting) == 1:
            self._ask()

    def _ask(self) -> None:
        """Have it give what it holds."""
        changes = self._ahead is not None and self._waiting[0].cut
        if not changes:
            self._ahead = self._begun = None
        if self._back is None:
            self._send(Kind.GIVE_CHANGES if changes else Kind.GIVE, str(self._path).encode())
        else:
            back = msgspec.structs.replace(self._back, path=str(self._path))
            self._send(Kind.BACK_CHANGES if changes else Kind.BACK, msgspec.msgpack.encode(back))

    @property
    def waiting_bytes(self) -> int:
        """What it was told and has not read yet, bytes."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    # ---- the socket --------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is of no such class

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        try:
            for kind, body in self._reader.feed(data):
                self._packet(kind, body)
        except (DeathlessError, msgspec.MsgspecError) as error:
            self._fail(UpgradeCalledOff(f"what the former code says can't be read: {error}"))
            self._part()

    def _packet(self, kind: int, body: bytes) -> None:
        if kind == Kind.STANDS:
            self._said = self._said._replace(lsn=int.from_bytes(body, "little"))
        elif kind == Kind.LEVEL:
            self._said = self._said._replace(level=max(int.from_bytes(body, "little"), Level.FIRST))
        elif kind == Kind.GIVEN:
            self._take(self._look, prepare=self._is_trial and body[PLACE.size :] == GIVES_CHANGES)
        elif kind == Kind.GIVEN_CHANGES:
            gone = read_msgpack(body, ChangesGiven).gone
            self._take(lambda given: self._look_at_changes(given, gone))
        elif kind == Kind.LOWERED:
            lowered = read_msgpack(body, LoweredThere)
            prepare = self._is_trial and lowered.gives_changes
            self._take(lambda given: self._look_at_lowered(given, lowered, self._look), prepare=prepare)
        elif kind == Kind.LOWERED_CHANGES:
            rest = read_msgpack(body, LoweredThere)
            self._take(
                lambda given: self._look_at_lowered(given, rest, lambda this: self._look_at_changes(this, rest.gone))
            )
        elif kind == Kind.FAILED:
            failed = read_msgpack(body, Failed)
            self._fail(_failure(failed))

    @property
    def _is_trial(self) -> bool:
        """Is what comes for a trial, and not for the cut?"""
        return bool(self._waiting) and not self._waiting[0].cut

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        del exc
        self._transport = None
        self._fail(UpgradeCalledOff(f"the process of the former code ended; its last words are in {self._link.log}"))

    def _part(self) -> None:
        if self._transport is not None:
            self._transport.abort()  # what the process has not read yet, nobody waits for

    def _send(self, kind: Kind, body: bytes) -> None:
        if self._transport is not None:
            self._transport.write(packet(kind, body))

    def _fail(self, error: DeathlessError) -> None:
        self.problem = self.problem or error
        self._finish(self.problem)

    def _finish(self, answer: Answer) -> None:
        if self._waiting:
            self._waiting.popleft().done(answer)
        if self.problem is not None:
            while self._waiting:
                self._waiting.popleft().done(self.problem)
        elif self._waiting:
            self._ask()

    def _take(self, look: Callable[[Snapshot], Migrated], *, prepare: bool = False) -> None:
        self._taking = asyncio.get_running_loop().create_task(self._taken(look, prepare=prepare))

    async def _taken(self, look: Callable[[Snapshot], Migrated], *, prepare: bool) -> None:
        try:
            made = await asyncio.to_thread(lambda: look(self._read()))
            if prepare and not made.misfits:
                await self._prepare(made)
            self._finish(made)
        except DeathlessError as error:
            self._finish(error)
        except OSError as error:
            self._finish(UpgradeCalledOff(f"what the former code gave can't be read: {error}"))
        except Exception as error:  # noqa: BLE001  who waits is answered, whatever it was (memory, a bug)
            self._finish(UpgradeCalledOff(f"what the former code gave can't be migrated: {as_ours(error, 'upgrade')}"))

    def _read(self) -> Snapshot:
        with self._path.open("rb") as file:

            def read(offset: int, size: int) -> bytes:
                return os.pread(file.fileno(), size, offset)

            given = checkpoint.decode(read, Outbox())
        self._path.unlink(missing_ok=True)
        return given

    async def _prepare(self, made: Migrated) -> None:
        """Keep what came of it, and have it written and made ready: at the cut only what changes since is to be done.

        An item of a map can't be migrated without its key, so states with maps are not kept.
        """
        states = made.snapshot.state
        if made.has_maps:
            return
        if self.write_ahead is not None:
            written: asyncio.Future[Begun | None] = asyncio.get_running_loop().create_future()
            self.write_ahead(states, written.set_result)
            self._begun = await written
        if self.make_ready is not None and self._begun is not None:
            name, suspended = self._begun.digest, made.snapshot.invocations
            ready = await asyncio.to_thread(lambda: Ready(name, dict(states), suspended))
            for _ in self.make_ready(ready):
                await asyncio.sleep(0)
        self._ahead = await asyncio.to_thread(
            lambda: Ahead(dict(states), known_in(made.former, made.snapshot.invocations))
        )

    def _look_at_changes(self, given: Snapshot, gone: list[bytes]) -> Migrated:
        made = self._look(given, self._ahead, gone)
        if self._begun is not None and not made.misfits:
            made.snapshot.since = Since(self._begun, made.changed, gone)
        return made

    def _look_at_lowered(
        self, given: Snapshot, lowered: LoweredThere, look: Callable[[Snapshot], Migrated]
    ) -> Migrated:
        misfits, notes = (read_msgpack(each, list[Misfit]) for each in (lowered.misfits, lowered.notes))
        if misfits:
            return Migrated(snapshot=given, misfits=misfits, notes=notes, compatible=False, keys=lowered.keys)
        found = look(given)
        compatible = found.compatible and not lowered.changed
        return dataclasses.replace(found, notes=[*notes, *found.notes], compatible=compatible)


def _failure(failed: Failed) -> DeathlessError:
    """Give why the process gave up, in words that help where it is of a release that has no such packet."""
    if failed.text.startswith(f"packet {Kind.BACK:d} is not known"):
        return UpgradeCalledOff(
            "the release of Deathless by which the code serves knows no way back",
            remedy="give the service this release with the code that serves first, and go back then",
        )
    return error_of(failed.code, failed.text)

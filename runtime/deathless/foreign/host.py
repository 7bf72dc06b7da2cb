"""The process that keeps the application beside one replica: it carries out what the coordinator decides.

    supervisor --(socket pair: Standing)--> here            primary or not, and of which epoch
    topic's files --rows------------------> here --records--> application (a child, by two sockets of the loopback)
    primary of the shard <--streams-------- here <--messages--
    folder `application` <--checkpoints---- here

There is one beside every replica, and every application runs all rows: so one that takes over has its state already.
The one beside the primary sends what its application emits. Two that both think so are told apart by the primary, of
which each stream has one owner.

Guarantees: holds no truth and may be killed or frozen at any time; an application that ends begins again from the
newest checkpoint, after a pause that doubles up to AGAIN_MAX_S; its error is logged once and told in the status. One
that somebody else starts (no command) is run once, and its end told. Does not: decide anything about rows, lanes and
checkpoints (`coordinator` does). Imports the shell, sources' link and this package.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Final

import msgspec

from deathless.base.config import BindingConfig, ReplicaConfig
from deathless.base.errors import DeathlessError, InvalidConfig, PortTaken, StorageFailed, StreamFenced
from deathless.base.foreign.binding import message_bytes
from deathless.codec.streams.records import NONCE_BYTES
from deathless.foreign.checkpoint_plan import Every
from deathless.foreign.checkpointing import Checkpointing, TooEarly
from deathless.foreign.checkpoints import Checkpoints, Found
from deathless.foreign.claim import Claim, claim
from deathless.foreign.coordinator import (
    Action,
    BeginFile,
    Coordinator,
    EndFile,
    LoadBlob,
    Owned,
    Packets,
    Tell,
    Versions,
    WriteFile,
)
from deathless.foreign.feed import Feed
from deathless.foreign.heirs import Heirs
from deathless.foreign.settings import settings_of
from deathless.foreign.skips import Skips
from deathless.foreign.starts import Starts
from deathless.foreign.watching.counts import STOPPED, Counts
from deathless.foreign.watching.newest import NONE, newest_checkpoint
from deathless.protocols.ambrosia import events as on
from deathless.protocols.ambrosia.bounds import Bounds
from deathless.protocols.ambrosia.lanes import Compare
from deathless.protocols.ambrosia.machine import ApplicationMachine
from deathless.protocols.ambrosia.states import State
from deathless.shell.directory.adopted import read_adoption
from deathless.shell.disk.filesystem import RealFileSystem
from deathless.shell.foreign.application import Application, Death
from deathless.shell.foreign.check_bytes import fastest_check
from deathless.shell.foreign.connections import until_read
from deathless.shell.foreign.folder_watch import FolderWatch
from deathless.shell.link.application_status import ApplicationStatus, read_statuses, write_status
from deathless.shell.link.side_process import keep_beside, primary_epoch, run_beside
from deathless.shell.link.standing import PROGRAM_SERVES, PROGRAM_TEXT_MAX, Program, Standing
from deathless.shell.net.abstract_socket import listen_local
from deathless.shell.net.admin_call import access_of, ask
from deathless.shell.net.status_port import StatusPort
from deathless.shell.process.output import never_wait
from deathless.shell.web.application_metrics import application_socket
from deathless.sources.link import Packets as Arrived
from deathless.sources.link import ShardLink

_LOG: Final = logging.getLogger("deathless.application")
LOOK_S: Final = 0.2  # between two looks for a checkpoint
READ_MIN_S: Final = 0.002  # between two looks whether there is room
READ_MAX_S: Final = 0.05  # between two looks at the topic where nothing wakes
UNREAD_BYTES_MAX: Final = 4 << 20  # of a checkpoint that the application has not read: then it gets no more
STATUS_S: Final = 1.0
HAND_OVER_S: Final = 3.0  # a hand-over that takes longer is not waited for
SERVING: Final = frozenset({State.FOLLOWING, State.LEADING})
LOADED: Final = SERVING | {State.SNAPSHOT, State.LEADING_SNAPSHOT}
"""States of a program that runs what is logged."""


class InOrder:
    """Carries actions out one after the other, also those that come of one of them.

    Args:
        act: carries one out.
    """

    def __init__(self, act: Callable[[Action], None]) -> None:
        self._act = act
        self._waiting: deque[Action] = deque()
        self._acting = False

    def do(self, actions: list[Action]) -> None:
        """Carry these out, behind those that wait."""
        self._waiting.extend(actions)
        if self._acting:
            return
        self._acting = True
        try:
            while self._waiting:
                self._act(self._waiting.popleft())
        finally:
            self._acting = False


class Run:
    """One process of the application, from its start to its end.

    Args:
        config: of the replica.
        binding: of the application.
        standing: how the replica stands now.
        starts: is told when it serves.
        counts: of what it does.
    """

    def __init__(
        self, config: ReplicaConfig, binding: BindingConfig, standing: Standing, starts: Starts, counts: Counts
    ) -> None:
        owned = Owned(standing.service_id, standing.incarnation)
        bounds = Bounds(message_bytes_max=message_bytes(config.make_limits()))
        self.machine = ApplicationMachine(
            name=binding.instance,
            committer=int(owned.service_id[:8], 16) >> 1,
            policy=Compare[binding.compare.upper()],
            bounds=bounds,
            check=fastest_check(),
            together=True,
        )
        every = Every(binding.checkpoint_rows, binding.checkpoint_bytes)
        files = RealFileSystem(Path(config.directory))
        skips = Skips(files).read(owned.incarnation)
        versions = Versions(binding.version, binding.next_version)
        self.coordinator = Coordinator(
            self.machine, owned, lambda: os.urandom(NONCE_BYTES), every, skips, versions, counts
        )
        self.error: DeathlessError | None = None
        self.epoch = 0  # in which it leads; 0: it does not
        self._config = config
        self._starts = starts
        self._in_order = InOrder(self._act)
        self._ended = asyncio.Event()
        self._wake = asyncio.Event()
        former = read_adoption(config.directory).former
        self._feed = Feed(config.directory, owned.service_id, owned.incarnation, skips=skips, former=former)
        self._found: Found | None = None  # the checkpoint that it goes on from
        self._tasks: set[asyncio.Task[None]] = set()
        self._link: ShardLink | None = None
        self._application = Application(settings_of(binding, config.make_limits(), config.replica), self.machine, self)
        self._checkpointing = Checkpointing(
            Checkpoints(files, config.owner),
            self._feed,
            lambda _: self._regulate(),
            self._kept,
            binding.checkpoints_kept,
            counts,
            replica=config.replica,
        )

    def status(self) -> ApplicationStatus:
        """Say how it is."""
        coordinator, ahead = self.coordinator, self._feed.ahead
        return ApplicationStatus(
            replica=self._config.replica,
            state=self.machine.state.name.lower(),
            pid=self._application.pid,
            epoch=self.epoch,
            position=coordinator.delivered,
            behind_rows=ahead.rows(coordinator.delivered),
            behind_bytes=ahead.bytes,
            waiting_bytes=coordinator.unlogged_bytes,
            skipped=coordinator.skipped,
            problem=coordinator.problem or self._checkpointing.problem,
        )

    # ---- for the application -------------------------------------------------------------------------------------

    def carry_out(self, effects: list[on.Effect]) -> None:
        """See shell.foreign.application.Owner."""
        for each in effects:
            if isinstance(each, on.OutputRefused):
                told = {"target": each.target, "position": each.position, "why": each.reason}
                _LOG.warning("a message of the application was refused", extra=told)
        self._do(self.coordinator.took(effects, time.monotonic()))

    def application_connected(self) -> None:
        """See shell.foreign.application.Owner: whoever looks for a checkpoint sees it by the machine's state."""

    def application_ended(self, death: Death) -> None:
        """See shell.foreign.application.Owner."""
        self.error = self.error or death.error
        self._ended.set()

    # ---- its course ----------------------------------------------------------------------------------------------

    async def run(self, standing: asyncio.Event, now_stands: Standings) -> None:
        """Keep the application until it ends, or our replica leads no more.

        Args:
            standing: set when the replica stands otherwise.
            now_stands: says how.

        Raises: whatever it can't go on from; the application is gone then.
        """
        with claim(self._config.directory, alone=self.coordinator.goes_over) as claimed:
            await self._live(standing, now_stands, claimed)
        if self.error is not None:
            raise self.error

    async def _live(self, standing: asyncio.Event, now_stands: Standings, claimed: Claim) -> None:
        try:
            self._application.start()
            self._begin(self._checkpointing.run())
            self._begin(self._find_checkpoint())
            self._begin(self._read_rows())
            while not self._ended.is_set() and self._follow(now_stands()):
                standing.clear()
                await self._wait(standing)
                if self.machine.state in SERVING:
                    self._starts.serves(time.monotonic())
                self._do(self.coordinator.due(time.monotonic()))
                if claimed.alone and not self.coordinator.goes_over:
                    claimed.share()  # replicas with the next version may run beside it
                if self.coordinator.is_fenced:
                    raise StreamFenced("another replica's application leads")
        finally:
            await self._close()

    def _follow(self, standing: Standing) -> bool:
        """Follow the replica's role; False: it led and does not, so this process ends."""
        epoch = primary_epoch(standing)
        self.coordinator.leading.outside_held = standing.outside_held
        self.coordinator.plan.checkpointer = standing.role == "checkpointer"
        if self.epoch and epoch != self.epoch:
            return False
        if epoch and not self.epoch:
            self.epoch = epoch
            self._do(self.coordinator.leads(self._feed.reach(), time.monotonic()))
            self._link = ShardLink(
                self._config, self._config.shard, f"application of {self._config.owner}",
                up=lambda _: self._do(self.coordinator.connected()), received=self._received,
                down=lambda _: self.coordinator.lost(),
            )  # fmt: skip
        return True

    def _received(self, _shard: int, packets: Arrived) -> None:
        try:
            for kind, body in packets:
                self._do(self.coordinator.received(kind, body, time.monotonic()))
        except DeathlessError as error:  # whoever called would take it for a connection that is lost
            self.fail(error)
        self._wake.set()

    async def _wait(self, standing: asyncio.Event) -> None:
        """Pause until there is something to do."""
        now = time.monotonic()
        deadline = self.coordinator.deadline(now)
        pause_s = STATUS_S if deadline is None else min(max(deadline - now, 0.0), STATUS_S)
        waits = [asyncio.ensure_future(each.wait()) for each in (standing, self._wake, self._ended)]
        await asyncio.wait([*waits, *self._tasks], timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
        for each in waits:
            each.cancel()
        self._wake.clear()
        for task in [each for each in self._tasks if each.done()]:
            self._tasks.discard(task)
            task.result()

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        self._tasks.add(asyncio.get_running_loop().create_task(work))

    async def _close(self) -> None:
        self._application.stop()
        if self._link is not None:
            self._link.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._ended.wait()

    # ---- actions -------------------------------------------------------------------------------------------------

    def _do(self, actions: list[Action]) -> None:
        """Carry these out; an application that can't go on is ended by that error."""
        try:
            self._in_order.do(actions)
        except DeathlessError as error:
            self.fail(error)
        self._regulate()

    def _regulate(self) -> None:
        """Read from the application while what it sends can be kept."""
        self._application.hold(self._checkpointing.is_behind or self.coordinator.is_flooded)

    def fail(self, error: DeathlessError) -> None:
        """End it by this error."""
        self.error = self.error or error
        self._application.stop()

    def _act(self, action: Action) -> None:
        match action:
            case Tell(event):
                self._application.order(event)
            case LoadBlob():
                self._begin(self._load())
                self._wake.set()
            case Packets(packets):
                if self._link is not None:
                    self._link.send(b"".join(packets))
            case BeginFile() | WriteFile() | EndFile():
                self._checkpointing.add(action)

    def _kept(self, position: int, went_over: bool) -> None:
        """A checkpoint is durable."""
        if not went_over:
            self._do(self.coordinator.kept(position, time.monotonic()))
            return
        _LOG.warning("the application went over to its next version", extra={"position": position})
        self._do(self.coordinator.went_over())
        self._wake.set()

    async def _load(self) -> None:
        """Give the application the bytes of the checkpoint that was found, as fast as it reads them."""
        assert self._found is not None
        async for piece in self._checkpointing.pieces(self._found):
            self._application.order(on.LoadPart(data=piece))
            await until_read(lambda: self._application.waiting, UNREAD_BYTES_MAX, first_s=READ_MIN_S, most_s=READ_MAX_S)

    async def _find_checkpoint(self) -> None:
        """Look for a checkpoint until one is there, or it is known that this is the first start; then for others'."""
        while True:
            try:
                await self._look_for_checkpoint()
            except TooEarly:
                self._do(self.coordinator.ask_for_row(time.monotonic()))
            await asyncio.sleep(LOOK_S)

    async def _look_for_checkpoint(self) -> None:
        """Look once. Raises: TooEarly."""
        if self.machine.state is State.WAITING and self._found is None:
            self._found = await self._checkpointing.newest(is_first=self.coordinator.may_be_first)
            if self._found is not None:
                self._do(self.coordinator.found(self._found.head, time.monotonic()))
            else:
                self._do(self.coordinator.nothing_found())
        if await self._checkpointing.look():
            self.coordinator.plan.taken()
        if self.machine.state in SERVING:
            await self._checkpointing.let_go(self.coordinator.delivered)

    async def _read_rows(self) -> None:
        """Bring rows of the topic as they come."""
        looked_at = -STATUS_S
        watch = FolderWatch([self._feed.folder])
        try:
            while True:
                self._do(self.coordinator.unread(self._application.unsent, time.monotonic()))
                if time.monotonic() - looked_at >= STATUS_S and self.machine.state in SERVING:
                    looked_at = time.monotonic()
                    await asyncio.to_thread(self._feed.look_ahead, self.coordinator.delivered)
                first = self.coordinator.next_row
                rows = await asyncio.to_thread(self._feed.read, first) if first else []
                if rows:
                    self._do(self.coordinator.rows(rows, time.monotonic()))
                    self._wake.set()
                elif first:
                    await watch.wait(READ_MAX_S)
                else:
                    await asyncio.sleep(READ_MIN_S)
        finally:
            watch.close()


class Standings:
    """How the replica stands: what the supervisor said last."""

    def __init__(self) -> None:
        self.last: Standing | None = None
        self.changed = asyncio.Event()

    def __call__(self) -> Standing:
        """Give it; somebody has said it."""
        assert self.last is not None
        return self.last


class ApplicationProcess:
    """The application beside one replica.

    Args:
        config: the replica's.
        binding: of the application.
    """

    def __init__(self, config: ReplicaConfig, binding: BindingConfig) -> None:
        self.running: Run | None = None
        self._config = config
        self._binding = binding
        self._standings = Standings()
        self._error: DeathlessError | None = None
        self._starts = Starts()
        self._heirs = Heirs(config.replica)
        self._counts = Counts()
        self._newest = NONE
        self._port: asyncio.Server | None = None
        self._say: Callable[[msgspec.Struct], None] = lambda _: None
        self._said: Program | None = None  # what the supervisor was told last

    def attached(self, say: Callable[[msgspec.Struct], None]) -> None:
        """The line to the supervisor stands."""
        self._say = say

    async def start(self) -> None:
        """Listen for who asks how it is. Raises: PortTaken when another process is this replica's."""
        try:
            name = application_socket(self._config.directory, self._config.owner)
            self._port = await listen_local(lambda: StatusPort(self.status()), name)
        except OSError as error:
            raise PortTaken(f"application: {error.strerror or error}") from None

    def told(self, record: object) -> None:
        """The supervisor says how the replica stands."""
        if isinstance(record, Standing):
            self._standings.last = record
            self._standings.changed.set()

    def callback_failed(self, error: DeathlessError) -> None:
        """A callback of the loop failed, which nobody waits for: what it left undone would never be done."""
        _LOG.error("unexpected error", extra={"why": str(error)})
        if self.running is not None:
            self.running.fail(error)

    async def run(self) -> None:
        """Work until it is cancelled."""
        loop = asyncio.get_running_loop()
        telling = loop.create_task(self._keep_telling()), loop.create_task(self._keep_status())
        try:
            while True:
                last = self._standings.last
                if last is None or not last.service_id:
                    self._standings.changed.clear()
                    await self._standings.changed.wait()
                    continue
                await self._run_once(last)
                if not self._binding.command:  # whoever started it is told, and starts both
                    await asyncio.Event().wait()
                await self._hand_over()
                await asyncio.sleep(self._starts.pause_s)
        finally:
            for task in telling:
                task.cancel()
            if self._port is not None:
                self._port.close()

    async def _hand_over(self) -> None:
        """Have a replica lead whose program is there, if ours leads and its program ended."""
        last = self._standings()
        heir = self._heirs.choose(time.monotonic()) if primary_epoch(last) and not self._starts.keeps_failing else ""
        if not heir:
            return
        _LOG.warning("the primary hands over, since its application ended", extra={"to": heir})
        try:
            access = access_of(self._config)
            await ask(last.client, "switchover", access, {"target": heir}, answer_s=HAND_OVER_S)
            async with asyncio.timeout(HAND_OVER_S):
                while primary_epoch(self._standings()):
                    self._standings.changed.clear()
                    await self._standings.changed.wait()
        except (DeathlessError, TimeoutError) as error:  # it begins again here, as it would without others
            _LOG.warning("nobody took over", extra={"from": heir, "why": str(error)})

    async def _run_once(self, standing: Standing) -> None:
        """Run the application once, to its end."""
        self._starts.began()
        reason = STOPPED
        try:
            self.running = Run(self._config, self._binding, standing, self._starts, self._counts)
            await self.running.run(self._standings.changed, self._standings)
        except (DeathlessError, OSError) as error:
            told = error if isinstance(error, DeathlessError) else StorageFailed(str(error))
            self._error, reason = told, told.code
            _LOG.error("the application ended", extra={"code": told.code, "why": str(told)})
            self._starts.ended(time.monotonic(), failed=True)
        else:
            self._error = None
            self._starts.ended(time.monotonic(), failed=False)
        finally:
            self._counts.ended(reason, self.running.coordinator.unlogged_impulses if self.running is not None else 0)
            self.running = None

    def status(self) -> ApplicationStatus:
        """Say how it is."""
        running, error, counts, newest = self.running, self._error, self._counts, self._newest
        ended = ApplicationStatus(replica=self._config.replica, state="ended")
        told = running.status() if running is not None else ended
        return msgspec.structs.replace(
            told,
            differences=counts.differences,
            too_long=counts.too_long,
            unnamed=counts.unnamed,
            impulses=counts.impulses,
            impulses_lost=counts.impulses_lost,
            starts=self._starts.count,
            ends=dict(counts.ends),
            keeps_failing=self._starts.keeps_failing,
            checkpoint_position=newest.position,
            checkpoint_bytes=newest.size,
            checkpoint_at_us=newest.at_us,
            checkpoint_s=counts.checkpoint_s,
            checkpoints=counts.checkpoints,
            checkpoint_failures=counts.checkpoint_failures,
            code=error.code if error is not None else "",
            problem=str(error) if error is not None else told.problem,
            at_us=time.time_ns() // 1000,
        )

    def program(self) -> Program:
        """Say how it is, as far as that changes seldom."""
        running, told = self.running, self._starts
        serves = running is not None and running.machine.state in LOADED
        state = PROGRAM_SERVES if serves else "failing" if told.keeps_failing else "loading" if running else "ended"
        text = "" if serves or self._error is None else f"{self._error.code} {self._error}"
        return Program(
            state=state,
            text=text[:PROGRAM_TEXT_MAX],
            differs=self._counts.difference[:PROGRAM_TEXT_MAX],
            skipped=running.coordinator.skipped if running is not None else self._said.skipped if self._said else 0,
        )

    def _tell(self) -> None:
        program = self.program()
        if program != self._said:
            self._said = program
            self._say(program)

    async def _keep_telling(self) -> None:
        """Apart from what waits for the shared directory, which may hang."""
        while True:
            self._tell()
            await asyncio.sleep(STATUS_S)

    async def _keep_status(self) -> None:
        while True:
            with contextlib.suppress(OSError):
                self._newest = await asyncio.to_thread(newest_checkpoint, self._config.directory)
                await asyncio.to_thread(write_status, self._config.directory, self.status())
                self._heirs.saw(await asyncio.to_thread(read_statuses, self._config.directory), time.monotonic())
            await asyncio.sleep(STATUS_S)


async def serve(config: ReplicaConfig, name: str, pair: socket.socket) -> None:
    """Keep the application until the supervisor is gone, or SIGTERM. Raises: InvalidConfig."""
    binding = config.binding
    if binding is None:
        raise InvalidConfig(f"service {config.service} has no binding, so no application {name!r}")
    told = {"command": " ".join(binding.command)}
    process = ApplicationProcess(config, binding)
    await keep_beside(
        process,
        pair,
        lambda: _LOG.info("application starts", extra=told),
        process.attached,
        process.callback_failed,
    )


def main(arguments: list[str]) -> int:
    """`python -m deathless.foreign.host CONFIG.json NAME DESCRIPTOR PARENT`; ends with its parent."""
    return run_beside(arguments, "application", _LOG, serve)


if __name__ == "__main__":
    never_wait()
    sys.exit(main(sys.argv[1:]))

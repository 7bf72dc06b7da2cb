"""The worker: one replica's engine over real sockets and files, single-threaded.

    supervisor <-- socket pair --> worker <-- clients (client port), followers (replication port)
                                      '--> primary (replication port of another worker)

The sync runs inline: a thread beside busy Python would starve it. All readable sockets are read before a frame is
formed, which is the whole of group commit. Garbage is collected between turns only. Checkpoints are written by a forked
child, which shares the state's pages with us and closes every descriptor first.

Guarantees: ends when its supervisor is gone, when deposed, and on any failure (I8); it tells the supervisor why.
Does not: decide anything (core does), keep time (the supervisor's detector does).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import ParamSpec, TypeVar

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.base.errors import DeathlessError, Internal
from deathless.base.limits import TURN_MEMORY_BYTES_MAX, Limits
from deathless.base.topics.settings import check_kept
from deathless.codec.snapshot import UnknownRecord
from deathless.codec.traces import Span
from deathless.core import events as ev
from deathless.core.access.authorisation import Port
from deathless.core.primary.suspicion import Runs
from deathless.core.replica.replica import Replica
from deathless.core.supervisor.detection import FOLLOWING_ROLES
from deathless.core.supervisor.machine import FOLLOWED_CODES
from deathless.core.supervisor.records import (
    AddressesAre,
    AskLock,
    Deaths,
    Diverged,
    PrimaryIs,
    RoleIs,
    Stop,
    Stopping,
    TakeOver,
    ToWorker,
)
from deathless.core.tables.outbox import Outbox
from deathless.engine.replica.applying import Code
from deathless.engine.replica.failures import as_ours
from deathless.engine.replica.host import EngineHost
from deathless.engine.replica.intake import Intake
from deathless.engine.replica.outside import Outside
from deathless.engine.replica.replica_engine import ReplicaEngine
from deathless.engine.shard.assembly import open_shard
from deathless.execution.turn.running import Running
from deathless.shell.directory.adopted import read_adoption
from deathless.shell.disk.open_log import log_room_bytes, open_log
from deathless.shell.disk.spool_files import FileSpool, scratch_folder
from deathless.shell.link.config_file import read_config
from deathless.shell.link.machine_clock import MachineClock
from deathless.shell.link.orders import LineProtocol
from deathless.shell.link.status_page import (
    FULL,
    LOCK_ANSWERS,
    LSN,
    OUTBOX_FULL,
    OUTSIDE_HELD,
    PROVED,
    TICKS,
    UNPROVED,
    UPSTREAM,
    Page,
    open_page,
)
from deathless.shell.lock_stores.opening import open_lock
from deathless.shell.net.callers import Callers
from deathless.shell.net.connections import CLOSING_TURNS
from deathless.shell.net.listening import announced, stop_listening
from deathless.shell.net.tls import certified, refresh
from deathless.shell.process import event_loop
from deathless.shell.process.forked import die_with_parent
from deathless.shell.process.garbage import Garbage
from deathless.shell.process.logs import configure
from deathless.shell.process.output import never_wait
from deathless.shell.process.turn_guards import TurnGuards
from deathless.shell.service_code import interface_record
from deathless.shell.service_code.code_record import what_differs
from deathless.shell.service_code.fingerprint import describe
from deathless.shell.service_code.kept_code import former_spellings, keep, named_in, node_name, prune
from deathless.shell.service_code.loading import load_configured
from deathless.shell.upgrade.upgrader import begin_upgrade
from deathless.shell.web.tls import callers_tls
from deathless.shell.worker.admin_commands import AdminCommands
from deathless.shell.worker.bug_log import BugLog
from deathless.shell.worker.checkpoints import Checkpoints
from deathless.shell.worker.connections import Connections
from deathless.shell.worker.helpers.segment_maker import ZeroFilled
from deathless.shell.worker.helpers.witness_process import ConfirmedPoints
from deathless.shell.worker.lock_asker import LockAsker
from deathless.shell.worker.messaging import Messaging
from deathless.shell.worker.spans import Spans, exporter_command
from deathless.shell.worker.trial import TRIAL_SHARE, try_out
from deathless.shell.worker.upstream import Upstream
from deathless.shell.worker.watched_filesystem import WatchedFileSystem

T = TypeVar("T")
P = ParamSpec("P")
_LOG = logging.getLogger("deathless.worker")
PING_S = 0.05  # an idle primary is heard by its followers this often
PING_MS = round(PING_S * 1000)
RELEASE_MAX_S = 2.0  # an ending worker waits so long for the lock store to hear that it lets go
FLUSH_MAX_S = 0.25  # an ending worker's last packets have so long to leave
CLOCK_TICKS = 600  # between two words to clients about the time, while it does not go with the wall clock
LOOK_TICKS = 20  # between two looks at what the storage is, and of an upgrader at what the log is of
TLS_TICKS = 40  # between two looks at the certificates' files


class Worker:
    """A worker's life: what it is made of, what its supervisor orders, what it shows in its page, and its end."""

    def __init__(self, config: ReplicaConfig, pair: socket.socket, page: str = "") -> None:
        self.config = config
        self.limits: Limits = config.make_limits().fitted(log_room_bytes(config), config.shards)
        if page:  # where the supervisor has it, whatever has room by now
            self.page = Page(page, fresh=True, directory=config.directory)
        else:
            self.page = open_page(config.directory, config.replica, instance=config.instance)
        self.filesystem = WatchedFileSystem(config.directory, self.page)
        self.exit_code = 0
        self.primary_is = PrimaryIs(0, "", "", "")
        self._addresses = AddressesAre("", "")  # as the supervisor was told
        self._pair = pair
        self._line = LineProtocol(ToWorker, self._ordered, self._supervisor_gone, held=True)
        self._loop = asyncio.get_running_loop()
        self._done = asyncio.Event()
        self._host = EngineHost(WorkerLoop(self._loop), self._switchover_refused)
        self.connections = Connections(config, self.limits, self._host, self._primary_address)
        self._upstream = Upstream(
            config,
            4 * self.limits.frame_bytes_max,
            where=self._followed,
            spawn=self._spawn,
            made=lambda: self._upstream.ask(self.engine.place.lsn, self.engine.place.chain),
            packets=self._upstream_packets,
            lost=lambda: self._host.post(ev.ConnectionLost(ev.UPSTREAM)),
            upgrader=lambda: bool(self.engine.core.upgrade),
        )
        self._lock: LockAsker
        self._messaging: Messaging
        self._commands: AdminCommands
        self._spans: Spans
        self._checkpoints: Checkpoints
        self._tasks: set[asyncio.Future[None]] = set()
        self._ended = False  # we said that we end
        self._unproved_since: float | None = None  # of the engine, at the last tick
        self._following = False

    @property
    def client_address(self) -> str:
        """Where clients reach us; empty: not yet."""
        return self._addresses.client

    @property
    def engine(self) -> ReplicaEngine:
        """The engine; it runs."""
        return self._host.engine

    # ---- life ------------------------------------------------------------------------------------------------

    async def run(self) -> int:
        """Run until deposed, stopped or broken; gives the exit code."""
        config = self.config
        assert self.page.running is not None
        self._loop.set_exception_handler(self._callback_failed)
        await self._loop.create_connection(lambda: self._line, sock=self._pair)
        guards = TurnGuards(TURN_MEMORY_BYTES_MAX)  # before the author's code is imported
        service = load_configured(config)
        check_kept([*service.topics], config.drivers)  # before it may lead
        async with open_lock(config, self.filesystem, "worker") as lock, contextlib.AsyncExitStack() as parts_of_log:
            self._lock = LockAsker(lock, after=self._host.after, answering=self._lock_answers, spawn=self._spawn)
            view = await lock.view()
            if view.service is None:
                raise Internal("the service is not in the lock store; the supervisor writes it first")
            adopted = read_adoption(config.directory)
            record = adopted.apply(view.service)
            described = describe(service, self.limits, config.sharding)
            keep(config.directory, described, service=config.service, module=config.module)
            interface_record.keep(config.directory, described.fingerprint, service, self.limits)
            prune(config.directory, lambda: named_in(self.filesystem, view.head))
            code = Code(
                described.fingerprint,
                adopted.code_pairs,
                lambda theirs: what_differs(config.directory, theirs, described, node_name()),
                described.spellings | former_spellings(config.directory, described),
            )
            nonce = os.urandom(4).hex()
            measure_at = f"replicas/{config.replica}/prepared.{nonce}.measured"
            maker = ZeroFilled(config.directory, measure_at, self._loop)
            parts_of_log.callback(maker.close)
            log = open_log(
                self.filesystem,
                self.limits,
                config.replica,
                record,
                view.store_id,
                adopted.through_epoch,
                frozenset(adopted.former_services),
                instance=config.instance,
                maker=maker,
                nonce=nonce,
            )
            upgrader = begin_upgrade(
                config,
                log=log,
                view=view,
                record=record,
                service=service,
                code=code,
                scratch=scratch_folder(config),
            )
            if upgrader is not None:
                parts_of_log.callback(upgrader.former.close)
                await upgrader.former.start()
            bugs = BugLog(service, time.monotonic)
            spool = FileSpool(scratch_folder(config), self.limits.outbox_bytes_max)
            outbox = Outbox(spool, self.limits.outbox_memory_bytes_max)
            shard = open_shard(
                service,
                self.limits,
                record.seed,
                self.page.running,
                sharding=config.sharding,
                hide=guards,
                more_memory=guards.more_memory,
                tell=lambda bug: bugs.tell(bug, first=shard.first),
                outbox=outbox,
            )
            core = Replica(
                replica=config.replica,
                sessions=shard.sessions,
                place=shard.place,
                limits=self.limits,
                activity_processes=config.activities.workers,
                upgrade=b"" if upgrader is None else upgrader.upgrade.id,
            )
            self._checkpoints = Checkpoints(
                config.directory,
                config.owner,
                self._loop,
                self.limits,
                spare=log.spare,
                spool=spool,
            )
            if upgrader is not None:
                upgrader.former.write_ahead = self._checkpoints.begin_first
                parts_of_log.callback(self._checkpoints.drop_begun)
            engine = self._host.engine = ReplicaEngine(
                core=core,
                shard=shard,
                log=log,
                service=record,
                store_id=view.store_id,
                code=code if upgrader is None else upgrader.code,
                outside=self._outside(MachineClock(self.page.cells, record.service_id)),
                limits=self.limits,
                former=adopted.former_incarnations,
                upgrade=None if upgrader is None else upgrader.upgrade,
            )
            if upgrader is not None:
                upgrader.former.make_ready = engine.takeover.make_ready
            self._commands = AdminCommands(
                engine,
                self._messaging,
                self._spans,
                send=self.connections.send,
                post=self._host.post,
                hurry=self.connections.hurry_followers,
                log_status=maker.status,
                upgrader=upgrader,
            )
            self._host.intake = Intake(engine, self._commands.run)
            if config.asks_callers:
                self.connections.callers = Callers(config, callers_tls(config))
            client_server, client = await self.connections.listen(
                Port.CLIENT, config.client_listen, callers_tls(config)
            )
            # Whoever follows is a replica, and shows that it is one also where callers need no certificate.
            inner = certified(config.tls)
            follower_server, replication = await self.connections.listen(
                Port.REPLICATION, config.replication_listen, inner
            )
            host = config.advertise_host
            self._tell_addresses(announced(client, host), announced(replication, host))
            self._garbage = Garbage()
            self._loop.add_signal_handler(signal.SIGTERM, self._host.post, ev.StopOrdered())
            self._loop.call_soon(self._tick)
            self._host.begin()
            self._line.release()  # its supervisor knew a primary, say, while we looked at the lock
            await self._done.wait()
            await self._let_go()
            await stop_listening(client_server)
            await stop_listening(follower_server)
            await self.flush()
        return self.exit_code

    async def _let_go(self) -> None:
        """Wait, but not for ever, until the lock store has heard that we let go: with it goes the last witness."""
        deadline = self._loop.time() + RELEASE_MAX_S
        while self.engine.takeover.releasing and self._loop.time() < deadline:  # noqa: ASYNC110 - the engine knows no loop
            await asyncio.sleep(0.005)

    async def flush(self) -> None:
        """Close everything after what was written, as far as its receivers read."""
        self.connections.close_all()
        deadline = self._loop.time() + FLUSH_MAX_S
        while self._loop.time() < deadline:
            if self._line.flushed and self.connections.flushed:
                break
            await asyncio.sleep(0.001)
        self._upstream.leave()
        self._line.close()
        for _ in range(CLOSING_TURNS):
            await asyncio.sleep(0)

    def _callback_failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """What no callback caught is a bug of ours: the replica stops (I8). A peer's broken connection is none."""
        error = context.get("exception")
        if event_loop.is_broken_link(context):
            _LOG.debug("connection lost", extra={"why": str(error)})
            return
        _LOG.error("unexpected error", extra={"what": context.get("message"), "why": repr(error)})
        self._fail(error if isinstance(error, Exception) else Internal(str(context.get("message"))))

    def _fail(self, error: Exception) -> None:
        """Stop the replica for an error that was met outside the engine (I8)."""
        ours = as_ours(error, "outside the engine")
        if hasattr(self._host, "engine"):
            self._host.post(ev.Failed(ours))
        else:
            self.end(ours)

    def end(self, error: DeathlessError | None, successor: str = "") -> None:
        """See Process: say why, send what was written, end."""
        if self._ended:
            return
        self._ended = True
        if hasattr(self, "_messaging"):
            self._messaging.close()
        if hasattr(self, "_spans"):
            self._spans.close()
        self._following = False
        if hasattr(self, "_lock"):
            self._watch_lock()
        code, text = (error.code, str(error)) if error is not None else ("", "stopped in order")
        level = (
            logging.INFO if code in ("", "DL2001") or (self.config.code and code in FOLLOWED_CODES) else logging.ERROR
        )
        _LOG.log(level, "worker ends", extra={"code": code, "why": text})
        self._line.send(Stopping(code, text, successor))
        self.exit_code = error.exit_code if error is not None else 0
        if hasattr(self, "_commands"):
            self._commands.ended()
        self._done.set()

    def _supervisor_gone(self) -> None:
        if self._ended:
            return
        os.kill(os.getpid(), signal.SIGKILL)  # nobody answers for us any more: end at once

    def _ordered(self, record: object) -> None:
        match record:
            case PrimaryIs(epoch, replica, client):
                self.primary_is = record
                self._watch_lock()
                self._host.post(ev.PrimarySeen(epoch, replica, client))
            case TakeOver(epoch, reason, confirmed_lsn):
                self._host.post(ev.TakeoverOrdered(epoch, reason, confirmed_lsn))
            case Deaths(session, seq, deaths):
                self._host.post(ev.DeathsReported(session, seq, deaths))
            case Diverged(replica, text):
                self._host.post(ev.DivergenceReported(replica, text))
            case AskLock():
                self._lock.tell(self._line.send)
            case Stop(at_once):
                self._host.post(ev.StopOrdered(at_once))
            case _:
                raise Internal(f"order {record!r}")

    def _tick(self) -> None:
        self._loop.call_later(PING_S, self._tick)
        cells = self.page.cells
        cells[TICKS] += 1
        cells[LSN] = self.engine.place.lsn
        if cells[TICKS] % LOOK_TICKS == 0:
            self.filesystem.look()
            self.engine.takeover.look_for_upgrade()
        since = self.engine.unproved_since
        # Counted by rounds of the loop: while a handler runs, no answer can come in.
        cells[UNPROVED] = 0 if since is None or since != self._unproved_since else cells[UNPROVED] + PING_MS
        self._unproved_since = since
        cells[PROVED] = round((self.engine.proved_at or 0.0) * 1e9)
        primary = self.engine.core.primary
        cells[FULL] = int(primary is not None and primary.full)
        cells[OUTBOX_FULL] = int(self._messaging.outbox_full())
        cells[OUTSIDE_HELD] = int(self._messaging.outward.held)
        now, wall_us = time.monotonic(), time.time_ns() // 1000
        self.page.note_waiting(primary.departure.waiting if primary is not None else None, now, time.time())
        stepped_us = primary.clock_stepped_us(now, wall_us) if primary is not None else 0
        # Who draws UUIDv7 keys goes on from what it was told, and time does not go as its clock does now.
        tell = cells[TICKS] % CLOCK_TICKS == 0 if stepped_us else self.page.stepped_us
        self.page.stepped_us = stepped_us
        if primary is not None:
            self.connections.ping_followers()
        self._garbage.tick()
        if cells[TICKS] % TLS_TICKS == 0:
            refresh(self.config.tls)
            self.connections.look_again()
        if primary is not None:
            self.engine.witness.maybe_store(self.engine.holder)
        self._checkpoints.confirmed(self.engine.core.confirmed_lsn)
        if tell:
            self._host.post(ev.ClockTold())

    # ---- the engine ------------------------------------------------------------------------------------------

    def _outside(self, clock: MachineClock) -> Outside:
        """What the engine touches; messaging and traces are ready once it is made."""
        self._messaging = Messaging(self.config, self.limits, self._host)
        self._spans = Spans(self.config, exporter_command(self.config))
        return Outside(
            clock=clock,
            lock=self._lock,
            clients=self.connections,
            upstream=self._upstream,
            peers=self._messaging.outward,
            activities=self._messaging.outward,
            checkpoints=self._checkpoints,
            witness=ConfirmedPoints(self.config, self.page),
            watchers=self,
            process=self,
        )

    def complete(self, event: ev.Event) -> None:
        """See Process."""
        self.engine.post(event)

    def nonce(self) -> bytes:
        """See Process."""
        return os.urandom(16)

    def try_out(self, runs: Runs) -> Running | None:
        """See Process."""
        return try_out(lambda: self.engine.shard.execute(runs), self.page, TRIAL_SHARE * self.limits.turn_max_s)

    def pause(self, seconds: float, done: Callable[[], None]) -> None:
        """See Process."""
        self._spawn(self._pause(seconds, done))

    async def _pause(self, seconds: float, done: Callable[[], None]) -> None:
        await asyncio.sleep(seconds)
        done()
        self._host.after()

    def tell_role(self, role: str, epoch: int, reason: str) -> None:
        """See Watchers."""
        self.page.cells[LSN] = self.engine.place.lsn
        if role == "primary":
            self._messaging.begin_reign()
            self.page.cells[OUTSIDE_HELD] = int(self._messaging.outward.held)
        self._following = role in FOLLOWING_ROLES
        self._watch_lock()
        self._line.send(RoleIs(role, epoch, reason, self.engine.place.lsn))
        self._tell_addresses(self._addresses.client, self._addresses.replication)

    def _tell_addresses(self, client: str, replication: str) -> None:
        """Tell the supervisor, once, where we are and under which fingerprint the log knows our code."""
        told = AddressesAre(client, replication, self.engine.fingerprint.hex())
        if told != self._addresses:
            self._addresses = told
            self._line.send(told)

    def export_spans(self, spans: Sequence[Span]) -> None:
        """See Watchers."""
        self._spans.export(spans, time.time_ns() // 1000)

    def report_unknown(self, records: Sequence[UnknownRecord]) -> None:
        """See Watchers."""
        self._messaging.report_unknown(records)

    def _switchover_refused(self, conn: ev.Conn, request: int, why: str) -> None:
        self._commands.switchover_refused(conn, request, why)

    def _lock_answers(self, milliseconds: int) -> None:
        self.page.cells[LOCK_ANSWERS] = milliseconds

    def _watch_lock(self) -> None:
        self._lock.watch(self._following and self.primary_is.unproved)

    # ---- the primary -----------------------------------------------------------------------------------------

    def _primary_address(self) -> str:
        """Where clients find the primary."""
        return self.client_address if self.engine.core.role_for_clients == "primary" else self.primary_is.client

    def _followed(self, replica: str) -> tuple[str, bytes]:
        address = self.primary_is.replication if self.primary_is.replica == replica else ""
        return address, self.engine.fingerprint

    def _upstream_packets(self, packets: list[tuple[int, bytes]]) -> None:
        self.page.cells[UPSTREAM] = time.monotonic_ns()
        self._host.intake.upstream(packets)
        self._host.after()

    def _spawn(self, work: Awaitable[None]) -> asyncio.Future[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Future[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._fail(error)


class WorkerLoop:
    """The loop of a worker, as its engine's host sees it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def now(self) -> float:
        """See Loop."""
        return time.monotonic()

    def call_soon(self, callback: Callable[[], None]) -> object:
        """See Loop."""
        return self._loop.call_soon(callback)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """See Loop."""
        return self._loop.call_later(seconds, callback)


async def serve(config: ReplicaConfig, pair: socket.socket, page: str = "") -> int:
    """Run one worker; an error before the engine runs is told to the supervisor too."""
    worker: Worker | None = None
    try:
        worker = Worker(config, pair, page)
        return await worker.run()
    except Exception as error:  # noqa: BLE001  whatever it is, the supervisor hears it
        ours = as_ours(error, "start")
        if worker is None:
            pair.send(msgspec.json.encode(Stopping(ours.code, str(ours))) + b"\n")
        else:
            worker.end(ours)
            await worker.flush()
        return ours.exit_code


def main() -> int:
    """Entry point: config path, the number of the inherited socket, and the page of the supervisor."""
    die_with_parent()
    config = read_config(sys.argv[1])
    configure(config.log_level, config.replica, "worker")
    pair = socket.socket(fileno=int(sys.argv[2]))
    pair.setblocking(False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(KeyboardInterrupt):
        return event_loop.run(serve(config, pair, *sys.argv[3:]))
    return 0


if __name__ == "__main__":
    never_wait()
    sys.exit(main())

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
from functools import partial
from typing import ParamSpec, TypeVar

import msgspec

from deathless.base.config import ReplicaConfig, TlsConfig
from deathless.base.errors import DeathlessError, Internal, Overloaded
from deathless.base.limits import TURN_MEMORY_BYTES_MAX, Limits
from deathless.base.lock_stores import lock_store
from deathless.codec.peer_messages import ActivityStart, Reference, Target
from deathless.codec.snapshot import Snapshot, UnknownRecord
from deathless.codec.traces import Span
from deathless.codec.wire import (
    Hello,
    Type,
    packet,
)
from deathless.codec.witness import Point
from deathless.core import events as ev
from deathless.core.access.authorisation import Port
from deathless.core.primary.suspicion import Runs
from deathless.core.replica.replica import Replica
from deathless.core.replica.witness import Sighting
from deathless.core.supervisor.detection import FOLLOWING_ROLES
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
from deathless.core.tables.logical_time import Anchor
from deathless.core.tables.outbox import Outbox
from deathless.engine.ports import AsyncLock, Holder, Lock, LockView
from deathless.engine.replica.failures import as_ours
from deathless.engine.replica.intake import PEER, Intake
from deathless.engine.replica.replica_engine import ReplicaEngine
from deathless.engine.shard.assembly import open_shard
from deathless.execution.turn.running import Running
from deathless.shell.directory.adopted import read_adoption
from deathless.shell.directory.members import announced_in
from deathless.shell.disk.open_log import open_log, volume_bytes
from deathless.shell.disk.spool_files import FileSpool, scratch_folder
from deathless.shell.link.config_file import read_config
from deathless.shell.link.machine_clock import MachineClock, boot_us
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
    boot_number,
    confirmed_elsewhere,
    open_page,
)
from deathless.shell.lock_stores.opening import open_lock
from deathless.shell.net.callers import Callers
from deathless.shell.net.connections import CLOSING_TURNS, ServerConnection
from deathless.shell.net.listening import announced, descriptors_for, listen
from deathless.shell.net.port_guard import PortGuard
from deathless.shell.net.proof import Door, Secrets
from deathless.shell.net.silent_connections import SilentConnections
from deathless.shell.net.tls import certified, refresh, server_context
from deathless.shell.process import event_loop
from deathless.shell.process.forked import die_with_parent
from deathless.shell.process.garbage import Garbage
from deathless.shell.process.logs import configure
from deathless.shell.process.output import never_wait
from deathless.shell.service_code import code_record
from deathless.shell.service_code.fingerprint import describe, fingerprint_of
from deathless.shell.service_code.loading import load_service
from deathless.shell.web.tls import callers_tls
from deathless.shell.worker.admin_commands import AdminCommands
from deathless.shell.worker.bug_log import BugLog
from deathless.shell.worker.checkpoints import Checkpoints
from deathless.shell.worker.lock_asker import LockAsker
from deathless.shell.worker.messaging import Messaging
from deathless.shell.worker.spans import Spans, exporter_command
from deathless.shell.worker.trial import TRIAL_SHARE, try_out
from deathless.shell.worker.turn_guards import TurnGuards
from deathless.shell.worker.upstream import Upstream
from deathless.shell.worker.watched_filesystem import WatchedFileSystem
from deathless.shell.worker.witness_process import start_witness_writer

T = TypeVar("T")
P = ParamSpec("P")
_LOG = logging.getLogger("deathless.worker")
PING_S = 0.05  # an idle primary is heard by its followers this often
PING_MS = round(PING_S * 1000)
RELEASE_MAX_S = 2.0  # an ending worker waits so long for the lock store to hear that it lets go
FLUSH_MAX_S = 0.25  # an ending worker's last packets have so long to leave
CLOCK_TICKS = 600  # between two words to clients about the time, while it does not go with the wall clock
LOOK_TICKS = 20  # between two looks at what the storage is
TLS_TICKS = 40  # between two looks at the certificates' files


class Worker:
    """The real `Outside` of a replica's engine, and the owner of its connections."""

    def __init__(self, config: ReplicaConfig, pair: socket.socket, page: str = "") -> None:
        self.config = config
        self.callers: Callers | None = None  # who prove who they are at the client port; None: nobody does
        self.limits: Limits = config.make_limits().fitted(volume_bytes(config.directory), config.shards)
        if page:  # where the supervisor has it, whatever has room by now
            self.page = Page(page, fresh=True, directory=config.directory)
        else:
            self.page = open_page(config.directory, config.replica, instance=config.instance)
        self._boot = boot_number()
        self._witness_end = -1  # closes with this process: then the writer of the witness's file ends
        self.filesystem = WatchedFileSystem(config.directory, self.page)
        self.engine: ReplicaEngine
        self._intake: Intake
        self._messaging: Messaging
        self._commands: AdminCommands
        self._spans: Spans
        self.exit_code = 0
        self.primary_is = PrimaryIs(0, "", "", "")
        self.client_address = ""
        self._pair = pair
        self._line = LineProtocol(ToWorker, self._ordered, self._supervisor_gone)
        self._loop = asyncio.get_running_loop()
        self._done = asyncio.Event()
        self._lock: LockAsker
        self._connections: dict[int, ServerConnection] = {}
        self._followers: set[int] = set()
        self._unhurried: set[int] = set()  # connections on which nobody waits for an answer: followers' and peers'
        self._conn_number = 0
        self._door = Door(
            Secrets(config.directory, in_thread=False), lambda name: announced_in(config.directory).get(name)
        )
        self._upstream = Upstream(
            config,
            4 * self.limits.frame_bytes_max,
            made=self._upstream_made,
            packets=self._upstream_packets,
            lost=lambda: self._post(ev.ConnectionLost(ev.UPSTREAM)),
        )
        self._flushing = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self._tasks: set[asyncio.Future[None]] = set()
        self._checkpoints: Checkpoints
        self._clock: MachineClock
        self._connections_max = descriptors_for(self.limits.connections_max)
        self._silent = SilentConnections(self._connections_max)  # of all our ports
        self._ended = False  # we said that we end
        self._unproved_since: float | None = None  # of the engine, at the last tick
        self._following = False

    # ---- life ------------------------------------------------------------------------------------------------

    async def run(self) -> int:
        """Run until deposed, stopped or broken; gives the exit code."""
        config = self.config
        assert self.page.running is not None
        self._loop.set_exception_handler(self._callback_failed)
        await self._loop.create_connection(lambda: self._line, sock=self._pair)
        guards = TurnGuards(TURN_MEMORY_BYTES_MAX)  # before the author's code is imported
        service = load_service(config.module, name=config.service)
        async with open_lock(config, self.filesystem, "worker") as lock:
            self._lock = LockAsker(lock, after=self._after, answering=self._lock_answers, spawn=self._spawn)
            view = await lock.view()
            if view.service is None:
                raise Internal("the service is not in the lock store; the supervisor writes it first")
            adopted = read_adoption(config.directory)
            record = adopted.apply(view.service)
            parts = describe(service, self.limits, config.sharding)
            code = fingerprint_of(parts)
            code_record.keep(config.directory, parts)
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
            )
            log = open_log(
                self.filesystem,
                self.limits,
                config.replica,
                record,
                view.store_id,
                adopted.through_epoch,
                frozenset(adopted.former_services),
                instance=config.instance,
            )
            self._checkpoints = Checkpoints(
                config.directory,
                config.owner,
                self._loop,
                self.limits,
                spare=log.spare,
                spool=spool,
            )
            self._clock = MachineClock(self.page.cells, record.service_id)
            self.engine = ReplicaEngine(
                core=core,
                shard=shard,
                log=log,
                service=record,
                store_id=view.store_id,
                fingerprint=code,
                outside=self,
                limits=self.limits,
                adopted=adopted.code_pairs,
                former=adopted.former_incarnations,
                what_differs=lambda theirs: code_record.what_differs(config.directory, theirs, parts),
            )
            self._messaging = Messaging(config, self.limits, self.engine, self._post, shard.executor.traceparent)
            self._spans = Spans(config, exporter_command(config))
            self._commands = AdminCommands(
                self.engine,
                self._messaging,
                self._spans,
                send=self.send,
                post=self._post,
                hurry=self._hurry_followers,
            )
            self._intake = Intake(self.engine, self._commands.run)
            self._door.secrets.sweep()
            if config.asks_callers:
                self.callers = Callers(config, callers_tls(config))
            client_server, client = await self._open(Port.CLIENT, config.client_listen, callers_tls(config))
            # Whoever follows is a replica, and shows that it is one also where callers need no certificate.
            inner = certified(config.tls)
            follower_server, replication = await self._open(Port.REPLICATION, config.replication_listen, inner)
            self.client_address = announced(client, config.advertise_host)
            replication = announced(replication, config.advertise_host)
            self._line.send(AddressesAre(self.client_address, replication, code.hex()))
            self._garbage = Garbage()
            self._loop.add_signal_handler(signal.SIGTERM, self._post, ev.StopOrdered())
            self._loop.call_soon(self._tick)
            self.engine.begin()
            self._set_timer()
            await self._done.wait()
            await self._let_go()
            client_server.close()
            follower_server.close()
            self._door.secrets.close()
            await self.flush()
        return self.exit_code

    async def _let_go(self) -> None:
        """Wait, but not for ever, until the lock store has heard that we let go: with it goes the last witness."""
        deadline = self._loop.time() + RELEASE_MAX_S
        while self.engine.releasing and self._loop.time() < deadline:  # noqa: ASYNC110 - the engine knows no loop
            await asyncio.sleep(0.005)

    async def flush(self) -> None:
        """Close everything after what was written, as far as its receivers read."""
        open_ones = list(self._connections.values())
        for connection in open_ones:
            connection.close()
        deadline = self._loop.time() + FLUSH_MAX_S
        while self._loop.time() < deadline:
            if self._line.flushed and all(connection.flushed for connection in open_ones):
                break
            await asyncio.sleep(0.001)
        self.leave()
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
        if hasattr(self, "engine"):
            self._post(ev.Failed(ours))
        else:
            self.stop(ours)

    def stop(self, error: DeathlessError | None, successor: str = "") -> None:
        """See Outside: say why, send what was written, end."""
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
        level = logging.INFO if code in ("", "DL2001") else logging.ERROR
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
                self._post(ev.PrimarySeen(epoch, replica, client))
            case TakeOver(epoch, reason, confirmed_lsn):
                self._post(ev.TakeoverOrdered(epoch, reason, confirmed_lsn))
            case Deaths(session, seq, deaths):
                self._post(ev.DeathsReported(session, seq, deaths))
            case Diverged(replica, text):
                self._post(ev.DivergenceReported(replica, text))
            case AskLock():
                self._spawn(self._lock.tell(self._line.send))
            case Stop(at_once):
                self._post(ev.StopOrdered(at_once))
            case _:
                raise Internal(f"order {record!r}")

    def _tick(self) -> None:
        self._loop.call_later(PING_S, self._tick)
        cells = self.page.cells
        cells[TICKS] += 1
        cells[LSN] = self.engine.place.lsn
        if cells[TICKS] % LOOK_TICKS == 0:
            self.filesystem.look()
        since = self.engine.unproved_since
        # Counted by rounds of the loop: while a handler runs, no answer can come in.
        cells[UNPROVED] = 0 if since is None or since != self._unproved_since else cells[UNPROVED] + PING_MS
        self._unproved_since = since
        cells[PROVED] = round((self.engine.proved_at or 0.0) * 1e9)
        primary = self.engine.core.primary
        cells[FULL] = int(primary is not None and primary.full)
        cells[OUTBOX_FULL] = int(self._messaging.outbox_full())
        cells[OUTSIDE_HELD] = int(self._messaging.outward.held)
        self.page.note_waiting(primary.departure.waiting if primary is not None else None, self.now(), time.time())
        stepped_us = primary.clock_stepped_us(self.now(), self.wall_us()) if primary is not None else 0
        # Who draws UUIDv7 keys goes on from what it was told, and time does not go as its clock does now.
        tell = cells[TICKS] % CLOCK_TICKS == 0 if stepped_us else self.page.stepped_us
        self.page.stepped_us = stepped_us
        if primary is not None:
            ping = packet(Type.PING)
            for number in self._followers:
                self._connections[number].send(ping)
        self._garbage.tick()
        if cells[TICKS] % TLS_TICKS == 0:
            refresh(self.config.tls)
            if self.callers is not None:
                for connection in list(self._connections.values()):
                    connection.look_again()
        if primary is not None:
            self.engine.witness.maybe_store(self.engine.holder)
        self._checkpoints.confirmed(self.engine.core.confirmed_lsn)
        if tell:
            self._post(ev.ClockTold())

    # ---- engine loop -----------------------------------------------------------------------------------------

    def _post(self, event: ev.Event) -> None:
        self.engine.post(event)
        self._after()

    def _after(self) -> None:
        primary = self.engine.core.primary
        if primary is not None and primary.switchover_failed is not None:
            refused = primary.switchover_failed
            primary.switchover_failed = None
            self._commands.switchover_refused(*refused)
        self._set_timer()

    def _flush(self) -> None:
        self._flushing = False
        self._intake.drained()
        self._after()

    def _schedule_flush(self) -> None:
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _set_timer(self) -> None:
        """Have a timer that fires at the deadline or before: one that moves away with each call costs nothing so."""
        deadline = self.engine.deadline()
        if deadline is None or deadline >= self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_later(max(0.0, deadline - time.monotonic()), self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer_at = float("inf")
        self._timer = None
        deadline = self.engine.deadline()
        if deadline is not None and deadline <= time.monotonic():
            self._post(ev.TimerFired())
        else:
            self._set_timer()

    # ---- Outside ---------------------------------------------------------------------------------------------

    # These two without a method of ours between: they are asked several times for each call.
    now = staticmethod(time.monotonic)
    boot_us = staticmethod(boot_us)

    def wall_us(self) -> int:
        """See Outside."""
        return time.time_ns() // 1000

    def anchor(self) -> Anchor | None:
        """See Outside."""
        return self._clock.anchor()

    def note_anchor(self, anchor: Anchor) -> None:
        """See Outside."""
        self._clock.note(anchor)

    def nonce(self) -> bytes:
        """See Outside."""
        return os.urandom(16)

    def complete(self, event: ev.Event) -> None:
        """See Outside."""
        self.engine.post(event)

    def lock(self, operation: Callable[[Lock | AsyncLock], T | Awaitable[T]], done: Callable[[T], None]) -> None:
        """See Outside."""
        self._spawn(self._lock.ask(operation, done))

    def try_out(self, runs: Runs) -> Running | None:
        """See Outside."""
        return try_out(lambda: self.engine.shard.execute(runs), self.page, TRIAL_SHARE * self.limits.turn_max_s)

    def take_lock(self, replica: str, nonce: bytes, seen: LockView, done: Callable[[Holder | None], None]) -> None:
        """See Outside."""
        self._spawn(self._lock.take(replica, nonce, seen, done))

    def pause(self, seconds: float, done: Callable[[], None]) -> None:
        """See Outside."""
        self._spawn(self._pause(seconds, done))

    async def _pause(self, seconds: float, done: Callable[[], None]) -> None:
        await asyncio.sleep(seconds)
        done()
        self._after()

    def note_confirmed(self, point: Point, *, first: bool) -> None:
        """See Outside."""
        here = msgspec.structs.replace(point, boot=self._boot)
        if first:
            self.page.begin_reign(here)
            if lock_store(self.config.lock).in_directory:
                self._witness_end = start_witness_writer(self.page.path, self.config)
        else:
            self.page.note_confirmed(here)

    def sightings(self) -> Sequence[Sighting]:
        """See Outside."""
        return confirmed_elsewhere(self.config.directory, self.config.replica, instance=self.config.instance)

    def boot(self) -> int:
        """See Outside."""
        return self._boot

    def send(self, conn: ev.Conn, data: bytes) -> None:
        """See Outside."""
        connection = self._connections.get(conn)
        if connection is None:
            return
        if conn in self._unhurried and not self._leaving:
            # On one machine a follower would take the processor from who waits for us; and a peer that is told of each
            # message by itself that it is confirmed would do that first, and then look at the reply.
            connection.send_soon(data)
        else:
            connection.send(data)

    @property
    def _leaving(self) -> bool:
        """Does a switchover, or our own end, wait for what followers apply?"""
        primary = self.engine.core.primary
        return primary is not None and not primary.departure.serving

    def disconnect(self, conn: ev.Conn) -> None:
        """See Outside."""
        connection = self._connections.get(conn)
        if connection is not None:
            connection.close()

    def tell_role(self, role: str, epoch: int, reason: str) -> None:
        """See Outside."""
        self.page.cells[LSN] = self.engine.place.lsn
        if role == "primary":
            self._messaging.begin_reign()
            self.page.cells[OUTSIDE_HELD] = int(self._messaging.outward.held)
        self._following = role in FOLLOWING_ROLES
        self._watch_lock()
        self._line.send(RoleIs(role, epoch, reason, self.engine.place.lsn))

    def _lock_answers(self, milliseconds: int) -> None:
        self.page.cells[LOCK_ANSWERS] = milliseconds

    def _watch_lock(self) -> None:
        self._lock.watch(self._following and self.primary_is.unproved)

    def load_checkpoint(self) -> Snapshot | None:
        """See Outside."""
        return self._checkpoints.load_newest()

    def write_checkpoint(self, snapshot: Callable[[], Snapshot], done: Callable[[int, str], None]) -> None:
        """See Outside."""
        place = self.engine.place
        self._checkpoints.write(snapshot, place.lsn, place.chain, done)

    def verify_checkpoint(self, lsn: int, name: str, done: Callable[[bool], None]) -> None:
        """See Outside."""
        self._checkpoints.verify(name, done)

    def prune_checkpoints(self, below: int) -> None:
        """See Outside."""
        self._checkpoints.prune(below)

    def verified_checkpoints(self, head: int, done: Callable[[list[int]], None]) -> None:
        """See Outside."""
        self._checkpoints.count(head, done)

    def dial_peer(self, target: Target) -> None:
        """See Outside."""
        self._messaging.outward.dial(target)

    def send_peer(self, target: Target, data: bytes) -> None:
        """See Outside."""
        self._messaging.outward.send(target, data)

    def drop_peer(self, target: Target) -> None:
        """See Outside."""
        self._messaging.outward.drop(target)

    def start_activity(self, start: ActivityStart) -> None:
        """See Outside."""
        self._messaging.outward.start(start)

    def stop_activity(self, reference: Reference) -> None:
        """See Outside."""
        self._messaging.outward.stop(reference)

    def export_spans(self, spans: Sequence[Span]) -> None:
        """See Outside."""
        self._spans.export(spans, self.wall_us())

    def report_unknown(self, records: Sequence[UnknownRecord]) -> None:
        """See Outside."""
        self._messaging.report_unknown(records)

    # ---- the primary's stream --------------------------------------------------------------------------------

    def follow(self, replica: str, epoch: int, lsn: int, chain: bytes) -> None:
        """See Outside."""
        address = self.primary_is.replication if self.primary_is.replica == replica else ""
        self._spawn(self._upstream.connect(address, self.engine.fingerprint))

    def ask_upstream(self, lsn: int, chain: bytes) -> None:
        """See Outside."""
        self._upstream.ask(lsn, chain)

    def leave(self) -> None:
        """See Outside."""
        self._upstream.leave()

    def send_upstream(self, data: bytes) -> None:
        """See Outside."""
        self._upstream.send(data)

    def _upstream_made(self) -> None:
        self._upstream.ask(self.engine.place.lsn, self.engine.place.chain)

    def _upstream_packets(self, packets: list[tuple[int, bytes]]) -> None:
        self.page.cells[UPSTREAM] = time.monotonic_ns()
        self._intake.upstream(packets)
        self._after()

    # ---- accepted connections --------------------------------------------------------------------------------

    async def _open(self, port: Port, address: str, tls: TlsConfig | None) -> tuple[asyncio.Server, str]:
        guard = PortGuard(self.config, port, tls)
        guard.callers = self.callers if port is Port.CLIENT else None
        return await listen(partial(self._accept, guard), address, server_context(tls))

    def _accept(self, guard: PortGuard) -> ServerConnection:
        self._conn_number += 1
        return ServerConnection(
            self,
            self._conn_number,
            service=self.config.shard_name,
            token=self.config.token,
            packet_bytes_max=4 * self.limits.frame_bytes_max,
            buffer_bytes_max=self.limits.stream_buffer_bytes_max,
            guard=guard,
            door=self._door,
            silent=self._silent,
        )

    def opened(self, connection: ServerConnection, hello: Hello) -> None:
        """See packets.Owner."""
        if len(self._connections) >= self._connections_max and hello.kind in ("client", "tool"):
            connection.refuse(Overloaded(f"{self._connections_max} connections are already open"))
            return
        refusal = self._intake.refusal(hello)
        if refusal is not None:
            connection.refuse(refusal)
            return
        self._connections[connection.number] = connection
        if hello.kind == "follower":
            self._followers.add(connection.number)
        if hello.kind in ("follower", PEER):
            self._unhurried.add(connection.number)
        leads = self.engine.core.role_for_clients == "primary"
        primary = self.client_address if leads else self.primary_is.client
        certified_as = connection.identity.service if connection.identity is not None else ""
        name = connection.certified
        connection.send(self._intake.opened(ev.Conn(connection.number), hello, primary, certified_as, name))
        self._post(ev.ConnectionOpened(ev.Conn(connection.number), hello, name))

    def lost(self, connection: ServerConnection) -> None:
        """See packets.Owner."""
        if self._connections.pop(connection.number, None) is not None:
            self._followers.discard(connection.number)
            self._unhurried.discard(connection.number)
            self._intake.lost(ev.Conn(connection.number))
            self._post(ev.ConnectionLost(ev.Conn(connection.number)))

    def packets(self, connection: ServerConnection, packets: list[tuple[int, bytes]]) -> None:
        """See packets.Owner."""
        self._intake.packets(ev.Conn(connection.number), packets)
        self._schedule_flush()

    def _hurry_followers(self) -> None:
        for follower in self._followers:
            self._connections[follower].send_kept()

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
            worker.stop(ours)
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

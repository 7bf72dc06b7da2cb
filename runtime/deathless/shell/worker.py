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
import inspect
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import ParamSpec, TypeVar, cast

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.base.errors import DeathlessError, Internal, InvalidConfig, LockUnavailable, Overloaded
from deathless.base.limits import Limits
from deathless.codec.peer_messages import ActivityStart, Reference, Target
from deathless.codec.snapshot import Snapshot, UnknownRecord
from deathless.codec.traces import Span
from deathless.codec.wire import (
    Admin,
    AdminReply,
    Follow,
    Hello,
    Type,
    packet,
    struct_packet,
)
from deathless.core import events as ev
from deathless.core.detection import FOLLOWING_ROLES
from deathless.core.handover import Stage
from deathless.core.keys import KeyTable
from deathless.core.outbox import Outbox
from deathless.core.replica import Replica, ShardPlace
from deathless.core.sessions import SessionTable
from deathless.engine.failures import as_ours
from deathless.engine.intake import PEER, Intake
from deathless.engine.ports import AsyncLock, FileSystem, Handle, Holder, Lock, LockView
from deathless.engine.replica_engine import ReplicaEngine
from deathless.engine.shard import Shard
from deathless.execution.executor import HandlerExecutor
from deathless.shell import event_loop
from deathless.shell.adopted import read_adoption
from deathless.shell.checkpoints import Checkpoints
from deathless.shell.children import die_with_parent
from deathless.shell.filesystem import LOCAL_TYPES, RealFileSystem, filesystem_type
from deathless.shell.garbage import Garbage
from deathless.shell.loading import fingerprint, load_service
from deathless.shell.lock import open_lock
from deathless.shell.lock_answers import ask_on
from deathless.shell.logs import configure
from deathless.shell.messaging import COMMANDS, Messaging
from deathless.shell.orders import (
    AddressesAre,
    Deaths,
    Diverged,
    LineProtocol,
    PrimaryIs,
    RoleIs,
    Stop,
    Stopping,
    TakeOver,
    ToWorker,
)
from deathless.shell.packets import (
    CLOSING_TURNS,
    ClientConnection,
    ServerConnection,
    announced,
    descriptors_for,
    is_broken_link,
    listen,
    split_address,
)
from deathless.shell.page import (
    CALLS,
    FULL,
    LOCK_ANSWERS,
    LSN,
    OUTBOX_FULL,
    PROVED,
    TICKS,
    UNPROVED,
    UPSTREAM,
    Page,
    page_path,
)
from deathless.shell.parked import list_parked
from deathless.shell.spans import Spans, exporter_command
from deathless.shell.spool import FileSpool, scratch_folder
from deathless.shell.storage import open_log
from deathless.shell.tls import client_context, refresh, server_context

T = TypeVar("T")
P = ParamSpec("P")
_LOG = logging.getLogger("deathless.worker")
LOCK_RETRY_MIN_S, LOCK_RETRY_MAX_S = 0.02, 0.25  # a primary asks again before LOCK_ANSWERS_S depose it
PING_S = 0.05  # an idle primary is heard by its followers this often
PING_MS = round(PING_S * 1000)
FLUSH_MAX_S = 0.25  # an ending worker's last packets have so long to leave
TLS_TICKS = 40  # between two looks at the certificates' files


class WatchedFileSystem(RealFileSystem):
    """Marks each call that may wait for the storage in the page: a hung log is told from a busy worker by that."""

    def __init__(self, root: str, page: Page) -> None:
        # On network storage this machine's page cache may be older than what another machine wrote (design section 5).
        super().__init__(root, bypass_cache=filesystem_type(root) not in LOCAL_TYPES)
        self._cells = page.cells

    def _watched(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        cells = self._cells
        cells[CALLS] += 1
        try:
            return call(*args, **kwargs)
        finally:
            cells[CALLS] += 1

    def create(self, path: str) -> Handle:
        """See the port."""
        return self._watched(super().create, path)

    def open(self, path: str, *, write: bool = False) -> Handle:
        """See the port."""
        return self._watched(super().open, path, write=write)

    def write(self, handle: Handle, offset: int, data: bytes) -> None:
        """See the port."""
        self._watched(super().write, handle, offset, data)

    def read(self, handle: Handle, offset: int, size: int) -> bytes:
        """See the port."""
        return self._watched(super().read, handle, offset, size)

    def sync(self, handle: Handle) -> None:
        """See the port."""
        self._watched(super().sync, handle)

    def allocate(self, handle: Handle, offset: int, size: int) -> None:
        """See the port."""
        self._watched(super().allocate, handle, offset, size)

    def close(self, handle: Handle) -> None:
        """See the port."""
        self._watched(super().close, handle)

    def link(self, source: str, target: str) -> None:
        """See the port."""
        self._watched(super().link, source, target)

    def rename(self, source: str, target: str) -> None:
        """See the port."""
        self._watched(super().rename, source, target)

    def unlink(self, path: str) -> None:
        """See the port."""
        self._watched(super().unlink, path)

    def exists(self, path: str) -> bool:
        """See the port."""
        return self._watched(super().exists, path)

    def listing(self, path: str) -> list[str]:
        """See the port."""
        return self._watched(super().listing, path)

    def sync_folder(self, path: str) -> None:
        """See the port."""
        self._watched(super().sync_folder, path)


class Worker:
    """The real `Outside` of a replica's engine, and the owner of its connections."""

    def __init__(self, config: ReplicaConfig, pair: socket.socket) -> None:
        self.config = config
        self.limits: Limits = config.make_limits()
        self.page = Page(page_path(config.directory, config.replica, instance=config.instance), fresh=True)
        self.filesystem: FileSystem = WatchedFileSystem(config.directory, self.page)
        self.engine: ReplicaEngine
        self._intake: Intake
        self._messaging: Messaging
        self._spans: Spans
        self.exit_code = 0
        self.primary_is = PrimaryIs(0, "", "", "")
        self.client_address = ""
        self._pair = pair
        self._line = LineProtocol(ToWorker, self._ordered, self._supervisor_gone)
        self._loop = asyncio.get_running_loop()
        self._done = asyncio.Event()
        self._lock: AsyncLock
        self._connections: dict[int, ServerConnection] = {}
        self._followers: set[int] = set()
        self._unhurried: set[int] = set()  # connections on which nobody waits for an answer: followers' and peers'
        self._conn_number = 0
        self._upstream: ClientConnection | None = None
        self._flushing = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self._tasks: set[asyncio.Future[None]] = set()
        self._checkpoints: Checkpoints
        self._connections_max = descriptors_for(self.limits.connections_max)
        self._ended = False  # we said that we end
        self._switchover: tuple[ServerConnection, int] | None = None
        self._started = time.monotonic()
        self._unproved_since: float | None = None  # of the engine, at the last tick
        self._lock_watch: asyncio.Future[None] | None = None  # asks the lock whether it answers us
        self._following = False

    # ---- life ------------------------------------------------------------------------------------------------

    async def run(self) -> int:
        """Run until deposed, stopped or broken; gives the exit code."""
        config = self.config
        assert self.page.running is not None
        self._loop.set_exception_handler(self._callback_failed)
        await self._loop.create_connection(lambda: self._line, sock=self._pair)
        tls = server_context(config.tls)
        service = load_service(config.module)
        async with open_lock(config, self.filesystem, "worker") as self._lock:
            view = await self._lock.view()
            if view.service is None:
                raise Internal("the service is not in the lock store; the supervisor writes it first")
            adopted = read_adoption(config.directory)
            record = adopted.apply(view.service)
            code = fingerprint(service, self.limits, config.sharding)
            sessions, keys, place = SessionTable(self.limits), KeyTable(self.limits), ShardPlace()
            running, sharding = self.page.running, config.sharding
            executor = HandlerExecutor(service, self.limits, record.seed, keys, running, hide_loop, sharding)
            spool = FileSpool(scratch_folder(config), self.limits.outbox_bytes_max)
            outbox = Outbox(spool, self.limits.outbox_memory_bytes_max)
            shard = Shard(executor, sessions, keys, place, self.limits, outbox=outbox)
            core = Replica(replica=config.replica, sessions=sessions, place=place, limits=self.limits)
            log = open_log(
                self.filesystem,
                self.limits,
                config.replica,
                record,
                view.store_id,
                adopted.through_epoch,
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
            )
            self._intake = Intake(self.engine, self._admin)
            self._messaging = Messaging(config, self.limits, self.engine, self._post, executor.traceparent)
            self._spans = Spans(config, exporter_command(config))
            client_server, client = await listen(self._accept, config.client_listen, tls)
            follower_server, replication = await listen(self._accept, config.replication_listen, tls)
            self.client_address = announced(client, config.advertise_host)
            replication = announced(replication, config.advertise_host)
            self._line.send(AddressesAre(self.client_address, replication, code.hex()))
            self._garbage = Garbage()
            self._loop.add_signal_handler(signal.SIGTERM, self._post, ev.StopOrdered())
            self._loop.call_soon(self._tick)
            self.engine.begin()
            self._set_timer()
            await self._done.wait()
            client_server.close()
            follower_server.close()
            await self.flush()
        return self.exit_code

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
        if is_broken_link(context):
            _LOG.debug("connection broke", extra={"why": str(error)})
            return
        _LOG.error("unexpected", extra={"what": context.get("message"), "why": repr(error)})
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
        self._watch_lock()
        code, text = (error.code, str(error)) if error is not None else ("", "stopped in order")
        level = logging.INFO if code in ("", "DL2001") else logging.ERROR
        _LOG.log(level, "worker ends", extra={"code": code, "why": text})
        self._line.send(Stopping(code, text, successor))
        self.exit_code = error.exit_code if error is not None else 0
        if self._switchover is not None:
            connection, request = self._switchover
            connection.send(struct_packet(Type.ADMIN_REPLY, AdminReply(request, "", b'{"done":true}')))
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
            case Stop():
                self._post(ev.StopOrdered())
            case _:
                raise Internal(f"order {record!r}")

    def _tick(self) -> None:
        self._loop.call_later(PING_S, self._tick)
        cells = self.page.cells
        cells[TICKS] += 1
        cells[LSN] = self.engine.place.lsn
        since = self.engine.unproved_since
        # Counted by rounds of the loop: while a handler runs, no answer can come in.
        cells[UNPROVED] = 0 if since is None or since != self._unproved_since else cells[UNPROVED] + PING_MS
        self._unproved_since = since
        cells[PROVED] = round((self.engine.proved_at or 0.0) * 1e9)
        primary = self.engine.core.primary
        cells[FULL] = int(primary is not None and primary.full)
        cells[OUTBOX_FULL] = int(self._messaging.outbox_full())
        if primary is not None:
            ping = packet(Type.PING)
            for number in self._followers:
                self._connections[number].send(ping)
        self._garbage.tick()
        if cells[TICKS] % TLS_TICKS == 0:
            refresh(self.config.tls)
        self._checkpoints.confirmed(self.engine.core.confirmed_lsn)

    # ---- engine loop -----------------------------------------------------------------------------------------

    def _post(self, event: ev.Event) -> None:
        self.engine.post(event)
        self._after()

    def _after(self) -> None:
        primary = self.engine.core.primary
        if primary is not None and primary.switchover_failed is not None:
            conn, request, why = primary.switchover_failed
            primary.switchover_failed = None
            self._switchover = None
            answer = AdminReply(request, "DL1001", msgspec.json.encode({"error": why}))
            self.send(conn, struct_packet(Type.ADMIN_REPLY, answer))
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

    def now(self) -> float:
        """See Outside."""
        return time.monotonic()

    def wall_us(self) -> int:
        """See Outside."""
        return time.time_ns() // 1000

    def nonce(self) -> bytes:
        """See Outside."""
        return os.urandom(16)

    def complete(self, event: ev.Event) -> None:
        """See Outside."""
        self.engine.post(event)

    def lock(self, operation: Callable[[Lock | AsyncLock], T | Awaitable[T]], done: Callable[[T], None]) -> None:
        """See Outside."""
        self._spawn(self._ask_lock(operation, done))

    async def _ask_lock(
        self, operation: Callable[[Lock | AsyncLock], T | Awaitable[T]], done: Callable[[T], None]
    ) -> None:
        done(await self._answer_of(operation))
        self._after()

    async def _answer_of(self, operation: Callable[[Lock | AsyncLock], T | Awaitable[T]]) -> T:
        """Ask until there is an answer, with back-off: no answer is neither yes nor no (I1)."""
        pause = LOCK_RETRY_MIN_S
        while True:
            try:
                answer = operation(self._lock)
                return cast("T", await answer if inspect.isawaitable(answer) else answer)
            except LockUnavailable as error:
                _LOG.warning("lock store gives no answer", extra={"why": str(error)})
                await asyncio.sleep(pause)
                pause = min(pause * 2, LOCK_RETRY_MAX_S)

    def take_lock(self, replica: str, nonce: bytes, seen: LockView, done: Callable[[Holder | None], None]) -> None:
        """See Outside."""
        self._spawn(self._take_lock(replica, nonce, seen, done))

    async def _take_lock(
        self, replica: str, nonce: bytes, seen: LockView, done: Callable[[Holder | None], None]
    ) -> None:
        holder: Holder | None
        try:
            holder = await self._lock.take(replica, nonce, seen)
        except LockUnavailable:
            view = await self._answer_of(lambda lock: lock.view())
            holder = view.holder if view.holder is not None and view.holder.nonce == nonce else None
        done(holder)
        self._after()

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
        return primary is not None and primary.departure.stage is not Stage.STAYING

    def disconnect(self, conn: ev.Conn) -> None:
        """See Outside."""
        connection = self._connections.get(conn)
        if connection is not None:
            connection.close()

    def tell_role(self, role: str, epoch: int, reason: str) -> None:
        """See Outside."""
        self.page.cells[LSN] = self.engine.place.lsn
        self._following = role in FOLLOWING_ROLES
        self._watch_lock()
        self._line.send(RoleIs(role, epoch, reason, self.engine.place.lsn))

    def _watch_lock(self) -> None:
        """A follower whose primary gets no answer from the lock store finds out whether it does itself."""
        wanted = self._following and self.primary_is.unproved
        if wanted and self._lock_watch is None:
            cells = self.page.cells
            self._lock_watch = self._spawn(ask_on(self._lock.view, lambda ms: cells.__setitem__(LOCK_ANSWERS, ms)))
        elif not wanted and self._lock_watch is not None:
            self._lock_watch.cancel()
            self._lock_watch = None

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

    def prune_checkpoints(self, lsn: int) -> None:
        """See Outside."""
        self._checkpoints.prune()

    def dial_peer(self, target: Target) -> None:
        """See Outside."""
        self._messaging.links.dial(target)

    def send_peer(self, target: Target, data: bytes) -> None:
        """See Outside."""
        self._messaging.links.send(target, data)

    def drop_peer(self, target: Target) -> None:
        """See Outside."""
        self._messaging.links.drop(target)

    def start_activity(self, start: ActivityStart) -> None:
        """See Outside."""
        self._messaging.activities.start(start)

    def stop_activity(self, reference: Reference) -> None:
        """See Outside."""
        self._messaging.activities.stop(reference)

    def export_spans(self, spans: Sequence[Span]) -> None:
        """See Outside."""
        self._spans.export(spans, self.wall_us())

    def report_unknown(self, records: Sequence[UnknownRecord]) -> None:
        """See Outside."""
        self._messaging.report_unknown(records)

    # ---- the primary's stream --------------------------------------------------------------------------------

    def follow(self, replica: str, epoch: int, lsn: int, chain: bytes) -> None:
        """See Outside."""
        self._spawn(self._connect_upstream(replica, lsn, chain))

    async def _connect_upstream(self, replica: str, lsn: int, chain: bytes) -> None:
        address = self.primary_is.replication if self.primary_is.replica == replica else ""
        config = self.config
        hello = Hello(
            1, "follower", config.shard_name, config.replica, config.token, fingerprint=self.engine.fingerprint
        )
        connection = ClientConnection(
            hello,
            lambda packets: self._upstream_packets(connection, packets),
            lambda: self._upstream_lost(connection),
            4 * self.limits.frame_bytes_max,
        )
        self._upstream = connection
        try:
            host, port = split_address(address)
            async with asyncio.timeout(1.0):
                await self._loop.create_connection(lambda: connection, host, port, ssl=client_context(self.config.tls))
        except (OSError, TimeoutError, InvalidConfig):
            self._upstream_lost(connection)
            return
        if self._upstream is connection:
            self.ask_upstream(self.engine.place.lsn, self.engine.place.chain)
        else:  # left while it was being made
            connection.close()

    def ask_upstream(self, lsn: int, chain: bytes) -> None:
        """See Outside."""
        self.send_upstream(struct_packet(Type.FOLLOW, Follow(self.config.replica, lsn, chain, False)))

    def leave(self) -> None:
        """See Outside."""
        connection, self._upstream = self._upstream, None
        if connection is not None:
            connection.close()

    def send_upstream(self, data: bytes) -> None:
        """See Outside."""
        if self._upstream is not None:
            self._upstream.send(data)

    def _upstream_lost(self, connection: ClientConnection) -> None:
        if self._upstream is connection:
            self._upstream = None
            self._post(ev.ConnectionLost(ev.UPSTREAM))

    def _upstream_packets(self, connection: ClientConnection, packets: list[tuple[int, bytes]]) -> None:
        if self._upstream is not connection:
            return  # of a primary that we have left
        self.page.cells[UPSTREAM] = time.monotonic_ns()
        self._intake.upstream(packets)
        self._after()

    # ---- accepted connections --------------------------------------------------------------------------------

    def _accept(self) -> ServerConnection:
        self._conn_number += 1
        return ServerConnection(
            self,
            self._conn_number,
            service=self.config.shard_name,
            token=self.config.token,
            packet_bytes_max=4 * self.limits.frame_bytes_max,
            buffer_bytes_max=self.limits.stream_buffer_bytes_max,
        )

    def opened(self, connection: ServerConnection, hello: Hello) -> None:
        """See packets.Owner."""
        if len(self._connections) >= self._connections_max and hello.kind in ("client", "tool"):
            connection.refuse(Overloaded(f"{self._connections_max} connections stand already"))
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
        connection.send(self._intake.opened(ev.Conn(connection.number), hello, primary))
        self._post(ev.ConnectionOpened(ev.Conn(connection.number), hello))

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

    def _admin(self, conn: ev.Conn, request: Admin) -> None:
        primary = self.engine.core.primary
        if request.command == "switchover":
            if primary is None:
                self._answer(conn, request, "DL1001", {"error": "this replica is not the primary"})
                return
            target = msgspec.json.decode(request.arguments or b"{}", type=dict[str, str]).get("target", "")
            self._switchover = (self._connections[conn], request.id)
            self._post(ev.SwitchoverOrdered(conn, request.id, target))
            for follower in self._followers:
                self._connections[follower].send_kept()
        elif request.command == "parked":
            self._answer(conn, request, "", list_parked(self.engine.shard.parked))
        elif request.command == "status":
            self._answer(conn, request, "", self.status())
        elif request.command == "checkpoint":
            self.engine.take_checkpoint()
            self._answer(conn, request, "", {"lsn": self.engine.place.lsn})
        elif request.command in COMMANDS:
            try:
                told = self._messaging.answer(conn, request)
            except DeathlessError as error:
                self._answer(conn, request, error.code, {"error": error.message})
            else:
                if told is not None:
                    self._answer(conn, request, "", told)
        else:
            self._answer(conn, request, "DL3004", {"error": f"no command {request.command!r}"})

    def _answer(self, conn: ev.Conn, request: Admin, code: str, result: object) -> None:
        self.send(conn, struct_packet(Type.ADMIN_REPLY, AdminReply(request.id, code, msgspec.json.encode(result))))

    def status(self) -> dict[str, object]:
        """Counters and positions, for tools and metrics."""
        engine, core = self.engine, self.engine.core
        counters: dict[str, object] = {}
        if core.primary is not None:
            p = core.primary
            counters = {name: getattr(p.counters, name) for name in type(p.counters).__slots__}
            counters.update(confirmed=p.confirmed_lsn, followers=p.followers, checkpointer=p.checkpointer, full=p.full)
        return {
            "replica": self.config.replica,
            "role": core.role,
            "epoch": core.known_epoch,
            "lsn": engine.place.lsn,
            "sessions": len(engine.shard.sessions),
            "keys": len(engine.shard.keys),
            "states": engine.shard.executor.count(),
            "parked": len(engine.shard.parked),
            "uptime_s": time.monotonic() - self._started,
            "counters": counters,
            "messaging": {**self._messaging.status(), **self._spans.status()},
        }

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


def hide_loop() -> Callable[[], object]:
    """Hide the running event loop from handlers; gives what brings it back."""
    loop = asyncio.get_running_loop()
    asyncio._set_running_loop(None)  # noqa: SLF001 - there is no other way to hide a loop from code it calls
    return lambda: asyncio._set_running_loop(loop)  # noqa: SLF001 - and to bring it back


async def serve(config: ReplicaConfig, pair: socket.socket) -> int:
    """Run one worker; an error before the engine runs is told to the supervisor too."""
    worker: Worker | None = None
    try:
        worker = Worker(config, pair)
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
    """Entry point: config path and the number of the inherited socket."""
    die_with_parent()
    config = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=ReplicaConfig)
    configure(config.log_level, config.replica, "worker")
    pair = socket.socket(fileno=int(sys.argv[2]))
    pair.setblocking(False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(KeyboardInterrupt):
        return event_loop.run(serve(config, pair))
    return 0


if __name__ == "__main__":
    sys.exit(main())

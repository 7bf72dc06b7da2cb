"""A primary as a driver sees it: its real outbox, outreach and links, and a client port that takes answers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path

import msgspec
from tests.encoded import encode_cancel, encode_fork
from tests.unit.deathless.drivers.memory_sink import MEMORIES, Memory

from deathless.base.config import DriverConfig, ReplicaConfig
from deathless.base.limits import Limits
from deathless.base.safeguards import ALL_SAFEGUARDS
from deathless.codec.messages import Kind, decode
from deathless.codec.peer_messages import (
    PeerHello,
    Reference,
    Request,
    Target,
    Trim,
    decode_body,
    encode_request,
)
from deathless.codec.versions import spoken
from deathless.codec.wire import (
    Hello,
    PeerIntroduction,
    PeerWelcome,
    Type,
    Welcome,
    decode_batch,
    decode_struct,
    encode_peer_commit,
    packet,
    struct_packet,
)
from deathless.core import effects as fx
from deathless.core import events as ev
from deathless.core.primary.admission import cut_messages
from deathless.core.primary.sending import Outreach
from deathless.core.tables.outbox import Outbox
from deathless.core.tables.peer_table import PeerTable
from deathless.drivers.host import Host
from deathless.shell.directory.members import Member, write_member
from deathless.shell.net.connections import ServerConnection
from deathless.shell.net.listening import listen
from deathless.shell.worker.peer_links import PeerLinks

LEDGER = Target("ledger", 0)
PATIENCE_S = 60.0


class Primary:
    """The primary of service `shop`, in one epoch; `outbox` may be a former one's."""

    def __init__(self, folder: Path, *, epoch: int = 1, outbox: Outbox | None = None, memory: str = "it") -> None:
        driver = DriverConfig(
            name="ledger",
            kind="tests.unit.deathless.drivers.memory_sink:factory",
            options={"memory": memory},
            folder=str(folder),
            batch_messages=4,
        )
        self.config = ReplicaConfig(
            service="shop", module="m:a", directory=str(folder), replica="r0", token="t" * 16, drivers=(driver,)
        )
        self.epoch = epoch
        self.outbox = outbox or Outbox()
        limits = Limits()
        self.outreach = Outreach(outbox=self.outbox, peers=PeerTable(limits), limits=limits, safeguards=ALL_SAFEGUARDS)
        self.links = PeerLinks(
            self.config,
            introduce=self._introduce,
            tell=self._told,
            chance=random.Random(1),
            packet_bytes_max=1 << 20,
        )
        self.answers: dict[Reference, bytes] = {}  # the first of each operation counts
        self.answer_count = 0
        self.next_answer = 1
        self.confirms = True  # answers; False: they are lost with the connection
        self.silent = False  # answers are taken in and never confirmed
        self.introduced: list[PeerIntroduction] = []
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._servers: list[asyncio.Server] = []
        self._accepted: list[ServerConnection] = []

    async def begin(self) -> Primary:
        """Listen, say where, and look for everybody."""
        server, address = await listen(self._accept, "127.0.0.1:0")
        self._servers.append(server)
        write_member(self.config.directory, Member("r0", "", client=address))
        self._carry_out(self.outreach.begin())
        return self

    def fork(self, *numbers: int, method: str = "write") -> None:
        """A turn sent these, and it is confirmed."""
        for number in numbers:
            args = msgspec.msgpack.encode({"number": number})
            self.outbox.append(LEDGER, encode_fork(method=method.encode(), key=b"k", args=args))
        self._confirm()

    def ask(self, number: int, *, method: str = "write", deadline_us: int = 0) -> Reference:
        """A handler waits for the answer to this one."""
        reference = Reference(1000 + number, 1)
        request = Request(reference.invocation, reference.operation, deadline_us, ("shop/0/k",))
        args = msgspec.msgpack.encode({"number": number})
        self.outbox.append(LEDGER, encode_request(request, method=method.encode(), key=b"k", args=args))
        self._confirm()
        return reference

    def cancel(self, reference: Reference) -> None:
        """Nobody waits any more."""
        self.outbox.append(LEDGER, encode_cancel(reference))
        self._confirm()

    @property
    def kept(self) -> int:
        """Messages that the driver has not confirmed."""
        return self.outbox.next_position(LEDGER) - self.outbox.first_position(LEDGER)

    @property
    def problem(self) -> str:
        """What operators see."""
        return next((each.problem for each in self.links.standing()), "")

    async def wait(self, wanted: Callable[[], bool]) -> None:
        """Until this is so; whoever calls sets the time limit."""
        while not wanted():
            self._changed.clear()
            try:
                async with asyncio.timeout(0.01):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def close(self) -> None:
        """This primary is gone."""
        if self._timer is not None:
            self._timer.cancel()
        self.links.close()
        for connection in self._accepted:
            connection.close()
        for server in self._servers:
            server.close()

    # ---- sending ---------------------------------------------------------------------------------------------

    def _introduce(self, target: Target) -> bytes:
        hello = PeerHello("shop", 0, b"i" * 16, 1)
        return struct_packet(Type.PEER_HELLO, self.outreach.introduction(target, hello, self.epoch))

    def _confirm(self) -> None:
        sent = [(LEDGER, self.outbox.next_position(LEDGER))]
        self._carry_out(self.outreach.frame_confirmed(sent, self._loop.time()))

    def _told(self, event: ev.Event) -> None:
        now = self._loop.time()
        match event:
            case ev.PeerReady(target, session, next_position):
                self._carry_out(self.outreach.ready(target, session, next_position, now))
            case ev.PeerCommitted(target, through):
                self._carry_out(self.outreach.committed(target, through, now))
            case ev.PeerLost(target):
                self.outreach.lost(target)
            case _:
                pass
        self._changed.set()

    def _carry_out(self, effects: Sequence[fx.Effect]) -> None:
        for effect in effects:
            match effect:
                case fx.DialPeer(target=target):
                    self.links.dial(target)
                case fx.SendPeer(target=target, data=data):
                    self.links.send(target, data)
                case fx.DropPeer(target=target):
                    self.links.drop(target)
                case _:
                    raise AssertionError(effect)
        self._log_trims()
        if self._timer is not None:
            self._timer.cancel()
        due = self.outreach.deadline()
        if due is not None:
            self._timer = self._loop.call_at(due, lambda: self._carry_out(self.outreach.timer_fired(due)))

    def _log_trims(self) -> None:
        """The next frame is written at once here."""
        for record in self.outreach.take_trims(10):
            self.outbox.trim(LEDGER, decode_body(Trim, decode(record).args).through)
        self.outreach.frame_synced()

    # ---- answers ---------------------------------------------------------------------------------------------

    def _accept(self) -> ServerConnection:
        connection = ServerConnection(
            self, 1, service="shop", token="t" * 16, packet_bytes_max=1 << 20, buffer_bytes_max=1 << 20
        )
        self._accepted.append(connection)
        return connection

    def opened(self, connection: ServerConnection, hello: Hello) -> None:
        welcome = Welcome(spoken().newest, "shop", "r0", "primary", self.epoch, 1, "", 0, 1, 1)
        connection.send(struct_packet(Type.WELCOME, welcome))

    def packets(self, connection: ServerConnection, packets: list[tuple[int, bytes]]) -> None:
        for kind, body in packets:
            match kind:
                case Type.PING:
                    connection.send(packet(Type.PONG))
                case Type.PEER_HELLO:
                    self.introduced.append(decode_struct(PeerIntroduction, body))
                    connection.send(struct_packet(Type.PEER_WELCOME, PeerWelcome(40, self.next_answer)))
                case Type.BATCH:
                    self._take_answers(connection, body)
                case _:
                    raise AssertionError(kind)
        self._changed.set()

    def _take_answers(self, connection: ServerConnection, body: bytes) -> None:
        batch = decode_batch(body)
        assert (batch.run.session, batch.run.first_seq) == (40, self.next_answer), "the next expected one alone (I3)"
        if not self.confirms:
            connection.close()
        if self.silent or not self.confirms:
            return
        for message in cut_messages(batch):
            taken = decode(message)
            assert taken.kind == Kind.RESPONSE
            self.answers.setdefault(decode_body(Reference, taken.idempotency_key), taken.args)
            self.answer_count += 1
        self.next_answer += batch.run.count
        connection.send(encode_peer_commit(40, self.next_answer - 1))

    def lost(self, connection: ServerConnection) -> None:
        self._changed.set()


def run(
    folder: Path, story: Callable[[Path, Memory], Coroutine[object, object, None]], memory: Memory | None = None
) -> None:
    """Tell a story, with a world outside named `it`."""
    world = MEMORIES["it"] = memory or Memory()
    asyncio.run(asyncio.wait_for(story(folder, world), PATIENCE_S))


async def hosted(config: ReplicaConfig) -> Host:
    """Begin a driver's host beside this replica."""
    host = Host(config, config.drivers[0])
    await host.start()
    return host


async def closed(*ends: Primary | Host) -> None:
    """End all, in order."""
    for each in ends:
        ended: Awaitable[None] | None = each.close()
        if ended is not None:
            await ended
    for _ in range(10):
        await asyncio.sleep(0)

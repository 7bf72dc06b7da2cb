"""The gate: connections of clients on one side, shards of the service on the other, and who has which stream; pure.

    client --HELLO, NOTIFY, MESSAGE, EOS--> SourceWorker --AskStream, Forward...--> here --> HeldStream --> shards
           <--OK, NOTIFY_ACK, ACK, ERROR---             <--Admitted, Confirmed...--      <--              <--

Each connection has a machine of the connector protocol (`protocols.connector.source_worker`), each stream that one of
them has a machine of partitions (`sources.machine`). Both decide nothing about owners:

- **Here**, where two connections want one stream: the newer one gets it if it calls itself the same instance, and the
  older one is told that it is fenced; else it is told that others have the stream, until they let go. Two programs that
  call themselves the same would fence each other for ever, so a stream that was taken from a connection at work can't
  be taken from the next one for a while, which doubles.
- **The primaries**, where two gates do, as after a takeover: see core.primary.inputs.

Nothing is kept that the log does not have: a gate that is gone takes only connections along.

**One client costs another one nothing.** What is kept is counted for each connection and in all, with something for
each message beside its bytes. A connection at its maximum is not read; when all together are at theirs, only those
are read that have less than their share. A connection that says no HELLO, does not come to the end of a frame, or
does not take what is sent to it, is ended after a while.

Guarantees: see the machines. Does not: listen, dial, or know clocks but for the `now` of its calls. Imports the
protocol and this package.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias, assert_never

from deathless.base.backoff import next_pause
from deathless.base.errors import (
    ConnectorSilent,
    ConnectorStreamsFull,
    DeathlessError,
    InputRefused,
    InvalidArgument,
)
from deathless.base.limits import CONNECTOR_KEPT_BYTES_MAX, FIRST_WORD_MAX_S
from deathless.codec.streams.packets import StreamCommit, StreamRefused, StreamWelcome
from deathless.codec.wire import Type, decode_struct
from deathless.protocols.connector import source_events as words
from deathless.protocols.connector.events import BytesReceived, Close, ConnectionLost, Send
from deathless.protocols.connector.frames import Message, MessageId
from deathless.protocols.connector.source_worker import Event, SourceWorker, State, StreamState
from deathless.sources.gate.held import HeldStream
from deathless.sources.machine import PartitionMachine
from deathless.sources.port import Partition

MESSAGE_BYTES: Final = 512
"""That a message takes beside its own bytes, as it is counted: it stands in two machines."""
ACK_S: Final = 0.02  # between two acknowledgements of one connection that has more under way
LOOK_S: Final = 1.0  # between two looks at who says nothing; clients that were denied a stream hear something as often
FRAME_S: Final = 60.0  # a frame that has begun comes to its end
UNREAD_S: Final = 30.0  # what is sent is taken
REIGN_MIN_S: Final = 1.0  # a stream that was taken from a connection at work is not taken from the next one
REIGN_MAX_S: Final = 64.0
CONTENDED_S: Final = 4.0  # reigns from this on are told to operators
STREAM_ID_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """Effect: send these bytes to a client."""

    conn: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class HangUp:
    """Effect: end a connection once what was to be sent is written. Nothing more comes for it."""

    conn: int
    code: str  # of our error; empty: it ended, or was wanted
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SendShard:
    """Effect: send packets to the primary of a shard."""

    shard: int
    packets: Sequence[bytes]


Effect: TypeAlias = Write | HangUp | SendShard


class Known(NamedTuple):
    """A stream that the source knows, whether anybody has it now or not."""

    name: str
    taken_in: int  # everything up to this id is confirmed; -1: nothing, or not known


class Reign(NamedTuple):
    """For how long a stream is not taken from a connection at work."""

    until: float
    length_s: float


class StreamView(NamedTuple):
    """A stream for operators."""

    stream: int
    known: Known
    held: HeldStream | None  # None: nobody has it
    contended: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GateLimits:
    """Named maximums."""

    credits: int
    streams_max: int  # that the source ever knows
    connections_max: int
    kept_bytes_max: int = CONNECTOR_KEPT_BYTES_MAX  # of all connections; one has a quarter of it


class _Client:
    """One connection."""

    __slots__ = ("ack_at", "acked_at", "begun", "denied", "held", "kept", "number", "since", "unread_since", "worker")

    def __init__(self, number: int, worker: SourceWorker, now: float) -> None:
        self.number = number
        self.worker = worker
        self.since = now  # it has said HELLO, or come to the end of a frame
        self.begun = 0  # frames that had come then
        self.unread_since: float | None = None  # it does not take what is sent to it
        self.denied = False  # it was refused a stream, and may ask again at the next acknowledgement
        self.held: set[int] = set()  # streams for which its credits are held
        self.kept = 0  # bytes that are kept for it, as they are counted
        self.acked_at = float("-inf")
        self.ack_at: float | None = None  # when the next acknowledgement is due


class Gate:
    """One source's.

    Args:
        name: of the source.
        make: gives the way of a stream into the shards, as a life of its own.
        limits: named maximums.
        known: streams that the log has.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[Partition], PartitionMachine],
        limits: GateLimits,
        known: Iterable[tuple[int, Known]] = (),
    ) -> None:
        self.rows = 0  # messages that went to shards
        self.errors = 0  # connections that ended with an error of ours
        self.kept = 0  # bytes that are kept for all connections, as they are counted
        self._name = name
        self._make = make
        self._limits = limits
        self._known = dict(known)
        self._clients: dict[int, _Client] = {}
        self._held: dict[int, HeldStream] = {}  # by stream
        self._sessions: dict[tuple[int, int], int] = {}  # stream, by shard and session there
        self._up: set[int] = set()  # shards that are connected
        self._reigns: dict[int, Reign] = {}
        self._timers: list[tuple[float, bool, int]] = []  # when, whether of a connection, and its or a stream's number
        self._look_at = 0.0
        self._out: list[Effect] = []

    # ---- clients -----------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Count of connections."""
        return len(self._clients)

    def connected(self, conn: int, cookie: bytes, now: float) -> None:
        """A client has connected; `conn`: a number that no other had."""
        worker = SourceWorker(
            cookie=cookie, credits=self._limits.credits, kept_bytes_max=self._limits.kept_bytes_max // 4
        )
        self._clients[conn] = _Client(conn, worker, now)

    def received(self, conn: int, data: bytes, now: float) -> list[Effect]:
        """A client sent bytes."""
        return self._of(conn, BytesReceived(data=data), now)

    def lost(self, conn: int, now: float) -> list[Effect]:
        """A connection ended."""
        return self._of(conn, ConnectionLost(), now)

    def unread(self, conn: int, now: float, *, full: bool) -> None:
        """A client takes nothing of what is sent to it, or does so again."""
        if (client := self._clients.get(conn)) is not None:
            client.unread_since = now if full else None

    def drain(self, now: float) -> list[Effect]:
        """All connections are to end in order: another replica leads."""
        for client in list(self._clients.values()):
            self._drive(client, words.DrainRequested(address=""), now)
        return self._taken()

    def wants(self, conn: int) -> bool:
        """Is a connection to be read now?"""
        client = self._clients.get(conn)
        if client is None or client.unread_since is not None or not client.worker.wants_bytes:
            return False
        most = self._limits.kept_bytes_max
        if client.kept >= most // 4:
            return False
        return self.kept < most or client.kept < most // self._limits.connections_max

    def _of(self, conn: int, event: Event, now: float) -> list[Effect]:
        client = self._clients.get(conn)
        if client is not None:
            self._drive(client, event, now)
        return self._taken()

    def _taken(self) -> list[Effect]:
        taken, self._out = self._out, []
        return taken

    # ---- shards ------------------------------------------------------------------------------------------------

    def shard_up(self, shard: int, now: float) -> list[Effect]:
        """A connection to the primary of a shard stands."""
        self._up.add(shard)
        for held in list(self._held.values()):
            self._send(shard, held.machine.connected(shard))
            self._touch(held, now)
        return self._taken()

    def shard_down(self, shard: int) -> None:
        """It is gone: what is not confirmed is kept, and sent to the next primary."""
        self._up.discard(shard)
        for held in self._held.values():
            held.machine.lost(shard)

    def shard_received(self, shard: int, packets: Iterable[tuple[int, bytes]], now: float) -> list[Effect]:
        """The primary of a shard sent packets. Raises: CorruptFrame."""
        for kind, body in packets:
            held = self._addressed(shard, kind, body)
            if held is None:
                continue
            try:
                self._send(shard, held.received(shard, kind, body, now))
            except DeathlessError as error:
                self._refuse(held, error, now)
                continue
            for session in held.sessions:
                self._sessions[session] = held.stream
            self._touch(held, now)
        return self._taken()

    def _addressed(self, shard: int, kind: int, body: bytes) -> HeldStream | None:
        """Give the stream that a packet is about; None: nobody has it, or it is about none."""
        key: StreamWelcome | StreamRefused
        match kind:
            case Type.STREAM_WELCOME:
                key = decode_struct(StreamWelcome, body)
            case Type.STREAM_REFUSED:
                key = decode_struct(StreamRefused, body)
            case Type.STREAM_COMMIT:
                stream = self._sessions.get((shard, decode_struct(StreamCommit, body).session))
                return None if stream is None else self._held.get(stream)
            case _:
                return None
        return self._held.get(key.stream) if key.source == self._name else None

    def _send(self, shard: int, packets: Sequence[bytes]) -> None:
        if packets:
            self._out.append(SendShard(shard=shard, packets=packets))

    # ---- time --------------------------------------------------------------------------------------------------

    def deadline(self) -> float | None:
        """When `turn` is to be called though nothing happens; None: never."""
        found = [self._timers[0][0]] if self._timers else []
        if self._clients:
            found.append(self._look_at)
        return min(found, default=None)

    def turn(self, now: float) -> list[Effect]:
        """Do what is due."""
        while self._timers and self._timers[0][0] <= now:
            at, of_client, number = heapq.heappop(self._timers)
            client, held = self._clients.get(number), self._held.get(number)
            if of_client and client is not None and client.ack_at == at:
                client.ack_at, client.acked_at = None, now
                self._drive(client, words.AcknowledgementDue(), now)
            elif not of_client and held is not None and held.at == at:
                held.at = None
                self._touch(held, now)
        if now >= self._look_at:
            self._look_at = now + LOOK_S
            for client in list(self._clients.values()):
                self._look(client, now)
        return self._taken()

    def _look(self, client: _Client, now: float) -> None:
        """See whether a client says what it has to, and takes what it is told."""
        if client.denied:
            client.denied = False
            self._drive(client, words.AcknowledgementDue(even_empty=True), now)
        frames, inside = client.worker.progress
        spoke = client.worker.state is not State.CONNECTED
        if spoke and (not inside or frames != client.begun or not self.wants(client.number)):
            client.begun, client.since = frames, now
        if client.unread_since is not None and now - client.unread_since > UNREAD_S:
            why = f"it has taken nothing of what was sent to it for {UNREAD_S:g} s"
        elif now - client.since > (FRAME_S if spoke else FIRST_WORD_MAX_S):
            what = "a frame has not come to its end" if spoke else "no HELLO has come"
            why = f"{what} within {FRAME_S if spoke else FIRST_WORD_MAX_S:g} s"
        else:
            return
        self._drive(client, words.ConnectionRefused(error=ConnectorSilent(why)), now)

    # ---- what machines say -------------------------------------------------------------------------------------

    def _drive(self, client: _Client, event: Event, now: float) -> None:
        """Tell a connection's machine something, and do what it says."""
        for effect in client.worker.handle(event):
            if client.number not in self._clients:
                break  # what was done for the effect before has ended the connection
            match effect:
                case Send(data=data):
                    self._out.append(Write(conn=client.number, data=data))
                case Close(code=code, text=text):
                    self.errors += bool(code)
                    self._clients.pop(client.number, None)
                    self._out.append(HangUp(conn=client.number, code=code, text=text))
                case words.ReleaseStreams(streams=streams):
                    for stream in streams:
                        self._release(stream, client.number)
                case words.AskStream():
                    self._ask(client, effect, now)
                case words.ForwardMessages(stream=stream, messages=messages):
                    self._take(self._held[stream], messages, now)
                case words.ForwardEnd(stream=stream):
                    held = self._held[stream]
                    held.end()
                    self._touch(held, now)
                case _:
                    assert_never(effect)
        self._weigh(client)
        if client.worker.has_news and client.number in self._clients:
            self._acknowledge(client, now)

    def _take(self, held: HeldStream, messages: Sequence[Message], now: float) -> None:
        before, wrong = held.machine.rows, None
        try:
            held.take(messages, now)
        except InvalidArgument as error:
            wrong = error
        self.rows += held.machine.rows - before
        self._touch(held, now)  # what came before what is wrong is taken in
        if wrong is not None:
            self._refuse(held, wrong, now)

    def _weigh(self, client: _Client) -> None:
        count, size = client.worker.kept if client.number in self._clients else (0, 0)
        kept = size + count * MESSAGE_BYTES
        self.kept += kept - client.kept
        client.kept = kept

    def _ask(self, client: _Client, ask: words.AskStream, now: float) -> None:
        """A client wants a stream: let it have it, or tell it that others do."""
        number, held = ask.stream, self._held.get(ask.stream)
        problem: DeathlessError | None = None
        if number > STREAM_ID_MAX:
            problem = InvalidArgument(f"NOTIFY: stream {number}: numbers of streams go up to {STREAM_ID_MAX} here")
        elif number not in self._known and len(self._known) >= self._limits.streams_max:
            problem = ConnectorStreamsFull(
                f"NOTIFY: stream {number} would be one more than the {self._limits.streams_max} of source {self._name}"
            )
        if problem is not None:
            self._drive(client, words.ConnectionRefused(error=problem), now)
            return
        if held is not None and (owner := self._owner(held)) is not None and owner is not client:
            same = owner.worker.instance == client.worker.instance != ""
            if not same or not self._may_take(number, now):
                client.denied = True
                taken_in = held.machine.taken_in
                last = MessageId(taken_in) if taken_in >= 0 else None
                self._drive(client, words.StreamRefused(stream=ask.stream, last=last), now)
                return
            self._drive(owner, words.StreamFenced(stream=ask.stream), now)
        self._open(client, ask, now)

    def _owner(self, held: HeldStream) -> _Client | None:
        """Give the connection that has a stream; None: it has ended, or said the stream's end."""
        owner = self._clients.get(held.conn)
        if owner is None or owner.worker.stream_state(held.stream) is StreamState.CLOSED:
            return None
        return owner

    def _may_take(self, stream: int, now: float) -> bool:
        """May a stream be taken from a connection at work? If so, the next one has it for a while."""
        reign = self._reigns.get(stream, Reign(float("-inf"), 0.0))
        if now < reign.until:
            return False
        before_s = reign.length_s if now < reign.until + REIGN_MAX_S else 0.0
        length = next_pause(before_s, first_s=REIGN_MIN_S, most_s=REIGN_MAX_S)
        self._reigns[stream] = Reign(now + length, length)
        return True

    def _open(self, client: _Client, ask: words.AskStream, now: float) -> None:
        if (before := self._held.get(ask.stream)) is not None:
            self._release(ask.stream, before.conn)
        name = ask.name.decode(errors="replace")
        machine = self._make(Partition(ask.stream, name))
        held = self._held[ask.stream] = HeldStream(machine, client.number, ask.name)
        taken_in = self._known[ask.stream].taken_in if ask.stream in self._known else -1
        self._known[ask.stream] = Known(name, taken_in)
        for shard in sorted(self._up):
            self._send(shard, machine.connected(shard))
        self._touch(held, now)

    def _release(self, stream: int, conn: int) -> None:
        """A connection has a stream no more."""
        held = self._held.get(stream)
        if held is None or held.conn != conn:
            return
        del self._held[stream]
        taken_in = max(held.machine.taken_in, self._known[stream].taken_in)
        self._known[stream] = self._known[stream]._replace(taken_in=taken_in)
        for session in held.sessions:
            self._sessions.pop(session, None)

    def _refuse(self, held: HeldStream, error: DeathlessError, now: float) -> None:
        """A stream can't go on on its connection."""
        if (client := self._clients.get(held.conn)) is not None:
            self._drive(client, words.ConnectionRefused(error=error), now)

    def _touch(self, held: HeldStream, now: float) -> None:
        """Something happened to a stream: send what is to be sent, and tell its connection what is new."""
        if self._held.get(held.stream) is not held:
            return
        for shard, packets in held.machine.due(now):
            self._send(shard, packets)
        client = self._clients[held.conn]
        if client.worker.state is State.CLOSED:
            return  # what it said before its end is taken in, and ReleaseStreams comes behind
        try:
            news = held.news()
        except DeathlessError as error:
            self._refuse(held, error, now)
            return
        owned = self._owner(held) is not None
        if held.over or not owned:
            self._release(held.stream, held.conn)
        if not owned:
            return  # the client has said the end of a stream that had ended, and nothing came behind
        for event in news:
            self._drive(client, event, now)
        if client.number not in self._clients:
            return
        self._hold(client, held, now)
        at = held.machine.deadline(now)
        if not held.over and at is not None and (held.at is None or at < held.at):
            held.at = at
            heapq.heappush(self._timers, (at, False, held.stream))

    def _acknowledge(self, client: _Client, now: float) -> None:
        """Tell a client soon what is confirmed; at once where nothing of it is under way: it may wait for that."""
        at = max(client.acked_at + ACK_S, now) if client.kept else now
        if client.ack_at is None or at < client.ack_at:
            client.ack_at = at
            heapq.heappush(self._timers, (client.ack_at, True, client.number))

    def _hold(self, client: _Client, held: HeldStream, now: float) -> None:
        """Hold a client's credits while a shard has no room; a stream that stands at an input costs only its own."""
        refusal = "" if held.over else held.refusal()
        before = bool(client.held)
        if refusal and not refusal.startswith(InputRefused.code):
            client.held.add(held.stream)
        else:
            client.held.discard(held.stream)
        if before != bool(client.held):
            self._drive(client, words.CreditsHeld(held=not before), now)

    # ---- what it says ------------------------------------------------------------------------------------------

    def streams(self, now: float) -> Iterator[StreamView]:
        """Give the streams that the source knows, by number."""
        for stream, known in sorted(self._known.items()):
            reign = self._reigns.get(stream)
            contended = reign is not None and reign.length_s >= CONTENDED_S and now < reign.until
            yield StreamView(stream, known, self._held.get(stream), contended)

    def check_invariants(self) -> None:
        """Raise AssertionError when a bookkeeping is not exact."""
        assert self.kept == sum(each.kept for each in self._clients.values())
        for stream, held in self._held.items():
            assert held.stream == stream
            assert held.conn in self._clients
            held.machine.check_invariants()
        assert set(self._held) <= set(self._known)
        assert set(self._sessions.values()) <= set(self._held)

"""A gate between clients of the protocol and primaries that are played; bytes and packets go back and forth at once.

A primary keeps the promise of core.primary.inputs in the smallest way: the term welcomed last alone is heard, what
follows is admitted by id, and what is confirmed is told. What is admitted and not confirmed is lost with a takeover.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

import msgspec

from deathless.base.errors import InputRefused, OutOfSpace, StreamFenced
from deathless.codec.messages import Kind, decode
from deathless.codec.streams.packets import StreamCommit, StreamHello, StreamRefused, StreamWelcome, decode_stream_batch
from deathless.codec.streams.records import END_SEQ, OnRefusal, note_of
from deathless.codec.streams.rows import decode_row
from deathless.codec.wire import PREFIX_BYTES, PacketReader, Type, decode_struct, struct_packet
from deathless.core.primary.admission import cut_messages
from deathless.protocols.connector.events import BytesReceived, Close, ConnectionOpened, Send
from deathless.protocols.connector.frames import Message, MessageId, StreamId
from deathless.protocols.connector.source_client import Effect as ClientEffect
from deathless.protocols.connector.source_client import Event as ClientEvent
from deathless.protocols.connector.source_client import SourceClient
from deathless.protocols.connector.source_events import MessagesOffered, SessionOpened, StreamOpened, StreamWanted
from deathless.sources.gate.machine import Effect, Gate, GateLimits, HangUp, Known, SendShard, Write
from deathless.sources.keys import Routing
from deathless.sources.machine import PartitionMachine
from deathless.sources.port import Partition

LIMITS = GateLimits(credits=100, streams_max=5, connections_max=10)
S = StreamId(7)
Packets = list[tuple[int, bytes]]


@dataclass(slots=True)
class Log:
    """One stream at one primary."""

    session: int
    next_seq: int = 1
    ended: bool = False
    note: bytes = b""
    nonce: bytes = b""
    term: int = 0
    taken: list[str] = field(default_factory=list)  # rows, and "end"


class Primary:
    """One shard's."""

    def __init__(self) -> None:
        self.logs: dict[int, Log] = {}  # by stream
        self.full = False  # takes nothing
        self.silent = False  # confirms nothing
        self.stands: set[int] = set()  # streams that stand at an input that was refused
        self._terms = count(1)

    def answer(self, data: bytes) -> Packets:
        """Give what is answered to packets."""
        found: list[tuple[Type, msgspec.Struct]] = []
        for kind, body in PacketReader(1 << 24).feed(data):
            if kind == Type.STREAM_HELLO:
                found.append(self._hello(decode_struct(StreamHello, body)))
            elif (told := self._batch(body)) is not None:
                found.append(told)
        return [(kind, struct_packet(kind, told)[PREFIX_BYTES:]) for kind, told in found]

    def _hello(self, hello: StreamHello) -> tuple[Type, msgspec.Struct]:
        log = self.logs.setdefault(hello.stream, Log(session=100 + len(self.logs)))
        if hello.resume and hello.nonce != log.nonce:
            refused = StreamRefused(hello.source, hello.stream, hello.nonce, StreamFenced.code, "taken", -1)
            return Type.STREAM_REFUSED, refused
        log.nonce, log.term = hello.nonce, next(self._terms)
        return Type.STREAM_WELCOME, StreamWelcome(
            hello.source, hello.stream, hello.nonce, log.session, log.term, log.next_seq, log.ended, log.note
        )

    def _batch(self, body: bytes) -> tuple[Type, msgspec.Struct] | None:
        batch, term = decode_stream_batch(body)
        stream, log = next((at, each) for at, each in self.logs.items() if each.session == batch.run.session)
        if term != log.term or batch.run.acked + 1 > log.next_seq or self.silent:
            return None
        if self.full or stream in self.stands:
            code = OutOfSpace.code if self.full else InputRefused.code
            return Type.STREAM_REFUSED, StreamRefused(
                "lines", stream, log.nonce, code, "full", 100, batch.run.first_seq
            )
        for seq, message in enumerate(cut_messages(batch), batch.run.first_seq):
            if seq >= END_SEQ:
                if not log.ended:
                    log.taken.append("end")
                log.ended = True
            elif seq >= log.next_seq:
                log.next_seq, log.note = seq + 1, note_of(message) or log.note
                if message[0] != Kind.MARK:
                    log.ended = False
                    log.taken.append(decode_row(decode(message).args).row.decode(errors="replace"))
        return Type.STREAM_COMMIT, StreamCommit(log.session, log.next_seq, log.ended)


class Peer:
    """One connection of a client, and what it has heard."""

    def __init__(self, world: World, number: int, instance: str, cookie: bytes) -> None:
        self.number = number
        self.client = SourceClient(program="test", instance=instance, cookie=cookie)
        self.heard: list[ClientEffect] = []
        self.ended = ""  # why, code first; empty: it has not
        self._world = world

    def do(self, event: ClientEvent) -> None:
        """Have its machine do something, and what it says carried to the gate."""
        for effect in self.client.handle(event):
            if isinstance(effect, Send):
                self._world.carry(self._world.gate.received(self.number, effect.data, self._world.now))
            elif isinstance(effect, Close):
                self.ended = self.ended or f"{effect.code} {effect.text}"
            else:
                self.heard.append(effect)

    def open(self, stream: StreamId = S, name: bytes = b"flights") -> None:
        """Ask for a stream."""
        self.do(StreamWanted(stream=stream, name=name))

    def send(self, *numbers: int, stream: StreamId = S) -> None:
        """Send messages; the row of number n is n, its key n modulo 5."""
        rows = [Message(stream, MessageId(n), 0, b"k%d" % (n % 5), b"%d" % n) for n in numbers]
        self.do(MessagesOffered(messages=rows))

    def last(self, stream: StreamId = S) -> int | None:
        """Behind which message it is to go on; -1: none; None: the stream was not opened."""
        found = [each for each in self.heard if isinstance(each, StreamOpened) and each.stream == stream]
        return None if not found else -1 if found[-1].last is None else found[-1].last


class World:
    """A gate, its shards, and its clients."""

    def __init__(self, shards: int = 1, limits: GateLimits = LIMITS, known: Sequence[tuple[int, Known]] = ()) -> None:
        self.primaries = [Primary() for _ in range(shards)]
        self.peers: dict[int, Peer] = {}
        self.hung: dict[int, HangUp] = {}
        self.told: Counter[int] = Counter()  # how often something was sent to a client
        self.now = 0.0
        self.lives = count(1)
        self._numbers = count(1)
        self.gate = self.new_gate(limits, known)

    def new_gate(self, limits: GateLimits = LIMITS, known: Sequence[tuple[int, Known]] = ()) -> Gate:
        """Give another gate of the same source, with all shards connected."""
        shards = len(self.primaries)
        routing = Routing("key", input_name="rows", shards=shards, key_bytes_max=99, message_bytes_max=1 << 20)

        def make(partition: Partition) -> PartitionMachine:
            nonces = [b"%016d" % next(self.lives)] * shards
            return PartitionMachine("lines", partition, routing, nonces, OnRefusal.STOP)

        gate = self.gate = Gate("lines", make, limits, known)
        for shard in range(len(self.primaries)):
            self.carry(gate.shard_up(shard, self.now))
        return gate

    def connect(self, instance: str = "one", cookie: bytes = b"", expected: bytes = b"") -> Peer:
        """Have a client connect and say HELLO."""
        number = next(self._numbers)
        peer = self.peers[number] = Peer(self, number, instance, cookie)
        self.gate.connected(number, expected, self.now)
        peer.do(ConnectionOpened())
        assert peer.ended or SessionOpened() in peer.heard
        return peer

    def carry(self, effects: Sequence[Effect]) -> None:
        """Carry effects of the gate to where they belong, and what is answered back."""
        for effect in effects:
            match effect:
                case Write(conn=number, data=data):
                    assert number not in self.hung, "nothing comes for a connection that has ended"
                    self.told[number] += 1
                    if (peer := self.peers.get(number)) is not None:
                        peer.do(BytesReceived(data=data))
                case SendShard(shard=shard, packets=packets):
                    told = self.primaries[shard].answer(b"".join(packets))
                    self.carry(self.gate.shard_received(shard, told, self.now))
                case HangUp(conn=number):
                    self.hung[number] = effect

    def later(self, seconds: float) -> None:
        """Let time pass, with a turn whenever one is due."""
        end = self.now + seconds
        while (at := self.gate.deadline()) is not None and at <= end:
            self.now = max(self.now, at)
            self.carry(self.gate.turn(self.now))
        self.now = end
        self.gate.check_invariants()

    def taken(self, stream: int = S) -> list[str]:
        """What all shards have of a stream, by shard."""
        return [each for primary in self.primaries if stream in primary.logs for each in primary.logs[stream].taken]

    def cut(self, shard: int = 0) -> None:
        """The connection to a shard ends, and another one stands."""
        self.gate.shard_down(shard)
        self.carry(self.gate.shard_up(shard, self.now))

"""A service that is not under test, or a driver: it takes what is sent to it, in order, and answers as it is told.

    service under test --REQUEST, FORK--> recorded, answered --RESPONSE--> the service, as from a peer of that name

It speaks the same packets as every peer, so a message that a successor sends again is recognised by its position and
taken once, and an answer that may be lost is sent until the service has confirmed it.

Guarantees: what is in `messages` came once, in the order in which it was sent. Does not: die, keep a log. Imports core
and codec.
"""

from __future__ import annotations

import hashlib
import inspect
import struct
from collections.abc import Callable, Mapping
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from deathless.base.errors import CorruptFrame, DeathlessError, HandlerFailed, InvalidUse
from deathless.codec.frames import Run
from deathless.codec.messages import Kind, decode
from deathless.codec.peer_messages import PeerHello, Reference, Request, decode_body, encode_response
from deathless.codec.untrusted import read_msgpack
from deathless.codec.versions import agreed, say_hello
from deathless.codec.wire import (
    Hello,
    PacketReader,
    PeerIntroduction,
    PeerWelcome,
    Role,
    Type,
    Welcome,
    decode_batch,
    decode_peer_commit,
    decode_struct,
    encode_batch,
    encode_peer_commit,
    error_reply,
    ok_reply,
    packet,
    struct_packet,
)
from deathless.core.access.authorisation import authorise
from deathless.core.primary.admission import cut_messages
from deathless.execution.values.failure import failed
from deathless.testing.links import PACKET_BYTES_MAX, End, Links, Packets, Talk

if TYPE_CHECKING:
    from deathless.testing.loop import Loop

SESSION: Final = 1
MESSAGE_BYTES_MAX: Final = 32 << 20
Answer = Callable[..., object]


class Message(NamedTuple):
    """A message that a service under test sent to one that is not."""

    source: str  # the service that sent it
    position: int  # from 1, among those of this source
    method: str
    key: str
    arguments: dict[str, object]
    waits: bool  # somebody waits for an answer; False: it was a fork


class FakePeer:
    """A service of this name, as the services under test see it.

    Args:
        name: of the service or driver.
        answers: what its methods answer, by their names: a value, or a function of `key` and the arguments by name.
        links: the environment's connections.
        loop: the environment's.
    """

    def __init__(self, name: str, answers: Mapping[str, object], links: Links, loop: Loop) -> None:
        self.name = name
        self.messages: list[Message] = []
        self.answers = dict(answers)
        self.held: list[tuple[Message, Callable[[object], None]]] = []
        self.holds = False  # True: nobody is answered until `release`
        self._links = links
        self._loop = loop
        self._sources: dict[str, _Source] = {}
        self._served: Callable[[], object] = int
        links.listen(name, None, self._accept)

    # ---- what a test says --------------------------------------------------------------------------------------

    def answer(self, method: str, answer: object) -> None:
        """From now on, answer a method with a value, or with what a function of `key` and the arguments gives.

        A function that raises a DeathlessError is a refusal under its code; anything else it raises is a bug of the
        peer's, as of a handler.
        """
        self.answers[method] = answer

    def hold(self) -> None:
        """From now on, take messages and answer nobody: who waits goes on waiting, until `release`."""
        self.holds = True

    def release(self) -> None:
        """Answer those that were held, in their order, and hold no more."""
        self.holds = False
        held, self.held = self.held, []
        for message, tell in held:
            tell(self._reply(message))
        self._served()

    def calls(self, method: str) -> list[dict[str, object]]:
        """Give the arguments of all messages to a method, in the order in which they came."""
        return [message.arguments for message in self.messages if message.method == method]

    def _reply(self, message: Message) -> object:
        answer = self.answers.get(message.method)
        if not callable(answer):
            return answer
        named = message.arguments
        try:
            inspect.signature(answer).bind(key=message.key, **named)
        except TypeError:
            pass
        else:
            named = {"key": message.key, **named}
        return _Called(partial(answer, **named))

    # ---- as an environment uses it -----------------------------------------------------------------------------

    def now_leads(self, service: str) -> None:
        """Somebody leads a service: tell it what it has not confirmed."""
        source = self._sources.get(service)
        if source is not None:
            source.connect()

    def run_with(self, settle: Callable[[], object]) -> None:
        """Have this called after a test changed something, so that what follows from it happens."""
        self._served = settle

    # ---- what comes in -----------------------------------------------------------------------------------------

    def _accept(self, end: End) -> None:
        _Incoming(self, end)

    def source(self, hello: PeerHello) -> _Source:
        """Give what is known of who sends; it is another one after it was created anew."""
        known = self._sources.get(hello.service)
        if known is None or known.identity != (hello.service_id, hello.incarnation):
            known = self._sources[hello.service] = _Source(self, hello, self._links)
        return known

    def taken(self, source: _Source, position: int, data: bytes) -> None:
        """Take one message, and answer it."""
        try:
            kind, method, key, envelope, args = decode(data)
        except CorruptFrame as error:
            raise InvalidUse(f"{source.service} sent what nobody can read: {error.message}") from None
        if kind not in (Kind.REQUEST, Kind.FORK):
            return
        arguments = read_msgpack(args, dict[str, object]) if args else {}
        waits = kind == Kind.REQUEST
        message = Message(source.service, position, method.decode(), key.decode(), arguments, waits)
        self.messages.append(message)
        if not waits:
            return
        asked = decode_body(Request, envelope)
        tell = partial(source.tell, Reference(asked.invocation, asked.operation))
        if self.holds:
            self.held.append((message, tell))
        else:
            tell(self._reply(message))


class _Called:
    """A function that is to give the answer."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.call = call


def _encoded(answer: object) -> bytes:
    """Give an answer as reply bytes."""
    try:
        value = answer.call() if isinstance(answer, _Called) else answer
    except DeathlessError as error:
        return failed(error)
    except Exception as error:  # noqa: BLE001  whatever it raises is its reply, as a handler's
        return error_reply(HandlerFailed.code, type(error).__name__, str(error))
    return ok_reply(msgspec.msgpack.encode(value))


class _Source:
    """A service that sends: how far we have taken from it, and what we have to tell it."""

    def __init__(self, peer: FakePeer, hello: PeerHello, links: Links) -> None:
        self.service = hello.service
        self.identity = hello.service_id, hello.incarnation
        self.expected = 1
        self.epoch = 0
        self._peer = peer
        self._links = links
        self._answers: list[bytes] = []  # RESPONSE messages that it has not confirmed
        self._first = 1  # position of the first of them
        self._talk: Talk | None = None
        self._session = 0
        self._sent = 0

    def tell(self, reference: Reference, answer: object) -> None:
        """Answer who waits."""
        self._answers.append(encode_response(reference, _encoded(answer)))
        self.connect()
        self._pump()

    def connect(self) -> None:
        """Connect, if there is something to tell."""
        if self._talk is not None or not self._answers:
            return
        hello = say_hello("peer", self.service, self._peer.name)
        talk = self._talk = Talk(
            self._links, self.service, None, hello, received=self._received, lost=lambda: self._lost(talk)
        )

    def _lost(self, talk: Talk) -> None:
        if self._talk is talk:
            self._talk, self._session, self._sent = None, 0, 0

    def _received(self, packets: Packets) -> None:
        talk = self._talk
        assert talk is not None
        for kind, body in packets:
            match kind:
                case Type.WELCOME if decode_struct(Welcome, body).role == "primary":
                    service_id = hashlib.blake2b(self._peer.name.encode(), digest_size=16).digest()
                    introduced = PeerIntroduction(PeerHello(self._peer.name, 0, service_id, 1), 1)
                    talk.send(struct_packet(Type.PEER_HELLO, introduced))
                case Type.PEER_WELCOME:
                    told = decode_struct(PeerWelcome, body)
                    self._confirmed(told.next_position - 1)
                    self._session, self._sent = told.session, 0
                    self._pump()
                case Type.PEER_COMMIT:
                    self._confirmed(decode_peer_commit(body)[1])
                case Type.WELCOME | Type.REFUSED | Type.PEER_REFUSED | Type.BATCH_REFUSED:
                    self._give_up(talk)
                case Type.ROLE if decode_struct(Role, body).role != "primary":
                    self._give_up(talk)
                case _:
                    pass

    def _give_up(self, talk: Talk) -> None:
        talk.close()
        self._lost(talk)

    def _confirmed(self, through: int) -> None:
        count = max(0, min(through - self._first + 1, len(self._answers)))
        del self._answers[:count]
        self._first += count
        self._sent = max(0, self._sent - count)

    def _pump(self) -> None:
        if not self._session or self._talk is None or self._sent == len(self._answers):
            return
        parts = self._answers[self._sent :]
        ends = struct.pack(f"<{len(parts)}I", *accumulate(map(len, parts)))
        run = Run(self._session, self._first + self._sent, 0, len(parts))
        self._sent = len(self._answers)
        self._talk.send(encode_batch(run, ends, b"".join(parts)))


class _Incoming:
    """A connection of a primary that sends."""

    def __init__(self, peer: FakePeer, end: End) -> None:
        self._peer = peer
        self._end = end
        self._reader = PacketReader(PACKET_BYTES_MAX)
        self._hello: Hello | None = None
        self._source: _Source | None = None
        end.data = self._data

    def _data(self, data: bytes) -> None:
        for kind, body in self._reader.feed(data):
            if self._hello is None:
                self._hello = authorise(kind, body, service=self._peer.name, token="")
                self._end.send(struct_packet(Type.WELCOME, self._welcome(self._hello)))
            elif kind == Type.PEER_HELLO:
                said = decode_struct(PeerIntroduction, body)
                source = self._source = self._peer.source(said.hello)
                source.epoch = max(source.epoch, said.epoch)
                self._end.send(struct_packet(Type.PEER_WELCOME, PeerWelcome(SESSION, source.expected)))
            elif kind == Type.PING:
                self._end.send(packet(Type.PONG))
            elif kind == Type.BATCH and self._source is not None:
                batch = decode_batch(body)
                self._take(self._source, batch.run.first_seq, cut_messages(batch))

    def _take(self, source: _Source, first: int, messages: list[bytes]) -> None:
        for position, message in enumerate(messages, first):
            if position == source.expected:
                source.expected += 1
                self._peer.taken(source, position, message)
        self._end.send(encode_peer_commit(SESSION, source.expected - 1))

    def _welcome(self, hello: Hello) -> Welcome:
        return Welcome(
            version=agreed(hello),
            service=self._peer.name,
            replica="r0",
            role="primary",
            epoch=0,
            incarnation=0,
            primary="",
            next_seq=0,
            message_bytes_max=MESSAGE_BYTES_MAX,
            window_max=0,
        )

"""A service written from docs/formats/wire.md and message.md alone: it shares nothing with Deathless.

It is the bank of tests/spec/shop_and_bank.py, once more, by somebody who read the pages: `book` adds to a list and
sends `hear` to the shop, `total` answers. No network, no threads: a connection takes bytes in and gives packets to
send; who carries them is the test's to say. What survives its end is `saved`, written in one piece behind each batch:
state, outbox, and the next position of every sender (message.md, "Sessions of peers").

Each method names the place of the pages that it follows.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import Any

from msgspec import msgpack

HELLO, WELCOME, PING, PONG, BATCH, BATCH_REFUSED = 1, 2, 5, 6, 18, 20
REFUSED, ROLE = 3, 4
PEER_HELLO, PEER_WELCOME, PEER_REFUSED, PEER_COMMIT = 80, 81, 82, 83
FORK, REQUEST, RESPONSE, CANCEL = 2, 3, 4, 5
LONGEST = 1 << 24  # of a packet that we read
BATCH_COUNT = 3  # messages that we put into one packet, so that there is more than one


class Broken(Exception):
    """The other end does what the pages do not allow; the connection ends."""


def pack(kind: int, body: bytes) -> bytes:
    """wire.md, Packet: length of what follows, type, body."""
    return struct.pack("<IB", len(body) + 1, kind) + body


def record(kind: int, *fields: Any) -> bytes:
    """wire.md, Records: a msgpack array."""
    return pack(kind, msgpack.encode(fields))


def cut(blob: bytes, ends: tuple[int, ...]) -> list[bytes]:
    """README, words and conventions: item i is blob[end[i-1]:end[i]]."""
    if list(ends) != sorted(ends) or (ends[-1] if ends else 0) != len(blob):
        raise Broken("end offsets never fall, and the last one is the length of the blob")
    return [blob[start:end] for start, end in pairwise((0, *ends))]


def read_batch(body: bytes) -> tuple[int, int, list[bytes]]:
    """wire.md, Columns, BATCH: session, first seq, messages."""
    session, first, _acked, count, _ = struct.unpack_from("<QQQII", body)
    ends = struct.unpack_from(f"<{count}I", body, 32)
    return session, first, cut(body[32 + 4 * count :], ends)


def write_batch(session: int, first: int, messages: list[bytes]) -> bytes:
    """The same, the other way; acked is 0."""
    ends = list(accumulate(map(len, messages)))
    head = struct.pack("<QQQII", session, first, 0, len(messages), 0)
    return pack(BATCH, head + struct.pack(f"<{len(ends)}I", *ends) + b"".join(messages))


def read_message(data: bytes) -> tuple[int, str, str, list[Any], bytes]:
    """message.md: kind, method, key, envelope, arguments."""
    kind, flags, m, k, i = struct.unpack_from("<BBHHH", data)
    if flags or 8 + m + k + i > len(data):
        raise Broken("a message with flags, or one that ends too early")
    method, key, rest = data[8 : 8 + m], data[8 + m : 8 + m + k], data[8 + m + k :]
    envelope: list[Any] = msgpack.decode(rest[:i])
    return kind, method.decode(), key.decode(), envelope, rest[i:]


def write_message(kind: int, method: str, key: str, envelope: list[Any], arguments: bytes) -> bytes:
    """The same, the other way."""
    parts = [method.encode(), key.encode(), msgpack.encode(envelope)]
    return struct.pack("<BBHHH", kind, 0, *map(len, parts)) + b"".join(parts) + arguments


class ReferencePeer:
    """The service.

    Args:
        name: of the service.
        saved: of the process before; empty: it is created anew.
        incarnation: grows when it is created anew.

    Attributes:
        saved: what a fresh process is made of; everything that was ever told to anybody stands in it.
    """

    def __init__(self, name: str = "bank", saved: bytes = b"", incarnation: int = 5) -> None:
        self.name = name
        self.incarnation = incarnation
        self.state: dict[str, Any] = {
            "epoch": 0,  # grows with each process, so that an older one is refused
            "booked": [],
            "asked": 0,
            "senders": {},  # service/shard -> [service id, incarnation, highest epoch, session, next position]
            "outboxes": {},  # service/shard -> [first position, messages]
        }
        if saved:
            self.state = msgpack.decode(saved)
        self.state["epoch"] += 1
        self.newest: dict[str, Incoming] = {}  # by sender
        self.dialed: dict[str, Outgoing] = {}  # by target
        self.saved = b""
        self.save()

    def save(self) -> None:
        """One write, whole or not at all; nothing is told before it."""
        self.saved = msgpack.encode(self.state)

    @property
    def hello(self) -> list[Any]:
        """wire.md, Records, PEER_HELLO: service, shard, service id, incarnation."""
        return [self.name, 0, self.name.encode().ljust(16, b"."), self.incarnation]

    def accept(self) -> Incoming:
        """Somebody connected."""
        return Incoming(self)

    def dial(self, target: str) -> Outgoing:
        """We connect."""
        connection = self.dialed[target] = Outgoing(self, target)
        return connection

    def owes(self, target: str) -> bool:
        """Has it anything for this one?"""
        return bool(self.state["outboxes"].get(target, [1, []])[1])

    # ---- what it does ------------------------------------------------------------------------------------------

    def take(self, sender: str, message: bytes) -> None:
        """message.md, Kinds and Envelopes."""
        kind, method, _key, envelope, arguments = read_message(message)
        if kind == FORK and method == "book":
            amount = msgpack.decode(arguments)["n"]
            self.state["booked"].append(amount)
            self.send(sender, write_message(FORK, "hear", "cart", [[]], msgpack.encode({"n": amount})))
        elif kind == REQUEST and method == "total":
            self.state["asked"] += 1
            reply = b"\x00" + msgpack.encode(1000 * self.state["asked"] + sum(self.state["booked"]))
            self.send(sender, write_message(RESPONSE, "", "", envelope[:2], reply))
        elif kind == REQUEST:
            error = b"\x01" + msgpack.encode(["DL3003", "UnknownMethod", method])
            self.send(sender, write_message(RESPONSE, "", "", envelope[:2], error))
        elif kind not in (FORK, RESPONSE, CANCEL):
            raise Broken(f"a peer sends no message of kind {kind}")

    def send(self, target: str, message: bytes) -> None:
        """message.md, Sessions of peers: positions count from 1."""
        self.state["outboxes"].setdefault(target, [1, []])[1].append(message)

    def pump(self) -> None:
        """Send what is new on every connection that stands."""
        for connection in self.dialed.values():
            connection.pump()


class Connection:
    """Bytes in, bytes out."""

    def __init__(self, peer: ReferencePeer) -> None:
        self.peer = peer
        self.out: list[bytes] = []  # packets to send; the test takes them
        self.closed = False
        self._buffer = b""

    def feed(self, data: bytes) -> None:
        """Bytes arrived, any number of them."""
        self._buffer += data
        try:
            for kind, body in self._packets():
                if kind == PING:
                    self.out.append(pack(PONG, body))
                else:
                    self.arrived(kind, body)
                if self.closed:
                    return
        except (Broken, struct.error):
            self.closed = True

    def _packets(self) -> Iterator[tuple[int, bytes]]:
        while len(self._buffer) >= 4:
            (length,) = struct.unpack_from("<I", self._buffer)
            if not 1 <= length <= LONGEST:
                raise Broken("a packet that is too long, or has no type")
            if len(self._buffer) < 4 + length:
                return
            packet, self._buffer = self._buffer[4 : 4 + length], self._buffer[4 + length :]
            yield packet[0], packet[1:]

    def arrived(self, kind: int, body: bytes) -> None:
        """One whole packet; those of unknown type are ignored (wire.md, Packet)."""
        raise AssertionError


class Incoming(Connection):
    """wire.md, Conversation of a peer, as the one that receives."""

    def __init__(self, peer: ReferencePeer) -> None:
        super().__init__(peer)
        self.sender = ""

    def arrived(self, kind: int, body: bytes) -> None:
        """See Connection."""
        if kind == HELLO:
            version, said, service, *_ = msgpack.decode(body)
            if (version, said) != (1, "peer") or service not in ("", self.peer.name):
                raise Broken("we speak version 1 with peers only")
            fields = (1, self.peer.name, "only", "primary", self.peer.state["epoch"], 5, "", 0, 1 << 20, 1000)
            self.out.append(record(WELCOME, *fields))
        elif kind == PEER_HELLO:
            self._introduced(*msgpack.decode(body)[:2])
        elif kind == BATCH:
            self._batch(*read_batch(body))

    def _introduced(self, hello: list[Any], epoch: int) -> None:
        """Step 2: logged first; no older connection of this sender is read any more; then from where to send."""
        service, shard, service_id, incarnation = hello
        sender = f"{service}/{shard}"
        senders = self.peer.state["senders"]
        known = senders.get(sender)
        if known is not None and known[:2] != [service_id, incarnation]:
            self._refuse("DL3016", "created anew")
            return
        if known is not None and epoch < known[2]:
            self._refuse("DL2001", "a later primary was seen")
            return
        if known is None:
            known = senders[sender] = [service_id, incarnation, epoch, 100 + len(senders), 1]
        known[2] = epoch
        self.peer.save()
        older = self.peer.newest.get(sender)
        if older is not None and older is not self:
            older.closed = True
        self.peer.newest[sender] = self
        self.sender = sender
        self.out.append(record(PEER_WELCOME, known[3], known[4]))

    def _refuse(self, code: str, text: str) -> None:
        self.out.append(record(PEER_REFUSED, code, text))
        self.closed = True

    def _batch(self, session: int, first: int, messages: list[bytes]) -> None:
        """Step 3: only the next expected position; lower ones are confirmed again, higher ones dropped."""
        known = self.peer.state["senders"].get(self.sender)
        if known is None or self.peer.newest.get(self.sender) is not self or session != known[3]:
            raise Broken("a batch of who was not welcomed")
        if first > known[4]:
            return
        for message in messages[known[4] - first :]:
            self.peer.take(self.sender, message)
            known[4] += 1
        self.peer.save()
        self.out.append(pack(PEER_COMMIT, struct.pack("<QQ", session, known[4] - 1)))
        self.peer.pump()


class Outgoing(Connection):
    """wire.md, Conversation of a peer, as the one that sends."""

    def __init__(self, peer: ReferencePeer, target: str) -> None:
        super().__init__(peer)
        self.target = target
        self.session = 0  # ours, there; 0: not welcomed
        self.cursor = 0  # next position to send
        self.out.append(record(HELLO, 1, "peer", target.partition("/")[0], peer.name))
        first, _ = peer.state["outboxes"].get(target, [1, []])
        self.out.append(record(PEER_HELLO, peer.hello, peer.state["epoch"], first))

    def arrived(self, kind: int, body: bytes) -> None:
        """See Connection."""
        if kind in (WELCOME, ROLE):
            role = msgpack.decode(body)[3 if kind == WELCOME else 0]
            self.closed = role != "primary"
        elif kind in (REFUSED, PEER_REFUSED, BATCH_REFUSED):
            self.closed = True  # tried again later, for ever
        elif kind == PEER_WELCOME:
            self.session, self.cursor = msgpack.decode(body)[:2]
            self._confirmed(self.cursor - 1)
            self.pump()
        elif kind == PEER_COMMIT:
            self._confirmed(struct.unpack("<QQ", body)[1])

    def _confirmed(self, through: int) -> None:
        """Step 4: the sender may forget it."""
        outbox = self.peer.state["outboxes"].setdefault(self.target, [1, []])
        count = through + 1 - outbox[0]
        if count < 0:
            raise Broken("it asks for what it confirmed before")
        if count > len(outbox[1]):
            raise Broken("it confirms what was never sent")
        del outbox[1][:count]
        outbox[0] += count
        self.cursor = max(self.cursor, outbox[0])
        self.peer.save()

    def pump(self) -> None:
        """Send from the cursor on."""
        first, messages = self.peer.state["outboxes"].get(self.target, [1, []])
        while self.session and not self.closed and self.cursor < first + len(messages):
            part = messages[self.cursor - first :][:BATCH_COUNT]
            self.out.append(write_batch(self.session, self.cursor, part))
            self.cursor += len(part)

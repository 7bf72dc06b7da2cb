"""Bytes of the AMBROSIA client protocol, as a binding reads and writes them.

Why it exists: beside the coordinator's codec and without a line of it, so that each of them shows mistakes of the
other. Numbers are zig-zag encoded and written as Protocol Buffers' varints.

Guarantees: CoordinatorWrong is all that reading raises. Does not: keep state. Imports base.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from deathless.protocols.ambrosia_binding.errors import CoordinatorWrong

RECORD_HEAD: Final = struct.Struct("<i i Q q")  # committer, size with this head, check bytes, sequence


class Tag(enum.IntEnum):
    """Message types that a binding sends or receives."""

    RPC = 0
    ATTACH_TO = 1
    TAKE_CHECKPOINT = 2
    RPC_BATCH = 5
    PING = 6
    PING_RETURN = 7
    CHECKPOINT = 8
    INITIAL_MESSAGE = 9
    UPGRADE_TAKE_CHECKPOINT = 10
    TAKE_BECOMING_PRIMARY_CHECKPOINT = 11
    UPGRADE_SERVICE = 12
    COUNT_REPLAYABLE_RPC_BATCH = 13
    BECOMING_PRIMARY = 15


RPCS: Final = (Tag.RPC, Tag.PING, Tag.PING_RETURN)
BATCHES: Final = (Tag.RPC_BATCH, Tag.COUNT_REPLAYABLE_RPC_BATCH)


class CallType(enum.IntEnum):
    """How a method is called."""

    AWAITED = 0
    FORKED = 1
    IMPULSE = 2


class Outcome(enum.IntEnum):
    """How a call that was awaited ended."""

    VALUE = 1
    NOTHING = 2
    EXCEPTION = 3


class Call(NamedTuple):
    """A call, as it arrives."""

    method: int
    type: CallType
    arguments: bytes
    answer_to: str = ""  # AWAITED: who called
    number: int = 0  # AWAITED: comes back with the answer


class Answer(NamedTuple):
    """The answer to a call of ours."""

    outcome: Outcome
    sender: str
    number: int
    payload: bytes


def number(value: int) -> bytes:
    """Write an integer of 32 or 64 bits, whichever it is."""
    rest = 2 * value if value >= 0 else -2 * value - 1
    written: list[int] = []
    while True:
        rest, low = divmod(rest, 128)
        if not rest:
            return bytes([*written, low])
        written.append(128 + low)


class Scanner:
    """Reads one piece of data from its beginning to its end."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    def number(self, bytes_max: int = 5) -> int:
        """Read an integer. Raises: CoordinatorWrong."""
        value, weight = 0, 1
        for _ in range(bytes_max):
            one = self.byte()
            value += one % 128 * weight
            weight *= 128
            if one < 128:
                if value >= 1 << (32 if bytes_max == 5 else 64):
                    break
                return value // 2 if value % 2 == 0 else -(value + 1) // 2
        raise CoordinatorWrong(f"an integer of more than {32 if bytes_max == 5 else 64} bits")

    def long(self) -> int:
        """Read an integer of 64 bits. Raises: CoordinatorWrong."""
        return self.number(10)

    def byte(self) -> int:
        """Read a byte. Raises: CoordinatorWrong."""
        return self.take(1)[0]

    def take(self, count: int) -> bytes:
        """Read so many bytes. Raises: CoordinatorWrong."""
        if count < 0 or self.at + count > len(self.data):
            raise CoordinatorWrong(f"{count} bytes were announced, {len(self.data) - self.at} are there")
        self.at += count
        return self.data[self.at - count : self.at]

    def text(self) -> str:
        """Read a length and so many bytes of UTF-8. Raises: CoordinatorWrong."""
        raw = self.take(self.number())
        try:
            return str(raw, "utf-8")
        except UnicodeDecodeError:
            raise CoordinatorWrong(f"a name that is no UTF-8: {raw[:40]!r}") from None

    def rest(self) -> bytes:
        """Read all that is left."""
        return self.take(len(self.data) - self.at)

    @property
    def ended(self) -> bool:
        """Whether nothing is left."""
        return self.at == len(self.data)


def messages_of(payload: bytes) -> Iterator[tuple[Tag, bytes]]:
    """Give the messages of a record; those of batches one by one. Raises: CoordinatorWrong."""
    scanner = Scanner(payload)
    while not scanner.ended:
        tag, data = _message(scanner)
        if tag not in BATCHES:
            yield tag, data
            continue
        inner = Scanner(data)
        count = inner.number()
        replayable = inner.number() if tag is Tag.COUNT_REPLAYABLE_RPC_BATCH else count
        found = [_message(inner) for _ in range(min(count, len(data)))]
        if not inner.ended or len(found) != count or not 0 <= replayable <= count:
            raise CoordinatorWrong(f"a batch of {count} messages ({replayable} replayable) that holds {len(found)}")
        if any(kind not in RPCS for kind, _ in found):
            raise CoordinatorWrong("a batch holds more than RPCs")
        yield from found


def _message(scanner: Scanner) -> tuple[Tag, bytes]:
    size = scanner.number()
    if size < 1:
        raise CoordinatorWrong(f"a message of {size} bytes")
    body = Scanner(scanner.take(size))
    code = body.byte()
    try:
        tag = Tag(code)
    except ValueError:
        raise CoordinatorWrong(f"a message of type {code}, which no application gets") from None
    return tag, body.rest()


def arrived(data: bytes) -> Call | Answer:
    """Read the data of an incoming RPC. Raises: CoordinatorWrong."""
    scanner = Scanner(data)
    first = scanner.byte()
    if first == 0:
        method, kind = scanner.number(), scanner.byte()
        if kind not in set(CallType):
            raise CoordinatorWrong(f"an RPC of type {kind}")
        to, sequence = (scanner.text(), scanner.long()) if kind == CallType.AWAITED else ("", 0)
        return Call(method, CallType(kind), scanner.rest(), to, sequence)
    if first not in set(Outcome):
        raise CoordinatorWrong(f"an RPC whose first byte is {first}")
    sender, sequence = scanner.text(), scanner.long()
    return Answer(Outcome(first), sender, sequence, scanner.rest())


def message(tag: Tag, *parts: bytes) -> bytes:
    """Write a message."""
    data = b"".join(parts)
    return number(len(data) + 1) + bytes([tag]) + data


def named(text: str) -> bytes:
    """Write a name: its length in bytes, and the bytes."""
    raw = bytes(text, "utf-8")
    return number(len(raw)) + raw


def outgoing_call(to: str, call: Call) -> bytes:
    """Write a call to somebody; "" is oneself."""
    awaited = named(call.answer_to) + number(call.number) if call.type is CallType.AWAITED else b""
    return message(Tag.RPC, named(to), b"\0", number(call.method), bytes([call.type]), awaited, call.arguments)


def outgoing_answer(to: str, answer: Answer) -> bytes:
    """Write the answer to a call."""
    return message(
        Tag.RPC, named(to), bytes([answer.outcome]), named(answer.sender), number(answer.number), answer.payload
    )

"""Runs: forks to one target, one behind the other, as the bytes that an application is given.

    run      = c1 01, u32 LE count, messages
    message  = ZigZagInt size, u8 0 (RPC), u8 0 (a call), ZigZagInt method, u8 1 (a fork), arguments

Why they exist: a program sends hundreds of thousands of small messages in a second, and what is done for each of them
in each process on its way is what bounds it. A run goes through the service of the sender and that of the receiver in
one turn each, whole or not at all, and its bytes are what the receiving program reads; nobody takes it apart.

Rows (`foreign.rows`) hold a run where they hold items otherwise: its first byte begins nothing that is encoded with
msgpack.

Guarantees: what `check` lets through is what `pack` gives for some forks, but for integers that are longer than needed;
it costs little where neighbours are of one size and method, as they mostly are. Does not: know targets, or how long a
message may be. Imports this package.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from deathless.protocols.ambrosia.alike import alike
from deathless.protocols.ambrosia.errors import ProtocolViolated
from deathless.protocols.ambrosia.integers import encode_int, read_int
from deathless.protocols.ambrosia.messages import SELF, Kind, MessageType, Oversized, Packed, Rpc

MAGIC: Final = b"\xc1\x01"
HEAD_BYTES: Final = len(MAGIC) + 4


def may_run(item: Rpc | Oversized) -> bool:
    """Whether an item may stand in a run."""
    return isinstance(item, Rpc) and item.kind is Kind.FORK and item.type is MessageType.RPC


def is_run(data: bytes) -> bool:
    """Whether this is a run, and not items."""
    return data.startswith(MAGIC)


def pack(forks: Sequence[Rpc | Oversized]) -> bytes:
    """Give a run of at least one fork, each of which may stand in one."""
    parts = [MAGIC, len(forks).to_bytes(4, "little")]
    length, prefix = -1, b""
    for each in forks:
        assert isinstance(each, Rpc), each
        if len(each.body) != length:
            length = len(each.body)
            prefix = encode_int(1 + length) + b"\0"
        parts += (prefix, each.body)
    return b"".join(parts)


def join(runs: Iterable[bytes]) -> bytes:
    """Give one run of several, in their order."""
    many = list(runs)
    if len(many) == 1:
        return many[0]
    count = sum(map(count_of, many))
    return b"".join((MAGIC, count.to_bytes(4, "little"), *(memoryview(each)[HEAD_BYTES:] for each in many)))


def count_of(run: bytes) -> int:
    """Give how many messages a run has."""
    return int.from_bytes(run[len(MAGIC) : HEAD_BYTES], "little")


def packed(run: bytes) -> Packed:
    """Give a run as an application is given it."""
    return Packed(count_of(run), run[HEAD_BYTES:])


def forks_of(run: bytes) -> tuple[Rpc, ...]:
    """Give the forks of a run, for the reader. Raises: ValueError: it is none."""
    found: list[Rpc] = []
    for at, end, head, method in _messages(run):
        body = run[at + head.body : end]
        arguments_at = head.length - head.body
        found.append(
            Rpc(destination=SELF, kind=Kind.FORK, body=body, method=method, arguments_at=arguments_at),
        )
    return tuple(found)


def check(run: bytes) -> int:
    """Give how many messages a run has that somebody else made. Raises: ValueError: it is none."""
    left = _begin(run)
    at = HEAD_BYTES
    while left:
        end, head, _ = _message(run, at)
        same = alike(run, at, end - at, head.length, min(left, (len(run) - at) // (end - at)))
        at += same * (end - at)
        left -= same
    if at != len(run):
        raise ValueError(f"{len(run) - at} bytes stand behind the last message of a run")
    return count_of(run)


class _Head:
    """Where parts of a message begin, counted from its first byte."""

    __slots__ = ("body", "length")

    def __init__(self, body: int, length: int) -> None:
        self.body = body  # behind size and type
        self.length = length  # where the arguments begin


def _begin(run: bytes) -> int:
    if len(run) < HEAD_BYTES or not is_run(run):
        raise ValueError("this is no run of messages")
    count = count_of(run)
    if not count:
        raise ValueError("a run has one message at least")
    return count


def _messages(run: bytes) -> Iterable[tuple[int, int, _Head, int]]:
    """Give each message: where it begins and ends, its head, and its method. Raises: ValueError."""
    at = HEAD_BYTES
    for _ in range(_begin(run)):
        end, head, method = _message(run, at)
        yield at, end, head, method
        at = end
    if at != len(run):
        raise ValueError(f"{len(run) - at} bytes stand behind the last message of a run")


def _message(run: bytes, at: int) -> tuple[int, _Head, int]:
    """Read one up to its arguments. Raises: ValueError."""
    try:
        size, start = read_int(run, at, "size")
        method, behind = read_int(run, start + 2, "method id")
    except ProtocolViolated as error:
        raise ValueError(str(error)) from None
    end = start + size
    if run[start : start + 2] != b"\0\0" or run[behind : behind + 1] != b"\1" or not behind < end <= len(run):
        raise ValueError(f"at byte {at} of a run there is no fork")
    return end, _Head(start + 1 - at, behind + 1 - at), method

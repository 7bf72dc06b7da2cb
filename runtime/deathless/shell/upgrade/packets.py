"""What an upgrader and the process of the former code say to each other, over a pair of sockets.

    upgrader                                  former code
    BEGIN (config, seed, fingerprint)  ----->
    RESTORE (place of a checkpoint)    ----->  reads it from the service's folder
    APPLY (a confirmed frame)          ----->  runs it, and compares
                                       <-----  STANDS (lsn), now and then
                                       <-----  LEVEL (u32), once behind BEGIN: newest format level that it knows
    GIVE (a path)                      ----->  writes everything it holds there, as a checkpoint
                                       <-----  GIVEN (lsn, chain), or FAILED (code, text) at any time, and the end
    GIVE_CHANGES (a path)              ----->  the same, of the state only what changed since it was given whole
                                       <-----  GIVEN_CHANGES (lsn, chain, keys that are gone)
    BACK (a path, an interface, ...)   ----->  the same in the words of an older version, which is the upgrader's
                                       <-----  LOWERED (lsn, chain, what does not fit)
    BACK_CHANGES (as BACK)             ----->  likewise, of the state only what changed since BACK
                                       <-----  LOWERED_CHANGES (as LOWERED, keys that are gone)

A packet is u32 length of its body, u8 kind, body, all integers little-endian. Both ends may be of other versions of
Deathless: what a kind has is never changed, kinds are added. An older former code says no LEVEL, and knows the first
alone; an older upgrader passes it over. GIVEN ends with GIVES_CHANGES where GIVE_CHANGES is known,
and LOWERED says so of BACK_CHANGES.

At a socket of the former server (former_server) 8 bytes stand before the first packet: u32 hash seed, u32 what the
process is for (former_link.Use; 0: an upgrader).

Guarantees: what `Reader` gives is whole. Does not: read sockets. May import codec and base.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from typing import Final

import msgspec

from deathless.base.errors import InvalidArgument
from deathless.base.ids import ChainHash, Epoch, Incarnation, Lsn
from deathless.codec.frames import Frame
from deathless.codec.untrusted import read_msgpack

HEAD: Final = struct.Struct("<IB")
PLACE: Final = struct.Struct("<Q16s")
BODY_BYTES_MAX: Final = 1 << 30
GIVES_CHANGES: Final = b"\1"


class Kind(enum.IntEnum):
    """What a packet is."""

    BEGIN = 1
    RESTORE = 2
    APPLY = 3
    GIVE = 4
    STANDS = 5
    GIVEN = 6
    FAILED = 7
    BACK = 8
    LOWERED = 9
    GIVE_CHANGES = 10
    GIVEN_CHANGES = 11
    BACK_CHANGES = 12
    LOWERED_CHANGES = 13
    LEVEL = 14


class Begin(msgspec.Struct, array_like=True, frozen=True):
    """Whose former code it is, and what it must be."""

    config: bytes  # ReplicaConfig as JSON; `module` and `code` are the former code's; not read at a former server
    seed: bytes  # 32 bytes of the service
    fingerprint: bytes  # that it must have


class Failed(msgspec.Struct, array_like=True, frozen=True):
    """Why the process gives up."""

    code: str
    text: str


class Back(msgspec.Struct, array_like=True, frozen=True):
    """Body of BACK: to which code it goes back, and where to write what that goes on with."""

    path: str
    interface: bytes  # of that code (execution.interface)
    time_us: int  # that migrations are shown
    upgrade: bytes  # names the upgrade


class LoweredThere(msgspec.Struct, array_like=True, frozen=True):
    """Body of LOWERED, and of LOWERED_CHANGES: what came of it. Older releases have neither of the last two."""

    place: bytes  # see PLACE
    misfits: bytes  # as msgpack; with any the file is not to be used
    notes: bytes  # likewise
    keys: int
    changed: bool  # states are not as they were
    gives_changes: bool = False  # BACK_CHANGES is known, and may follow
    gone: list[bytes] = []  # of LOWERED_CHANGES: keys that are no more


class ChangesGiven(msgspec.Struct, array_like=True, frozen=True):
    """Body of GIVEN_CHANGES."""

    place: bytes  # see PLACE
    gone: list[bytes]  # keys that are no more


def packet(kind: int, body: bytes = b"") -> bytes:
    """Give the bytes of a packet."""
    return HEAD.pack(len(body), kind) + body


def frame_body(frame: Frame) -> bytes:
    """Give the body of APPLY."""
    return msgspec.msgpack.encode(tuple(frame))


def frame_of(body: bytes) -> Frame:
    """Take the body of APPLY apart. Raises: InvalidArgument."""
    try:
        kind, epoch, first, confirmed, count, incarnation, before, chain, index, payload = read_msgpack(
            body, tuple[int, int, int, int, int, int, bytes, bytes, int, bytes]
        )
    except msgspec.MsgspecError as error:
        raise InvalidArgument(f"a frame for the former code can't be read: {error}") from None
    return Frame(
        kind,
        Epoch(epoch),
        Lsn(first),
        Lsn(confirmed),
        count,
        Incarnation(incarnation),
        ChainHash(before),
        ChainHash(chain),
        index,
        payload,
    )


class Reader:
    """Puts packets together from pieces."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Take a piece in; gives (kind, body) of each packet that is whole. Raises: InvalidArgument for a long one."""
        held = self._held
        held += data
        at = 0
        while len(held) - at >= HEAD.size:
            size, kind = HEAD.unpack_from(held, at)
            if size > BODY_BYTES_MAX:
                raise InvalidArgument(f"a packet of {size} bytes, at most {BODY_BYTES_MAX}")
            if len(held) - at < HEAD.size + size:
                break
            at += HEAD.size
            yield kind, bytes(held[at : at + size])
            at += size
        del held[:at]

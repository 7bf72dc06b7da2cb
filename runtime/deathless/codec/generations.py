"""Which generation of a service's code a log is of: 1, and one more with each upgrade (design 0026).

The truth is the record UPGRADED on the chain. Cuts and checkpoints repeat where the last one stands, so that who reads
the head's cut, or a checkpoint's head, need not read the log for it.

**The format level** is of a generation as well: what may stand in its log, as one number (design 0054).

    1  everything that builds wrote before there were levels
    2  rows of a program's streams and topics hold runs (design 0050)

A log begins with the newest level of the build that begins it, keeps it, and gets a higher one by an upgrade alone. So
replicas on two builds may serve one log while they are rolled: the newer one writes what the older one can read. What
writes something of a later level asks for the level of its log, never for what its build can do; whoever reads the cut
of a level that it does not know refuses the log before it reads anything else of it.

Guarantees: a body that `decode_upgraded` gives is whole; a level never falls. Does not: say what an upgrade may
do. Imports base and this package.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

import msgspec

from deathless.base.errors import CorruptFrame, NewerLevel
from deathless.codec.messages import Kind, encode
from deathless.codec.untrusted import read_msgpack


class Level(enum.IntEnum):
    """Each level, by what it brought; a number is given once, and what it means never changes."""

    FIRST = 1
    RUNS = 2


NEWEST: Final = Level.RUNS
"""The newest level that this build reads and writes; it reads every lower one."""


def check_level(level: int, where: str, newest: int = NEWEST) -> None:
    """Look whether a log of this level can be read.

    Args:
        level: of the log, from 1 on.
        where: it was found, for the error.
        newest: that is known here.

    Raises: NewerLevel.
    """
    if level > newest:
        raise NewerLevel(f"{where}: the log has format level {level}, and this build reads levels up to {newest}")


def raised(level: int, newest: int, former: int) -> int:
    """Give the level of the generation that an upgrade begins, which is never below the one before.

    What ran the log before can still run it then, since the way back is to that.

    Args:
        level: of the generation before.
        newest: that the build knows which makes the upgrade.
        former: newest level that the build knows which runs the former code.
    """
    return max(level, min(newest, former))


class Generation(NamedTuple):
    """One generation, and the place of the record that began it.

    A replica's code and the generation are compared together: the same code may come back as a later generation, and
    its state of before is not that one's.
    """

    number: int
    lsn: int  # of the UPGRADED record; 0: the service began with this generation
    chain: bytes  # behind that record
    level: int = Level.FIRST  # of the log from there on


FIRST: Final = Generation(1, 0, bytes(16))


def encode_of(record: msgspec.Struct, generation: Generation) -> bytes:
    """Encode a record whose last four fields are its generation: the bytes of the first are those of older versions.

    So nothing new is written before the first upgrade of a service, nor anything of a level before there is one.
    """
    values = msgspec.structs.astuple(record)
    if generation == FIRST:
        values = values[: -len(FIRST)]
    elif generation.level == Level.FIRST:
        values = values[:-1]
    return msgspec.msgpack.encode(values)


class Upgraded(msgspec.Struct, array_like=True, frozen=True):
    """Body of an UPGRADED record: the turns of one code end before it, those of another begin behind it.

    The epoch makes each attempt's chain its own: neither the epoch nor the place of a frame is in a chain hash.
    """

    generation: int  # that begins
    epoch: int
    upgrade_id: bytes  # 16 bytes
    from_version: int  # what the author calls the code of before
    from_fingerprint: bytes
    to_version: int
    to_fingerprint: bytes
    time_us: int  # that migrations were shown
    level: int = Level.FIRST  # format level of the log behind it


def encode_upgraded(record: Upgraded) -> bytes:
    """Give the message of an UPGRADED record."""
    values = msgspec.structs.astuple(record)
    return encode(Kind.UPGRADED, args=msgspec.msgpack.encode(values[:-1] if record.level == Level.FIRST else values))


def decode_upgraded(body: bytes) -> Upgraded:
    """Take a record's body apart. Raises: CorruptFrame."""
    try:
        return read_msgpack(body, Upgraded)
    except msgspec.MsgspecError as error:
        raise CorruptFrame(f"a record of an upgrade can't be read: {error}") from None

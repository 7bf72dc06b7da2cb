"""Which generation of a service's code a log is of: 1, and one more with each upgrade (design 0026).

The truth is the record UPGRADED on the chain. Cuts and checkpoints repeat where the last one stands, so that who reads
the head's cut, or a checkpoint's head, need not read the log for it.

Guarantees: a body that `decode_upgraded` gives is whole. Does not: say what an upgrade may do. Imports base only.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from deathless.base.errors import CorruptFrame
from deathless.codec.messages import Kind, encode
from deathless.codec.untrusted import read_msgpack


class Generation(NamedTuple):
    """One generation, and the place of the record that began it.

    A replica's code and the generation are compared together: the same code may come back as a later generation, and
    its state of before is not that one's.
    """

    number: int
    lsn: int  # of the UPGRADED record; 0: the service began with this generation
    chain: bytes  # behind that record


FIRST: Final = Generation(1, 0, bytes(16))


def encode_of(record: msgspec.Struct, generation: Generation) -> bytes:
    """Encode a record whose last three fields are its generation: the bytes of the first are those of older versions.

    So nothing new is written before the first upgrade of a service.
    """
    values = msgspec.structs.astuple(record)
    return msgspec.msgpack.encode(values[: -len(FIRST)] if generation == FIRST else values)


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


def encode_upgraded(record: Upgraded) -> bytes:
    """Give the message of an UPGRADED record."""
    return encode(Kind.UPGRADED, args=msgspec.msgpack.encode(record))


def decode_upgraded(body: bytes) -> Upgraded:
    """Take a record's body apart. Raises: CorruptFrame."""
    try:
        return read_msgpack(body, Upgraded)
    except msgspec.MsgspecError as error:
        raise CorruptFrame(f"a record of an upgrade can't be read: {error}") from None

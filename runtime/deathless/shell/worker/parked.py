"""What operators are told of messages that were set aside (I11).

Guarantees: an answer fits a packet, however many were set aside and however long their names are. Does not: decide what
is set aside or run again (core and engine do). Imports codec and base.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

from deathless.base.errors import CorruptFrame
from deathless.codec.messages import decode
from deathless.codec.snapshot import ParkedRecord

PARKED_SHOWN_MAX: Final = 1000  # messages in one answer, the last ones
PARKED_CHARS_MAX: Final = 512  # of a handler's name and a key in it


def list_parked(parked: Sequence[ParkedRecord]) -> dict[str, object]:
    """What an operator is told of all that was set aside: the last ones, and how many there are."""
    return {"parked": [describe_parked(one) for one in parked[-PARKED_SHOWN_MAX:]], "count": len(parked)}


def describe_parked(record: ParkedRecord) -> dict[str, object]:
    """What an operator sees of a message that was set aside: also which handler and key it is for."""
    handler = key = ""
    with contextlib.suppress(CorruptFrame):  # a malformed message names none
        message = decode(record.message)
        handler, key = message.method.decode(errors="replace"), message.key.decode(errors="replace")
        handler, key = handler[:PARKED_CHARS_MAX], key[:PARKED_CHARS_MAX]
    where = {"lsn": record.lsn, "session": record.session, "seq": record.seq}
    return {**where, "handler": handler, "key": key, "bytes": len(record.message)}

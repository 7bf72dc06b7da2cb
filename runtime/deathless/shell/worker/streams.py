"""What operators are told of streams: how far each is, at what it stands, and which inputs were refused.

Guarantees: an answer fits a packet, however many there are and however long they are. Does not: decide anything (orders
do, which core and engine carry out). Imports core, codec and base.
"""

from __future__ import annotations

import contextlib
from typing import Final

import msgspec

from deathless.base.errors import CorruptFrame
from deathless.base.listings.sources import STREAMS_SHOWN_MAX
from deathless.codec.messages import decode
from deathless.codec.snapshot import RefusedRecord
from deathless.codec.streams.records import END_SEQ
from deathless.codec.streams.rows import decode_row
from deathless.core.tables.stream_table import Stream, StreamTable

REFUSED_SHOWN_MAX: Final = 200  # in one answer, the oldest from an lsn on
STANDING_SHOWN_MAX: Final = STREAMS_SHOWN_MAX  # likewise, those that have stood longest; of their rows nothing is kept
CHARS_MAX: Final = 512  # of a reason, a key and a row


def list_streams(
    table: StreamTable, source: str, first: int, *, above: int = 0, stream: int | None = None
) -> dict[str, object]:
    """Give the streams of a source, and its refused inputs that are listed, from this LSN on, the oldest first.

    Those at which streams stand are told apart, whatever their LSNs, likewise the oldest first.

    Args:
        table: of a shard.
        source: its name.
        first: the LSN.
        above: streams are those whose sessions are above it, ascending; of refused inputs nothing is left out by it.
        stream: its number: of this one alone; None: of all.
    """
    streams = [each for each in table.streams() if each.key.source == source and stream in (None, each.key.stream)]
    sessions = {each.session: each for each in streams}
    refused = [each for each in table.refused() if each.session in sessions]
    standing = sorted((each.stopped for each in streams if each.stopped is not None), key=lambda each: each.lsn)
    kept = sorted((each for each in refused if each not in standing and each.lsn >= first), key=lambda each: each.lsn)
    return {
        "streams": [_describe(each) for each in streams if each.session > above][:STREAMS_SHOWN_MAX],
        "refused": [_refused(each, sessions[each.session], stands=False) for each in kept[:REFUSED_SHOWN_MAX]],
        "standing": [_refused(each, sessions[each.session], stands=True) for each in standing[:STANDING_SHOWN_MAX]],
        "count": len(refused),
        "more": len(kept) > REFUSED_SHOWN_MAX,
    }


def _describe(stream: Stream) -> dict[str, object]:
    return {
        "stream": stream.key.stream,
        "session": stream.session,
        "takenIn": stream.next_seq - 2,
        "ended": stream.ended,
        "onRefusal": stream.on_refusal.value,
        "refused": stream.refused,
        "stands": stream.stopped is not None,
        "note": stream.note.hex(),
    }


def _refused(record: RefusedRecord, stream: Stream, *, stands: bool) -> dict[str, object]:
    """What an operator sees of a refused input; its row where it is kept."""
    key = row = ""
    with contextlib.suppress(CorruptFrame, msgspec.MsgspecError):
        if record.message:
            message = decode(record.message)
            key = message.key.decode(errors="replace")
            row = decode_row(message.args).row[: 4 * CHARS_MAX].decode(errors="replace")
    return {
        "lsn": record.lsn,
        "stream": stream.key.stream,
        "session": record.session,
        "seq": record.seq,
        "id": record.seq - 1 if 0 < record.seq < END_SEQ else -1,
        "atUs": record.at_us,
        "code": record.code,
        "why": record.why[:CHARS_MAX],
        "key": key[:CHARS_MAX],
        "row": row[:CHARS_MAX],
        "stands": stands,
        "kept": bool(record.message),
    }

"""Where a batch begins and ends, as Spark's checkpoint says it.

Spark writes `offsets/<batch>` before it computes a batch:

    v1
    {"batchWatermarkMs":0,"batchTimestampMs":1764412800000,"conf":{...}}
    {"0":{...}}                                     one line for each source; `-` where there is nothing of it yet

The position behind the batch is made of the sources' lines, of the watermark and of the batch's time; not of the
configuration. The two times belong to it: a batch without new rows may give some because the watermark has moved.
Positions are compared, and never understood; so any source will do.

Guarantees: equal files give equal positions, however their JSON is spelled. Does not: open files. Imports base.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from deathless.base.errors import InvalidArgument

VERSION: Final = "v1"
_NOTHING: Final = "-"


class _Metadata(msgspec.Struct, rename="camel"):
    batch_watermark_ms: int = 0
    batch_timestamp_ms: int = 0


def position_of(offsets: str) -> str:
    """Give the position behind a batch from the text of its file `offsets/<batch>`.

    Raises: InvalidArgument for a text of another form.
    """
    lines = offsets.splitlines()
    if len(lines) < 3 or lines[0] != VERSION:
        raise InvalidArgument(
            f"Spark's offsets begin with {VERSION} and have a line for each source, not {offsets[:80]!r}"
        )
    try:
        times = msgspec.json.decode(lines[1], type=_Metadata)
        sources: list[Any] = [None if line == _NOTHING else msgspec.json.decode(line) for line in lines[2:]]
    except msgspec.MsgspecError as error:
        raise InvalidArgument(f"Spark's offsets can't be read: {error}") from None
    canonical = [times.batch_watermark_ms, times.batch_timestamp_ms, sources]
    return msgspec.json.encode(canonical, order="deterministic").decode()

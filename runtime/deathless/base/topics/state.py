"""What is told of the rows of one topic, of one shard, over HTTP and by commands; and names in the answers with rows.

Guarantees: the same names wherever it is told. Does not: read anything. Imports base.
"""

from __future__ import annotations

from typing import Final

import msgspec

ARROW: Final = "application/vnd.apache.arrow.stream"
"""Content type of an Arrow IPC stream."""
NDJSON: Final = "application/x-ndjson"
"""Content type of lines of JSON."""
NEXT: Final = b"deathless.next"
"""In the metadata of each record batch of an Arrow stream: the position behind the last one that the batch covers."""
ROWS: Final = b"deathless.rows"
"""In the metadata of the last record batch, which has no rows: how many rows the batches before it have."""
WAIT_MAX_S: Final = 30
"""So long a request may wait for rows, in seconds."""


class TopicState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Which rows there are now."""

    topic: str
    shard: int
    source: str = ""  # `<service id>.<incarnation>`; empty: nothing was published so far
    floor: int = 1  # rows below may be gone
    first: int = 1  # from here on all are there
    next: int = 1  # up to here, without it
    columns: str = ""  # text of the newest rows' schema (row_schema); empty: there are none
    files: int = 0
    bytes: int = 0  # of them
    time_us: int = 0  # newest logical time of a row, microseconds since 1970; 0: there is none

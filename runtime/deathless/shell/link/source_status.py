"""How a source is, as its process says: a record for metrics, and a file for `deathless sources` and operators' pages.

    <shard directory>/sources/<name>.json     the last status of the process at work, whichever replica it is beside

Guarantees: as `side_status`. Imports base and this folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from deathless.base.config import SourceConfig
from deathless.shell.link.side_status import read_record, write_record

FOLDER: Final = "sources"  # in a shard's directory
STATUS_BYTES_MAX: Final = 1 << 22
PROBLEM_MAX: Final = 1000  # characters


class ShardStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How far one shard of the service is with a stream."""

    shard: int
    taken_in: int  # everything up to this id is confirmed; -1: nothing, or not known
    waiting: int  # rows that were read and are not confirmed
    problem: str = ""  # why it takes nothing, code first; empty: it does


class StreamStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One partition of a source."""

    stream: int
    name: str
    state: str  # of machine.State, lower-case; of a gate's stream: opening, open, ending, closed
    taken_in: int  # by all shards; -1: nothing, or not known
    end: int = 0  # the id behind the last that stands outside; 0: not known
    shards: tuple[ShardStatus, ...] = ()
    code: str = ""  # of the error that keeps it from going on; empty: all is well
    problem: str = ""  # that error, with its remedy

    @property
    def behind(self) -> int:
        """Ids that are outside and not taken in; 0 where it is not known."""
        return max(self.end - self.taken_in - 1, 0) if self.end else 0


class SourceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One source beside one shard's primary, at one moment."""

    source: str
    kind: str
    input: str
    state: str  # idle: not beside a primary; held: beside one that may not reach the outside yet; reading; stopped
    replica: str = ""  # beside which it runs
    epoch: int = 0
    streams: tuple[StreamStatus, ...] = ()
    rows: int = 0  # sent since its process began
    errors: int = 0  # attempts to read that failed, likewise
    code: str = ""  # of the error that keeps all of it from being read; empty: none does
    problem: str = ""  # that error, with its remedy
    connections: int = 0  # of clients, where a kind has some
    listens: str = ""  # where they connect, as host:port; empty: nowhere now
    at_us: int = 0  # when this was said

    @property
    def standing(self) -> int:
        """How many streams do not go on."""
        return sum(bool(each.code) for each in self.streams)


def status_path(directory: str, source: str) -> Path:
    """Give where a source of a shard keeps its status."""
    return Path(directory) / FOLDER / f"{source}.json"


def write_status(directory: str, status: SourceStatus) -> None:
    """Put a status in the place of the one before. Raises: OSError."""
    write_record(status_path(directory, status.source), status)


def read_status(directory: str, source: str) -> SourceStatus | None:
    """Read what a source said last; None: nothing that can be read. Raises: OSError but for a file that is missing."""
    return read_record(status_path(directory, source), SourceStatus, STATUS_BYTES_MAX)


def describe_streams(directory: str, shard: int, source: SourceConfig) -> Iterator[dict[str, object]]:
    """Give what is known of a source's streams that are read beside one shard; one entry where there is none.

    Args:
        directory: of the shard.
        shard: which one it is. Beside another one than 0 there is no entry for a source without streams, so that a
            list of all shards names it once.
        source: which one.

    Raises: OSError but for a file that is missing.
    """
    status = read_status(directory, source.name)
    base: dict[str, object] = {"source": source.name, "input": source.input, "shard": shard}
    if status is None or not status.streams:
        if shard == 0:
            yield base | {
                "stream": "", "name": "", "state": status.state if status is not None else "never ran", "takenIn": "",
                "behind": "", "shards": [], "code": status.code if status is not None else "",
                "problem": status.problem if status is not None else "",
                "atUs": status.at_us if status is not None else 0,
            }  # fmt: skip
        return
    for each in status.streams:
        yield base | {
            "stream": str(each.stream),
            "name": each.name,
            "state": "stopped" if each.code else each.state if status.state == "reading" else status.state,
            "takenIn": each.taken_in,
            "behind": each.behind if each.end else "",
            "shards": [
                {"shard": s.shard, "takenIn": s.taken_in, "waiting": s.waiting, "problem": s.problem}
                for s in each.shards
            ],
            "code": each.code or status.code,
            "problem": each.problem or status.problem,
            "atUs": status.at_us,
        }

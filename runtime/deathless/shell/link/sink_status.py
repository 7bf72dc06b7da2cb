"""How a sink is, as its process says: a record for metrics, and a file for `deathless sinks` and operators' pages.

    <shard directory>/sinks/<name>.json     the last status of the process at work, whichever replica it is beside

Guarantees: as `side_status`. Imports base and this folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from deathless.base.config import SinkConfig
from deathless.shell.link.side_status import read_record, write_record

FOLDER: Final = "sinks"  # in a shard's directory
STATUS_BYTES_MAX: Final = 1 << 16
PROBLEM_MAX: Final = 2000  # characters


class SinkStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One sink of one shard, at one moment."""

    sink: str
    topic: str
    state: str  # of machine.State, lower-case; held: beside a primary that may not reach the outside yet
    replica: str = ""  # beside which it runs
    epoch: int = 0
    source: str = ""  # whose rows: service id and incarnation, as the topic's folder is named; empty: none yet
    position: int = 0  # the first that is not stored; 0: not known
    next: int = 0  # behind the topic's last row
    oldest_us: int = 0  # logical time of the first row that is not stored; 0: there is none
    hold: int = 0  # position from which the sink keeps rows; 0: it keeps none
    hold_dropped: bool = False  # it let go of rows that it has not stored: there were too many
    held_bytes: int = 0  # of files with rows that it keeps, or would keep
    rows: int = 0  # stored since its process began
    blocks: int = 0  # likewise
    errors: int = 0  # attempts that failed, likewise
    code: str = ""  # of the error that keeps it from storing; empty: all is well
    problem: str = ""  # that error, with its remedy
    at_us: int = 0  # when this was said

    @property
    def lag(self) -> int:
        """Positions that are not stored, or not known to be; 0 where nothing is known."""
        known = self.position or self.hold
        return max(self.next - known, 0) if known else 0

    @property
    def lag_s(self) -> float:
        """Age of the first row that is not stored, when this was said."""
        return max(self.at_us - self.oldest_us, 0) / 1e6 if self.oldest_us else 0.0


def status_path(directory: str, sink: str) -> Path:
    """Give where a sink of a shard keeps its status."""
    return Path(directory) / FOLDER / f"{sink}.json"


def write_status(directory: str, status: SinkStatus) -> None:
    """Put a status in the place of the one before. Raises: OSError."""
    write_record(status_path(directory, status.sink), status)


def read_status(directory: str, sink: str) -> SinkStatus | None:
    """Read what a sink said last; None: nothing that can be read. Raises: OSError but for a file that is missing."""
    return read_record(status_path(directory, sink), SinkStatus, STATUS_BYTES_MAX)


def describe_sink(directory: str, shard: int, sink: SinkConfig) -> dict[str, object]:
    """Give what is known of a sink beside one shard.

    Args:
        directory: of the shard.
        shard: which one it is.
        sink: which one.

    Raises: OSError but for a file that is missing.
    """
    told: dict[str, object] = {
        "sink": sink.name, "shard": shard, "topic": sink.topic, "store": sink.store, "table": sink.table,
        "state": "never ran", "replica": "", "position": 0, "next": 0, "lagRows": 0, "lagSeconds": 0.0, "hold": 0,
        "holdDropped": False, "heldBytes": 0, "code": "", "problem": "", "atUs": 0,
    }  # fmt: skip
    status = read_status(directory, sink.name)
    if status is None:
        return told
    return told | {
        "state": status.state, "replica": status.replica, "position": status.position, "next": status.next,
        "lagRows": status.lag, "lagSeconds": round(status.lag_s, 3), "hold": status.hold,
        "holdDropped": status.hold_dropped, "heldBytes": status.held_bytes, "code": status.code,
        "problem": status.problem, "atUs": status.at_us,
    }  # fmt: skip

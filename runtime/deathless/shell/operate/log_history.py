"""What the replicas of a service have logged, all of them in the order of time, and what they log next.

Guarantees: each whole line once; memory for one line of each replica, however large the files are; a line that is not
ours (a print, a traceback that an interpreter printed) belongs to the line before it and has its time. Does not: order
by anything but the replicas' own clocks. May import base.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from deathless.codec.untrusted import read_json
from deathless.shell.operate.replica_log import LogTail
from deathless.shell.process.logs import LEVELS

_UNKNOWN_LEVEL: Final = "warning"  # of a line that is not ours


class LoggedLine(msgspec.Struct):
    """One line of a replica's log, with all its fields."""

    replica: str
    time: str  # local time of the machine, ISO 8601; empty: the file begins with a line that has none
    level: str
    fields: dict[str, object]  # as they were written; a line that is not ours has "text" alone

    @property
    def text(self) -> str:
        """What it says."""
        return str(self.fields.get("text", ""))


class ReplicaHistory:
    """The log of one replica: what stands in its files, then what is added."""

    def __init__(self, replica: str, folder: Path) -> None:
        self._replica = replica
        self._path = folder / "replica.log"
        self._tail = LogTail(self._path)
        self._time = ""
        self._first_new = b""  # the line that was being written when we began

    def past(self) -> Iterator[LoggedLine]:
        """Give the lines that stood in the files when this was made, the oldest first."""
        yield from self._lines(_read(self._path.with_suffix(".log.1")))
        end = self._tail.at
        for line in _read(self._path):
            end -= len(line)
            if end < 0 or not line.endswith(b"\n"):
                self._first_new = line[: len(line) + min(end, 0)]
                return
            yield from self._lines((line,))

    def new(self) -> list[LoggedLine]:
        """Give the lines that were added since the last look."""
        added = self._tail.read_raw()
        if added:
            added[0], self._first_new = self._first_new + added[0], b""
        return list(self._lines(added))

    def _lines(self, raw: Iterable[bytes]) -> Iterator[LoggedLine]:
        for line in raw:
            if not line.strip():
                continue
            fields = _fields(line)
            self._time = str(fields.get("time") or self._time)
            yield LoggedLine(self._replica, self._time, str(fields.get("level", _UNKNOWN_LEVEL)), fields)


def in_order(histories: Iterable[ReplicaHistory]) -> Iterator[LoggedLine]:
    """Give what stands in all files, the oldest line first."""
    return heapq.merge(*(history.past() for history in histories), key=lambda line: line.time)


def wanted(line: LoggedLine, level: str, since: str) -> bool:
    """Whether a line is at least of that level (one of LEVELS), and not older than `since`; empty: however old."""
    worthy = line.level not in LEVELS or LEVELS.index(line.level) >= LEVELS.index(level)
    return worthy and line.time >= since


def log_time(at: datetime) -> str:
    """Give a time as the lines of a log have it, so that the two can be compared."""
    local = at.astimezone()
    return f"{local:%Y-%m-%dT%H:%M:%S}.{local.microsecond // 1000:03d}"


def _read(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            yield from file
    except FileNotFoundError:
        return


def _fields(line: bytes) -> dict[str, object]:
    try:
        return read_json(line, dict[str, object])
    except msgspec.MsgspecError:
        return {"text": line.decode(errors="replace").rstrip()}

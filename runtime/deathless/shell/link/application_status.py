"""How an application is, as the process beside its replica says.

    <shard directory>/application/status-<replica>.json

Guarantees: as `side_status`. Imports the shell's link.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from deathless.shell.link.side_status import read_record, write_record

STATUS_BYTES_MAX: Final = 1 << 16
_PREFIX: Final = "status-"


class ApplicationStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One application at one moment."""

    replica: str
    state: str  # of its machine (protocols.ambrosia.states), lower-case; ended: it has no process
    pid: int = 0
    epoch: int = 0  # in which it leads; 0: it does not
    position: int = 0  # of the last row that it was given
    waiting_bytes: int = 0  # that it emitted and that are not logged yet
    differences: int = 0  # outputs that were not what they had been, in this life
    refused: int = 0  # outputs that went nowhere, likewise
    starts: int = 0
    code: str = ""  # of the error that ended it last; empty: none did
    problem: str = ""  # that error, with its remedy; or why the service takes nothing of it
    at_us: int = 0  # when this was said


def write_status(directory: str, status: ApplicationStatus) -> None:
    """Put a status in the place of the one before. Raises: OSError."""
    write_record(_path(directory, status.replica), status)


def forget_status(directory: str, replica: str) -> None:
    """Take back what was said last beside a replica, if anything was. Raises: OSError."""
    _path(directory, replica).unlink(missing_ok=True)


def _path(directory: str, replica: str) -> Path:
    return Path(directory) / "application" / f"{_PREFIX}{replica}.json"


def read_statuses(directory: str) -> list[ApplicationStatus]:
    """Read what was said last beside each replica, by name. Raises: OSError."""
    folder = Path(directory) / "application"
    found = [read_record(path, ApplicationStatus, STATUS_BYTES_MAX) for path in sorted(folder.glob(f"{_PREFIX}*.json"))]
    return [each for each in found if each is not None]

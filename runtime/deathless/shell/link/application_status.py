"""How an application is, as the process beside its replica says.

    <shard directory>/application/status-<replica>.json

Guarantees: as `side_status`. Imports the shell's link.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from deathless.base.foreign.binding import FOLDER
from deathless.shell.link.side_status import read_record, write_record

STATUS_BYTES_MAX: Final = 1 << 16
_PREFIX: Final = "status-"
SERVING: Final = frozenset({"following", "leading", "snapshot", "leading_snapshot"})
"""States of one that is loaded and runs what is logged."""


class ApplicationStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One application at one moment."""

    replica: str
    state: str  # of its machine (protocols.ambrosia.states), lower-case; ended: it has no process
    # Numbers of what it did are since the process beside the replica began, over all processes of the application.
    pid: int = 0
    epoch: int = 0  # in which it leads; 0: it does not
    position: int = 0  # of the last row that it was given
    waiting_bytes: int = 0  # that it emitted and that are not logged yet
    behind_rows: int = 0  # of the topic, that it was not given yet; 0 while it has not loaded
    behind_bytes: int = 0  # likewise, as the topic's files hold them
    differences: int = 0  # outputs that were not what they had been
    too_long: int = 0  # outputs that went nowhere, since they are longer than a message may be
    unnamed: int = 0  # calls to names that no service can have
    impulses: int = 0  # that it emitted
    impulses_lost: int = 0  # of these, that were not known to be logged when their process ended
    starts: int = 0
    ends: dict[str, int] = {}  # by the code of the error; stopped: in order
    keeps_failing: bool = False  # it ended before it had served for a while, and is started after pauses
    skipped: int = 0  # rows of which an operator has it skip something
    checkpoint_position: int = -1  # of the newest checkpoint, whichever replica wrote it; -1: there is none
    checkpoint_bytes: int = 0  # of that one
    checkpoint_at_us: int = 0  # when that one was written
    checkpoint_s: float = 0.0  # how long the last one of this replica took
    checkpoints: int = 0  # of this replica, that are durable
    checkpoint_failures: int = 0  # of this replica, that could not be written
    code: str = ""  # of the error that ended it last; empty: none did
    problem: str = ""  # that error, with its remedy; or why the service takes nothing of it
    at_us: int = 0  # when this was said

    @property
    def serves(self) -> bool:
        """Whether it is loaded and runs what is logged."""
        return self.state in SERVING

    @property
    def checkpoint_age_s(self) -> float:
        """How old the newest checkpoint was when this was said; 0 where there is none."""
        return max(self.at_us - self.checkpoint_at_us, 0) / 1e6 if self.checkpoint_at_us else 0.0


def write_status(directory: str, status: ApplicationStatus) -> None:
    """Put a status in the place of the one before. Raises: OSError."""
    write_record(_path(directory, status.replica), status)


def forget_status(directory: str, replica: str) -> None:
    """Take back what was said last beside a replica, if anything was. Raises: OSError."""
    _path(directory, replica).unlink(missing_ok=True)


def _path(directory: str, replica: str) -> Path:
    return Path(directory) / FOLDER / f"{_PREFIX}{replica}.json"


def read_statuses(directory: str) -> list[ApplicationStatus]:
    """Read what was said last beside each replica, by name. Raises: OSError."""
    folder = Path(directory) / FOLDER
    found = [read_record(path, ApplicationStatus, STATUS_BYTES_MAX) for path in sorted(folder.glob(f"{_PREFIX}*.json"))]
    return [each for each in found if each is not None]

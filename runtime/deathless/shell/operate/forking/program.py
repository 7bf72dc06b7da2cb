"""The state of a program in another language in a fork: checkpoints of it, and the rows behind them.

    original                                      checkpoints at 200, 300, 400     rows 201 ... 412
    fork, of a place up to which 390 rows went    checkpoints at 200, 300          the same

The forked service publishes in an incarnation of its own from the first row on of which it did not know there that it
was published.

Checkpoints that are there now are replaced by newer ones while a log is run again to find the place, and those may
stand behind it. So files are opened before that, and stay readable whoever removes them.

Guarantees: the original may run meanwhile, and is only read. Does not: read what it copies; whoever starts from it
does. Imports base.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Final

from deathless.base.errors import ForkRefused
from deathless.base.foreign.binding import CHECKPOINT_PREFIX, FOLDER, INPUTS
from deathless.base.topics.settings import FOLDER as TOPICS

FLOORS: Final = "floors"


class ProgramFiles:
    """Those of a service that is forked, opened.

    Args:
        directory: of the service's shard.

    Raises: OSError.
    """

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)
        self._opened: dict[Path, int] = {}  # descriptors, by the path in the directory
        self._open_rows()  # first: a checkpoint's rows are kept as long as it is there
        self._open(sorted((self._directory / FOLDER).glob(f"{CHECKPOINT_PREFIX}*")))
        self._open_rows()

    def __del__(self) -> None:
        for descriptor in self._opened.values():
            os.close(descriptor)

    def copy(self, fork: Path, last: int) -> None:
        """Copy them.

        Args:
            fork: directory of the forked service.
            last: position of the last row that the service had sent at the place of the fork.

        Raises: ForkRefused: no checkpoint is that old; OSError.
        """
        self._open_rows()
        checkpoints = {position: path for path in self._opened if (position := _position(path)) is not None}
        if checkpoints and min(checkpoints) > last:
            raise ForkRefused(
                f"up to there the service's program got {last} rows, and its oldest checkpoint stands behind "
                f"{min(checkpoints)}",
                remedy="cut the service later (--at), or leave --at out",
            )
        for path, descriptor in self._opened.items():
            position = _position(path)
            if position is None or position <= last:
                _copy(descriptor, fork / path)
        for floor in self._rows().glob(f"*/{FLOORS}/*"):  # where each incarnation begins; a name is all there is to it
            target = fork / floor.relative_to(self._directory)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch()

    def _rows(self) -> Path:
        return self._directory / TOPICS / INPUTS.name

    def _open_rows(self) -> None:
        self._open(sorted(self._rows().glob("*/*.rows")))

    def _open(self, paths: list[Path]) -> None:
        for path in paths:
            inside = path.relative_to(self._directory)
            if inside not in self._opened:
                with contextlib.suppress(FileNotFoundError):
                    self._opened[inside] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _position(path: Path) -> int | None:
    """Give the position of a checkpoint; None: this is none."""
    digits = path.name.removeprefix(CHECKPOINT_PREFIX)
    return int(digits) if path.parent == Path(FOLDER) and digits.isdecimal() else None


def _copy(descriptor: int, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    os.lseek(descriptor, 0, os.SEEK_SET)
    with os.fdopen(os.dup(descriptor), "rb") as source, target.open("wb") as copied:
        shutil.copyfileobj(source, copied, 1 << 20)

"""The launchers `Ambrosia`, `ImmortalCoordinator` and `UnsafeDeregisterInstance`: files that start this Python.

Guarantees: a file of that name that is no launcher of ours is left as it is. Does not: put anything on the search
path: the names are too general for that. Imports base.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Final

from deathless.base.errors import InvalidArgument

NAMES: Final = ("Ambrosia", "ImmortalCoordinator", "UnsafeDeregisterInstance")
MARK: Final = "# A launcher of deathless, written by `deathless ambrosia install`."
HEAD_BYTES: Final = 256


def install(folder: Path) -> list[Path]:
    """Write the launchers; gives where they are.

    Args:
        folder: that gets them; it is made if it is not there.

    Raises:
        InvalidArgument: something else has that name there.
        OSError: it can't be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / name for name in NAMES]
    for path in paths:
        if path.exists() and not _is_ours(path):
            raise InvalidArgument(f"{path} is there and no launcher of ours", remedy="name another folder")
    for path in paths:
        path.write_text(text_of(path.name))
        path.chmod(0o755)
    return paths


def text_of(name: str) -> str:
    """Give the content of a launcher."""
    return (
        f"#!/bin/sh\n{MARK}\n"
        f'exec {shlex.quote(sys.executable)} -m deathless.cli.ambrosia.entry {name} "$(dirname "$0")" "$@"\n'
    )


def _is_ours(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return MARK.encode() in file.read(HEAD_BYTES)

"""Pages in memory of replicas that a test has killed: each supervisor that starts looks at those of others.

A page outlives its process, as it must, and its folder's whole tree goes with the test, so nobody would remove it.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from deathless.shell.link.status_page import MEMORY, PAGE_BYTES, PATH_AT


def remove_pages_below(folder: Path, memory: str = MEMORY) -> None:
    """Remove the pages of all replicas whose directory lies below a folder."""
    wanted = str(folder).encode()
    for page in Path(memory).glob("deathless-*"):
        with contextlib.suppress(OSError), page.open("rb") as file:
            if file.read(PAGE_BYTES)[PATH_AT + 4 :].startswith(wanted):
                page.unlink()

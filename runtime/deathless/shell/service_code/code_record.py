"""What each code that has run on a directory consists of, so that a refusal of other code can name what differs.

A log carries 16 bytes for the code that wrote it, which can only be equal or not. Every replica writes what they stand
for to `code/<fingerprint>.json` before it follows or leads: names and versions or hashes, no code. It is a help for
people: nothing is decided by it, and one that is missing, or can't be read, leaves a refusal without its list.

Guarantees: a record is whole or not there; the newest RECORDS_MAX are kept. Does not: raise for what a disk says.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from deathless.codec.untrusted import read_json
from deathless.shell.disk.durable import replace_file
from deathless.shell.disk.small_files import read_small
from deathless.shell.service_code.fingerprint import differences, fingerprint_of

FOLDER: Final = "code"
RECORDS_MAX: Final = 64
DIFFERENCES_MAX: Final = 8  # that a message names; the rest are counted
_LOG = logging.getLogger("deathless.code")


def _place(directory: Path, fingerprint: bytes) -> Path:
    return directory / FOLDER / f"{fingerprint.hex()}.json"


def keep(directory: str | Path, parts: Mapping[str, str]) -> None:
    """Write down what this code consists of, unless it is there."""
    path = _place(Path(directory), fingerprint_of(parts))
    try:
        path.parent.mkdir(exist_ok=True)
        if path.exists():
            os.utime(path)
            return
        replace_file(path, msgspec.json.format(msgspec.json.encode(dict(parts))))
        newest_first = sorted(path.parent.glob("*.json"), key=lambda each: each.stat().st_mtime, reverse=True)
        for old in newest_first[RECORDS_MAX:]:
            old.unlink(missing_ok=True)
    except OSError as error:  # full, read-only: the service runs without it
        _LOG.warning("could not record what this code consists of", extra={"why": str(error)})


def recorded(directory: str | Path, fingerprint: bytes) -> dict[str, str] | None:
    """Give what the code with this fingerprint consists of; None: nobody has written it down, or it is not that."""
    try:
        parts = read_json(read_small(_place(Path(directory), fingerprint)), dict[str, str])
    except (OSError, msgspec.MsgspecError):
        return None
    return parts if fingerprint_of(parts) == fingerprint else None


def what_differs(directory: str | Path, theirs: bytes, ours: Mapping[str, str]) -> str:
    """Say how other code differs from ours, from theirs to ours; empty: not known."""
    before = recorded(directory, theirs)
    if before is None:
        return ""
    named = differences(before, ours)
    more = f"; and {len(named) - DIFFERENCES_MAX} more" if len(named) > DIFFERENCES_MAX else ""
    return "; ".join(named[:DIFFERENCES_MAX]) + more

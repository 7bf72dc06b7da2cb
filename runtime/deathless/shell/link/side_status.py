"""The status of a process beside a replica, in a file: what a sink or a source said last.

    <shard directory>/<kind>/<name>.json     of the process at work, whichever replica it is beside

Guarantees: a reader sees a whole record. Does not: decide anything; be certain to be new, so records name when they
were written. Imports codec and the shell's disk.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

import msgspec

from deathless.codec.untrusted import read_json
from deathless.shell.disk.small_files import read_small

S = TypeVar("S", bound=msgspec.Struct)


def write_record(path: Path, status: msgspec.Struct) -> None:
    """Put a status in the place of the one before. Raises: OSError."""
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(msgspec.json.encode(status))
    temporary.replace(path)


def read_record(path: Path, kind: type[S], bytes_max: int) -> S | None:
    """Read what was said last; None: nothing that can be read. Raises: OSError but for a file that is missing."""
    try:
        return read_json(read_small(path, bytes_max), kind)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None

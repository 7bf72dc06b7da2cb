"""The interface of each code that has run on a directory, so that later code can be compared with it.

It stands in `code/<fingerprint>.interface.json`, beside what the code consists of (see code_record): names and types,
no code. Without it an upgrade can't be checked, but the service runs.

Guarantees: a record is whole or not there. Does not: raise for what a disk says.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final

from deathless.base.errors import InvalidConfig, InvalidService, UpgradeRefused
from deathless.base.limits import Limits
from deathless.execution.author.service import Service
from deathless.execution.interface.interface import (
    Interface,
    interface_as_json,
    interface_from_json,
    interface_of,
)
from deathless.shell.disk.durable import replace_file
from deathless.shell.disk.small_files import read_small
from deathless.shell.service_code import code_record
from deathless.shell.service_code.code_record import FOLDER

BYTES_MAX: Final = 16 << 20
_LOG = logging.getLogger("deathless.code")


def _place(directory: str | Path, fingerprint: bytes) -> Path:
    return Path(directory) / FOLDER / f"{fingerprint.hex()}.interface.json"


def keep(directory: str | Path, fingerprint: bytes, service: Service, limits: Limits) -> None:
    """Write down the interface of this code, unless it is there."""
    path = _place(directory, fingerprint)
    try:
        path.parent.mkdir(exist_ok=True)
        if path.exists():
            os.utime(path)
            return
        replace_file(path, interface_as_json(interface_of(service, limits)))
    except (OSError, InvalidService) as error:
        _LOG.warning("could not record the interface of this code", extra={"why": str(error)})


def recorded(directory: str | Path, fingerprint: bytes) -> Interface | None:
    """Give the interface of the code with this fingerprint; None: nobody has written it down, or it can't be read.

    Args:
        directory: of the shard.
        fingerprint: in either way of telling it: the record has the name that this release gives.
    """
    found = _read(directory, fingerprint)
    if found is not None:
        return found
    code = code_record.recorded(directory, fingerprint)
    return None if code is None or not code.record.parts else _read(directory, code.record.fingerprint)


def needed(directory: str | Path, fingerprint: bytes) -> Interface:
    """Give the interface of the code that is to be upgraded from. Raises: UpgradeRefused where there is no record."""
    found = recorded(directory, fingerprint)
    if found is None:
        raise UpgradeRefused(
            f"{directory}: no interface is recorded for the code that serves ({fingerprint.hex() or 'none'})",
            remedy="start a replica once with the code that serves, under this release, which records it",
        )
    return found


def _read(directory: str | Path, fingerprint: bytes) -> Interface | None:
    try:
        return interface_from_json(read_small(_place(directory, fingerprint), BYTES_MAX))
    except (OSError, InvalidConfig):
        return None

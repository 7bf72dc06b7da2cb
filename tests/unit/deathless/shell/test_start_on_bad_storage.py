"""A start meets an error of the storage at any of its calls: what follows is the table's, and the next start is whole.

Every call on a file or folder of the directory fails once, with each number, on a new directory and on one that stands.
"""

from __future__ import annotations

import asyncio
import errno
from functools import partial
from pathlib import Path

import msgspec
import pytest
from tests.unit.deathless.shell.faulty_calls import FaultyCalls

from deathless.base.config import ReplicaConfig
from deathless.base.errors import (
    LockUnavailable,
    OutOfSpace,
    PermissionRefused,
    StorageFailed,
    StorageReadOnly,
    StorageUnfit,
)
from deathless.base.storage import Outcome, Use, storage_error, waits
from deathless.shell.directory.identity import prepare

CALLS = ("open", "read", "pread", "pwrite", "fsync", "fdatasync", "link", "replace", "mkdir", "stat", "listdir")
NUMBERS = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EIO,
    errno.ESTALE,
    errno.EACCES,
    errno.ECONNABORTED,
)
PASSES_BY_ITSELF = (LockUnavailable, OutOfSpace, StorageReadOnly, StorageFailed)  # what `usable.when_usable` waits for


def config(directory: Path) -> ReplicaConfig:
    named = {"service": "bank", "module": "a.py:a", "directory": str(directory), "replica": "r0"}
    return msgspec.convert({**named, "allow_any_file_system": True}, ReplicaConfig)


def start(directory: Path) -> object:
    """Run one start; gives the service."""
    return asyncio.run(prepare(config(directory)))


def outcome_of(error: object) -> Outcome | str:
    """What a supervisor does about it."""
    if isinstance(error, PASSES_BY_ITSELF) or (isinstance(error, OSError) and waits(error, Use.START)):
        return Outcome.WAITS
    if isinstance(error, OSError) and isinstance(storage_error(error), PermissionRefused):
        return Outcome.ENDS
    return Outcome.ENDS if isinstance(error, PermissionRefused | StorageUnfit) else f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: errno.errorcode[number])
def test_whatever_a_file_of_a_start_says_has_the_outcome_of_the_table(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = {Outcome.WAITS, Outcome.ENDS} if number == errno.EACCES else {Outcome.WAITS}
    wrong, failing = [], 0
    standing = tmp_path / "standing"
    with monkeypatch.context() as patch:
        calls = FaultyCalls(patch, CALLS)
        service = calls.run(standing, partial(start, standing))
        met = True
        while met:
            failing, met = failing + 1, False
            for each in (standing, tmp_path / f"new{failing}"):
                found, failed = calls.run(each, partial(start, each), failing, number), calls.failed
                if failed and isinstance(found, Exception) and outcome_of(found) not in allowed:
                    wrong.append(f"{failed}: {outcome_of(found)}")
                again = calls.run(each, partial(start, each)) if failed else found
                if isinstance(again, Exception) or (each is standing and again != service):
                    wrong.append(f"after {failed}: {again}")
                met = met or bool(failed)
    assert failing > 40, "a start has so many calls"
    assert wrong == []

"""A start waits for what passes by itself, and for nothing else."""

from __future__ import annotations

import asyncio
import errno

import pytest

from deathless.base.errors import ForeignDirectory, LockUnavailable, OutOfSpace, StorageFailed, StorageReadOnly
from deathless.shell.supervisor.usable import when_usable


def test_what_passes_by_itself_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deathless.shell.supervisor.usable.AGAIN_MIN_S", 0.0)
    errors: list[Exception] = [
        LockUnavailable("away"), StorageReadOnly("ro"), StorageFailed("io"), OutOfSpace("full"), OSError(errno.EIO, "")
    ]  # fmt: skip
    between: list[int] = []

    async def attempt() -> str:
        if errors:
            raise errors.pop(0)
        return "done"

    assert asyncio.run(when_usable(attempt, lambda: between.append(len(errors)))) == "done"
    assert between == [4, 3, 2, 1, 0]


@pytest.mark.parametrize("error", [ForeignDirectory("another's"), OSError(errno.ENOTDIR, "no folder")])
def test_what_a_person_must_act_on_ends_the_wait(error: Exception) -> None:
    async def attempt() -> None:
        raise error

    with pytest.raises(type(error)):
        asyncio.run(when_usable(attempt, lambda: None))


def test_what_is_found_between_two_attempts_ends_the_wait() -> None:
    async def attempt() -> None:
        raise LockUnavailable("away")

    def between() -> None:
        raise ForeignDirectory("it is another's by now")

    with pytest.raises(ForeignDirectory):
        asyncio.run(when_usable(attempt, between))

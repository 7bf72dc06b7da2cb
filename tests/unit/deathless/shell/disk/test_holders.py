"""Who holds a lock file is named while it lives."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import pytest

from deathless.shell.disk.holders import holder_of, take
from deathless.shell.operate.runner import running_supervisor


def test_holder_of_a_lock_is_named_while_it_lives(tmp_path: Path) -> None:
    path = tmp_path / "supervisor.lock"
    assert running_supervisor(tmp_path) == 0
    path.write_text("4242\n")
    assert running_supervisor(tmp_path) == 0
    descriptor = os.open(path, os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    assert holder_of(path) == 4242
    os.close(descriptor)
    assert holder_of(path) == 0


def test_who_takes_a_lock_waits_for_one_who_only_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "supervisor.lock"
    path.write_text("4242\n")
    looking = os.open(path, os.O_RDWR)
    fcntl.flock(looking, fcntl.LOCK_EX)
    taker = os.open(path, os.O_RDWR)
    with pytest.raises(BlockingIOError):
        take(taker)
    monkeypatch.setattr(time, "sleep", lambda _: fcntl.flock(looking, fcntl.LOCK_UN))
    take(taker)
    with pytest.raises(BlockingIOError):
        fcntl.flock(looking, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(looking)
    os.close(taker)

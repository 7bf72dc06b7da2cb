"""Opening a replica's log: it knows whose it is, its spare stands, and a log that nobody began has no head."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from deathless.base.limits import Limits
from deathless.engine.log_route import Identity
from deathless.engine.ports import Handle, ServiceRecord
from deathless.shell.filesystem import RealFileSystem
from deathless.shell.storage import open_log

LIMITS = Limits(segment_bytes_max=1 << 16, frame_bytes_max=1 << 12, message_bytes_max=1 << 12, spare_bytes=1 << 13)
RECORD = ServiceRecord("bank", bytes(16), 7, bytes(32), 0, "seal", live=False)


def test_an_opened_log_has_its_spare_and_knows_its_service(tmp_path: Path) -> None:
    log = open_log(RealFileSystem(tmp_path), LIMITS, "r0", RECORD, "store", adopted_through=3)
    assert (tmp_path / "replicas" / "r0" / "spare").stat().st_size == LIMITS.spare_bytes
    assert log._identity == Identity(bytes(16), 7, "seal", "store", 3)


def test_two_replicas_open_one_log_each_with_a_spare_of_its_own(tmp_path: Path) -> None:
    for replica in ("r0", "r1"):
        open_log(RealFileSystem(tmp_path), LIMITS, replica, RECORD, "store")
    assert sorted(path.parent.name for path in tmp_path.glob("replicas/*/spare")) == ["r0", "r1"]


def test_a_storage_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: RealFileSystem, handle: Handle, offset: int, size: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(RealFileSystem, "allocate", broken)
    with pytest.raises(OSError, match="Input/output error"):
        open_log(RealFileSystem(tmp_path), LIMITS, "r0", RECORD, "store")

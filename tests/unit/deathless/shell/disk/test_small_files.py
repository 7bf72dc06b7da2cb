"""Small files that somebody else may have put there: whole, bounded, and never waited for."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from deathless.shell.disk.small_files import SMALL_FILE_BYTES_MAX, read_small


def test_a_file_that_is_no_file_or_too_long_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "long").write_bytes(bytes(SMALL_FILE_BYTES_MAX + 1))
    (tmp_path / "zeros").symlink_to("/dev/zero")
    for name, number in (("pipe", errno.EINVAL), ("zeros", errno.EINVAL), (".", errno.EISDIR), ("long", errno.EFBIG)):
        with pytest.raises(OSError, match=str(tmp_path)) as told:
            read_small(tmp_path / name)
        assert told.value.errno == number
    (tmp_path / "right").write_bytes(bytes(SMALL_FILE_BYTES_MAX))
    assert len(read_small(tmp_path / "right")) == SMALL_FILE_BYTES_MAX

"""A replica's config is read, or refused with its name; written for its user, whole, and where it differs."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NoReturn

import msgspec
import pytest

from deathless.base.config import ReplicaConfig
from deathless.base.errors import InvalidConfig
from deathless.shell.link.config_file import config_path, read_config, stands, write_config, write_private


def test_file_with_a_token_is_for_this_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text("old")
    path.chmod(0o644)
    write_private(path, b"new")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new", 0o600)
    assert list(tmp_path.iterdir()) == [path]


def test_config_that_stands_is_not_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is read-only just now keeps no replica from its start."""
    config = ReplicaConfig(service="bank", module="m:a", directory=str(tmp_path), replica="r0")
    other = msgspec.structs.replace(config, module="m:b")
    config_path(tmp_path, "r0").parent.mkdir(parents=True)
    write_config(config)

    def replaced(*_: object) -> NoReturn:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "replace", replaced)
    write_config(config)
    with pytest.raises(OSError, match="Read-only"):
        write_config(other)
    assert (stands(config), stands(other)) == (True, False)
    assert [path.name for path in config_path(tmp_path, "r0").parent.iterdir()] == ["config.json"]


def test_config_that_can_not_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"none\.json"):
        read_config(str(tmp_path / "none.json"))
    path = tmp_path / "bad.json"
    path.write_text('{"service": 1}')
    with pytest.raises(InvalidConfig, match=r"bad\.json.*service"):
        read_config(str(path))

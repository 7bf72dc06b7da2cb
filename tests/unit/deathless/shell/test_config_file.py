"""A replica's config is read, or refused with the name of the file and of the field."""

from __future__ import annotations

from pathlib import Path

import pytest

from deathless.base.errors import InvalidConfig
from deathless.shell.config_file import read_config


def test_config_that_can_not_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"none\.json"):
        read_config(str(tmp_path / "none.json"))
    path = tmp_path / "bad.json"
    path.write_text('{"service": 1}')
    with pytest.raises(InvalidConfig, match=r"bad\.json.*service"):
        read_config(str(path))

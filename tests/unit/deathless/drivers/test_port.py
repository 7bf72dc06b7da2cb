"""What a factory of sinks is given."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from deathless.base.errors import InvalidConfig
from deathless.drivers.port import Settings


class Options(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    some_number: int = 3


def test_options_are_typed_and_a_wrong_one_is_named() -> None:
    assert Settings("d", {"someNumber": 5}).typed(Options).some_number == 5
    with pytest.raises(InvalidConfig, match=r"driver d: options: .*someNumber"):
        Settings("d", {"someNumber": "five"}).typed(Options)


def test_secrets_come_from_files_beside_the_manifest(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(" s3cret\n")
    settings = Settings("d", {}, str(tmp_path))
    assert settings.secret("secret") == "s3cret"
    with pytest.raises(InvalidConfig, match="driver d: missing"):
        settings.secret("missing")

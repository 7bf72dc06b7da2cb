"""Whether the settings are others than those that a replica was started with."""

from __future__ import annotations

from pathlib import Path

import pytest

from deathless.shell.link.settings_file import SettingsFile


@pytest.mark.parametrize(
    ("now", "changed"),
    [
        (b'{"etcd": {"endpoints": ["b"]}}', True),
        (b'{ "etcd" : { "endpoints" : ["a"] } }', False),
        (b"", False),
        (b'{"etcd": ', False),
        (None, False),
    ],
    ids=["others", "spelt otherwise", "empty", "half", "gone"],
)
def test_change_counts_once_it_can_be_read(tmp_path: Path, now: bytes | None, changed: bool) -> None:
    path = tmp_path / "replica.json"
    path.write_bytes(b'{"etcd":{"endpoints":["a"]}}')
    settings = SettingsFile(str(path))
    assert settings.hash and not settings.has_changed()
    path.unlink()
    if now is not None:
        path.write_bytes(now)
    assert settings.has_changed() is changed


def test_file_that_was_not_there_at_the_start_has_changed_once_it_is(tmp_path: Path) -> None:
    settings = SettingsFile(str(tmp_path / "replica.json"))
    assert (settings.hash, settings.has_changed()) == ("", False)
    (tmp_path / "replica.json").write_bytes(b"{}")
    assert settings.has_changed()

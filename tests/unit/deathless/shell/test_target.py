"""Which service a command is about."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from deathless.base.config import ReplicaConfig
from deathless.base.errors import InvalidArgument, InvalidConfig, InvalidManifest
from deathless.shell.target import config_path, find_target, read_config

MANIFEST = """\
apiVersion: deathless.dev/v1alpha1
kind: DeathlessService
metadata: {name: bank}
spec: {module: "pkg.bank:bank"}
"""


def test_service_is_found_by_its_manifest(tmp_path: Path) -> None:
    (tmp_path / "service.yaml").write_text(MANIFEST)
    found = find_target(str(tmp_path / "service.yaml"), "")
    assert found.directory == tmp_path / ".deathless" / "bank"
    assert found.access.service == "bank"
    assert found.loaded is not None


def test_service_is_found_by_its_folder_whatever_the_manifest(tmp_path: Path) -> None:
    config = ReplicaConfig(service="shop", module="m:a", directory=str(tmp_path), replica="r1", token="t")
    path = config_path(tmp_path, "r1")
    path.parent.mkdir(parents=True)
    path.write_bytes(msgspec.json.encode(config))
    found = find_target("no such file", str(tmp_path))
    assert (found.config, found.loaded, found.access.token) == (config, None, "t")


def test_folder_without_a_service_is_told() -> None:
    with pytest.raises(InvalidArgument, match="no service was started here"):
        find_target("service.yaml", "/nonexistent")


def test_manifest_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidManifest):
        find_target(str(tmp_path / "service.yaml"), "")


@pytest.mark.parametrize("content", [b"", b"[]", b'{"service": 1}', b"\xff"])
def test_config_that_is_none_is_told(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(InvalidConfig):
        read_config(path)

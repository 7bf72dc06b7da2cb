"""Which service a command is about."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from deathless.base.config import ReplicaConfig
from deathless.base.errors import InvalidArgument, InvalidConfig, InvalidManifest
from deathless.shell.link.config_file import config_path
from deathless.shell.operate.target import find_target, read_config

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


SHARDED = MANIFEST.replace("spec: {", "spec: {shards: 2, replicas: 1, ")


def started(folder: Path, *shards: int) -> str:
    """The folder of a service of two shards, some of which were started."""
    for shard in shards:
        directory = folder / "shards" / str(shard)
        config = ReplicaConfig(
            service="shop", module="m:a", directory=str(directory), replica="r0", shard=shard, shards=2
        )
        path = config_path(directory, "r0")
        path.parent.mkdir(parents=True)
        path.write_bytes(msgspec.json.encode(config))
    return str(folder)


def test_shard_is_named_or_all_are_meant(tmp_path: Path) -> None:
    (tmp_path / "service.yaml").write_text(SHARDED)
    manifest = str(tmp_path / "service.yaml")
    second = find_target(manifest, "", 1)
    assert (second.config.shard_name, second.directory.name) == ("bank/1/2", "1")
    assert [part.label for part in second.parts] == ["1/"]
    whole = find_target(manifest, "", every=True)
    assert [part.directory for part in whole.parts] == [
        tmp_path / ".deathless" / "bank" / "shards" / str(shard) for shard in (0, 1)
    ]
    with pytest.raises(InvalidArgument, match="has 2 shards"):
        find_target(manifest, "")
    with pytest.raises(InvalidArgument, match="no shard 2"):
        find_target(manifest, "", 2)


def test_shards_are_found_by_the_folder_of_their_service_or_their_own(tmp_path: Path) -> None:
    folder = started(tmp_path, 0, 1)
    assert [part.access.service for part in find_target("", folder, every=True).parts] == ["shop/0/2", "shop/1/2"]
    assert find_target("", folder, 1).config.shard == 1
    assert find_target("", f"{folder}/shards/1").config.shard == 1
    with pytest.raises(InvalidArgument, match="has no shard 0"):
        find_target("", f"{folder}/shards/1", 0)


def test_the_only_shard_may_be_named(tmp_path: Path) -> None:
    (tmp_path / "service.yaml").write_text(MANIFEST)
    assert find_target(str(tmp_path / "service.yaml"), "", 0).config.shard_name == "bank"
    with pytest.raises(InvalidArgument, match="0 alone"):
        find_target(str(tmp_path / "service.yaml"), "", 1)


def test_service_is_found_by_what_the_replicas_of_a_pod_share(tmp_path: Path) -> None:
    shared = tmp_path / "replica.json"
    (tmp_path / "token").write_text("secret\n")
    fields = {"service": "bank", "module": "b:b", "directory": "/log", "token_file": str(tmp_path / "token")}
    shared.write_bytes(msgspec.json.encode(fields))
    found = find_target(str(shared), "")
    assert (found.directory, found.access.token, found.loaded) == (Path("/log"), "secret", None)
    shared.write_text("{}")
    with pytest.raises(InvalidConfig, match=r"replica\.json"):
        find_target(str(shared), "")
    with pytest.raises(InvalidConfig, match="No such file"):
        find_target(str(tmp_path / "none.json"), "")

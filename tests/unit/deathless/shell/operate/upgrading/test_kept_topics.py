"""New code may publish what the replicas that run keep already: they go on with it as they were started."""

from __future__ import annotations

from pathlib import Path

import pytest

from deathless.base.config import DriverConfig, ReplicaConfig, UpgradeConfig
from deathless.base.topics.settings import Topic, topic_configs
from deathless.shell.link.config_file import config_path, write_config
from deathless.shell.operate.upgrading import kept_topics

UPGRADE = UpgradeConfig(id="00" * 16, from_generation=1, from_fingerprint="00" * 16, from_version=1)


def replica(folder: Path, name: str, *topics: str, upgrade: UpgradeConfig | None = None) -> None:
    drivers = topic_configs([Topic(name=topic) for topic in topics], str(folder))
    config_path(folder, name).parent.mkdir(parents=True)
    write_config(
        ReplicaConfig(
            service="shop", module="m:a", directory=str(folder), replica=name, drivers=drivers, upgrade=upgrade
        )
    )


def test_drivers_are_those_of_every_replica_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replica(tmp_path, "r0", "sales", "returns")
    replica(tmp_path, "r1", "sales")
    replica(tmp_path, "r2")  # does not run
    replica(tmp_path, "r3", upgrade=UPGRADE)
    config_path(tmp_path, "r4").parent.mkdir()
    config_path(tmp_path, "r4").write_text("{")
    monkeypatch.setattr(kept_topics, "running_supervisor", lambda folder: 0 if folder.name == "r2" else 7)
    wanted = [DriverConfig(name=name, kind="topic") for name in ("returns", "sales", "new")]
    assert [each.name for each in kept_topics.kept_by_all(str(tmp_path), wanted)] == ["sales"]


def test_where_nothing_runs_the_manifest_decides(tmp_path: Path) -> None:
    wanted = (DriverConfig(name="new", kind="topic"),)
    assert kept_topics.kept_by_all(str(tmp_path), wanted) == wanted
    replica(tmp_path, "r0")
    assert kept_topics.kept_by_all(str(tmp_path), wanted) == wanted

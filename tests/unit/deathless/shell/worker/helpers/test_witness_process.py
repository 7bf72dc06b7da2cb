"""The process that writes the witness's file lives as long as the one that started it, and no longer."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from deathless.base.config import ReplicaConfig
from deathless.codec.witness import Point
from deathless.shell.link.status_page import Page, confirmed_in_files
from deathless.shell.worker.helpers.witness_process import start_witness_writer

POINT = Point(bytes(16), 7, 1, 9, bytes(16))


def test_it_writes_for_the_last_time_once_its_descriptor_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spawn, spawned = os.posix_spawn, list[int]()

    def noted(*arguments: Any, **options: Any) -> int:
        spawned.append(spawn(*arguments, **options))
        return spawned[0]

    monkeypatch.setattr(os, "posix_spawn", noted)
    (tmp_path / "replicas" / "r0").mkdir(parents=True)
    config = ReplicaConfig(service="bank", module="m:a", directory=str(tmp_path), replica="r0")
    page = Page(str(tmp_path / "page"), fresh=True)
    descriptor = start_witness_writer(page.path, config)
    assert descriptor >= 0
    page.note_confirmed(POINT)
    os.close(descriptor)
    os.waitpid(spawned[0], 0)
    assert [each.point.lsn for each in confirmed_in_files(str(tmp_path))] == [9]


def test_where_it_can_not_be_started_the_replica_leads_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    config = ReplicaConfig(service="bank", module="m:a", directory=str(tmp_path), replica="r0")
    assert start_witness_writer(str(tmp_path / "page"), config) == -1

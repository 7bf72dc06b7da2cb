"""Which checkpoints a run may begin with."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from deathless.base.config import ReplicaConfig
from deathless.codec.frames import Cut
from deathless.engine.log.route import RouteFinder
from deathless.shell.disk.filesystem import RealFileSystem
from deathless.shell.lock_stores.inspection import Inspection, inspect
from deathless.simulation.models.log_driver import LogDriver


@pytest.fixture
def look(tmp_path: Path) -> Inspection:
    """A log whose checkpoints stand at 1, announced, and at 2 and 3, not announced."""
    driver = LogDriver(RealFileSystem(str(tmp_path)), "r0", [])
    driver.start()
    driver.take_over()
    for number in range(3):
        driver.call(b"%d" % number)
        name = driver.checkpoints.write(driver.snapshot())
        if number == 0:
            driver.checkpoints.announce(name)
    return asyncio.run(inspect(ReplicaConfig(service="bank", module="m:a", directory=str(tmp_path), replica="r0")))


def test_a_run_begins_with_what_was_announced(look: Inspection) -> None:
    assert [each.lsn for each in look.beginnings()] == [1]
    empty = replace(look, view=look.view._replace(head=0))
    assert [each.lsn for each in empty.beginnings()] == [1], "no cut says anything of a log without an epoch"


def test_or_with_what_a_generation_of_the_code_began_with(look: Inspection, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = RouteFinder.cut
    (chain,) = (each.chain for each in look.checkpoints.names(announced_only=False) if each.lsn == 2)

    def cut(finder: RouteFinder, epoch: int) -> Cut:
        return msgspec.structs.replace(plain(finder, epoch), upgraded_lsn=2, upgraded_chain=chain)

    monkeypatch.setattr(RouteFinder, "cut", cut)
    assert [each.lsn for each in look.beginnings()] == [2, 1]

"""A checkpoint of the code that serves is lowered by that code's own process, for a check."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.unit.deathless.shell.upgrade_bench import SEED, Former, code_of_before, later_code

from deathless.base.errors import CorruptCheckpoint
from deathless.shell.operate.upgrading.way_back_check import lowered_at

__all__ = ["later_code"]


def looked(former: Former) -> Any:
    return cast("Any", SimpleNamespace(config=former.former_config, record=SimpleNamespace(seed=SEED, hash_seed=0)))


def test_what_the_older_code_would_go_on_with_is_told(later_code: Former) -> None:
    later_code.frame()
    later_code.frame(3)
    found = asyncio.run(lowered_at(looked(later_code), later_code.checkpoint(), code_of_before(), 2))
    assert (found.misfits, found.keys, found.snapshot.state) == ([], 1, {b"ann": b"\x81\xa5total\x03"})


def test_what_can_not_go_back_is_told_by_name(later_code: Former) -> None:
    later_code.frame()
    later_code.frame(-3)
    found = asyncio.run(lowered_at(looked(later_code), later_code.checkpoint(), code_of_before(), 2))
    assert [each.word for each in found.misfits] == ["MigrationRaised"]


def test_a_process_that_gives_up_says_why(later_code: Former) -> None:
    later_code.frame()
    with pytest.raises(CorruptCheckpoint, match="is gone"):
        asyncio.run(lowered_at(looked(later_code), later_code.snapshot(), code_of_before(), 2))

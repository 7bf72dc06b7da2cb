"""Which upgrade is to be made: the same for whoever asks, and none from code that nobody knows."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from tests.unit.deathless.shell.upgrade_bench import LIMITS, Former, former_code, new_code

from deathless.base.config import ReplicaConfig
from deathless.base.errors import UpgradeRefused
from deathless.shell.service_code import interface_record
from deathless.shell.service_code.description import Description, fingerprint_of
from deathless.shell.service_code.fingerprint import describe
from deathless.shell.upgrade import planning
from deathless.shell.upgrade.planning import Head, head_of, plan_upgrade

__all__ = ["former_code"]


def head(fingerprint: bytes, generation: int = 1, service_id: bytes = bytes(16)) -> Head:
    """Give head, as far as it is looked at."""
    cut = SimpleNamespace(fingerprint=fingerprint, generation=generation)
    return Head(cast("Any", cut), cast("Any", SimpleNamespace(service_id=service_id)))


@pytest.fixture
def described() -> Description:
    return describe(new_code(), LIMITS)


def test_whoever_asks_for_one_head_and_one_code_means_the_same_upgrade(
    former_code: Former, described: Description
) -> None:
    config, before = former_code.config, former_code.code.fingerprint
    plan = plan_upgrade(config, head(before), described)
    elsewhere = msgspec.structs.replace(config, replica="tool")
    assert plan_upgrade(elsewhere, head(before), described).id == plan.id
    assert (plan.from_generation, plan.from_fingerprint, plan.from_version) == (1, before.hex(), 1)
    assert (plan.former, plan.interpreter, plan.code, plan.module) == ("", "", "", "")
    assert plan.time_us > 0
    others = [
        plan_upgrade(config, head(before, generation=2), described),
        plan_upgrade(config, head(before, service_id=b"s" * 16), described),
        plan_upgrade(config, head(before), former_code.code),
    ]
    assert len({each.id for each in (plan, *others)}) == 4


def test_version_of_the_former_code_is_what_its_interface_says(former_code: Former, described: Description) -> None:
    newer = describe(new_code(), LIMITS)
    with pytest.raises(UpgradeRefused, match="no interface is recorded"):
        plan_upgrade(former_code.config, head(newer.fingerprint), described)
    interface_record.keep(former_code.directory, newer.fingerprint, new_code(), LIMITS)
    assert plan_upgrade(former_code.config, head(newer.fingerprint, generation=2), former_code.code).from_version == 2


def test_a_log_is_of_a_code_in_either_way_of_telling_it(former_code: Former, described: Description) -> None:
    directory, code = str(former_code.directory), former_code.code
    for each in (code.fingerprint, fingerprint_of(code.former)):
        assert head(each).is_of(directory, code)
        assert not head(each).is_of(directory, described)


@pytest.mark.parametrize("named", [True, False])
def test_head_is_read_where_there_is_one(former_code: Former, named: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    record, cut = object(), object()

    async def inspect(_: ReplicaConfig) -> object:
        reader = SimpleNamespace(routes=SimpleNamespace(cut=lambda _: cut))
        return SimpleNamespace(view=SimpleNamespace(head=int(named)), record=record, reader=reader)

    monkeypatch.setattr(planning, "inspect", inspect)
    if named:
        assert asyncio.run(head_of(former_code.config)) == (cut, record)
        return
    with pytest.raises(UpgradeRefused, match="no log to be upgraded yet"):
        asyncio.run(head_of(former_code.config))

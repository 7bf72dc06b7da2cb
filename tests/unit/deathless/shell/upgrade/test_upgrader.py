"""How a worker that was started for an upgrade begins, and what it tells of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from tests.unit.deathless.shell.upgrade_bench import SEED, Former, former_code, migrated, new_code

from deathless.base.errors import UpgradeCalledOff
from deathless.engine.replica.applying import Code
from deathless.shell.upgrade import upgrader as upgrader_module
from deathless.shell.upgrade.former import FormerProcess
from deathless.shell.upgrade.upgrader import Upgrader, begin_upgrade

__all__ = ["former_code"]


def begun(former: Former, *, head: int, generation: int = 1, wanted: bool = True) -> Upgrader | None:
    """Begin a worker beside a log whose head's cut is of this generation."""
    log = SimpleNamespace(check_head=lambda _: SimpleNamespace(generation=generation))
    config = former.config if wanted else msgspec.structs.replace(former.config, upgrade=None)
    return begin_upgrade(
        config,
        log=cast("Any", log),
        view=cast("Any", SimpleNamespace(head=head)),
        record=cast("Any", SimpleNamespace(seed=SEED, hash_seed=0)),
        service=new_code(),
        code=Code(b"n" * 16),
        scratch=str(former.scratch),
    )


def test_where_the_log_is_of_the_generation_before_it_follows_by_the_former_code(former_code: Former) -> None:
    upgrader = begun(former_code, head=1)
    assert upgrader is not None
    assert upgrader.code.fingerprint == former_code.code.fingerprint
    made = upgrader.upgrade
    assert (made.id.hex(), made.from_generation, made.from_version, made.to_version) == ("ab" * 16, 1, 1, 2)
    assert made.former is upgrader.former


def test_suspended_handlers_are_met_within_guards_of_the_thread(
    former_code: Former, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def guard() -> Callable[[], object]:
        seen.append(threading.current_thread().name)
        return lambda: None

    monkeypatch.setattr(upgrader_module, "guard_thread", guard)
    upgrader = begun(former_code, head=1)
    assert upgrader is not None

    async def work(former: FormerProcess) -> None:
        former.apply(former_code.frame())
        await migrated(former)

    former_code.run(upgrader.former, work)
    assert seen and threading.main_thread().name not in seen


@pytest.mark.parametrize(("head", "generation", "wanted"), [(1, 2, True), (1, 1, False)])
def test_where_it_is_made_or_never_wanted_it_is_a_replica_like_others(
    former_code: Former, head: int, generation: int, wanted: bool
) -> None:
    assert begun(former_code, head=head, generation=generation, wanted=wanted) is None


def test_it_is_tried_by_the_real_process_and_status_tells_how_far_that_is(former_code: Former) -> None:
    upgrader = begun(former_code, head=1)
    assert upgrader is not None
    answers: list[dict[str, object]] = []

    async def work(former: FormerProcess) -> None:
        former.apply(former_code.frame())
        former.apply(former_code.frame(2))
        upgrader.try_out(answers.append)
        await migrated(former)
        assert upgrader.status() == {
            "id": "ab" * 16, "from_generation": 1, "to_version": 2, "former_lsn": former.stands,
            "waiting_bytes": 0, "problem": "",
        }  # fmt: skip

    former_code.run(upgrader.former, work)
    [answer] = answers
    assert answer.pop("seconds") is not None
    notes = cast("list[str]", answer.pop("notes"))
    assert [note.partition(":")[0] for note in notes] == ["NoDownMigration"]
    assert answer == {"misfits": [], "compatible": False, "keys": 1, "lsn": 2}


def test_a_problem_is_the_answer(former_code: Former) -> None:
    upgrader = begun(former_code, head=1)
    assert upgrader is not None
    upgrader.former.problem = UpgradeCalledOff("it ended")
    answers: list[dict[str, object]] = []
    upgrader.try_out(answers.append)
    [answer] = answers
    assert "it ended" in str(answer["problem"])
    assert "it ended" in str(upgrader.status()["problem"])

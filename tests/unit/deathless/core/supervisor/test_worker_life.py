"""One life of a worker: whether it hears, and whether it ended for nothing that went wrong with it."""

from __future__ import annotations

import pytest

from deathless.core.supervisor.records import Stopping
from deathless.core.supervisor.worker_life import LAST_WORDS_S, WorkerLife


def test_worker_hears_from_its_start_until_it_is_dead() -> None:
    assert not WorkerLife().hears
    assert WorkerLife(has_line=True).hears
    life = WorkerLife(has_line=True, exit_code=0, died_at=5.0)
    assert (life.hears, life.dead) == (False, True)
    assert not life.last_words_overdue(5.0 + LAST_WORDS_S)
    assert life.last_words_overdue(5.01 + LAST_WORDS_S)


@pytest.mark.parametrize(("code", "ordered"), [("", True), ("DL2001", True), ("DL9001", False)])
def test_end_in_order_is_one_that_was_asked_for_or_a_deposed_primarys(code: str, ordered: bool) -> None:
    assert not WorkerLife().ended_in_order
    assert WorkerLife(last_words=Stopping(code, "")).ended_in_order is ordered

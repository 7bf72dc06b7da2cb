"""What a Replay says that its schema can't see."""

from __future__ import annotations

import pytest

from deathless_operator.model.drill import ServiceRef
from deathless_operator.model.log_run import EXACT_MAX
from deathless_operator.model.replay import ReplaySpec, replay_problems


@pytest.mark.parametrize(
    ("from_lsn", "to_lsn", "fits"),
    [(None, None, True), (5, None, True), (None, 5, True), (5, 5, True), (6, 5, False), (0, EXACT_MAX, True)],
)
def test_run_that_ends_before_it_begins_is_a_problem(from_lsn: int | None, to_lsn: int | None, fits: bool) -> None:
    spec = ReplaySpec(service_ref=ServiceRef(name="bank"), from_lsn=from_lsn, to_lsn=to_lsn)
    assert (replay_problems(spec) == []) is fits

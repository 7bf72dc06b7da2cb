"""A Rehearsal and a Replay are told of by the same fields."""

from __future__ import annotations

import pytest

from deathless_operator.model.drill import ServiceRef
from deathless_operator.model.log_run import ENDED, LogRunStatus
from deathless_operator.model.rehearsal import LIST_MAX, RehearsalSpec, RehearsalStatus, rehearsal_problems
from deathless_operator.model.replay import ReplayStatus


def test_both_are_runs_of_a_log() -> None:
    assert issubclass(RehearsalStatus, LogRunStatus) and issubclass(ReplayStatus, LogRunStatus)
    assert set(RehearsalStatus.__struct_fields__) - set(ReplayStatus.__struct_fields__) == {"verdict"}
    assert ENDED == ("Succeeded", "Failed")
    assert LIST_MAX >= 64, "as many entries as a pod tells at most"


@pytest.mark.parametrize(
    ("messages", "follow", "deadline", "problems"),
    [(None, None, 60, 0), (5, None, 60, 0), (None, 59, 60, 0), (None, 60, 60, 1), (5, 30, 60, 1), (5, 60, 60, 2)],
)
def test_run_that_ends_before_it_has_followed_is_a_problem(
    messages: int | None, follow: int | None, deadline: int, problems: int
) -> None:
    spec = RehearsalSpec(
        service_ref=ServiceRef(name="bank"),
        image="bank:2",
        messages=messages,
        follow_seconds=follow,
        active_deadline_seconds=deadline,
    )
    assert len(rehearsal_problems(spec)) == problems

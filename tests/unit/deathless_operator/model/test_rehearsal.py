"""A Rehearsal and a Replay are told of by the same fields."""

from __future__ import annotations

from deathless_operator.model.log_run import ENDED, LogRunStatus
from deathless_operator.model.rehearsal import LIST_MAX, RehearsalStatus
from deathless_operator.model.replay import ReplayStatus


def test_both_are_runs_of_a_log() -> None:
    assert issubclass(RehearsalStatus, LogRunStatus) and issubclass(ReplayStatus, LogRunStatus)
    assert set(RehearsalStatus.__struct_fields__) - set(ReplayStatus.__struct_fields__) == {"verdict"}
    assert ENDED == ("Succeeded", "Failed")
    assert LIST_MAX >= 64, "as many entries as a pod tells at most"

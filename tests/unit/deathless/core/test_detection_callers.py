"""Whom a primary gives no new callers: those that were silent, in an epoch that was proved after that."""

from __future__ import annotations

import pytest

from deathless.base.limits import Limits
from deathless.core.supervisor.detection import SILENT_S, Detector, Report, WorkerState

NEVER = float("inf")
NOW = 100.0


def told(role: str, state: WorkerState, unheard_s: float = 0.0, instance: str = "uid-2") -> Detector:
    """What r1 knows at NOW, whose worker is `role`; r0 was just heard, r2 is silent."""
    made = Detector(replica="r1", limits=Limits(), now=0.0)
    for report, at in (
        (Report("r1", state, role, 3, 0), NOW),
        (Report("r0", WorkerState.RUNNING, "standby", 3, 0, instance="uid-0"), NOW),
        (Report("r2", WorkerState.RUNNING, "standby", 3, 0, instance=instance), NOW - min(unheard_s, 50.0)),
    ):
        made.report_received(report, at)
    return made


@pytest.mark.parametrize(
    ("unheard_s", "proved_s", "silent"),
    [
        (SILENT_S, 0.0, True),
        (SILENT_S - 0.01, 0.0, False),
        (SILENT_S + 1, 1.0, True),
        (SILENT_S + 1, 1.01, False),  # proved before it had been silent for long: somebody may have stolen since
        (NEVER, NEVER, False),  # never proved
    ],
)
def test_primary_tells_who_is_silent_once_its_epoch_is_proved_after_that(
    unheard_s: float, proved_s: float, silent: bool
) -> None:
    found = told("primary", WorkerState.RUNNING, unheard_s).silent(NOW, proved_s)
    assert found == ({"r2": "uid-2"} if silent else {})


@pytest.mark.parametrize(
    ("role", "state"),
    [("standby", WorkerState.RUNNING), ("taking-over", WorkerState.RUNNING), ("primary", WorkerState.STUCK)],
)
def test_only_a_primary_that_runs_tells_of_silent_ones(role: str, state: WorkerState) -> None:
    assert told(role, state, NEVER).silent(NOW, 0.0) == {}


def test_supervisor_that_knows_nothing_of_itself_yet_tells_of_nobody() -> None:
    assert Detector(replica="r1", limits=Limits(), now=0.0).silent(NOW, 0.0) == {}


def test_silent_replica_without_an_instance_of_its_own_is_no_pod() -> None:
    assert told("primary", WorkerState.RUNNING, NEVER, instance="").silent(NOW, 0.0) == {}

"""What the page of a worker says of its storage and of deaths, and how long a problem of the storage is told."""

from __future__ import annotations

import pytest

from deathless.base.limits import Limits
from deathless.core.supervisor.detection import Report, WorkerState
from deathless.core.supervisor.events import PageRead
from deathless.core.supervisor.progress import Verdict
from deathless.core.supervisor.worker_watch import SLOW_TOLD_MS, WorkerWatch


def watching() -> tuple[WorkerWatch, Report]:
    report = Report("r0", WorkerState.STARTING, "standby", 0, 0)
    return WorkerWatch(report, Limits(), "/data"), report


@pytest.mark.parametrize(
    ("storage", "slowest_ms", "code"),
    [(1, 0, "DL1012"), (2, 0, "DL1015"), (0, SLOW_TOLD_MS, "DL1014"), (0, SLOW_TOLD_MS - 1, "")],
)
def test_storage_is_a_problem_as_long_as_it_is(storage: int, slowest_ms: int, code: str) -> None:
    watch, report = watching()
    verdict, told = watch.look(PageRead(storage=storage, slowest_ms=slowest_ms), 1.0, 0.0)
    assert (verdict, report.state, report.problem) == (Verdict.FINE, WorkerState.RUNNING, code)
    assert (told or "").startswith(code)
    assert watch.look(PageRead(storage=storage, slowest_ms=slowest_ms), 1.1, 0.0)[1] is None, "told once"
    watch.look(PageRead(), 1.2, 0.0)
    assert report.problem == ""


def test_problem_of_another_kind_stands_before_the_storages() -> None:
    watch, report = watching()
    report.problem = "DL9001"
    watch.look(PageRead(storage=1), 1.0, 0.0)
    assert report.problem == "DL9001"


def test_death_in_a_message_counts_once_for_each_worker_and_nobodys_message_never() -> None:
    watch, report = watching()
    assert watch.met_death((5, 8), counts=True)
    assert not watch.met_death((5, 8), counts=True)
    assert not watch.met_death((0, 0), counts=True)
    assert not watch.met_death(None, counts=True)
    watch.begin()
    assert not watch.met_death((5, 8), counts=False)
    watch.begin()
    assert watch.met_death((5, 8), counts=True)
    assert report.deaths == [(5, 8, 2)]

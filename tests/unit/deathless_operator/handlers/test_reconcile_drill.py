"""What a look at a drill tells Prometheus; `tests/apiserver` looks at drills of a real API server."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.unit.deathless_operator.handlers.willing import Willing
from tests.unit.deathless_operator.plan.drill_world import START, World, make_spec

from deathless_operator.cluster.kinds import DRILL
from deathless_operator.cluster.observe_drill import SeenDrill
from deathless_operator.handlers.metrics import Metrics
from deathless_operator.handlers.reconcile_drill import DrillReconciler
from deathless_operator.handlers.work_queue import Key
from deathless_operator.model.drill import DrillRun, DrillSpec, Verdict
from deathless_operator.plan.drill.outcome import show_moment, with_run


class Cluster(Willing):
    """Sees one drill, or nothing."""

    def __init__(self, spec: DrillSpec) -> None:
        self.spec = spec
        self.world = World(spec)
        self.gone = False
        self.minutes = 0

    def end(self, verdict: Verdict) -> float:
        """A run has ended, a minute after the one before; gives when."""
        self.minutes += 1
        at = START + 60 * self.minutes
        run = DrillRun(id=f"r{self.minutes}", verdict=verdict, completion_time=show_moment(at))
        self.world.status = with_run(self.world.status, run, self.spec, at)
        self.world.now = at + 1
        return at

    async def observe(self, *_: object) -> SeenDrill | None:
        return None if self.gone else SeenDrill(snapshot=self.world.snapshot(), version="1")


class Looking:
    """An operator that looks at it, and what Prometheus is told."""

    def __init__(self, cluster: Cluster) -> None:
        self._metrics = Metrics()
        self._reconciler = DrillReconciler(
            observer=cluster,  # type: ignore[arg-type]  # as far as it is asked
            performer=cluster,  # type: ignore[arg-type]
            recorder=cluster,  # type: ignore[arg-type]
            settings=cluster.world.settings,
            metrics=self._metrics,
        )

    def failed_at(self) -> float | None:
        asyncio.run(self._reconciler.reconcile(Key(DRILL.kind, "ns", "nightly")))
        start = "deathless_operator_drill_failed_timestamp_seconds{"
        lines = [line for line in self._metrics.text().decode().splitlines() if line.startswith(start)]
        return float(lines[0].rpartition(" ")[2]) if lines else None


def suspended(**fields: Any) -> Cluster:
    """A drill of which no run is due."""
    return Cluster(make_spec(schedule="* * * * *", suspend=True, **fields))


def test_failure_is_shown_until_a_later_run_passes() -> None:
    cluster = suspended()
    looking = Looking(cluster)
    assert looking.failed_at() is None
    at = cluster.end("Failed")
    assert looking.failed_at() == at
    later = cluster.end("Failed")
    assert looking.failed_at() == later
    cluster.end("Passed")
    assert looking.failed_at() is None


def test_run_that_was_skipped_or_not_judged_hides_no_failure() -> None:
    cluster = suspended()
    looking = Looking(cluster)
    at = cluster.end("Failed")
    for verdict in ("Aborted", "Inconclusive"):
        cluster.end(verdict)
        assert looking.failed_at() == Looking(cluster).failed_at() == at, "also to an operator that begins"
    cluster.end("Passed")
    cluster.end("Aborted")
    assert looking.failed_at() is Looking(cluster).failed_at() is None


def test_failure_is_shown_on_although_history_has_no_room_for_it() -> None:
    cluster = suspended(failedRunsHistoryLimit=1)
    looking = Looking(cluster)
    at = cluster.end("Failed")
    assert looking.failed_at() == at
    cluster.end("Aborted")
    assert looking.failed_at() == at


def test_failure_before_a_run_that_passed_is_not_shown_again_although_history_keeps_none_that_pass() -> None:
    cluster = suspended(successfulRunsHistoryLimit=0)
    looking = Looking(cluster)
    cluster.end("Failed")
    cluster.end("Passed")
    assert looking.failed_at() is None
    cluster.end("Aborted")
    assert looking.failed_at() is None


def test_drill_that_is_gone_shows_no_failure() -> None:
    cluster = suspended()
    looking = Looking(cluster)
    cluster.end("Failed")
    assert looking.failed_at() is not None
    cluster.gone = True
    assert looking.failed_at() is None

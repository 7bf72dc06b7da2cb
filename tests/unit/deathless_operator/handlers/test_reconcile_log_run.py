"""What a look at a run of a log does and tells; `tests/apiserver` looks at runs of a real API server."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.unit.deathless_operator.handlers.willing import Willing
from tests.unit.deathless_operator.plan.log_runs.test_run import DONE, Run, ended
from tests.unit.deathless_operator.plan.plan_world import SETTINGS

from deathless_operator.cluster.kinds import REPLAY
from deathless_operator.cluster.observe_log_run import LogRunKind
from deathless_operator.handlers.metrics import Metrics
from deathless_operator.handlers.reconcile import Outcome
from deathless_operator.handlers.reconcile_log_run import LogRunReconciler
from deathless_operator.handlers.work_queue import Key
from deathless_operator.model.log_run import LogRunStatus
from deathless_operator.plan.log_runs.reading import read_replay
from deathless_operator.plan.log_runs.replays import REPLAY as TOOL
from deathless_operator.plan.log_runs.snapshot import LogRunSnapshot
from deathless_operator.plan.snapshot import Failure

KEY = Key(REPLAY.kind, "prod", "again")


class Cluster(Willing):
    """Sees one run, or nothing; keeps its status."""

    def __init__(self, run: Run | None) -> None:
        self.run = run
        self.failure: Failure | None = None
        self.writes = True
        self.metrics = Metrics()
        self.reconciler = LogRunReconciler(
            observer=self,  # type: ignore[arg-type]  # as far as it is asked
            performer=self,  # type: ignore[arg-type]
            recorder=self,  # type: ignore[arg-type]
            run_kind=LogRunKind(kind=REPLAY, tool=TOOL, read=read_replay),
            settings=SETTINGS,
            metrics=self.metrics,
        )

    async def observe(self, *_: object) -> LogRunSnapshot | None:
        return None if self.run is None else self.run.snapshot()

    async def perform(self, *_: object) -> Any:
        return self.failure

    async def write_status(self, *words: Any) -> bool:
        status = words[3]
        assert isinstance(status, LogRunStatus) and self.run is not None
        if self.writes:
            self.run.status = status
        return self.writes

    def look(self) -> Outcome:
        return asyncio.run(self.reconciler.reconcile(KEY))

    def counted(self) -> list[str]:
        lines = self.metrics.text().decode().splitlines()
        return [line for line in lines if line.startswith("deathless_operator_log_runs_total{")]


def test_end_of_a_run_is_counted_once() -> None:
    cluster = Cluster(Run().begun(**ended(DONE)))
    cluster.look()
    cluster.look()
    (line,) = cluster.counted()
    assert 'kind="Replay"' in line and 'reason="Replayed"' in line and line.endswith(" 1.0")


def test_refused_pod_is_told_and_asked_for_again() -> None:
    cluster = Cluster(Run())
    cluster.failure = Failure(kind="Pod", name="again-replay", status=403, reason="Forbidden", message="quota")
    outcome = cluster.look()
    assert cluster.run is not None and cluster.run.status is not None
    assert cluster.run.status.reason == "PodRefused"
    assert outcome.again_in_s and outcome.refused
    cluster.failure = None
    cluster.look()
    assert cluster.run.status.reason == "Starting"


def test_status_for_a_version_that_is_gone_has_it_looked_at_again() -> None:
    cluster = Cluster(Run())
    cluster.writes = False
    assert cluster.look().again_in_s == 0.0


def test_run_that_is_gone_is_forgotten() -> None:
    assert Cluster(None).look().again_in_s is None

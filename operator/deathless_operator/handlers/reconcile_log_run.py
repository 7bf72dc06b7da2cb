"""Looking at one run of a log; see `reconcile_whole`. Its pod is made and never changed, and bears the run's name."""

from __future__ import annotations

from deathless_operator.cluster.carry_out import Performer
from deathless_operator.cluster.events import Recorder
from deathless_operator.cluster.observe_log_run import LogRunKind, LogRunObserver
from deathless_operator.handlers.metrics import Metrics
from deathless_operator.handlers.reconcile_whole import WholeReconciler
from deathless_operator.handlers.work_queue import Key
from deathless_operator.model.log_run import ENDED
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.plan.log_runs.run import make_log_run_plan, refused
from deathless_operator.plan.log_runs.snapshot import LogRunPlan, LogRunSnapshot
from deathless_operator.plan.snapshot import Failure


class LogRunReconciler(WholeReconciler[LogRunSnapshot, LogRunPlan]):
    """Looks at runs of one kind; arguments as `WholeReconciler`, besides:

    Args:
        observer: sees.
        run_kind: which kind.
        settings: of the installation.
    """

    def __init__(
        self,
        *,
        observer: LogRunObserver,
        performer: Performer,
        recorder: Recorder,
        run_kind: LogRunKind,
        settings: OperatorSettings,
        metrics: Metrics,
    ) -> None:
        super().__init__(kind=run_kind.kind, performer=performer, recorder=recorder, metrics=metrics)
        self._observer = observer
        self._run_kind = run_kind
        self._settings = settings
        self._metrics = metrics

    async def _observe(self, key: Key) -> LogRunSnapshot | None:
        return await self._observer.observe(key.namespace, key.name)

    def _plan(self, seen: LogRunSnapshot) -> LogRunPlan:
        return make_log_run_plan(seen, self._run_kind.tool, self._settings)

    def _refused(self, seen: LogRunSnapshot, failure: Failure) -> LogRunPlan:
        return refused(seen, failure)

    def _written(self, key: Key, seen: LogRunSnapshot, plan: LogRunPlan) -> None:
        """Count a run that has ended."""
        resource, status = seen.resource, plan.status
        if status is not None and status.phase in ENDED and status.phase != resource.status.phase:
            self._metrics.log_runs.labels(key.namespace, resource.service, key.kind, status.reason).inc()

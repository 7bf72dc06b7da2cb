"""Looking at one run of a log: observe, plan, carry out, tell; as `reconcile` does for services.

Guarantees and limits: as `reconcile`. A pod that the API server refuses is told in the status, and asked for again.
"""

from __future__ import annotations

from deathless_operator.cluster.carry_out import Performer, Scene
from deathless_operator.cluster.events import Recorder, Subject
from deathless_operator.cluster.observe_log_run import LogRunKind, LogRunObserver
from deathless_operator.handlers.look_log import LookLog
from deathless_operator.handlers.metrics import Metrics
from deathless_operator.handlers.reconcile import Outcome
from deathless_operator.handlers.work_queue import Key
from deathless_operator.model.log_run import ENDED
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.plan.log_runs.run import make_log_run_plan, refused
from deathless_operator.plan.log_runs.snapshot import LogRunPlan, LogRunSnapshot


class LogRunReconciler:
    """Looks at runs of one kind.

    Args:
        observer: sees.
        performer: does.
        recorder: tells.
        run_kind: which kind.
        settings: of the installation.
        metrics: counted here.
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
        self._observer = observer
        self._performer = performer
        self._recorder = recorder
        self._run_kind = run_kind
        self._settings = settings
        self._metrics = metrics
        self._log = LookLog(metrics)

    async def reconcile(self, key: Key) -> Outcome:
        """See `Reconciler`."""
        seen = await self._observer.observe(key.namespace, key.name)
        if seen is None:
            self._log.forget(key)
            return Outcome(sentence="it is gone", again_in_s=None)
        plan = make_log_run_plan(seen, self._run_kind.tool, self._settings)
        # A pod is made and never changed, and bears the name of its run: nothing else is applied.
        scene = Scene(namespace=key.namespace, now=seen.now, is_ours=lambda _: True)
        failure = await self._performer.perform(scene, plan.actions)
        if failure is not None:
            plan = refused(seen, failure)
        written = await self._tell(key, seen, plan)
        return Outcome(
            sentence=plan.sentence,
            again_in_s=plan.requeue_s if written else 0.0,
            refused=(plan.sentence,) if failure is not None else (),
        )

    async def _tell(self, key: Key, seen: LogRunSnapshot, plan: LogRunPlan) -> bool:
        """Write status and events, count, log; False when the status was for a version that is gone."""
        resource, written = seen.resource, True
        subject = Subject(kind=self._run_kind.kind, namespace=key.namespace, name=key.name, uid=resource.uid)
        if plan.status is not None:
            written = await self._performer.write_status(subject, resource.version, resource.status, plan.status)
            if written and plan.status.phase in ENDED and plan.status.phase != resource.status.phase:
                self._metrics.log_runs.labels(key.namespace, resource.service, key.kind, plan.status.reason).inc()
        for event in plan.events if written else ():
            await self._recorder.tell(subject, event)
        self._log.note(key, plan.sentence, plan.actions)
        return written

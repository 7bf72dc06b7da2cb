"""Looking at one FailoverDrill: observe, plan, carry out, tell; as `reconcile` does for services.

The status is written after the actions and to the version that was read. A plan touches a victim only when the
status that it read names it, so a status that could not be written costs one more look and never a second victim.

Guarantees and limits: as `reconcile`.
"""

from __future__ import annotations

from deathless_operator.cluster.carry_out import Performer, Scene
from deathless_operator.cluster.events import Recorder, Subject
from deathless_operator.cluster.kinds import DRILL
from deathless_operator.cluster.observe_drill import DrillObserver, SeenDrill
from deathless_operator.handlers.look_log import LookLog
from deathless_operator.handlers.metrics import Metrics
from deathless_operator.handlers.reconcile import Outcome
from deathless_operator.handlers.work_queue import Key
from deathless_operator.model.drill import DrillSpec, DrillStatus
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.plan.drill.drill import make_drill_plan
from deathless_operator.plan.drill.snapshot import DrillPlan
from deathless_operator.plan.service.reading import read_time


class DrillReconciler:
    """Looks at FailoverDrills.

    Args:
        observer: sees.
        performer: does.
        recorder: tells.
        settings: of the installation.
        metrics: counted here.
    """

    def __init__(
        self,
        *,
        observer: DrillObserver,
        performer: Performer,
        recorder: Recorder,
        settings: OperatorSettings,
        metrics: Metrics,
    ) -> None:
        self._observer = observer
        self._performer = performer
        self._recorder = recorder
        self._settings = settings
        self._metrics = metrics
        self._log = LookLog(metrics)

    async def reconcile(self, key: Key) -> Outcome:
        """See `Reconciler`."""
        seen = await self._observer.observe(key.namespace, key.name)
        if seen is None:
            self._log.forget(key)
            self._metrics.set_drill(key.namespace, key.name, None)
            return Outcome(sentence="the drill is gone", again_in_s=None)
        plan = make_drill_plan(seen.snapshot, self._settings)
        # A pod's name belongs to one drill, a node is told from others by its mark: what is applied is ours.
        scene = Scene(namespace=key.namespace, now=seen.snapshot.now, is_ours=lambda _: True)
        failure = await self._performer.perform(scene, plan.actions)
        if failure is not None:
            # A status that says "done" must not follow what was refused.
            said = f"{failure.kind} {failure.name} was refused: {failure.message}"
            return Outcome(sentence=plan.sentence, again_in_s=None, failure=said)
        written = await self._tell(key, seen, plan)
        return Outcome(sentence=plan.sentence, again_in_s=plan.requeue_s if written else 0.0)

    def _show(self, key: Key, spec: DrillSpec | None, status: DrillStatus) -> None:
        """Show whether the newest run that was judged has failed: one that was skipped or ended early says nothing.

        What is shown stands where the status tells of none. A history that keeps no run that passed is not asked: the
        failure in it may be the older one.
        """
        asked = spec is not None and spec.successful_runs_history_limit > 0
        runs = (status.last, *(status.history if asked else ()))
        judged = next((run for run in runs if run is not None and run.verdict in ("Passed", "Failed")), None)
        if judged is not None:
            failed_at = read_time(judged.completion_time) if judged.verdict == "Failed" else None
            self._metrics.set_drill(key.namespace, key.name, failed_at)

    async def _tell(self, key: Key, seen: SeenDrill, plan: DrillPlan) -> bool:
        """Write status and events, count, log; False when the status was for a version that is gone."""
        resource, written = seen.snapshot.resource, True
        subject = Subject(kind=DRILL, namespace=resource.namespace, name=resource.name, uid=resource.uid)
        if plan.status is not None:
            written = await self._performer.write_status(subject, seen.version, resource.status, plan.status)
            ended = plan.status.last
            self._show(key, resource.spec, plan.status)
            if written and ended is not None and ended != resource.status.last:
                self._metrics.drills.labels(key.namespace, key.name, ended.verdict).inc()
        for event in plan.events if written else ():
            await self._recorder.tell(subject, event)
        self._log.note(key, plan.sentence, plan.actions)
        return written

"""Looking at one SparkPipeline: observe, plan, carry out, tell; as `reconcile` does for services.

Guarantees and limits: as `reconcile`. What the API server refuses is told in the status, and asked for again.
"""

from __future__ import annotations

from deathless_operator.cluster.carry_out import Performer, Scene
from deathless_operator.cluster.events import Recorder, Subject
from deathless_operator.cluster.kinds import PIPELINE
from deathless_operator.cluster.observe_pipeline import PipelineObserver
from deathless_operator.handlers.look_log import LookLog
from deathless_operator.handlers.metrics import Metrics
from deathless_operator.handlers.reconcile import Outcome
from deathless_operator.handlers.work_queue import Key
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.plan.pipelines.plan import make_pipeline_plan, refused
from deathless_operator.plan.pipelines.snapshot import PipelinePlan, PipelineSnapshot


class PipelineReconciler:
    """Looks at pipelines.

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
        observer: PipelineObserver,
        performer: Performer,
        recorder: Recorder,
        settings: OperatorSettings,
        metrics: Metrics,
    ) -> None:
        self._observer = observer
        self._performer = performer
        self._recorder = recorder
        self._settings = settings
        self._log = LookLog(metrics)

    async def reconcile(self, key: Key) -> Outcome:
        """See `Reconciler`."""
        seen = await self._observer.observe(key.namespace, key.name)
        if seen is None:
            self._log.forget(key)
            return Outcome(sentence="it is gone", again_in_s=None)
        plan = make_pipeline_plan(seen, self._settings)
        # A plan has no action while an object under one of its names is another's.
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

    async def _tell(self, key: Key, seen: PipelineSnapshot, plan: PipelinePlan) -> bool:
        """Write status and events, log; False when the status was for a version that is gone."""
        resource, written = seen.resource, True
        subject = Subject(kind=PIPELINE, namespace=key.namespace, name=key.name, uid=resource.uid)
        if plan.status is not None:
            written = await self._performer.write_status(subject, resource.version, resource.status, plan.status)
        for event in plan.events if written else ():
            await self._recorder.tell(subject, event)
        self._log.note(key, plan.sentence, plan.actions)
        return written

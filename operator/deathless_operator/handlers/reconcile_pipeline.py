"""Looking at one SparkPipeline; see `reconcile_whole`."""

from __future__ import annotations

from collections.abc import Sequence

from deathless_operator.cluster.carry_out import Performer, Scene
from deathless_operator.cluster.events import Recorder
from deathless_operator.cluster.kinds import PIPELINE
from deathless_operator.cluster.observe_pipeline import PipelineObserver
from deathless_operator.handlers.metrics import Metrics
from deathless_operator.handlers.reconcile_whole import WholeReconciler
from deathless_operator.handlers.work_queue import Key
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.plan.pipelines.plan import make_pipeline_plan, refused
from deathless_operator.plan.pipelines.snapshot import PipelinePlan, PipelineSnapshot
from deathless_operator.plan.snapshot import Failure


class PipelineReconciler(WholeReconciler[PipelineSnapshot, PipelinePlan]):
    """Looks at pipelines; arguments as `WholeReconciler`, besides:

    Args:
        observer: sees.
        settings: of the installation.
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
        super().__init__(kind=PIPELINE, performer=performer, recorder=recorder, metrics=metrics)
        self._observer = observer
        self._settings = settings

    async def _observe(self, key: Key) -> PipelineSnapshot | None:
        return await self._observer.observe(key.namespace, key.name)

    def _plan(self, seen: PipelineSnapshot) -> PipelinePlan:
        return make_pipeline_plan(seen, self._settings)

    async def _carry_out(self, scene: Scene, plan: PipelinePlan) -> Sequence[Failure]:
        """Apply each object: one that is refused, as by a quota or a policy, holds back what needs it, and no other."""
        return await self._performer.carry_out(scene, plan.actions, {})

    def _refused(self, seen: PipelineSnapshot, failure: Failure) -> PipelinePlan:
        return refused(seen, failure)

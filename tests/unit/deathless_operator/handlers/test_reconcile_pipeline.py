"""What a look at a pipeline does and tells; `tests/apiserver` looks at pipelines of a real API server."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.unit.deathless_operator.handlers.willing import Willing
from tests.unit.deathless_operator.plan.pipelines.pipeline_world import SETTINGS, World

from deathless_operator.cluster.kinds import PIPELINE
from deathless_operator.handlers.metrics import Metrics
from deathless_operator.handlers.reconcile import Outcome
from deathless_operator.handlers.reconcile_pipeline import PipelineReconciler
from deathless_operator.handlers.work_queue import Key
from deathless_operator.model.spark_pipeline import PipelineStatus
from deathless_operator.plan.pipelines.snapshot import PipelineSnapshot
from deathless_operator.plan.snapshot import Failure

KEY = Key(PIPELINE.kind, "shop", "delays")


class Cluster(Willing):
    """Sees one pipeline, or nothing; keeps its status."""

    def __init__(self, world: World | None) -> None:
        self.world = world
        self.failure: Failure | None = None
        self.writes = True
        self.told: list[Any] = []
        self.reconciler = PipelineReconciler(
            observer=self,  # type: ignore[arg-type]  # as far as it is asked
            performer=self,  # type: ignore[arg-type]
            recorder=self,  # type: ignore[arg-type]
            settings=SETTINGS,
            metrics=Metrics(),
        )

    async def observe(self, *_: object) -> PipelineSnapshot | None:
        return None if self.world is None else self.world.snapshot()

    async def perform(self, *_: object) -> Any:
        return self.failure

    async def write_status(self, *words: Any) -> bool:
        assert isinstance(words[3], PipelineStatus) and self.world is not None
        if self.writes:
            self.world.status = words[3]
        return self.writes

    async def tell(self, *words: object) -> None:
        self.told.append(words[1])

    def look(self) -> Outcome:
        return asyncio.run(self.reconciler.reconcile(KEY))


def test_a_status_is_written_and_it_is_looked_at_again() -> None:
    cluster = Cluster(World())
    outcome = cluster.look()
    assert outcome.again_in_s
    assert not outcome.refused
    assert cluster.world is not None
    assert cluster.world.ready() == ("False", "ServiceMissing")
    assert len(cluster.told) == 1


def test_a_refusal_is_told_and_asked_for_again() -> None:
    cluster = Cluster(World())
    cluster.failure = Failure(kind="Role", name="delays-drivers", status=403, reason="Forbidden", message="quota")
    outcome = cluster.look()
    assert outcome.refused
    assert cluster.world is not None
    assert cluster.world.ready() == ("False", "Refused")


def test_a_status_for_a_version_that_is_gone_has_it_looked_at_again() -> None:
    cluster = Cluster(World())
    cluster.writes = False
    assert cluster.look().again_in_s == 0.0
    assert cluster.told == []


def test_a_pipeline_that_is_gone_is_forgotten() -> None:
    assert Cluster(None).look().again_in_s is None

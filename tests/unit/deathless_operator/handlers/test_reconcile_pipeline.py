"""What a look at a pipeline does and tells; `tests/apiserver` looks at pipelines of a real API server."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from tests.unit.deathless_operator.handlers.willing import Willing
from tests.unit.deathless_operator.plan.pipelines.pipeline_world import SETTINGS, World

from deathless_operator.cluster.api import Api
from deathless_operator.cluster.carry_out import Performer
from deathless_operator.cluster.errors import ApiRefused
from deathless_operator.cluster.kinds import PIPELINE
from deathless_operator.cluster.trust import Trust
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

    def __init__(self, world: World | None, hand: Performer | None = None) -> None:
        self.world = world
        self.hand = hand  # carries out; None: `failure` is what comes of it
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

    async def carry_out(self, *words: Any) -> Any:
        if self.hand is not None:
            return await self.hand.carry_out(*words)
        return () if self.failure is None else (self.failure,)

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


class Refusing:
    """An API server that takes no object of one kind, as a quota or an admission policy has it."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.applied: list[str] = []

    async def apply(self, manifest: dict[str, Any], **_: object) -> None:
        if manifest["kind"] == self.kind:
            raise ApiRefused(f"apply {self.kind}: exceeded quota", status=403, reason="Forbidden")
        self.applied.append(manifest["kind"])


@pytest.mark.parametrize("kind", ["PodDisruptionBudget", "NetworkPolicy", "Service"])
def test_object_that_is_refused_holds_back_no_other_one(kind: str) -> None:
    """The drivers' pods follow the spec meanwhile, and what is refused is told."""
    api = Refusing(kind)
    cluster = Cluster(World(), Performer(cast("Api", api), cast("Trust", None)))
    outcome = cluster.look()
    assert "StatefulSet" in api.applied
    assert kind not in api.applied
    assert ["exceeded quota" in each for each in outcome.refused] == [True]
    assert cluster.world is not None
    assert cluster.world.ready() == ("False", "Refused")


def test_a_status_for_a_version_that_is_gone_has_it_looked_at_again() -> None:
    cluster = Cluster(World())
    cluster.writes = False
    assert cluster.look().again_in_s == 0.0
    assert cluster.told == []


def test_a_pipeline_that_is_gone_is_forgotten() -> None:
    assert Cluster(None).look().again_in_s is None

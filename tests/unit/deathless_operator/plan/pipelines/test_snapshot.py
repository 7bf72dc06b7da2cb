"""What a plan is made from."""

from __future__ import annotations

from tests.unit.deathless_operator.plan.pipelines.pipeline_world import World


def test_objects_are_found_by_kind_and_name() -> None:
    world = World()
    world.look()
    snapshot = world.snapshot()
    assert snapshot.child("StatefulSet", "delays-drivers") is not None
    assert snapshot.child("StatefulSet", "delays") is None
    assert snapshot.service is not None

"""A drill's snapshot finds its nodes by name."""

from __future__ import annotations

from tests.unit.deathless_operator.plan.drill_world import World, make_spec


def test_node_is_found_by_its_name() -> None:
    snapshot = World(make_spec()).snapshot()
    found = snapshot.node("worker1")
    assert found is not None
    assert found.name == "worker1"
    assert snapshot.node("elsewhere") is None

"""Plans that carry no spec out; specs that can't be read stand in test_refused.py and test_truth.py too."""

from __future__ import annotations

from tests.unit.deathless_operator.plan.plan_world import running

from deathless_operator.model import names
from deathless_operator.plan.actions import DeletePod


def test_paused_service_is_left_alone_even_where_a_node_is_lost() -> None:
    world = running()
    world.annotations[names.PAUSED_ANNOTATION] = "true"
    world.lose_node(world.pods["bank-1"]["spec"]["nodeName"])
    world.pass_time(100)
    assert world.operate().actions == ()
    assert world.condition("Paused")["status"] == "True"


def test_spec_that_cannot_be_read_has_lost_pods_replaced_after_the_default_time() -> None:
    world = running()
    world.edit(quorum=2, replaceAfterSeconds="soon")
    world.lose_node(world.pods["bank-1"]["spec"]["nodeName"])
    assert world.operate().actions == ()
    world.pass_time(31)
    (action,) = world.operate().actions
    assert (type(action), action.force) == (DeletePod, True)  # type: ignore[union-attr]
    assert world.condition("Accepted")["reason"] == "InvalidSpec"

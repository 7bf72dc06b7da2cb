"""Whose objects are taken over; what actions do stands in tests/apiserver/test_doing.py, on a real API server."""

from __future__ import annotations

from typing import cast

import pytest

from deathless_operator.cluster.api import Api
from deathless_operator.cluster.carry_out import Performer, is_ours, scene_of, target
from deathless_operator.cluster.trust import Trust
from deathless_operator.model import names
from deathless_operator.model.values import JsonObject
from deathless_operator.plan.actions import Apply, DeleteObject, DeletePod
from deathless_operator.plan.drill.snapshot import EvictPod, SetCordon
from deathless_operator.plan.snapshot import ChildView, ResourceView, Snapshot

MAP: JsonObject = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "bank-config"}}


def snapshot(*children: ChildView) -> Snapshot:
    resource = ResourceView(namespace="shop", name="bank", uid="u", generation=1, spec=None)
    return Snapshot(now=5.0, resource=resource, children=children)


def child(**labels: str) -> ChildView:
    return ChildView(api_version="v1", kind="ConfigMap", name="bank-config", uid="c", raw={}, labels=labels)


def test_only_what_is_not_there_or_bears_our_label_is_taken_by_force() -> None:
    ours = child(**{names.LABEL_MANAGED_BY: names.FIELD_MANAGER})
    assert is_ours(snapshot(), MAP) and is_ours(snapshot(ours), MAP)
    assert not is_ours(snapshot(child()), MAP)
    assert not scene_of(snapshot(child(**{names.LABEL_MANAGED_BY: "Helm"}))).is_ours(MAP)


def test_each_action_says_what_it_is_about() -> None:
    delete = DeleteObject(api_version="v1", kind="Service", name="s", uid="u", why="w")
    assert target(Apply(manifest=MAP, why="w")) == ("ConfigMap", "bank-config")
    assert target(DeletePod(name="p", uid="u", grace_s=None, force=False, why="w")) == ("Pod", "p")
    assert target(delete) == ("Service", "s")
    assert target(EvictPod(name="p", uid="u", why="w")) == ("Pod", "p")
    assert target(SetCordon(node="n", cordon=True, mark="m", why="w")) == ("Node", "n")


class Unable:
    """A hand whose every action meets something that nobody foresaw."""

    async def delete(self, *_: object, **__: object) -> bool:
        raise ZeroDivisionError("nobody foresaw it")


@pytest.mark.asyncio
async def test_action_that_meets_a_bug_is_told_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    performer = Performer(cast("Api", Unable()), cast("Trust", None))
    deletes = [DeletePod(name=name, uid="u", grace_s=None, force=False, why="w") for name in ("p", "q")]
    found = await performer.carry_out(scene_of(snapshot()), deletes, {})
    assert [(each.name, each.reason, each.message) for each in found] == [
        (name, "ZeroDivisionError", "ZeroDivisionError: nobody foresaw it") for name in ("p", "q")
    ]
    assert "Traceback" in caplog.text

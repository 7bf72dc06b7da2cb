"""Questions about pods."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.deathless_operator.plan.plan_world import World, running

from deathless_operator.model import names
from deathless_operator.plan.service.pods import (
    container,
    handing_over,
    held,
    is_broken,
    ordinal_of,
    primary,
    replicas,
    serves,
    trouble,
    wants_fence,
)
from deathless_operator.plan.snapshot import Announcement, ContainerView, PodView


def pod(**fields: Any) -> PodView:
    """A pod."""
    return PodView(**{"name": "bank-0", "uid": "u", **fields})


def leading(epoch: int) -> PodView:
    """A pod that claims to lead."""
    return pod(labels={names.LABEL_ROLE: "primary"}, announced=Announcement(epoch=epoch))


def test_primary_that_waits_for_activities_is_told_and_nobody_else() -> None:
    waits = Announcement(epoch=3, waits_for=2, waits_until=1_700_000_000)
    one = pod(name="bank-1", labels={names.LABEL_ROLE: "primary"}, announced=Announcement(waits_for=1))
    two = pod(labels={names.LABEL_ROLE: "primary"}, announced=waits)
    assert handing_over([leading(3), pod(announced=waits), two, one]) == [
        "bank-0 lets 2 activities end that must run at most once, until 2023-11-14T22:13:20Z at most, then hands over",
        "bank-1 lets 1 activity end that must run at most once, until 1970-01-01T00:00:00Z at most, then hands over",
    ]


@pytest.mark.parametrize(
    ("name", "labels", "ordinal"),
    [("bank-3", {}, 3), ("bank-x", {}, None), ("till-1", {}, None), ("bank-1", {names.LABEL_PURPOSE: "check"}, None)],
)
def test_ordinal_is_in_the_name(name: str, labels: dict[str, str], ordinal: int | None) -> None:
    assert ordinal_of(pod(name=name, labels=labels), "bank") == ordinal


def test_replicas_are_in_order_and_without_checks() -> None:
    world = running({"replicas": 7})
    assert list(replicas(world.snapshot())) == list(range(7))


def test_of_two_that_claim_to_lead_the_higher_epoch_does() -> None:
    assert primary({0: leading(4), 1: leading(5), 2: pod()}) == 1
    assert primary({0: leading(4), 1: leading(4)}) == 0
    assert primary({0: pod()}) is None


def test_pod_that_goes_does_not_serve() -> None:
    assert serves(pod(ready=True))
    assert not serves(pod(ready=True, deleted_at=1.0))


@pytest.mark.parametrize(
    ("fields", "broken"),
    [
        ({"phase": "Failed"}, True),
        ({"containers": (ContainerView(name="replica", waiting_reason="CrashLoopBackOff"),)}, True),
        ({"containers": (ContainerView(name="replica", waiting_reason="ContainerCreating"),)}, False),
        ({"containers": (ContainerView(name="replica", running=True),)}, False),
        ({}, False),
    ],
)
def test_pod_is_broken_when_time_does_not_mend_it(fields: dict[str, Any], broken: bool) -> None:
    assert is_broken(pod(**fields)) == broken


def test_trouble_is_told_by_the_replica_or_by_its_last_word() -> None:
    spoken = Announcement(text="DL4007 half a copy (mount it)", condition="DL4007")
    ended = (ContainerView(name="replica", message="DL3013 no module"),)
    assert trouble(pod(announced=spoken)) == ("DL4007", "DL4007 half a copy (mount it)")
    assert trouble(pod(containers=ended)) == ("DL3013", "DL3013 no module")
    assert trouble(pod(announced=spoken, ready=True)) == ("", "")
    assert trouble(pod(containers=(ContainerView(name="replica", running=True, message="DL3013"),))) == ("", "")
    assert trouble(pod()) == ("", "")


def test_container_is_found_by_name() -> None:
    assert container(pod(), "replica") is None


@pytest.mark.parametrize(("value", "fenced"), [("", []), ("r0", [0]), ("r0, r2", [0, 2]), ("*", [0, 1, 2])])
def test_fencing_names_replicas(value: str, fenced: list[int]) -> None:
    snapshot = World(annotations={names.FENCED_ANNOTATION: value}).snapshot()
    assert [ordinal for ordinal in range(3) if wants_fence(snapshot, ordinal)] == fenced
    assert held(snapshot, 0, pod(annotations={names.FENCED_ANNOTATION: "true"}))

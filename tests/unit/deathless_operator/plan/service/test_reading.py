"""Views are made from whatever the API server gives, and never fail."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless_operator.plan.service.reading import (
    read_announcement,
    read_child,
    read_claim,
    read_issuer,
    read_node,
    read_pod,
    read_resource,
    read_time,
    read_warning,
    show_time,
)

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["metadata", "status", "spec", "conditions", "type", "name", "labels", "state", "taints", "key"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(["metadata", "status", "spec", "type", "kind"]), ANYTHING))
def test_foreign_shapes_are_read_as_empty(raw: Any) -> None:
    for read in (read_pod, read_node, read_claim, read_child, read_resource, read_warning, read_issuer):
        read(raw)


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([], (False, "cert-manager has not looked at it yet")),
        ([{"type": "Ready", "status": "True", "message": "Signing CA verified", "observedGeneration": 2}], True),
        ([{"type": "Ready", "status": "True", "observedGeneration": 1}], False),
        ([{"type": "Ready", "status": "False", "message": "no key"}], (False, "no key")),
    ],
)
def test_issuer_is_ready_when_it_says_so_of_its_present_form(conditions: Any, expected: Any) -> None:
    found = read_issuer({"metadata": {"generation": 2}, "status": {"conditions": conditions}})
    assert found.found
    assert expected in (found.ready, (found.ready, found.message))


@given(st.text())
def test_announcement_of_any_text_is_read_or_passed_over(text: str) -> None:
    read_announcement(text)


def test_announcement_is_read_field_by_field() -> None:
    found = read_announcement('{"replica": "r1", "epoch": 7, "since": 1.5, "role": 3, "new": []}')
    assert found is not None
    assert (found.replica, found.epoch, found.since, found.role) == ("r1", 7, 1.5, "")
    assert read_announcement('{"since": "1970-01-01T00:00:09Z"}').since == 9  # type: ignore[union-attr]


@pytest.mark.parametrize("text", ["", "{", "[]", "x" * 70_000, '{"a": "\ud800"}'])
def test_announcement_that_is_none_is_none(text: str) -> None:
    assert read_announcement(text) is None


def test_times_are_wall_seconds() -> None:
    assert read_time("1970-01-01T00:01:00Z") == 60
    assert read_time("1970-01-01T00:01:00.500000Z") == 60.5
    assert (read_time("soon"), read_time(None)) == (None, None)
    assert show_time(60.9) == "1970-01-01T00:01:00Z"


def test_pod_is_read_with_its_last_end() -> None:
    ended = {"exitCode": 65, "message": "DL4005 other", "finishedAt": "1970-01-01T00:00:05Z", "reason": "Error"}
    raw: Any = {
        "metadata": {"name": "bank-0", "uid": "u", "creationTimestamp": "1970-01-01T00:00:01Z"},
        "spec": {"nodeName": "n1"},
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": "Ready", "status": "True"},
                {"type": "PodScheduled", "status": "False", "message": "no room"},
            ],
            "containerStatuses": [
                {
                    "name": "replica",
                    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                    "lastState": {"terminated": ended},
                },
                {"name": "check", "state": {"terminated": ended}},
            ],
        },
    }
    pod = read_pod(raw)
    replica, check = pod.containers
    assert (pod.ready, pod.node, pod.unschedulable, pod.created_at) == (True, "n1", "no room", 1.0)
    assert (replica.terminated, replica.exit_code, replica.message, replica.finished_at) == (
        False,
        65,
        "DL4005 other",
        5.0,
    )
    assert (check.terminated, replica.waiting_reason) == (True, "CrashLoopBackOff")


@pytest.mark.parametrize(
    ("status", "taints", "ready", "unreachable"),
    [
        ("True", [], True, False),
        ("False", [], False, False),
        ("Unknown", [], False, True),
        ("False", [{"key": "node.kubernetes.io/out-of-service"}], False, True),
    ],
)
def test_node_is_unreachable_when_nobody_hears_it(status: str, taints: Any, ready: bool, unreachable: bool) -> None:
    conditions: Any = [{"type": "Ready", "status": status, "lastTransitionTime": "1970-01-01T00:00:05Z"}]
    node = read_node({"spec": {"taints": taints, "unschedulable": True}, "status": {"conditions": conditions}})
    assert (node.ready, node.unreachable, node.cordoned) == (ready, unreachable, True)
    assert node.unready_since == (None if ready else 5.0)


@pytest.mark.parametrize(
    ("raw", "kind", "message"),
    [
        ({"type": "Warning", "involvedObject": {"kind": "Pod"}, "message": "m"}, "Pod", "m"),
        ({"type": "Warning", "regarding": {"kind": "Node"}, "note": "n"}, "Node", "n"),
    ],
)
def test_warning_is_read_from_both_kinds_of_event(raw: Any, kind: str, message: str) -> None:
    found = read_warning({**raw, "lastTimestamp": "1970-01-01T00:00:05Z"})
    assert found is not None
    assert (found.kind, found.message, found.at) == (kind, message, 5.0)
    assert read_warning({**raw, "type": "Normal"}) is None


def test_resource_keeps_its_finalizers_and_owners_theirs() -> None:
    owners: Any = [{"uid": "a"}, {"uid": "b", "controller": True}]
    assert read_resource({"metadata": {"finalizers": ["x"]}}).finalizers == ("x",)
    child = read_child({"metadata": {"ownerReferences": owners}})
    assert (child.owner_uids, child.controller_uid) == (("a", "b"), "b")

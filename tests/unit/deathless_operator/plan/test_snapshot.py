"""A snapshot is asked by name."""

from __future__ import annotations

from tests.unit.deathless_operator.plan.plan_world import World

from deathless_operator.plan.snapshot import CertificateFacts, ChildView, NodeView, Snapshot


def test_objects_are_found_by_name() -> None:
    child = ChildView(api_version="v1", kind="Service", name="bank", uid="u", raw={})
    snapshot = Snapshot(
        now=0.0,
        resource=World().snapshot().resource,
        children=(child,),
        nodes=(NodeView(name="n1"),),
        certificates=(CertificateFacts(secret="s"),),
    )
    assert snapshot.child("Service", "bank") is child
    assert snapshot.child("Service", "till") is None
    assert (snapshot.node("n1"), snapshot.node("")) == (NodeView(name="n1"), None)
    assert (snapshot.certificate("s"), snapshot.certificate("t")) == (CertificateFacts(secret="s"), None)

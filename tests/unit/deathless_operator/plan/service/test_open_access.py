"""Whoever may call without proof is told of, as long as somebody else than the service's own pods reaches it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.unit.deathless_operator.plan.plan_world import SETTINGS, SPEC, World, running

from deathless.base.manifest import ServiceSpec
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.plan.service.conditions import Findings, Told
from deathless_operator.plan.service.open_access import tell_access

OWN = {"podSelector": {"matchLabels": {"deathless.dev/service": "bank"}}}
OTHER = {"podSelector": {"matchLabels": {"app": "till"}}}
OIDC = {"type": "OIDC", "oidc": {"issuer": "https://login.example.org", "audiences": ["bank"]}}


def told(settings: OperatorSettings = SETTINGS, **spec: Any) -> Told:
    """The condition for a spec with these fields."""
    findings = Findings()
    tell_access("bank", msgspec.convert(SPEC | spec, ServiceSpec), settings, findings)
    return findings.told["OpenAccess"]


@pytest.mark.parametrize(
    ("ingress", "who"),
    [
        ({}, "every pod of the cluster"),
        ({"authentication": {"type": "None"}}, "every pod of the cluster"),
        ({"serviceType": "NodePort"}, "everybody who reaches its NodePort"),
        ({"serviceType": "LoadBalancer"}, "everybody who reaches its LoadBalancer"),
        ({"allowFrom": [OTHER]}, "whoever spec.ingress.allowFrom names"),
        ({"allowFrom": [OWN, OTHER]}, "whoever spec.ingress.allowFrom names"),
        ({"allowFrom": [OWN | {"namespaceSelector": {}}]}, "whoever spec.ingress.allowFrom names"),
        ({"serviceType": "LoadBalancer", "allowFrom": [OTHER]}, "whoever spec.ingress.allowFrom names"),
    ],
)
def test_callers_without_proof_are_told_with_who_they_are(ingress: dict[str, Any], who: str) -> None:
    found = told(ingress=ingress)
    assert (found.status, found.reason) == ("True", "NoAuthentication")
    assert f"over HTTP, and {who}" in found.message
    assert "What to do: give a type" in found.message


def test_where_no_policy_is_made_allow_from_keeps_nobody_out() -> None:
    words = "whoever the cluster's network lets through"
    assert words in told(ingress={"allowFrom": [OWN]}, networkPolicy={"type": "Off"}).message
    off = msgspec.structs.replace(SETTINGS, network_policies=False)
    assert words in told(off, ingress={"allowFrom": [OWN]}).message


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"ingress": {"authentication": {"type": "MTLS"}}}, "Authenticated"),
        ({"ingress": {"authentication": {"type": "Token", "token": {"secretRef": {"name": "t"}}}}}, "Authenticated"),
        ({"ingress": {"authentication": OIDC}}, "Authenticated"),
        ({"tokenSecretRef": {"name": "t"}}, "SharedToken"),
        ({"tokenSecretRef": {"name": "t"}, "ingress": {"authentication": {"type": "None"}}}, "SharedToken"),
        ({"ingress": {"allowFrom": [OWN]}}, "NotReachable"),
    ],
)
def test_callers_with_proof_and_services_that_nobody_reaches_are_no_news(fields: dict[str, Any], reason: str) -> None:
    found = told(**fields)
    assert (found.status, found.reason) == ("False", reason)


@pytest.mark.parametrize(
    ("tls", "doors"),
    [
        ({}, "over HTTP, and"),
        ({"requireClientCertificate": False}, "over HTTP and at port 7401, and"),
        ({"issuer": "Off"}, "over HTTP and at port 7401, and"),
    ],
)
def test_every_door_that_asks_for_nothing_is_named(tls: dict[str, Any], doors: str) -> None:
    assert doors in told(tls=tls).message


def test_it_is_told_once_and_keeps_nothing_from_being_ready() -> None:
    world = running()
    assert world.condition("OpenAccess")["status"] == "True"
    assert world.condition("Ready")["status"] == "True"
    assert world.condition("Degraded")["status"] == "False"
    assert world.told.count("NoAuthentication") == 1
    (event,) = [each for each in World().plan().events if each.reason == "NoAuthentication"]
    assert event.type == "Warning"


def test_it_ends_with_the_first_look_at_a_spec_that_asks_for_proof() -> None:
    world = running()
    world.edit(ingress={"authentication": {"type": "MTLS"}})
    world.operate()
    assert world.condition("OpenAccess")["status"] == "False"
    assert world.told.count("Authenticated") == 1

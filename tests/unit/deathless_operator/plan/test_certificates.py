"""When certificates are issued, and by whom."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.deathless_operator.plan.plan_world import SETTINGS, SPEC, World, running

from deathless_operator.plan.actions import Apply, DeleteObject, IssueCertificate
from deathless_operator.plan.certificates import Certificates, dns_names, plan_certificates
from deathless_operator.plan.objects import Objects
from deathless_operator.plan.snapshot import AuthorityFacts, CertificateFacts

BY_MANAGER = {"tls": {"issuer": "CertManager", "issuerRef": {"name": "ca"}}}


def certificates(world: World) -> Certificates:
    """What is planned."""
    snapshot = world.snapshot()
    assert snapshot.resource.spec is not None
    return plan_certificates(
        snapshot, snapshot.resource.spec, SETTINGS, Objects(snapshot.resource, snapshot.resource.spec, SETTINGS)
    )


def reasons(world: World) -> list[str]:
    """Why certificates are issued."""
    return [action.why for action in certificates(world).actions if isinstance(action, IssueCertificate)]


def test_first_certificates_are_issued_for_replicas_and_clients() -> None:
    first, second = certificates(World()).actions
    assert isinstance(first, IssueCertificate)
    assert isinstance(second, IssueCertificate)
    assert (first.purpose, second.purpose) == ("replicas", "clients")
    assert {"bank.prod.svc", "bank-primary.prod.svc.cluster.local", "*.bank-replicas.prod.svc", "localhost"} <= set(
        first.dns_names
    )
    assert first.manifest["type"] == "kubernetes.io/tls"


def change(world: World, **facts: Any) -> None:
    """Change what the replicas' certificate says."""
    world.certificates["bank-tls"] = replace(world.certificates["bank-tls"], **facts)


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({}, []),
        ({"readable": False}, ["what is there can't be read"]),
        ({"dns_names": ("x",)}, ["it carries other names"]),
        ({"signed_by": "k0"}, ["it was signed by an authority that is not trusted any more"]),
        ({"trusts": ("k1", "k2")}, ["the authority has changed"]),
        ({"not_before": 0.0}, ["two thirds of its life are over"]),
    ],
)
def test_certificate_is_issued_anew_only_for_a_reason(facts: dict[str, Any], why: list[str]) -> None:
    world = running()
    change(world, **facts)
    assert reasons(world) == why


def test_certificates_are_renewed_at_two_thirds_and_looked_at_then() -> None:
    world = running()
    due = certificates(world).requeue_s
    assert due is not None
    assert 0.6 * SETTINGS.certificate_life_s < due < 0.67 * SETTINGS.certificate_life_s
    world.pass_time(due + 1)
    assert len(reasons(world)) == 2


def test_new_authority_is_trusted_before_it_signs() -> None:
    world = running()
    world.authority = AuthorityFacts(ready=True, signs="k1", trusts=("k1", "k2"))
    world.settle()
    assert world.certificates["bank-tls"].trusts == ("k1", "k2")


def test_nothing_is_issued_without_an_authority() -> None:
    world = running()
    world.authority = AuthorityFacts()
    found = certificates(world)
    assert (found.actions, found.usable, found.reason) == ((), True, "NoAuthority")
    world.operate()
    assert world.condition("CertificateReady")["status"] == "False"
    assert world.condition("Ready")["status"] == "True", "what is issued goes on"
    world.certificates.clear()
    assert not certificates(world).usable


def test_secret_of_somebody_else_is_not_written() -> None:
    world = World()
    world.certificates["bank-tls"] = CertificateFacts(secret="bank-tls", managed=False)
    found = certificates(world)
    assert (found.actions, found.usable, found.reason) == ((), False, "SecretNotOurs")


def test_tls_that_is_off_issues_nothing() -> None:
    found = certificates(World(spec={**SPEC, "tls": {"issuer": "Off"}}))
    assert (found.actions, found.usable, found.reason) == ((), True, "Off")


def test_cert_manager_issues_instead() -> None:
    world = World(spec={**SPEC, **BY_MANAGER})
    assert certificates(world).reason == "CertManagerMissing"
    world.cert_manager = True
    found = certificates(world)
    assert (found.usable, found.reason) == (False, "WaitingForCertManager")
    first = found.actions[0]
    assert isinstance(first, Apply)
    body: Any = first.manifest["spec"]
    assert body["issuerRef"] == {"name": "ca", "kind": "Issuer", "group": "cert-manager.io"}
    assert body["secretTemplate"]["labels"]["deathless.dev/service"] == "bank"
    world.operate()
    for name in ("bank-tls", "bank-client-tls"):
        world.certificates[name] = CertificateFacts(secret=name)
    assert (certificates(world).usable, certificates(world).actions) == (True, ())


def test_certificates_of_cert_manager_go_with_it() -> None:
    world = World(spec={**SPEC, **BY_MANAGER}, cert_manager=True)
    world.operate()
    world.edit(tls={"issuer": "Operator"})
    gone = [action.name for action in world.plan().actions if isinstance(action, DeleteObject)]
    assert gone == ["bank-tls", "bank-client-tls"]


def test_clients_have_no_name_that_a_replica_has() -> None:
    snapshot = World().snapshot()
    assert not set(dns_names(snapshot, SETTINGS, "clients")) & set(dns_names(snapshot, SETTINGS, "replicas"))

"""When certificates are issued, and by whom."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.deathless_operator.plan.plan_world import SETTINGS, SPEC, World, running

from deathless_operator.plan.actions import Apply, DeleteObject, IssueCertificate, TrustAuthorities
from deathless_operator.plan.service.certificates import Certificates, dns_names, plan_certificates
from deathless_operator.plan.service.objects import Objects
from deathless_operator.plan.snapshot import AuthorityFacts, CertificateFacts, IssuerFacts

BY_MANAGER = {"tls": {"issuer": "CertManager", "issuerRef": {"name": "ca"}}}


NAMES = ("bank-tls", "bank-client-tls")


def asked_cert_manager(**reference: str) -> World:
    """A world whose operator has asked cert-manager."""
    by_manager = {"tls": {"issuer": "CertManager", "issuerRef": {"name": "ca"} | reference}}
    world = World(spec={**SPEC, **by_manager}, cert_manager=True)
    world.operate()
    return world


def cert_manager_issues(world: World, name: str) -> None:
    """cert-manager writes a Secret, and says so."""
    asked = world.children["Certificate", name]
    generation = asked["metadata"]["generation"]
    ready = {"type": "Ready", "status": "True", "reason": "Ready", "observedGeneration": generation}
    asked["status"] = {"conditions": [ready]}
    ends = world.now + SETTINGS.certificate_life_s
    world.certificates[name] = CertificateFacts(
        secret=name, trusts=("k1",), not_before=world.now, not_after=ends, uris=tuple(asked["spec"]["uris"])
    )


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


def test_certificates_name_their_service_and_what_its_holders_are() -> None:
    first, second = certificates(World()).actions
    assert isinstance(first, IssueCertificate)
    assert isinstance(second, IssueCertificate)
    assert first.uris == ("spiffe://cluster.local/ns/prod/service/bank/replica",)
    assert second.uris == ("spiffe://cluster.local/ns/prod/service/bank/client",)


def test_issuer_that_leaves_names_out_is_told() -> None:
    world = asked_cert_manager()
    for name in NAMES:
        cert_manager_issues(world, name)
    world.certificates["bank-client-tls"] = replace(world.certificates["bank-client-tls"], uris=())
    found = certificates(world)
    assert (found.usable, found.lacking, found.reason) == (True, True, "IdentityMissing")
    assert "bank-client-tls" in found.message


def change(world: World, **facts: Any) -> None:
    """Change what the replicas' certificate says."""
    world.certificates["bank-tls"] = replace(world.certificates["bank-tls"], **facts)


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({}, []),
        ({"readable": False}, ["what is there can't be read"]),
        ({"dns_names": ("x",)}, ["it carries other names"]),
        ({"uris": ()}, ["it carries other names"]),
        ({"uris": ("spiffe://cluster.local/ns/other/service/bank/replica",)}, ["it carries other names"]),
        ({"signed_by": "k0"}, ["it was signed by an authority that is no longer trusted"]),
        ({"trusts": ("k1", "k2")}, []),
        ({"not_before": 0.0}, ["two thirds of its life are over"]),
    ],
)
def test_certificate_is_issued_anew_only_for_a_reason(facts: dict[str, Any], why: list[str]) -> None:
    world = running()
    change(world, **facts)
    assert reasons(world) == why


def test_who_is_trusted_changes_without_another_certificate() -> None:
    world = running()
    change(world, uid="u1", trusts=("k0", "k1"))
    assert certificates(world).actions == (
        TrustAuthorities(secret="bank-tls", uid="u1", why="who is trusted has changed"),
    )
    before = world.certificates["bank-tls"]
    world.settle()
    assert world.certificates["bank-tls"] == replace(before, trusts=("k1",))


def authority_is_gone(world: World) -> None:
    """Somebody deletes the authority's Secret, and another authority takes its place."""
    signs_from = world.now + 86400
    world.authority = AuthorityFacts(ready=True, signs="k2", trusts=("k1", "k2"), signs_from=signs_from)


def test_certificates_of_an_authority_that_is_gone_stay_and_the_new_one_is_trusted() -> None:
    world = running()
    authority_is_gone(world)
    assert {type(each) for each in certificates(world).actions} == {TrustAuthorities}
    world.settle()
    assert {each.signed_by for each in world.certificates.values()} == {"k1"}
    assert {each.trusts for each in world.certificates.values()} == {("k1", "k2")}
    told = world.condition("CertificateReady")
    assert told["status"] == "True"
    assert "the authority's Secret was gone and is new, and replaces none before" in told["message"]
    world.pass_time(86400)
    world.operate()
    assert "Secret was gone" not in world.condition("CertificateReady")["message"]


def test_due_certificate_waits_until_everybody_trusts_the_new_authority() -> None:
    world = running()
    world.pass_time(0.67 * SETTINGS.certificate_life_s)
    authority_is_gone(world)
    world.settle()
    world.pass_time(7200)
    world.operate()
    signers = {each.signed_by for each in world.certificates.values()}
    assert signers == {"k1"}, "its pods would be refused by those that have not read the new ca.crt yet"
    waits = certificates(world).requeue_s
    assert waits is not None
    world.pass_time(waits)
    assert len(reasons(world)) == 2
    world.settle()
    assert {each.signed_by for each in world.certificates.values()} == {"k2"}


def test_certificate_that_ends_soon_is_not_left_to_end() -> None:
    world = running()
    change(world, not_before=world.now - 7200, not_after=world.now + 1200)
    authority_is_gone(world)
    assert len(reasons(world)) == 1


def test_certificates_of_an_authority_that_is_distrusted_are_replaced_at_once() -> None:
    world = running()
    world.authority = AuthorityFacts(ready=True, signs="k2", trusts=("k2",))
    assert reasons(world) == ["it was signed by an authority that is no longer trusted"] * 2


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
    assert (body["duration"], body["renewBefore"]) == ("2160h0m0s", "720h0m0s")
    world.operate()
    for name in NAMES:
        cert_manager_issues(world, name)
    world.operate()
    assert (certificates(world).usable, certificates(world).actions) == (True, ())
    assert world.condition("CertificateReady")["status"] == "True"


def test_secret_alone_is_not_believed_and_nor_is_the_word_of_cert_manager_without_it() -> None:
    world = asked_cert_manager()
    for name in NAMES:
        world.certificates[name] = CertificateFacts(secret=name)
    assert certificates(world).lacking, "they may be of another issuer"
    for name in NAMES:
        cert_manager_issues(world, name)
    assert not certificates(world).lacking
    del world.certificates["bank-tls"]
    found = certificates(world)
    assert (found.usable, found.lacking, found.reason) == (False, True, "WaitingForCertManager")
    assert "bank-tls" in found.message


def test_word_about_an_older_certificate_is_not_believed() -> None:
    world = asked_cert_manager()
    for name in NAMES:
        cert_manager_issues(world, name)
    world.edit(tls={"issuer": "CertManager", "issuerRef": {"name": "other"}})
    assert certificates(world).lacking, "it is not applied yet"
    world.operate()
    found = certificates(world)
    assert (found.usable, found.lacking, found.actions) == (True, True, ())
    assert world.condition("CertificateReady")["status"] == "False"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("Issuer", "Issuer ca, and there is none in namespace prod: create it"),
        ("ClusterIssuer", "ClusterIssuer ca, and there is none: create it"),
    ],
)
def test_issuer_that_is_missing_is_named(kind: str, words: str) -> None:
    world = asked_cert_manager(kind=kind)
    world.issuer = IssuerFacts(found=False)
    world.operate()
    told = world.condition("CertificateReady")
    assert (told["status"], told["reason"]) == ("False", "IssuerMissing")
    assert words in told["message"]
    assert world.condition("Ready")["reason"] == "IssuerMissing"


def test_issuer_that_is_not_ready_is_told_in_its_own_words() -> None:
    world = asked_cert_manager()
    world.issuer = IssuerFacts(ready=False, message='secret "ca-key" not found')
    found = certificates(world)
    assert (found.reason, found.message) == (
        "IssuerNotReady",
        'Issuer ca of cert-manager is not ready: secret "ca-key" not found',
    )


def test_issuer_that_goes_away_later_is_told_before_the_certificates_end() -> None:
    world = asked_cert_manager()
    for name in NAMES:
        cert_manager_issues(world, name)
    world.issuer = IssuerFacts(found=False)
    found = certificates(world)
    assert (found.usable, found.lacking, found.reason) == (True, False, "Issued")
    assert "can't renew them" in found.message


def test_certificate_that_cert_manager_forgets_is_told_before_it_ends() -> None:
    world = asked_cert_manager()
    for name in NAMES:
        cert_manager_issues(world, name)
    world.pass_time(0.8 * SETTINGS.certificate_life_s)
    assert not certificates(world).lacking
    world.pass_time(0.05 * SETTINGS.certificate_life_s)
    cert_manager_issues(world, "bank-client-tls")
    found = certificates(world)
    assert (found.usable, found.lacking, found.reason) == (True, True, "RenewalOverdue")
    assert "has not renewed bank-tls" in found.message
    assert "kubectl describe certificate bank-tls" in found.message
    world.issuer = IssuerFacts(found=False)
    assert "there is none in namespace prod" in certificates(world).message


def test_failure_of_cert_manager_is_passed_on() -> None:
    world = asked_cert_manager()
    failed = {"type": "Issuing", "status": "False", "reason": "Denied", "message": "the policy refuses *.svc"}
    world.children["Certificate", "bank-tls"]["status"] = {"conditions": [failed]}
    found = certificates(world)
    assert found.reason == "CertManagerFailed"
    assert found.message == "cert-manager could not issue bank-tls: the policy refuses *.svc"


def test_issuer_that_gives_no_authority_is_no_good() -> None:
    world = asked_cert_manager()
    for name in NAMES:
        cert_manager_issues(world, name)
        world.certificates[name] = CertificateFacts(secret=name, readable=False)
    found = certificates(world)
    assert (found.usable, found.reason) == (False, "SecretIncomplete")
    assert "ACME" in found.message


def test_issuer_whose_certificates_do_not_trust_each_other_is_told() -> None:
    world = asked_cert_manager()
    for name in NAMES:
        cert_manager_issues(world, name)
        world.certificates[name] = CertificateFacts(secret=name, trusts=(name,))
    found = certificates(world)
    assert (found.usable, found.lacking, found.reason) == (True, True, "AuthoritiesDiffer")
    assert "SelfSigned" in found.message


def test_certificate_or_secret_of_somebody_else_is_not_overwritten_through_cert_manager() -> None:
    world = World(spec={**SPEC, **BY_MANAGER}, cert_manager=True)
    world.certificates["bank-tls"] = CertificateFacts(secret="bank-tls", managed=False)
    found = certificates(world)
    assert (found.actions, found.usable, found.reason) == ((), False, "SecretNotOurs")
    world = asked_cert_manager()
    world.children["Certificate", "bank-tls"]["metadata"]["labels"] = {}
    found = certificates(world)
    assert (found.actions, found.usable, found.reason) == ((), False, "CertificateNotOurs")


def test_certificates_of_cert_manager_go_with_it() -> None:
    world = World(spec={**SPEC, **BY_MANAGER}, cert_manager=True)
    world.operate()
    world.edit(tls={"issuer": "Operator"})
    gone = [action.name for action in world.plan().actions if isinstance(action, DeleteObject)]
    assert gone == ["bank-tls", "bank-client-tls"]


def test_clients_have_no_name_that_a_replica_has() -> None:
    snapshot = World().snapshot()
    assert not set(dns_names(snapshot, SETTINGS, "clients")) & set(dns_names(snapshot, SETTINGS, "replicas"))

"""Certificates of replicas and clients: when one is issued, and what is told about them.

    issuer Operator      the installation's authority signs; anew at two thirds of a life, when names change, when the
                         authority does (so that `ca.crt` holds what is trusted now)
    issuer CertManager   Certificate objects; cert-manager does the rest
    issuer Off           none

Guarantees: a Secret that is not ours is never written; nothing is issued while there is no authority. Does not: hold
keys. Imports model and base only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from deathless.base.manifest import ServiceSpec
from deathless_operator.model import names
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.model.values import Json, JsonObject
from deathless_operator.plan.actions import Action, Apply, IssueCertificate
from deathless_operator.plan.covering import needs_apply
from deathless_operator.plan.objects import Objects, tls_of
from deathless_operator.plan.snapshot import CertificateFacts, Snapshot

RENEW_AT: Final = 2 / 3
Purpose = Literal["replicas", "clients"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """What is done about certificates, and how they stand."""

    actions: tuple[Action, ...] = field(default=())
    usable: bool = True  # replicas can mount theirs
    reason: str = "Issued"
    message: str = ""
    requeue_s: float | None = None


def dns_names(snapshot: Snapshot, settings: OperatorSettings, purpose: Purpose) -> tuple[str, ...]:
    """Give the names that a certificate carries."""
    name, namespace = snapshot.resource.name, snapshot.resource.namespace
    if purpose == "clients":
        return (f"{name}-client.{namespace}",)
    domain = settings.cluster_domain
    found = []
    for service in (name, names.primary_service(name)):
        found += [service, f"{service}.{namespace}", f"{service}.{namespace}.svc"]
        found.append(f"{service}.{namespace}.svc.{domain}")
    headless = f"{names.headless_service(name)}.{namespace}.svc"
    return (*found, f"*.{headless}", f"*.{headless}.{domain}", "localhost")


def _secrets(name: str) -> tuple[tuple[Purpose, str], ...]:
    return (("replicas", names.tls_secret(name)), ("clients", names.client_tls_secret(name)))


def plan_certificates(
    snapshot: Snapshot, spec: ServiceSpec, settings: OperatorSettings, objects: Objects
) -> Certificates:
    """Plan both certificates of a service."""
    issuer = tls_of(spec).issuer
    if issuer == "Off":
        return Certificates(reason="Off", message="TLS is off: callers and replicas are not told apart")
    if issuer == "CertManager":
        return _ask_cert_manager(snapshot, spec, settings, objects)
    return _issue(snapshot, settings, objects)


def _issue(snapshot: Snapshot, settings: OperatorSettings, objects: Objects) -> Certificates:
    name = snapshot.resource.name
    facts = {secret: snapshot.certificate(secret) for _, secret in _secrets(name)}
    foreign = [secret for secret, found in facts.items() if found is not None and not found.managed]
    if foreign:
        return Certificates(
            usable=False,
            reason="SecretNotOurs",
            message=f"Secret {foreign[0]} exists and is not the operator's: delete it, or rename the service",
        )
    if not snapshot.authority.ready:
        ready = all(found is not None and found.readable for found in facts.values())
        return Certificates(
            usable=ready,
            reason="NoAuthority",
            message=f"the installation's authority (Secret {names.AUTHORITY_SECRET}) is not there yet",
            requeue_s=5.0,
        )
    actions: list[Action] = []
    due: list[float] = []
    for purpose, secret in _secrets(name):
        wanted = dns_names(snapshot, settings, purpose)
        found = facts[secret]
        why = "there is none yet" if found is None else _why_issue(found, snapshot, wanted)
        if why:
            actions.append(
                IssueCertificate(
                    manifest=objects.make("v1", "Secret", secret, {"type": "kubernetes.io/tls"}),
                    purpose=purpose,
                    common_name=f"{name}.{snapshot.resource.namespace}" + ("" if purpose == "replicas" else " client"),
                    dns_names=wanted,
                    life_s=settings.certificate_life_s,
                    why=why,
                )
            )
        else:
            assert found is not None, "one that is missing is issued"
            due.append(_renewal(found) - snapshot.now)
    return Certificates(
        actions=tuple(actions),
        message="certificates are valid and renewed at two thirds of their life",
        requeue_s=max(1.0, min(due)) if due else None,
    )


def _renewal(facts: CertificateFacts) -> float:
    return facts.not_before + RENEW_AT * (facts.not_after - facts.not_before)


def _why_issue(facts: CertificateFacts, snapshot: Snapshot, wanted: tuple[str, ...]) -> str:
    """Give why a certificate is issued; empty: it need not be."""
    authority = snapshot.authority
    if not facts.readable:
        return "what is there can't be read"
    if set(facts.dns_names) != set(wanted):
        return "it carries other names"
    if facts.signed_by not in authority.trusts:
        return "it was signed by an authority that is not trusted any more"
    if set(facts.trusts) != set(authority.trusts):
        return "the authority has changed"
    if snapshot.now >= _renewal(facts):
        return "two thirds of its life are over"
    return ""


def _ask_cert_manager(
    snapshot: Snapshot, spec: ServiceSpec, settings: OperatorSettings, objects: Objects
) -> Certificates:
    name = snapshot.resource.name
    if not snapshot.cert_manager:
        return Certificates(
            usable=False,
            reason="CertManagerMissing",
            message="spec.tls.issuer is CertManager, and the cluster has none: install it, or use issuer Operator",
            requeue_s=30.0,
        )
    issuer = tls_of(spec).issuer_ref
    assert issuer is not None, "the spec was checked"
    actions: list[Action] = []
    for purpose, secret in _secrets(name):
        body = _certificate(snapshot, settings, purpose, secret)
        body["issuerRef"] = {"name": issuer.name, "kind": issuer.kind, "group": issuer.group}
        manifest = objects.make("cert-manager.io/v1", "Certificate", secret, {"spec": body})
        if needs_apply(snapshot.child("Certificate", secret), manifest):
            actions.append(Apply(manifest=manifest, why="cert-manager is to issue it"))
    ready = [found for _, secret in _secrets(name) if (found := snapshot.certificate(secret)) and found.readable]
    if len(ready) < len(_secrets(name)):
        return Certificates(
            actions=tuple(actions),
            usable=False,
            reason="WaitingForCertManager",
            message=f"cert-manager has not issued both yet: kubectl describe certificate {names.tls_secret(name)}",
            requeue_s=10.0,
        )
    return Certificates(actions=tuple(actions), message=f"issued by {issuer.kind} {issuer.name} of cert-manager")


def _certificate(snapshot: Snapshot, settings: OperatorSettings, purpose: Purpose, secret: str) -> JsonObject:
    usages: list[Json] = ["client auth"] if purpose == "clients" else ["server auth", "client auth"]
    shown: list[Json] = list(dns_names(snapshot, settings, purpose))
    labels: JsonObject = dict(names.labels(snapshot.resource.name))
    return {
        "secretName": secret,
        "secretTemplate": {"labels": labels},
        "commonName": secret,
        "dnsNames": shown,
        "usages": usages,
        "duration": f"{settings.certificate_life_s // 3600}h0m0s",
        "renewBefore": f"{settings.certificate_life_s // 3 // 3600}h0m0s",
        "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
    }

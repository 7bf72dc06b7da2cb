"""Certificates of replicas and clients: when one is issued, and what is told about them.

    issuer Operator      the installation's authority signs; anew at two thirds of a life, when names change, when who
                         signed is not trusted any more. `ca.crt` alone follows what else is trusted
    issuer CertManager   Certificate objects; cert-manager does the rest, and what keeps it from that is told
    issuer Off           none

Guarantees: a Secret that is not ours is never written; nothing is issued while there is no authority. Does not: hold
keys. Imports model and base only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from deathless.base.identities import Identity
from deathless.base.manifest import ServiceSpec
from deathless.base.manifest_parts import IssuerRef
from deathless_operator.model import names
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.model.values import Json, JsonObject, text
from deathless_operator.plan.actions import Action, Apply, IssueCertificate, TrustAuthorities
from deathless_operator.plan.service.covering import is_foreign, to_apply
from deathless_operator.plan.service.objects import Objects, tls_of
from deathless_operator.plan.service.reading import read_condition, show_time
from deathless_operator.plan.snapshot import CertificateFacts, Snapshot

RENEW_AT: Final = 2 / 3
OVERDUE_AT: Final = 5 / 6  # of a life: who is to renew at RENEW_AT and has not by then, does not
Purpose = Literal["replicas", "clients"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """What is done about certificates, and how they stand."""

    actions: tuple[Action, ...] = field(default=())
    usable: bool = True  # replicas can mount theirs
    lacking: bool = False  # what they mount is not, or will not be for long, what the spec asks for
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
    bases = [names.of_shard(name, shard) for shard in range(snapshot.shards)]
    for service in (name, *map(names.primary_service, bases)):
        found += [service, f"{service}.{namespace}", f"{service}.{namespace}.svc"]
        found.append(f"{service}.{namespace}.svc.{domain}")
    for service in map(names.headless_service, bases):
        found += [f"*.{service}.{namespace}.svc", f"*.{service}.{namespace}.svc.{domain}"]
    return (*found, "localhost")


def identity(snapshot: Snapshot, settings: OperatorSettings, purpose: Purpose) -> Identity:
    """Give whom a certificate names: replicas or clients of this service, in this namespace, of this installation."""
    return Identity(
        trust_domain=settings.cluster_domain,
        namespace=snapshot.resource.namespace,
        service=snapshot.resource.name,
        role="replica" if purpose == "replicas" else "client",
    )


def _secrets(name: str) -> tuple[tuple[Purpose, str], ...]:
    return (("replicas", names.tls_secret(name)), ("clients", names.client_tls_secret(name)))


def plan_certificates(
    snapshot: Snapshot, spec: ServiceSpec, settings: OperatorSettings, objects: Objects
) -> Certificates:
    """Plan both certificates of a service."""
    issuer = tls_of(spec).issuer
    if issuer == "Off":
        return Certificates(reason="Off", message="TLS is off: callers and replicas are not distinguished")
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
            lacking=True,
            reason="NoAuthority",
            message=f"the installation's authority (Secret {names.AUTHORITY_SECRET}) is not there yet",
            requeue_s=5.0,
        )
    actions: list[Action] = []
    due: list[float] = []
    hidden = {failure.name for failure in snapshot.hidden}
    for purpose, secret in _secrets(name):
        if secret in hidden:
            continue  # whether one is there is not known, so none takes its place
        wanted = dns_names(snapshot, settings, purpose)
        found = facts[secret]
        uri = identity(snapshot, settings, purpose).uri
        why = "there is none yet" if found is None else _why_issue(found, snapshot, wanted, uri)
        if why:
            actions.append(
                IssueCertificate(
                    manifest=objects.make("v1", "Secret", secret, {"type": "kubernetes.io/tls"}),
                    purpose=purpose,
                    common_name=f"{name}.{snapshot.resource.namespace}" + ("" if purpose == "replicas" else " client"),
                    dns_names=wanted,
                    uris=(uri,),
                    life_s=settings.certificate_life_s,
                    why=why,
                )
            )
        else:
            assert found is not None, "one that is missing is issued"
            due.append(_renewal(found, snapshot) - snapshot.now)
            if set(found.trusts) != set(snapshot.authority.trusts):
                why = "who is trusted has changed"
                actions.append(TrustAuthorities(secret=secret, uid=found.uid, why=why))
    young = snapshot.now < snapshot.authority.signs_from
    return Certificates(
        actions=tuple(actions),
        message="certificates are valid and renewed at two thirds of their life"
        + (f"; the authority's Secret was gone and is new, and replaces none before {_new(snapshot)}" if young else ""),
        requeue_s=max(1.0, min(due)) if due else None,
    )


def _new(snapshot: Snapshot) -> str:
    return show_time(snapshot.authority.signs_from)


def _renewal(facts: CertificateFacts, snapshot: Snapshot) -> float:
    """Give when a certificate is renewed: not before everybody trusts who signs, unless it would end soon."""
    life = facts.not_after - facts.not_before
    wait = min(snapshot.authority.signs_from, facts.not_before + OVERDUE_AT * life)
    return max(facts.not_before + RENEW_AT * life, wait)


def _why_issue(facts: CertificateFacts, snapshot: Snapshot, wanted: tuple[str, ...], uri: str) -> str:
    """Give why a certificate is issued; empty: it need not be."""
    authority = snapshot.authority
    if not facts.readable:
        return "what is there can't be read"
    if set(facts.dns_names) != set(wanted) or facts.uris != (uri,):
        return "it carries other names"
    if facts.signed_by not in authority.trusts:
        return "it was signed by an authority that is no longer trusted"
    if snapshot.now >= _renewal(facts, snapshot):
        return "two thirds of its life are over"
    return ""


def _ask_cert_manager(
    snapshot: Snapshot, spec: ServiceSpec, settings: OperatorSettings, objects: Objects
) -> Certificates:
    if not snapshot.cert_manager:
        return Certificates(
            usable=False,
            reason="CertManagerMissing",
            message="spec.tls.issuer is CertManager, but there is no cert-manager: install it, or use issuer Operator",
            requeue_s=30.0,
        )
    issuer = tls_of(spec).issuer_ref
    assert issuer is not None, "the spec was checked"
    wanted = _secrets(snapshot.resource.name)
    taken = _taken(snapshot, [secret for _, secret in wanted])
    if taken:
        return Certificates(
            usable=False,
            reason="SecretNotOurs" if taken.startswith("Secret") else "CertificateNotOurs",
            message=f"{taken} exists and is not the operator's: delete it, or rename the service",
            requeue_s=10.0,
        )
    actions: list[Action] = []
    for purpose, secret in wanted:
        body = _certificate(snapshot, settings, purpose, secret)
        body["issuerRef"] = {"name": issuer.name, "kind": issuer.kind, "group": issuer.group}
        manifest = objects.make("cert-manager.io/v1", "Certificate", secret, {"spec": body})
        applied = to_apply(snapshot.child("Certificate", secret), manifest)
        if applied is not None:
            actions.append(Apply(manifest=applied, why="cert-manager is to issue it"))
    changed = {text(action.manifest, "metadata", "name") for action in actions if isinstance(action, Apply)}
    waiting = [secret for _, secret in wanted if secret in changed or not _is_issued(snapshot, secret)]
    shown = f"{issuer.kind} {issuer.name} of cert-manager"
    trouble = _issuer_trouble(snapshot, issuer)
    if waiting:
        reason, message = trouble or _waiting(snapshot, waiting[0])
        return Certificates(
            actions=tuple(actions),
            usable=all(_is_readable(snapshot, secret) for _, secret in wanted),
            lacking=True,
            reason=reason,
            message=message,
            requeue_s=10.0,
        )
    trusts = [set(found.trusts) for _, secret in wanted if (found := snapshot.certificate(secret)) is not None]
    if not set.intersection(*trusts):
        return Certificates(
            lacking=True,
            reason="AuthoritiesDiffer",
            message=f"{shown} signed the replicas' and the clients' certificate by authorities that do not trust each "
            "other: a SelfSigned issuer does so, name one of an authority (CA, Vault); one that has changed does so "
            f"until both are renewed: cmctl renew {' '.join(secret for _, secret in wanted)}",
            requeue_s=10.0,
        )
    nameless = _nameless(snapshot, settings, shown)
    if nameless is not None:
        return nameless
    overdue = [
        found for _, secret in wanted if (found := snapshot.certificate(secret)) and _is_overdue(found, snapshot)
    ]
    if overdue:
        why = trouble[1] if trouble else f"kubectl describe certificate {overdue[0].secret}"
        return Certificates(
            lacking=True,
            reason="RenewalOverdue",
            message=f"cert-manager has not renewed {overdue[0].secret}, which ends at "
            f"{show_time(overdue[0].not_after)}: {why}",
            requeue_s=60.0,
        )
    late = f"; it currently can't renew them: {trouble[1]}" if trouble else ""
    return Certificates(message=f"issued by {shown}, which renews them{late}")


def _nameless(snapshot: Snapshot, settings: OperatorSettings, shown: str) -> Certificates | None:
    """Tell of an issuer that leaves the URI name out; None: each certificate names whom it should."""
    for purpose, secret in _secrets(snapshot.resource.name):
        found, wanted = snapshot.certificate(secret), identity(snapshot, settings, purpose)
        if found is not None and found.uris != (wanted.uri,):
            return Certificates(
                lacking=True,
                reason="IdentityMissing",
                message=f"{shown} left the URI name out of {secret}, so every certificate of that issuer opens this "
                f"service: allow URI names beginning with spiffe://{wanted.trust_domain}/ns/{wanted.namespace}/ at "
                "the issuer",
                requeue_s=60.0,
            )
    return None


def _taken(snapshot: Snapshot, wanted: list[str]) -> str:
    """Name a Certificate or Secret that is somebody else's: cert-manager would overwrite the Secret."""
    for name in wanted:
        child, secret = snapshot.child("Certificate", name), snapshot.certificate(name)
        if child is not None and is_foreign(child, snapshot):
            return f"Certificate {name}"
        if secret is not None and not secret.managed:
            return f"Secret {name}"
    return ""


def _is_readable(snapshot: Snapshot, secret: str) -> bool:
    found = snapshot.certificate(secret)
    return found is not None and found.readable


def _is_issued(snapshot: Snapshot, secret: str) -> bool:
    """Tell whether cert-manager says that the Secret holds what its Certificate asks for now."""
    child = snapshot.child("Certificate", secret)
    ready = read_condition(child.raw, "Ready") if child is not None else {}
    return text(ready, "status") == "True" and _is_readable(snapshot, secret)


def _is_overdue(facts: CertificateFacts, snapshot: Snapshot) -> bool:
    return snapshot.now >= facts.not_before + OVERDUE_AT * (facts.not_after - facts.not_before)


def _issuer_trouble(snapshot: Snapshot, issuer: IssuerRef) -> tuple[str, str] | None:
    """Give reason and message where the issuer can't issue; None where it can, or where nobody can tell."""
    found, shown = snapshot.issuer, f"{issuer.kind} {issuer.name}"
    if not found.found:
        place = "" if issuer.kind == "ClusterIssuer" else f" in namespace {snapshot.resource.namespace}"
        return (
            "IssuerMissing",
            f"spec.tls.issuerRef names {shown}, and there is none{place}: create it, or name another",
        )
    if not found.ready:
        return "IssuerNotReady", f"{shown} of cert-manager is not ready: {found.message}"
    return None


def _waiting(snapshot: Snapshot, secret: str) -> tuple[str, str]:
    """Give reason and message for a certificate that is not issued, where its issuer is not to blame."""
    child, found = snapshot.child("Certificate", secret), snapshot.certificate(secret)
    tried = read_condition(child.raw, "Issuing") if child is not None else {}
    said = read_condition(child.raw, "Ready") if child is not None else {}
    if text(said, "status") == "True" and found is not None and not found.readable:
        lacks = f"Secret {secret} lacks a readable ca.crt, tls.crt or tls.key"
        why = "replicas and callers verify each other with ca.crt, which an ACME issuer does not provide"
        return "SecretIncomplete", f"{lacks}: {why}; use an issuer with an authority of your own"
    if text(tried, "status") == "False" and text(tried, "message"):
        return "CertManagerFailed", f"cert-manager could not issue {secret}: {text(tried, 'message')}"
    return (
        "WaitingForCertManager",
        f"cert-manager has not issued {secret} as the spec asks yet: kubectl describe certificate {secret}",
    )


def _certificate(snapshot: Snapshot, settings: OperatorSettings, purpose: Purpose, secret: str) -> JsonObject:
    usages: list[Json] = ["client auth"] if purpose == "clients" else ["server auth", "client auth"]
    shown: list[Json] = list(dns_names(snapshot, settings, purpose))
    labels: JsonObject = dict(names.labels(snapshot.resource.name))
    return {
        "secretName": secret,
        "secretTemplate": {"labels": labels},
        "commonName": secret,
        "dnsNames": shown,
        "uris": [identity(snapshot, settings, purpose).uri],
        "usages": usages,
        "duration": _duration(settings.certificate_life_s),
        "renewBefore": _duration(settings.certificate_life_s // 3),
        "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
    }


def _duration(seconds: int) -> str:
    """Give a duration as Go writes it: what the API server holds must be what we compare with."""
    minutes, rest = divmod(seconds, 60)
    return f"{minutes // 60}h{minutes % 60}m{rest}s"

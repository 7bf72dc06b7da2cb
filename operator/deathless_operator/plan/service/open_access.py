"""Whether callers of a service need no proof of who they are, and who reaches it then.

A manifest without `ingress.authentication` serves as it did before there was that field (0022), so nothing fails here:
condition OpenAccess says it, and an event once.

    callers prove themselves       by ingress.authentication, or by the one token of tokenSecretRef
    they don't, and nobody but     allowFrom names the service's own pods alone: what reaches it has its certificates
    its own pods reaches it
    they don't, and others do      told, with who these are and what to write

Guarantees: what is told follows from spec and settings alone. Does not: know whether the cluster's network enforces a
NetworkPolicy, or what stands before a Service. Imports model and base only.
"""

from __future__ import annotations

from deathless.base.manifest import ServiceSpec
from deathless.base.manifest_ingress import Ingress
from deathless.base.manifest_parts import Peer
from deathless_operator.model import names
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.plan.service.conditions import Findings
from deathless_operator.plan.service.objects import peer_of, tls_of


def tell_access(name: str, spec: ServiceSpec, settings: OperatorSettings, findings: Findings) -> None:
    """Tell whether whoever reaches a service may call it.

    Args:
        name: of the service.
        spec: of the service.
        settings: of the installation.
        findings: gets the condition.
    """
    ingress = spec.ingress or Ingress()
    how = ingress.authentication
    if how is not None and how.type != "None":
        findings.tell("OpenAccess", "False", "Authenticated", f"callers prove who they are, by {how.type}")
        return
    if spec.token_secret_ref is not None:
        shown = f"callers show the one token of Secret {spec.token_secret_ref.name}"
        findings.tell("OpenAccess", "False", "SharedToken", shown)
        return
    who = _who_reaches(name, ingress, spec, settings)
    if not who:
        findings.tell("OpenAccess", "False", "NotReachable", "nobody but the service's own pods reaches its ports")
        return
    said = "says None" if how is not None else "is not given"
    findings.tell(
        "OpenAccess",
        "True",
        "NoAuthentication",
        f"spec.ingress.authentication {said}: callers need no proof of who they are over {_doors(spec)}, and {who} "
        "reaches it. What to do: give a type (Token, MTLS, OIDC), or let fewer in by spec.ingress.allowFrom",
    )


def _doors(spec: ServiceSpec) -> str:
    """Name the ways in that ask for nothing."""
    tls = tls_of(spec)
    closed = tls.issuer != "Off" and tls.require_client_certificate is not False
    return "HTTP" if closed else f"HTTP and at port {names.CLIENT_PORT}"


def _who_reaches(name: str, ingress: Ingress, spec: ServiceSpec, settings: OperatorSettings) -> str:
    """Say who reaches the front door beside the service's own pods; empty: nobody."""
    if not settings.network_policies or spec.network_policy.type == "Off":
        return "whoever the cluster's network lets through (no NetworkPolicy is made)"
    if ingress.allow_from:
        others = [peer for peer in ingress.allow_from if not _is_own(name, peer)]
        return "whoever spec.ingress.allowFrom names" if others else ""
    if ingress.service_type == "ClusterIP":
        return "every pod of the cluster"
    return f"everybody who reaches its {ingress.service_type}, from outside of the cluster too,"


def _is_own(name: str, peer: Peer) -> bool:
    """Tell whether an entry of allowFrom names none but pods of the service, in its own namespace."""
    shown = peer_of(peer)
    selector = shown.get("podSelector")
    labels = selector.get("matchLabels") if isinstance(selector, dict) else None
    return set(shown) == {"podSelector"} and isinstance(labels, dict) and labels.get(names.LABEL_SERVICE) == name

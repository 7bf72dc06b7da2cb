"""The HTTP interface in a manifest: where it listens, who reaches it, and how callers prove who they are.

Guarantees: as `manifest_parts`. Does not: read tokens or keys (shell.net.callers does). Imports base only.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from deathless.base.config import AuthenticationConfig
from deathless.base.identities import AllowedService
from deathless.base.manifest_fields import FilePath, Host, NonEmpty, ObjectName, Part, Port, SecretRef, Texts, told
from deathless.base.manifest_parts import Peer, SecretKeyRef
from deathless.base.schema_check import Problem


class NamedService(Part, frozen=True):
    """Another service, by what its certificates say."""

    namespace: Annotated[ObjectName, told("Its namespace.")]
    name: Annotated[
        Annotated[str, Meta(pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$", max_length=63)],
        told("Its name; if empty, every service of the namespace."),
    ] = ""


class TokenCallers(Part, frozen=True):
    """Callers that show a token of their own."""

    path: Annotated[
        FilePath,
        told(
            "On a laptop: a folder with a file for each caller, named as the caller, or one such file. Each line of a "
            "file is a token of that caller. In a cluster: secretRef."
        ),
    ] = ""
    secret_ref: Annotated[
        SecretRef | None,
        told(
            "In a cluster: the Secret with a key for each caller, named as the caller. Each line of a value is a token "
            "of that caller, so an old and a new one are good together."
        ),
    ] = None


class OidcCallers(Part, frozen=True):
    """Callers that show a token which an OpenID Connect issuer has signed."""

    issuer: Annotated[
        Annotated[str, Meta(pattern=r"^https?://[^\s#?]+$", max_length=512)],
        told("The issuer, as its tokens' claim iss says it. https, or http on this machine's own loopback address."),
    ]
    audiences: Annotated[
        tuple[NonEmpty, ...],
        Meta(min_length=1, max_length=16),
        told("What the claim aud must name, one of them at least."),
    ]
    name_claim: Annotated[NonEmpty, told("The claim that names the caller.")] = "sub"
    required_claims: Annotated[
        Texts, told("Claims that must have this value, or be a list that holds it, in every token.")
    ] = msgspec.field(default_factory=dict)
    algorithms: Annotated[
        tuple[Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"], ...],
        Meta(min_length=1, max_length=10),
        told("Accepted signature algorithms."),
    ] = ("RS256", "ES256")
    keys_url: Annotated[
        Annotated[str, Meta(pattern=r"^$|^https?://[^\s#]+$", max_length=512)],
        told(
            "URL of the issuer's keys (JWKS); if empty, found through the issuer's /.well-known/openid-configuration."
        ),
    ] = ""
    ca_file: Annotated[FilePath, told("File with the authorities for the issuer's certificate, on a laptop.")] = ""
    ca_secret_ref: Annotated[
        SecretKeyRef | None,
        told("In a cluster: the Secret with these authorities, in the key named. The image's own when empty."),
    ] = None
    leeway_seconds: Annotated[
        int, Meta(ge=0, le=300), told("How far the issuer's clock may differ from a replica's.")
    ] = 30


class Authentication(Part, frozen=True):
    """How callers prove who they are, over HTTP and at the port of the Python client."""

    type: Annotated[
        Literal["None", "Token", "MTLS", "OIDC"],
        told(
            "None: they don't. Token: each shows a token of its own. MTLS: a certificate of the authority that "
            "spec.tls trusts. OIDC: a token that an issuer has signed."
        ),
    ]
    allowed_callers: Annotated[
        tuple[NonEmpty, ...],
        Meta(max_length=256),
        told(
            "Names of those who may call: of the token, the certificate's URI or else its common name, the value of "
            "nameClaim. When empty: everybody who is known, and with MTLS whom allowServices lets in."
        ),
    ] = ()
    token: Annotated[TokenCallers | None, told("Where the tokens are, with type Token.")] = None
    oidc: Annotated[OidcCallers | None, told("Whose tokens are accepted, with type OIDC.")] = None


class Ingress(Part, frozen=True):
    """The HTTP interface. Run locally, replica k listens on `port` + k; port 0 takes any free one."""

    listen: Annotated[Host, told("Address to listen on, on a laptop. A pod listens on every address.")] = "127.0.0.1"
    port: Annotated[Port, told("Port on a laptop: replica k takes port + k. In a cluster 8080, behind port 80.")] = 8080
    service_type: Annotated[
        Literal["ClusterIP", "NodePort", "LoadBalancer"],
        told("Type of the Service that any replica answers on, in a cluster."),
    ] = "ClusterIP"
    service_annotations: Annotated[Texts, told("Annotations of that Service, for example for load balancers.")] = (
        msgspec.field(default_factory=dict)
    )
    allow_from: Annotated[
        tuple[Peer, ...],
        Meta(max_length=32),
        told("Who may call through the front door, in a cluster. When empty: every pod of the cluster's namespaces."),
    ] = ()
    allow_services: Annotated[
        tuple[NamedService, ...],
        Meta(max_length=32),
        told(
            "Services whose certificates may call this one, and whose replicas may send to it, where certificates name "
            "their service, as the operator's do. When empty: replicas of services of the same namespace may send."
        ),
    ] = ()
    cors_origins: Annotated[
        tuple[Annotated[str, Meta(pattern=r"^(\*|https?://[^\s/?#,*]+)$", max_length=253)], ...],
        Meta(max_length=64),
        told(
            "Origins whose web pages may call from a browser (CORS), such as https://app.example.com, or * for all. "
            "When empty: none. Who may call is decided by authentication, whatever stands here."
        ),
    ] = ()
    authentication: Annotated[
        Authentication | None,
        told(
            "How callers prove who they are. When absent: by spec.tokenFile or spec.tokenSecretRef where there is one; "
            "without one they prove nothing over HTTP."
        ),
    ] = None


def allowed_services(ingress: Ingress | None) -> tuple[AllowedService, ...]:
    """Give the services that may call and send, for a replica."""
    named = ingress.allow_services if ingress is not None else ()
    return tuple(AllowedService(namespace=each.namespace, name=each.name) for each in named)


def authentication_config(
    ingress: Ingress | None, *, tokens: str = "", authorities: str = ""
) -> AuthenticationConfig | None:
    """Give how callers prove who they are, for a replica; None: the manifest does not say.

    Args:
        ingress: of the spec.
        tokens: where a cluster mounts the callers' tokens; on a laptop the manifest's own path counts.
        authorities: where a cluster mounts the authorities of the issuer, likewise.
    """
    found = ingress.authentication if ingress is not None else None
    if found is None:
        return None
    named = found.token.path if found.token is not None else ""
    config = AuthenticationConfig(
        type=found.type, allowed=found.allowed_callers, tokens=tokens if found.type == "Token" and tokens else named
    )
    oidc = found.oidc
    if oidc is None:
        return config
    return AuthenticationConfig(
        type=found.type,
        allowed=found.allowed_callers,
        issuer=oidc.issuer,
        audiences=oidc.audiences,
        name_claim=oidc.name_claim,
        required_claims=oidc.required_claims,
        algorithms=oidc.algorithms,
        keys_url=oidc.keys_url,
        ca=authorities or oidc.ca_file,
        leeway_s=oidc.leeway_seconds,
    )


def authentication_problems(ingress: Ingress | None) -> list[Problem]:
    """Find what contradicts itself in `spec.ingress.authentication`."""
    found = ingress.authentication if ingress is not None else None
    if found is None:
        return []
    at = ("spec", "ingress", "authentication")
    problems = []
    if (found.type == "Token") != (found.token is not None):
        problems.append(Problem((*at, "token"), None, "belongs to type Token", "give both or neither"))
    if (found.type == "OIDC") != (found.oidc is not None):
        problems.append(Problem((*at, "oidc"), None, "belongs to type OIDC", "give both or neither"))
    if found.type == "None" and found.allowed_callers:
        what = "names callers, and type None knows none"
        problems.append(Problem((*at, "allowedCallers"), None, what, "leave it out, or choose another type"))
    return problems

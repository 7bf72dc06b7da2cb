"""Who a certificate names: one URI per certificate, in the form that SPIFFE gives workloads.

    spiffe://<trust domain>/ns/<namespace>/service/<service>/<role>

    role       who holds the certificate
    replica    replicas of the service: they elect, follow, and send to other services
    client     programs that call the service
    operator   tools of the people who run the service: status, switchover, stop

Guarantees: a certificate without such a URI, or with more than one URI, names nobody; what is read back equals what
was written. Does not: verify a certificate (TLS does), or decide what an identity may do (`core.access.authorisation`).
Imports nothing of ours.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, cast, get_args

import msgspec

Role = Literal["replica", "client", "operator"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)
URI_CHARS_MAX: Final = 2048  # as SPIFFE limits it
_URI: Final = re.compile(
    r"spiffe://(?P<domain>[a-z0-9._-]{1,255})/ns/(?P<namespace>[A-Za-z0-9._-]+)"
    r"/service/(?P<service>[A-Za-z0-9._-]+)/(?P<role>[a-z]+)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who a certificate was issued to."""

    trust_domain: str  # of the installation: the cluster's domain
    namespace: str
    service: str
    role: Role

    @property
    def uri(self) -> str:
        """What the certificate carries."""
        return f"spiffe://{self.trust_domain}/ns/{self.namespace}/service/{self.service}/{self.role}"

    def is_of_service(self, other: Identity) -> bool:
        """Tell whether both belong to one service, whatever their roles."""
        return (self.trust_domain, self.namespace, self.service) == (
            other.trust_domain,
            other.namespace,
            other.service,
        )

    def __str__(self) -> str:
        return self.uri


class AllowedService(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Another service that may call this one and send to it; without a name, every service of the namespace."""

    namespace: str
    name: str = ""


def read_identity(uris: Sequence[str]) -> Identity | None:
    """Give whom the URI names of a certificate name; None: nobody, or it can't be said which."""
    if len(uris) != 1 or len(uris[0]) > URI_CHARS_MAX:
        return None
    found = _URI.fullmatch(uris[0])
    if found is None or found["role"] not in ROLES:
        return None
    return Identity(
        trust_domain=found["domain"],
        namespace=found["namespace"],
        service=found["service"],
        role=cast("Role", found["role"]),
    )

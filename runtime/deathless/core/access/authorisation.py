"""What the holder of a certificate may do at which port: a table, and the decision that reads it.

    port          asks as                      own replica  own client  own operator  named service   other
    client        client                       yes          yes         yes           yes             no
    client        peer (sends messages)        yes          no          no            its replicas    no
    client        tool (orders, status)        yes          no          yes           no              no
    client        source (streams)             yes          no          no            no              no
    replication   follower                     yes          no          no            no              no
    control       supervisor                   yes          no          no            no              no
    control       tool                         yes          no          yes           no              no
    http          call                         yes          yes         yes           yes             no
    http          operate (pages of operators) yes          no          yes           no              no
    health        probe                        everybody: no data stand behind this port

"Own" is the service whose certificate the port itself shows. "Named" is what `spec.ingress.allowServices` lists; when
it lists nothing, every service of the same namespace may send as a peer, and none may call.

A port whose own certificate names nobody (files of a user's own authority, an operator of before identities) has no
service to compare with: there the authority's signature alone decides, as TLS has checked it.

Before the table stands what every connection begins with: HELLO, with the protocol versions that the other end
speaks, one of which we must speak as well, and with the service's token and name.

Guarantees: what the table does not name is refused; the trust domain and the namespace always count; the token is
compared in constant time. Does not: look at connections.
"""

from __future__ import annotations

import enum
import hmac
from collections.abc import Iterable, Sequence
from typing import Final

from deathless.base.errors import Forbidden, Invalid, Unauthorized, UnknownService
from deathless.base.identities import AllowedService, Identity
from deathless.codec.versions import agreed
from deathless.codec.wire import Hello, Type, decode_struct


class Port(enum.StrEnum):
    """Where somebody asks."""

    CLIENT = "client"
    REPLICATION = "replication"
    CONTROL = "control"
    HTTP = "http"
    HEALTH = "health"


class Caller(enum.StrEnum):
    """What somebody is to the service that is asked."""

    OWN_REPLICA = "own replica"
    OWN_CLIENT = "own client"
    OWN_OPERATOR = "own operator"
    NAMED_REPLICA = "named service's replica"
    NAMED_CLIENT = "named service's client"
    NEIGHBOUR = "replica of a service of the same namespace"  # nothing is named
    STRANGER = "another service"


_EVERY_OWN: Final = frozenset({Caller.OWN_REPLICA, Caller.OWN_CLIENT, Caller.OWN_OPERATOR})
_CALLERS: Final = _EVERY_OWN | {Caller.NAMED_REPLICA, Caller.NAMED_CLIENT}
_OPERATORS: Final = frozenset({Caller.OWN_REPLICA, Caller.OWN_OPERATOR})
_REPLICAS: Final = frozenset({Caller.OWN_REPLICA})
ALLOWED: Final[dict[tuple[Port, str], frozenset[Caller]]] = {
    (Port.CLIENT, "client"): _CALLERS,
    (Port.CLIENT, "peer"): _REPLICAS | {Caller.NAMED_REPLICA, Caller.NEIGHBOUR},
    (Port.CLIENT, "tool"): _OPERATORS,
    (Port.CLIENT, "source"): _REPLICAS,
    (Port.REPLICATION, "follower"): _REPLICAS,
    (Port.CONTROL, "supervisor"): _REPLICAS,
    (Port.CONTROL, "tool"): _OPERATORS,
    (Port.HTTP, "call"): _CALLERS,
    (Port.HTTP, "operate"): _OPERATORS,
    (Port.HEALTH, "probe"): frozenset(Caller),
}
ASKED: Final[dict[str, frozenset[Type]]] = {
    "client": frozenset({Type.PING, Type.REGISTER, Type.BATCH, Type.QUERIES, Type.ATTACH}),
    "peer": frozenset({Type.PING, Type.REGISTER, Type.BATCH, Type.QUERIES, Type.ATTACH, Type.PEER_HELLO}),
    "tool": frozenset({Type.PING, Type.ADMIN}),
    "source": frozenset({Type.PING, Type.STREAM_HELLO, Type.STREAM_BATCH}),
    "follower": frozenset({Type.PING, Type.FOLLOW, Type.APPLIED, Type.CHECKPOINT}),
    "supervisor": frozenset({Type.PING, Type.REPORT}),
}
"""What each kind may send behind its HELLO: a client that was let in as one gives no orders and follows nobody."""
_OWN: Final = {"replica": Caller.OWN_REPLICA, "client": Caller.OWN_CLIENT, "operator": Caller.OWN_OPERATOR}
_ANONYMOUS: Final = frozenset({(Port.CLIENT, "client"), (Port.HTTP, "call"), (Port.HEALTH, "probe")})
"""What may be done without a certificate where the manifest asks callers for none."""


def relation(own: Identity, shown: Identity, named: Sequence[AllowedService]) -> Caller:
    """Say what the holder of a certificate is to a service.

    Args:
        own: the service's.
        shown: the holder's.
        named: services that the spec allows.
    """
    if shown.is_of_service(own):
        return _OWN[shown.role]
    if shown.trust_domain != own.trust_domain:
        return Caller.STRANGER
    if any(each.namespace == shown.namespace and each.name in ("", shown.service) for each in named):
        return {"replica": Caller.NAMED_REPLICA, "client": Caller.NAMED_CLIENT}.get(shown.role, Caller.STRANGER)
    if not named and shown.namespace == own.namespace and shown.role == "replica":
        return Caller.NEIGHBOUR
    return Caller.STRANGER


def refusal(
    own: Identity | None,
    shown: Identity | None,
    port: Port,
    kind: str,
    *,
    named: Sequence[AllowedService] = (),
    certified: bool = True,
) -> Invalid | None:
    """Say why somebody may not do this here; None: it may.

    Args:
        own: whom the port's own certificate names; None: nobody, then signatures alone decide.
        shown: whom the certificate that was shown names; None: none was shown, or it names nobody.
        port: where.
        kind: what: as HELLO says it, or `call`, `operate` and `probe`.
        named: services that the spec allows besides.
        certified: callers must show a certificate here.
    """
    if own is None:
        return None
    allowed = ALLOWED.get((port, kind), frozenset())
    if shown is None:
        if allowed == frozenset(Caller) or (not certified and (port, kind) in _ANONYMOUS):
            return None
        return Unauthorized(
            f"the {port} port of {own.namespace}/{own.service} asks who calls, and no certificate with a name came",
            remedy=f"show the certificate of Secret {own.service}-client-tls; one made before certificates carried "
            "names must be read anew",
        )
    if relation(own, shown, named) in allowed:
        return None
    return Forbidden(
        f"the certificate's name {shown} may not connect as {kind!r} to the {port} port of "
        f"{own.namespace}/{own.service}",
        remedy=_remedy(own, shown, kind),
    )


def authorise(kind: int, body: bytes, *, service: str, token: str) -> Hello:
    """Take a connection's first packet.

    Raises: Unauthorized, NoCommonVersion, UnknownService; the caller answers REFUSED and closes.
    """
    if kind != Type.HELLO:
        raise Unauthorized("the first packet must be HELLO")
    hello = decode_struct(Hello, body)
    agreed(hello)
    if token and not hmac.compare_digest(hello.token.encode(), token.encode()):
        raise Unauthorized("token is missing or wrong")
    if hello.service and hello.service != service:
        raise UnknownService(f"this is service {service!r}, not {hello.service!r}")
    return hello


def check_types(kind: str, types: Iterable[int]) -> None:
    """Look whether packets may come behind a HELLO of this kind. Raises: Forbidden."""
    asked = ASKED.get(kind, frozenset())
    wrong = next((each for each in types if each not in asked), None)
    if wrong is not None:
        name = Type(wrong).name if wrong in set(Type) else str(wrong)
        raise Forbidden(
            f"a connection that said HELLO as {kind!r} may not send {name}", remedy="say HELLO as what it is"
        )


def _remedy(own: Identity, shown: Identity, kind: str) -> str:
    if shown.is_of_service(own):
        return "orders and status ask for a replica's or an operator's certificate: use kubectl deathless"
    if kind in ("client", "call", "peer"):
        return (
            f"use a certificate of {own.service}, or name {{namespace: {shown.namespace}, name: {shown.service}}} in "
            f"spec.ingress.allowServices of {own.service}"
        )
    return f"use a certificate of {own.namespace}/{own.service}"

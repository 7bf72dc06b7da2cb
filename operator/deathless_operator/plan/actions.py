"""What a plan asks to have done: plain data, carried out in order by the cluster layer.

    order     as in `Plan.actions`
    needs     an action that the API server refuses, or that waits for one that was refused, holds back those that
              name its target in `needs`, and no others: everything else goes on
    repeats   each action may be carried out twice: applying is idempotent, deleting names a uid

Guarantees: an action says why, in words for an event or a log line. Does not: talk to anything. Imports model only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from deathless_operator.model.values import JsonObject, text


class Target(NamedTuple):
    """The object that an action is about."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Apply:
    """Apply a whole manifest server-side: field manager `deathless-operator`, conflicts forced."""

    manifest: JsonObject  # with apiVersion, kind, metadata.name and metadata.namespace
    why: str
    needs: frozenset[Target] = frozenset()  # not while one of these is refused


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletePod:
    """Delete a pod. Done as well where it is gone or has another uid."""

    name: str
    uid: str  # precondition: never the successor of the pod that was meant
    grace_s: int | None  # None: the pod's own
    force: bool  # grace 0, for a node that will not answer; safe by fencing and instances
    why: str
    namespace: str = ""  # empty: the resource's own
    needs: frozenset[Target] = frozenset()  # not while one of these is refused


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteObject:
    """Delete another object, dependants in the background. Done as well where it is gone or has another uid."""

    api_version: str
    kind: str
    name: str
    uid: str
    why: str
    namespace: str = ""  # empty: the resource's own
    needs: frozenset[Target] = frozenset()  # not while one of these is refused


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchMetadata:
    """Merge-patch the metadata of an object with this uid; None takes a key away. Gone is done."""

    api_version: str
    kind: str
    name: str
    uid: str
    why: str
    labels: dict[str, str | None] | None = None
    annotations: dict[str, str | None] | None = None
    finalizers: tuple[str, ...] | None = None  # the whole list
    owner_references: tuple[JsonObject, ...] | None = None  # the whole list


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueCertificate:
    """Have the installation's authority sign a new certificate, and apply it with key and authority as a Secret.

    Keys of the Secret: `ca.crt` (every authority that is trusted now), `tls.crt`, `tls.key`; type kubernetes.io/tls.
    """

    manifest: JsonObject  # the Secret without data
    purpose: Literal["replicas", "clients"]  # server and client use, or client use alone
    common_name: str
    dns_names: tuple[str, ...]
    uris: tuple[str, ...]  # whom it names: see deathless.base.identities
    life_s: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustAuthorities:
    """Write every authority that is trusted now into `ca.crt` of a certificate's Secret; certificate and key stay."""

    secret: str  # name
    uid: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CopySecret:
    """Apply a Secret whose data are those of one in the operator's namespace."""

    source: str  # name, in the operator's own namespace
    manifest: JsonObject  # the copy without data; annotation SOURCE_ANNOTATION holds the digest of the source
    why: str
    user: str = ""  # the source is the table of the lock store's users: name and password of this one alone


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeToken:
    """Make a Secret with a token that nobody knows yet, key `token`. One of its name that is there stays as it is."""

    manifest: JsonObject  # the Secret without data
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Tell an event about the resource."""

    type: Literal["Normal", "Warning"]
    reason: str  # CamelCase
    message: str


Action: TypeAlias = (
    Apply | DeletePod | DeleteObject | PatchMetadata | IssueCertificate | TrustAuthorities | CopySecret | MakeToken
)


def target(action: Action) -> Target:
    """Give the object that an action is about."""
    match action:
        case Apply() | IssueCertificate() | CopySecret() | MakeToken():
            return Target(text(action.manifest, "kind"), text(action.manifest, "metadata", "name"))
        case TrustAuthorities():
            return Target("Secret", action.secret)
        case DeletePod():
            return Target("Pod", action.name)
        case DeleteObject() | PatchMetadata():
            return Target(action.kind, action.name)


def lacking(action: Action, undone: Iterable[Target]) -> frozenset[Target]:
    """Give what an action needs of what was not done; empty: it goes on.

    Args:
        action: the next one.
        undone: targets of the actions before it that were refused or held back.
    """
    needs = action.needs if isinstance(action, Apply | DeletePod | DeleteObject) else frozenset()
    return needs.intersection(undone)

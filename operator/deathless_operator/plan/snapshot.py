"""One service as the API server shows it at one moment; all that a plan may know.

Why: a planner that reads nothing else is a function, so its every case is a line in a table, and an operator that is
restarted anywhere finds everything again.

Guarantees: frozen; times are wall seconds (Unix). Does not: read the API server; `plan.reading` makes the views from
raw objects. Imports model and base only.

    Snapshot
    |- resource      the DeathlessService, its spec read or its problems told
    |- children      every object with our label or name, by (kind, name): raw, for comparison and adoption
    |- pods          pods of the set and check pods, with what replicas announced
    |- nodes         the nodes those pods are on
    |- live_upgrades what is asked for beside the spec
    |- claim, certificates, lock secrets, warnings, failures
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import msgspec

from deathless.base.manifest import ServiceSpec
from deathless.base.shards import SHARDS_MAX
from deathless_operator.model import names
from deathless_operator.model.drill import DrillResource
from deathless_operator.model.live_upgrade import LiveUpgradeResource
from deathless_operator.model.rehearsal import RehearsalResource
from deathless_operator.model.status import ServiceStatus
from deathless_operator.model.values import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceView:
    """A DeathlessService."""

    namespace: str
    name: str
    uid: str
    generation: int
    spec: ServiceSpec | None  # None: it has problems
    problems: tuple[str, ...] = ()  # each with place and remedy
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    finalizers: tuple[str, ...] = ()
    deleted_at: float | None = None  # deletion timestamp
    status: ServiceStatus = field(default_factory=ServiceStatus)  # as last written; the default where there is none
    created_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildView:
    """An object that bears a name or the label of the service's objects."""

    api_version: str
    kind: str
    name: str
    uid: str
    raw: JsonObject
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    owner_uids: tuple[str, ...] = ()  # all ownerReferences
    controller_uid: str = ""  # the one that controls it
    deleted_at: float | None = None


class Announcement(msgspec.Struct, frozen=True, kw_only=True):
    """What a replica says of itself in `deathless.dev/status`; unknown fields are passed over."""

    replica: str = ""
    instance: str = ""
    role: str = ""
    epoch: int = 0
    full: bool = False  # it leads, and its log has no room: calls are refused
    outbox_full: bool = False  # it leads, and its outbox has no room: likewise
    outside_held: bool = False  # it leads, and what it sends to the outside waits for an operator
    clock: str = ""  # it leads, and its wall clock is "ahead" of logical time, or "behind"
    condition: str = ""  # code of the error that keeps it stopped
    problem: str = ""  # code of the error that it is started again after
    text: str = ""  # that error: `DLnnnn text (remedy)`
    fingerprint: str = ""
    service_id: str = ""
    incarnation: int = 0
    since: float = 0.0
    waits_for: int = 0  # it leads, and lets so many activities end before it hands over
    waits_until: int = 0  # when it hands over all the same, seconds
    settings: str = ""  # hash of the replica.json that it was started with; empty: an image that does not tell it
    program: str = ""  # serving, loading, ended or failing; empty: its code is a module, or it does not tell
    program_text: str = ""  # why its program ended last, while that does not serve: `DLnnnn text (remedy)`
    program_differs: str = ""  # the last message that its program sent otherwise when it was run again
    program_skips: int = 0  # rows of which an operator has the program skip something


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerView:
    """One container of a pod: its state now, and how it ended last."""

    name: str
    image: str = ""
    running: bool = False
    waiting_reason: str = ""  # ImagePullBackOff, CrashLoopBackOff, CreateContainerConfigError, ...
    waiting_message: str = ""
    exit_code: int | None = None  # of the last end, None: never ended
    message: str = ""  # termination message of the last end
    reason: str = ""  # Error, OOMKilled, Completed
    finished_at: float | None = None
    terminated: bool = False  # ended and not started again (yet)
    restarts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PodView:
    """A pod."""

    name: str
    uid: str
    node: str = ""  # empty: not placed yet
    phase: str = "Pending"
    ready: bool = False
    ready_since: float = 0.0  # when `ready` changed last
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    announced: Announcement | None = None  # None: no announcement, or none that can be read
    containers: tuple[ContainerView, ...] = ()
    created_at: float = 0.0
    deleted_at: float | None = None  # deletion timestamp: when its grace ends, not when it was asked for
    controller_uid: str = ""
    unschedulable: str = ""  # message of PodScheduled=False
    phase_reason: str = ""  # status.reason: Evicted, NodeLost, UnexpectedAdmissionError
    phase_message: str = ""
    mounts: frozenset[tuple[str, str]] = frozenset()  # ConfigMaps and Secrets of its volumes: kind and name


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """A node that has one of the pods."""

    name: str
    ready: bool = True
    unready_since: float | None = None  # lastTransitionTime of Ready when it is not True
    unreachable: bool = False  # Ready is Unknown, or tainted node.kubernetes.io/unreachable or out-of-service
    cordoned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimView:
    """The PersistentVolumeClaim that holds the log."""

    name: str
    uid: str
    phase: str = "Pending"  # Pending | Bound | Lost
    access_modes: tuple[str, ...] = ()
    capacity: str = ""
    storage_class: str = ""
    deleted_at: float | None = None
    owner_uids: tuple[str, ...] = ()
    created_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFacts:
    """What a Secret's certificate says; keys stay where they are."""

    secret: str  # name
    uid: str = ""
    not_before: float = 0.0
    not_after: float = 0.0
    dns_names: tuple[str, ...] = ()
    uris: tuple[str, ...] = ()  # whom it names
    signed_by: str = ""  # key id of the authority that signed it, hex; empty: unreadable
    trusts: tuple[str, ...] = ()  # key ids of the authorities in its ca.crt
    readable: bool = True  # False: a key is missing, or no certificate can be read from it
    managed: bool = True  # our label stands on it


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuerFacts:
    """The issuer of cert-manager that the spec names, as far as it can be seen."""

    found: bool = True  # False: it was looked for, and there is none
    ready: bool = True  # its condition Ready; True where it may not be read
    message: str = ""  # of that condition


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorityFacts:
    """The installation's authority: which key signs now, and which are trusted."""

    ready: bool = False  # False: there is none yet, the operator's start makes it
    signs: str = ""  # key id of the one that signs
    trusts: tuple[str, ...] = ()  # key ids of all that are trusted now
    signs_from: float = 0.0  # wall seconds: until then everybody may not trust yet what it signs


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretFacts:
    """A Secret that pods mount."""

    name: str
    uid: str = ""
    keys: tuple[str, ...] = ()
    digest: str = ""  # of its data: changes when they do
    source: str = ""  # its SOURCE_ANNOTATION
    managed: bool = False  # our label stands on it
    hidden: bool = False  # it is there and somebody else's, and nothing of it may be looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned:
    """A Warning event of Kubernetes about one of the objects."""

    kind: str
    name: str
    reason: str  # FailedCreate, FailedMount, ProvisioningFailed, ...
    message: str
    at: float  # when it was seen last


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An action of the last run that the API server refused; kept in memory until it succeeds."""

    kind: str
    name: str
    status: int  # HTTP
    reason: str  # Forbidden, Invalid, Conflict, ...
    message: str
    holds: tuple[str, ...] = ()  # what waits for it: kind and name of each


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What Prometheus said of one expression."""

    value: float | None = None  # None: it can't be told
    problem: str = ""  # why not


@dataclass(frozen=True, slots=True, kw_only=True)
class Remains:
    """What is left of a service that is gone, and has a record of keys to erase (`plan.erasure`)."""

    now: float  # wall seconds
    record: ChildView  # the ConfigMap
    stateful_sets: tuple[ChildView, ...] = ()  # of its name and shards, whoever owns them
    pods: tuple[PodView, ...] = ()  # replicas of its name
    claim: ClaimView | None = None  # of the name in the record
    eraser: PodView | None = None  # the pod that erases


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything known about one service at one moment."""

    now: float  # wall seconds
    resource: ResourceView
    shard: int = 0  # the one that questions about replicas are about; see `parts`
    children: tuple[ChildView, ...] = ()
    pods: tuple[PodView, ...] = ()  # of the set and for checks; by label deathless.dev/service
    nodes: tuple[NodeView, ...] = ()
    live_upgrades: tuple[LiveUpgradeResource, ...] = ()  # of this service, the oldest first
    drills: tuple[DrillResource, ...] = ()  # those that a ramp of these names
    rehearsals: tuple[RehearsalResource, ...] = ()  # those that one of these names
    measured: Mapping[str, Measured] = field(default_factory=dict)  # by expressions that a ramp waits for
    claim: ClaimView | None = None  # None: there is none of the name that the spec gives or implies
    certificates: tuple[CertificateFacts, ...] = ()  # of the replicas' and the clients' Secret, those that exist
    authority: AuthorityFacts = field(default_factory=AuthorityFacts)
    lock_secrets: tuple[SecretFacts, ...] = ()  # in the service's namespace: named by the spec, or our copies; token
    lock_sources: tuple[SecretFacts, ...] = ()  # in the operator's namespace: what the settings name; its user's login
    lock_users_withdrawn: bool = False  # users of the lock store are to be mounted no more
    cert_manager: bool = False  # whether its resources are served
    issuer: IssuerFacts = field(default_factory=IssuerFacts)  # of cert-manager, where the spec names one
    record: ChildView | None = None  # of the keys that go with the service
    remains: Remains | None = None  # of a former service of this name, while its keys are not erased yet
    warnings: tuple[Warned, ...] = ()  # of the last ten minutes
    failures: tuple[Failure, ...] = ()
    hidden: tuple[Failure, ...] = ()  # single objects that may not be looked at: none of these is written
    unread: tuple[Failure, ...] = ()  # kinds that may not be read: nothing of them is known, so none is written

    @property
    def shards(self) -> int:
        """How many shards the service has; as its pods say where the spec can't be read."""
        spec = self.resource.spec
        if spec is not None:
            return spec.shards
        told = (pod.labels.get(names.LABEL_SHARD, "") for pod in self.pods)
        return 1 + max((int(shard) for shard in told if shard.isdecimal() and int(shard) < SHARDS_MAX), default=0)

    @property
    def set_name(self) -> str:
        """Name of the shard's StatefulSet."""
        return names.of_shard(self.resource.name, self.shard)

    def parts(self) -> tuple[Snapshot, ...]:
        """Give the same once for each shard."""
        return tuple(replace(self, shard=shard) for shard in range(self.shards))

    def stateful_set(self) -> ChildView | None:
        """Give the shard's StatefulSet."""
        return self.child("StatefulSet", self.set_name)

    def child(self, kind: str, name: str) -> ChildView | None:
        """Give the object of that kind and name."""
        return next((found for found in self.children if (found.kind, found.name) == (kind, name)), None)

    def node(self, name: str) -> NodeView | None:
        """Give the node of that name; None where it is gone (or the pod has none)."""
        return next((found for found in self.nodes if found.name == name), None)

    def certificate(self, secret: str) -> CertificateFacts | None:
        """Give what the Secret's certificate says."""
        return next((found for found in self.certificates if found.secret == secret), None)

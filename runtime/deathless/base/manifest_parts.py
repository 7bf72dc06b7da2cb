"""The parts of a manifest: the structs below `spec`.

Why apart: `manifest` says what a service is and what becomes of it; here stand the fields, each with the sentence that
`kubectl explain` and the documents show. The CRD is generated from these structs, so a field has one meaning on a
laptop and in a cluster, or says where it has none.

Guarantees: `spec.lock` has the settings of each lock store there is. Does not: check relations between fields
(`manifest.relation_problems`, and rules of the CRD). Imports driver_kinds, lock_stores and manifest_fields, and for the
numbers in its sentences shards, limits and volume.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from deathless.base.driver_kinds import DRIVER_KINDS
from deathless.base.limits import Limits
from deathless.base.lock_stores import LOCK_STORES, settings_classes, with_fields
from deathless.base.lock_stores.etcd_settings import EtcdSpec
from deathless.base.lock_stores.settings import LockSettings
from deathless.base.manifest_fields import (
    Address,
    AsIs,
    Count,
    FilePath,
    KindName,
    Name,
    NonEmpty,
    ObjectName,
    Part,
    Quantity,
    Seconds,
    SecretRef,
    Text,
    TlsFiles,
    told,
)
from deathless.base.shards import SHARDS_MAX
from deathless.base.volume import show_bytes

REPLICAS_MAX: Final = 7
PEERS_MAX: Final = 64  # services that are not beside this one
WORKERS_MAX: Final = 64
DRIVERS_MAX: Final = 16  # each is a process beside each replica
LEAST_VOLUME: Final = show_bytes(Limits().least_volume_bytes(3))


class LogStorage(Part, frozen=True):
    """Where the log lives: a folder that all replicas share."""

    path: Annotated[
        FilePath,
        told(
            "On a laptop: the log's folder, relative to the manifest; .deathless/<name> beside it when empty. "
            "No effect in a cluster."
        ),
    ] = ""
    claim_name: Annotated[
        Annotated[str, Meta(pattern=r"^$|^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)],
        told("An existing PersistentVolumeClaim with access mode ReadWriteMany, instead of size. It is never deleted."),
    ] = ""
    class_name: Annotated[
        Text, told("Storage class of the claim that the operator creates; if empty, the cluster's default.")
    ] = ""
    size: Annotated[
        Annotated[str, Meta(pattern=r"^$|^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$", max_length=32)],
        told(
            "Size of the claim that the operator makes, for example 10Gi. It may grow. Instead of claimName. The least "
            f"for three replicas is {LEAST_VOLUME} and three checkpoints of the state, with the limits as delivered; "
            "see docs/kubernetes/storage.md."
        ),
    ] = ""
    sub_path: Annotated[
        Annotated[str, Meta(pattern=r"^$|^[^/.][^/]*(/[^/.][^/]*)*$", max_length=512)],
        told("Folder of the volume for this service's log; if empty, the volume itself."),
    ] = ""
    deletion_policy: Annotated[
        Literal["Retain", "Delete"],
        told(
            "What becomes of a claim that the operator made when the service is deleted, and with the log of the "
            "service's keys in the lock store. The default keeps both."
        ),
    ] = "Retain"
    allow_any_file_system: Annotated[
        bool, told("Run the seal fence on file systems that are not on the allow-list. Laptops and tests only.")
    ] = False


if TYPE_CHECKING:
    LockName: TypeAlias = str
else:
    LockName = Literal[tuple(LOCK_STORES)]


class LockSpec(Part, frozen=True):
    """What elects the primary."""

    type: Annotated[
        LockName | None,
        told("When absent: etcd in a cluster, directory on a laptop. A cluster accepts etcd alone."),
    ] = None
    if TYPE_CHECKING:  # what our own sources and tests read by name of the fields that lock stores have
        etcd: EtcdSpec | None = None

    def given(self) -> dict[str, LockSettings]:
        """Give the settings that there are, by the name of the lock store."""
        found = {name: getattr(self, name) for name, store in LOCK_STORES.items() if store.settings}
        return {name: settings for name, settings in found.items() if settings is not None}


if not TYPE_CHECKING:
    LockSpec = with_fields(
        LockSpec,
        {
            name: Annotated[kind | None, told(LOCK_STORES[name].explanation)]
            for name, kind in settings_classes().items()
        },
    )


class Retention(Part, frozen=True):
    """When checkpoints are taken and how many are kept; the log below the oldest one is collected."""

    checkpoints_kept: Annotated[
        Annotated[int, Meta(ge=2)] | None, told("Number of checkpoints to keep; if absent, 2.")
    ] = None
    checkpoint_every_messages: Annotated[Count | None, told("A checkpoint is due after this number of messages.")] = (
        None
    )
    checkpoint_every_bytes: Annotated[Count | None, told("A checkpoint is due after this number of bytes of log.")] = (
        None
    )


class Peer(Part, frozen=True):
    """Who may call, as a NetworkPolicy says it: selectors together, or an address range alone."""

    namespace_selector: Annotated[AsIs | None, told("Namespaces by label; if absent, this one.")] = None
    pod_selector: Annotated[AsIs | None, told("Pods by label; if absent, all.")] = None
    ip_block: Annotated[AsIs | None, told("Addresses: cidr, except.")] = None


class NetworkPolicySpec(Part, frozen=True):
    """Whom replicas may talk to. Run locally without effect."""

    type: Annotated[
        Literal["Managed", "Off"], told("Managed: the operator makes a NetworkPolicy for the pods. Off: none.")
    ] = "Managed"
    egress: Annotated[
        Literal["Restricted", "Open"],
        told(
            "Restricted: pods reach each other, the lock store, DNS and the API server, and what allowTo names. "
            "Open: everything, for activities that call out."
        ),
    ] = "Restricted"
    allow_to: Annotated[
        tuple[Peer, ...], Meta(max_length=32), told("What activities may additionally reach, with egress Restricted.")
    ] = ()


class IssuerRef(Part, frozen=True):
    """An issuer of cert-manager."""

    name: Annotated[ObjectName, told("Name of the issuer.")]
    kind: Annotated[KindName, told("Its kind: Issuer, ClusterIssuer, or one of `group`.")] = "Issuer"
    group: Annotated[Text, told("Its API group; differs from the default for an issuer outside cert-manager.")] = (
        "cert-manager.io"
    )


class TlsSpec(Part, frozen=True):
    """How replicas and clients know each other. On a laptop by files, in a cluster by an issuer, on by default."""

    issuer: Annotated[
        Literal["Operator", "CertManager", "Off"],
        told("Who signs certificates in a cluster: the operator's own authority, cert-manager, or no TLS at all."),
    ] = "Operator"
    issuer_ref: Annotated[IssuerRef | None, told("The issuer to ask, with issuer CertManager.")] = None
    require_client_certificate: Annotated[
        bool | None,
        told("Whether callers must present a certificate of the same authority. When absent: yes in a cluster."),
    ] = None
    ca: Annotated[FilePath, told("File with the trusted authorities, on a laptop.")] = ""
    certificate: Annotated[FilePath, told("File with the certificate, on a laptop.")] = ""
    key: Annotated[FilePath, told("File with its key, on a laptop.")] = ""
    server_name: Annotated[Text, told("Name in the certificates of replicas, on a laptop.")] = ""


class PeerService(Part, frozen=True):
    """Another service that this one sends to, where its log is not beside this one's or it has several shards."""

    name: Annotated[Name, told("Name of the service.")]
    path: Annotated[
        FilePath, told("Folder of its log, relative to the manifest, on a laptop. No effect in a cluster.")
    ] = ""
    addresses: Annotated[
        tuple[Address, ...],
        Meta(max_length=SHARDS_MAX),
        told(
            "Client ports of some of its replicas, of each of its shards, host:port, instead of path. In a cluster and "
            "with shards above 1: that service in this namespace, when empty."
        ),
    ] = ()
    token_file: Annotated[
        FilePath, told("File with the token that it requires, on a laptop; if empty, this service's own.")
    ] = ""
    server_name: Annotated[Text, told("Name in its certificates; if empty, as in this service's own.")] = ""
    shards: Annotated[
        int,
        Meta(ge=1, le=SHARDS_MAX),
        told("Its number of shards, as in its own manifest. Fixed, as there."),
    ] = 1


class Activities(Part, frozen=True):
    """Who runs activities: the work beside the primary that may do what no handler may."""

    workers: Annotated[
        int, Meta(ge=1, le=WORKERS_MAX), told("Processes beside the primary, each with one activity at a time.")
    ] = 2


class Tracing(Part, frozen=True):
    """Traces of what the service does, for a collector that speaks OTLP over HTTP."""

    endpoint: Annotated[
        Annotated[str, Meta(pattern=r"^$|^https?://[^\s,]+$", max_length=512)],
        told(
            "Base URL of the collector, http://host:4318 for instance; /v1/traces follows. When empty: as the "
            "environment's OTEL_EXPORTER_OTLP_ENDPOINT says."
        ),
    ] = ""
    sample_ratio: Annotated[
        float,
        Meta(ge=0, le=1),
        told("Fraction of requests without a caller's trace that start one. A caller's own decision is kept."),
    ] = 1.0


NAMED_KINDS: Final = [name for name, kind in DRIVER_KINDS.items() if not kind.for_topics]
"""Kinds of drivers that a manifest may name."""


class Driver(Part, frozen=True):
    """An out-driver: what this service sends to its name reaches a database, a file or an HTTP address."""

    name: Annotated[Name, told("The name that handlers send to. Drivers and services share one namespace.")]
    kind: Annotated[
        Annotated[
            str,
            Meta(
                pattern=rf"^({'|'.join(NAMED_KINDS)}|[^:]+:[A-Za-z_][A-Za-z0-9_]*)$",
                max_length=1024,
                description=f"{', '.join(NAMED_KINDS)}, or package.module:factory or path/to/file.py:factory",
            ),
        ],
        told(f"What it writes to: {', '.join(NAMED_KINDS)}, or a factory of sinks of your own."),
    ]
    on_refusal: Annotated[
        Literal["stop", "skip"],
        told(
            "What becomes of a message that is refused for good and that nobody waits for. stop: the driver stays at "
            "it and tries again. skip: it is given up, and listed for operators."
        ),
    ] = "stop"
    attempts_max: Annotated[
        int,
        Meta(ge=0, le=1_000_000),
        told(
            "Attempts at one message by a driver that delivers each message by itself "
            f"({', '.join(name for name, kind in DRIVER_KINDS.items() if kind.by_message)}), before it is given up "
            "and listed for operators. 0: no limit."
        ),
    ] = 0
    age_max_s: Annotated[
        int,
        Meta(ge=0, le=31_536_000),
        told(
            "Seconds after which such a driver gives a message up that it can't deliver, and which is then listed for "
            "operators. 0: no limit."
        ),
    ] = 86_400
    batch_messages: Annotated[
        int, Meta(ge=1, le=10_000), told("Maximum number of messages that are delivered together.")
    ] = 256
    options: Annotated[AsIs, told("Options of the kind; docs/drivers.md lists them. Secrets come from files.")] = (
        msgspec.field(default_factory=dict)
    )
    secret_ref: Annotated[
        SecretRef | None,
        told(
            "Secret whose keys are the files that options name by relative paths, in a cluster. No effect on a laptop."
        ),
    ] = None


class SecretKeyRef(Part, frozen=True):
    """One key of a Secret in the service's namespace."""

    name: Annotated[ObjectName, told("Name of the Secret.")]
    key: Annotated[NonEmpty, told("Key in it.")] = "token"


class UpdateStrategy(Part, frozen=True):
    """How a cluster rolls a change out."""

    type: Annotated[
        Literal["RollingUpdate", "OnDelete"],
        told(
            "RollingUpdate: the operator replaces pods one by one, the primary last. OnDelete: whoever deletes a pod "
            "gets a new one."
        ),
    ] = "RollingUpdate"


class Resources(Part, frozen=True):
    """What a replica's container asks for and may use."""

    requests: Annotated[
        Annotated[dict[str, int | Quantity], Meta(max_length=16)], told("Requested resources: cpu, memory, ...")
    ] = msgspec.field(default_factory=dict)
    limits: Annotated[Annotated[dict[str, int | Quantity], Meta(max_length=16)], told("Maximum resources.")] = (
        msgspec.field(default_factory=dict)
    )


class LimitsSpec(Part, frozen=True):
    """The maximums of `base.limits`, by the same names and with the same meanings; None: the default."""

    message_bytes_max: Annotated[Count | None, told("One message with key, arguments and header.")] = None
    entity_bytes_max: Annotated[Count | None, told("Encoded state of one key, without the items of its maps.")] = None
    item_bytes_max: Annotated[Count | None, told("One encoded item of a map.")] = None
    reply_bytes_max: Annotated[Count | None, told("One encoded reply.")] = None
    key_bytes_max: Annotated[Count | None, told("One key, UTF-8.")] = None
    frame_messages_max: Annotated[Count | None, told("Messages in one frame.")] = None
    frame_bytes_max: Annotated[Count | None, told("Message bytes in one frame.")] = None
    segment_bytes_max: Annotated[Count | None, told("A segment rolls when it would pass this.")] = None
    allocate_bytes: Annotated[Count | None, told("Space is reserved in steps of this.")] = None
    spare_bytes: Annotated[Count | None, told("Spare segment kept by every replica.")] = None
    pending_messages_max: Annotated[Count | None, told("Admitted, not yet in a frame.")] = None
    pending_bytes_max: Annotated[Count | None, told("The same, bytes.")] = None
    pending_queries_max: Annotated[Count | None, told("Queries that wait for a proof.")] = None
    waiting_results_max: Annotated[Count | None, told("Connections that wait for results of invocations.")] = None
    connections_max: Annotated[Count | None, told("Per worker.")] = None
    session_window_max: Annotated[Count | None, told("Messages of one session without an acknowledged reply.")] = None
    session_reply_bytes_max: Annotated[Count | None, told("Unacknowledged replies of one session.")] = None
    sessions_max: Annotated[Count | None, told("Registered sessions; evicts the least recently used.")] = None
    session_idle_max_s: Annotated[Count | None, told("Time of service after which a silent session expires.")] = None
    idempotency_keys_max: Annotated[Count | None, told("Idempotency keys remembered; evicts the oldest.")] = None
    idempotency_bytes_max: Annotated[Count | None, told("Bytes of these keys and their replies.")] = None
    idempotency_window_s: Annotated[Count | None, told("Time of service for which a key is remembered.")] = None
    peers_max: Annotated[Count | None, told("Other services, by shard, that send to this one.")] = None
    targets_max: Annotated[Count | None, told("Other services that handlers send to.")] = None
    peer_window_bytes_max: Annotated[Count | None, told("Sent to one peer and not confirmed by it.")] = None
    outbox_bytes_max: Annotated[
        Count | None,
        told("Messages that peers have not confirmed; then no call is admitted. Disks may need twice that."),
    ] = None
    outbox_memory_bytes_max: Annotated[Count | None, told("Of these in memory; older ones are in files.")] = None
    invocations_max: Annotated[Count | None, told("Handlers that have started and not ended.")] = None
    key_queue_max: Annotated[Count | None, told("Messages that wait for the invocation that holds their key.")] = None
    waiting_messages_max: Annotated[Count | None, told("Messages that wait for held keys.")] = None
    suspended_bytes_max: Annotated[
        Count | None,
        told("Memory of suspended handlers and waiting messages; then nothing more is suspended."),
    ] = None
    journal_bytes_max: Annotated[Count | None, told("Recorded results of one handler.")] = None
    operations_max: Annotated[Count | None, told("Operations that one invocation starts.")] = None
    activities_max: Annotated[Count | None, told("Activities that run at the same time.")] = None
    results_max: Annotated[Count | None, told("Results kept for callers; evicts the oldest.")] = None
    results_bytes_max: Annotated[Count | None, told("Bytes of these results; evicts the oldest.")] = None
    results_kept_s: Annotated[Count | None, told("Time of service for which a result is kept.")] = None
    unknown_outcomes_max: Annotated[Count | None, told("Activities listed as of unknown outcome.")] = None
    unconfirmed_bytes_max: Annotated[
        Count | None, told("Synced frames that wait for a proof; never more than spareBytes less two frames.")
    ] = None
    stream_buffer_bytes_max: Annotated[Count | None, told("Confirmed frames kept for followers.")] = None
    follower_lag_messages_max: Annotated[Count | None, told("Calls are refused at this lag of the best standby.")] = (
        None
    )
    time_jump_max_s: Annotated[Count | None, told("How far a UUIDv7 key's time may be ahead.")] = None
    clock_step_us: Annotated[Count | None, told("A time record is written when time moved by this much.")] = None
    turn_max_s: Annotated[Seconds | None, told("A turn that takes longer ends the worker.")] = None
    log_call_max_s: Annotated[Seconds | None, told("A longer call to the log's storage causes a takeover.")] = None
    suspect_after_s: Annotated[Seconds | None, told("Silence of worker AND supervisor before a takeover.")] = None
    heartbeat_s: Annotated[Seconds | None, told("Between supervisors.")] = None
    idle_confirm_s: Annotated[Seconds | None, told("An idle primary writes its confirmed LSN after this time.")] = None
    witness_s: Annotated[
        Annotated[float, Meta(ge=0.2, le=60)] | None,
        told("Time between two writes of the confirmed position to the lock store."),
    ] = None
    handover_wait_s: Annotated[
        Annotated[float, Meta(ge=0, le=600)] | None,
        told("Maximum time that a planned handover waits for running at-most-once activities; 0: not at all."),
    ] = None
    checkpoint_every_messages: Annotated[Count | None, told("A checkpoint is due after this number of messages.")] = (
        None
    )
    checkpoint_every_bytes: Annotated[Count | None, told("Or after this number of bytes of log.")] = None
    checkpoints_kept: Annotated[Count | None, told("Checkpoints that are kept.")] = None
    reign_min_s: Annotated[Seconds | None, told("Initial minimum time between two takeovers of the lock; doubles.")] = (
        None
    )
    reign_max_s: Annotated[Seconds | None, told("Cap of the doubling.")] = None
    deaths_before_parking: Annotated[Count | None, told("Deaths in one message before it is parked.")] = None
    rebases_per_hour_max: Annotated[
        Count | None, told("Number of differences per hour after which the differing replica stays stopped.")
    ] = None


__all__ = [
    "DRIVERS_MAX",
    "LEAST_VOLUME",
    "PEERS_MAX",
    "REPLICAS_MAX",
    "WORKERS_MAX",
    "Activities",
    "Driver",
    "EtcdSpec",
    "IssuerRef",
    "LimitsSpec",
    "LockSpec",
    "LogStorage",
    "NetworkPolicySpec",
    "Peer",
    "PeerService",
    "Resources",
    "Retention",
    "SecretKeyRef",
    "SecretRef",
    "TlsFiles",
    "TlsSpec",
    "Tracing",
    "UpdateStrategy",
    "told",
]

"""The manifest of a service: kind DeathlessService, the same on a laptop and in a cluster.

    apiVersion: deathless.dev/v1alpha1
    kind: DeathlessService
    metadata: {name: bank}
    spec: {module: bank.py:bank, replicas: 3}

One schema for the local runner and for the Kubernetes resource, so a service that runs here runs there. What has a
meaning in a cluster alone is accepted and, run locally, named as having no effect (`ignored_locally`).

Guarantees: a manifest that converts and has no `relation_problems` gives replica configs. Does not: read files, look
whether paths exist (shell.manifest does both). Imports base only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from deathless.base.config import (
    ActivitiesConfig,
    DriverConfig,
    EtcdConfig,
    PeerConfig,
    ReplicaConfig,
    TlsConfig,
    TracingConfig,
)
from deathless.base.errors import InvalidConfig
from deathless.base.manifest_parts import (
    DRIVERS_MAX,
    PEERS_MAX,
    REPLICAS_MAX,
    Activities,
    Count,
    Driver,
    EtcdSpec,
    FilePath,
    Ingress,
    LockSpec,
    LogStorage,
    Module,
    Name,
    NetworkPolicySpec,
    NonEmpty,
    Part,
    PeerService,
    Resources,
    Retention,
    Seconds,
    SecretKeyRef,
    Text,
    Texts,
    TlsSpec,
    Tracing,
    UpdateStrategy,
    told,
)
from deathless.base.manifest_pod import PodTemplate
from deathless.base.schema_check import Problem
from deathless.base.shards import SHARDS_MAX, shard_directory

API_VERSION: Final = "deathless.dev/v1alpha1"
KIND: Final = "DeathlessService"
LOCAL_ENDPOINT: Final = "http://127.0.0.1:2379"
LOCAL_PREFIX: Final = "/deathless/"


class Metadata(Part, frozen=True):
    """Who the service is."""

    name: Name
    namespace: NonEmpty = "default"
    labels: Texts = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


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
    waiting_results_max: Annotated[Count | None, told("Who waits for results of invocations.")] = None
    connections_max: Annotated[Count | None, told("Per worker.")] = None
    session_window_max: Annotated[Count | None, told("Messages of one session without an acknowledged reply.")] = None
    session_reply_bytes_max: Annotated[
        Count | None, told("Replies of one session that are not acknowledged; then it admits nothing.")
    ] = None
    sessions_max: Annotated[Count | None, told("Registered sessions; the longest idle goes first.")] = None
    session_idle_max_s: Annotated[Count | None, told("Logical time without a message.")] = None
    idempotency_keys_max: Annotated[Count | None, told("Keys remembered; the oldest goes first.")] = None
    idempotency_bytes_max: Annotated[Count | None, told("Of keys remembered and their replies; likewise.")] = None
    idempotency_window_s: Annotated[Count | None, told("Logical time a key is remembered.")] = None
    peers_max: Annotated[Count | None, told("Other services, by shard, that send to this one.")] = None
    targets_max: Annotated[Count | None, told("Other services that handlers send to.")] = None
    peer_window_bytes_max: Annotated[Count | None, told("Sent to one peer and not confirmed by it.")] = None
    outbox_bytes_max: Annotated[
        Count | None,
        told("Messages that peers did not confirm; then no call is let in. A node's disk may need twice it."),
    ] = None
    outbox_memory_bytes_max: Annotated[Count | None, told("Of these in memory; older ones stand in files.")] = None
    invocations_max: Annotated[Count | None, told("Handlers that have begun and not ended.")] = None
    key_queue_max: Annotated[Count | None, told("Messages that wait for the invocation that holds their key.")] = None
    waiting_messages_max: Annotated[
        Count | None, told("Messages that wait for keys that are held; then forks of other services are held back.")
    ] = None
    suspended_bytes_max: Annotated[
        Count | None, told("All that suspended handlers and messages that wait keep; then nothing more is suspended.")
    ] = None
    journal_bytes_max: Annotated[Count | None, told("What one handler was given; then it is given errors.")] = None
    operations_max: Annotated[Count | None, told("Operations that one invocation asks for.")] = None
    activities_max: Annotated[Count | None, told("Activities that run at a time.")] = None
    results_max: Annotated[
        Count | None, told("Results of ended invocations that callers may still ask for; the oldest goes first.")
    ] = None
    results_bytes_max: Annotated[Count | None, told("Of these results; likewise.")] = None
    results_kept_s: Annotated[Count | None, told("Logical time a result is kept.")] = None
    unknown_outcomes_max: Annotated[Count | None, told("Activities listed as of unknown outcome.")] = None
    unconfirmed_bytes_max: Annotated[
        Count | None, told("Synced frames that wait for a proof; then no further one is written.")
    ] = None
    stream_buffer_bytes_max: Annotated[Count | None, told("Confirmed frames kept for followers.")] = None
    follower_lag_messages_max: Annotated[Count | None, told("Admission slows at this lag of the best standby.")] = None
    time_jump_max_s: Annotated[Count | None, told("One time record moves logical time forward by at most this.")] = None
    clock_step_us: Annotated[Count | None, told("A time record is written when time moved by this much.")] = None
    turn_max_s: Annotated[Seconds | None, told("A turn longer than this ends the worker.")] = None
    log_call_max_s: Annotated[Seconds | None, told("A longer call to the log's storage: another takes over.")] = None
    suspect_after_s: Annotated[Seconds | None, told("Silence of worker AND supervisor before a takeover.")] = None
    heartbeat_s: Annotated[Seconds | None, told("Between supervisors.")] = None
    idle_confirm_s: Annotated[Seconds | None, told("An idle primary writes its confirmed lsn after this.")] = None
    checkpoint_every_messages: Annotated[Count | None, told("A checkpoint is due after so many messages.")] = None
    checkpoint_every_bytes: Annotated[Count | None, told("Or after so many bytes of log.")] = None
    checkpoints_kept: Annotated[Count | None, told("Checkpoints that are kept.")] = None
    reign_min_s: Annotated[Seconds | None, told("First minimum between two steals; doubles.")] = None
    reign_max_s: Annotated[Seconds | None, told("Cap of the doubling.")] = None
    deaths_before_parking: Annotated[Count | None, told("Deaths in one message before it is parked.")] = None
    rebases_per_hour_max: Annotated[Count | None, told("Then the differing replica stays stopped.")] = None


class ServiceSpec(Part, frozen=True):
    """What to run."""

    module: Annotated[Module, told("The service: package.module:attribute of the image, or path/to/file.py:attribute.")]
    image: Annotated[
        Text, told("Image that holds the module and deathless. Needed in a cluster, without effect on a laptop.")
    ] = ""
    image_pull_policy: Annotated[
        Literal["", "Always", "IfNotPresent", "Never"],
        told("When the image is pulled; the operator's default when empty."),
    ] = ""
    replicas: Annotated[
        int,
        Meta(ge=1, le=REPLICAS_MAX),
        told("How many run: one leads, one takes checkpoints, the others stand by."),
    ] = 3
    shards: Annotated[
        int,
        Meta(ge=1, le=SHARDS_MAX),
        told(
            "Into how many logs keys are divided, each with replicas of its own. Fixed at creation.",
        ),
    ] = 1
    log_storage: Annotated[LogStorage, told("Where the log lives.")] = LogStorage()
    lock: Annotated[LockSpec, told("What elects the primary.")] = LockSpec()
    fence: Annotated[
        Literal["seal", "etcd"] | None,
        told("What proves that a primary is still the one before it releases; follows the lock when absent."),
    ] = None
    retention: Annotated[Retention, told("How much of the log is kept.")] = Retention()
    ingress: Annotated[
        Ingress | None, told("The HTTP interface. When absent: none on a laptop, port 8080 in a cluster.")
    ] = None
    peers: Annotated[
        tuple[PeerService, ...],
        Meta(max_length=PEERS_MAX),
        told("Where other services are that this one sends to; one shard beside this service needs no entry."),
    ] = ()
    activities: Annotated[Activities, told("Who runs activities.")] = Activities()
    drivers: Annotated[
        tuple[Driver, ...],
        Meta(max_length=DRIVERS_MAX),
        told("Processes beside each replica that bring what is sent to them to databases, files and HTTP addresses."),
    ] = ()
    tracing: Annotated[Tracing | None, told("Traces of what handlers and activities do. When absent: none.")] = None
    network_policy: Annotated[NetworkPolicySpec, told("Whom replicas may talk to, in a cluster.")] = NetworkPolicySpec()
    tls: Annotated[
        TlsSpec | None, told("Certificates. When absent: none on a laptop, the operator's in a cluster.")
    ] = None
    token_file: Annotated[FilePath, told("File with the token that callers must show, on a laptop.")] = ""
    operator_token_file: Annotated[
        FilePath,
        told("File with the token that operators show at the ingress, on a laptop; with it `token` opens calls alone."),
    ] = ""
    token_secret_ref: Annotated[
        SecretKeyRef | None, told("Secret with the token that callers must show, in a cluster.")
    ] = None
    update_strategy: Annotated[UpdateStrategy | None, told("How a cluster rolls a change out.")] = None
    promote_checkpointer: Annotated[
        Literal["WhenAlone", "Always"],
        told("When the replica that takes checkpoints may lead: if no other is there, or as any other."),
    ] = "WhenAlone"
    suspend: Annotated[
        bool, told("Stop every replica, the primary last; the log and all settings stay. No effect on a laptop.")
    ] = False
    replace_after_seconds: Annotated[
        int,
        Meta(ge=5, le=86400),
        told("How long a node must be unreachable before the replica on it is made anew on another one."),
    ] = 30
    resources: Annotated[Resources, told("What each replica asks for and may use, in a cluster.")] = Resources()
    log_level: Annotated[Literal["debug", "info", "warning", "error"], told("How much replicas tell.")] = "info"
    limits: Annotated[LimitsSpec, told("Maximums and periods of the runtime.")] = LimitsSpec()
    pod_template: Annotated[PodTemplate, told("What may be changed about the pods.")] = PodTemplate()


class Manifest(Part, frozen=True):
    """The whole document."""

    api_version: Literal["deathless.dev/v1alpha1"]
    kind: Literal["DeathlessService"]
    metadata: Metadata
    spec: ServiceSpec


def lock_of(spec: ServiceSpec) -> Literal["directory", "etcd"]:
    """Give what elects the primary on this machine: the type named, or the directory."""
    return spec.lock.type or "directory"


def fence_of(spec: ServiceSpec) -> str:
    """Give the fence: the one named, or the one that follows the lock (design section 5)."""
    return spec.fence or ("etcd" if lock_of(spec) == "etcd" else "seal")


def ignored_locally(manifest: Manifest) -> list[str]:
    """Give the fields that were set and mean nothing to processes on one machine."""
    spec = manifest.spec
    storage, tls, etcd, ingress = spec.log_storage, spec.tls or TlsSpec(), spec.lock.etcd or EtcdSpec(), spec.ingress
    found = {
        "metadata.namespace": manifest.metadata.namespace != "default",
        "spec.image": bool(spec.image),
        "spec.imagePullPolicy": bool(spec.image_pull_policy),
        "spec.logStorage.claimName": bool(storage.claim_name),
        "spec.logStorage.className": bool(storage.class_name),
        "spec.logStorage.size": bool(storage.size),
        "spec.logStorage.subPath": bool(storage.sub_path),
        "spec.logStorage.deletionPolicy": storage.deletion_policy != "Retain",
        "spec.lock.etcd": spec.lock.type is None and spec.lock.etcd is not None,
        "spec.lock.etcd.tlsSecretRef": etcd.tls_secret_ref is not None,
        "spec.lock.etcd.userSecretRef": etcd.user_secret_ref is not None,
        "spec.ingress.serviceType": ingress is not None and ingress.service_type != "ClusterIP",
        "spec.ingress.serviceAnnotations": ingress is not None and bool(ingress.service_annotations),
        "spec.ingress.allowFrom": ingress is not None and bool(ingress.allow_from),
        "spec.tls.issuer": tls.issuer != "Operator",
        "spec.tls.issuerRef": tls.issuer_ref is not None,
        "spec.tokenSecretRef": spec.token_secret_ref is not None,
        "spec.drivers[].secretRef": any(driver.secret_ref is not None for driver in spec.drivers),
        "spec.updateStrategy": spec.update_strategy is not None,
        "spec.suspend": spec.suspend,
        "spec.replaceAfterSeconds": spec.replace_after_seconds != ServiceSpec(module="x:x").replace_after_seconds,
        "spec.resources": spec.resources != Resources(),
        "spec.networkPolicy": spec.network_policy != NetworkPolicySpec(),
        "spec.podTemplate": spec.pod_template != PodTemplate(),
    }
    return [name for name, is_set in found.items() if is_set]


def limits_of(spec: ServiceSpec) -> dict[str, float]:
    """Give what the manifest changes in the limits, by the names of `Limits`."""
    changed: dict[str, float] = {}
    for part in (spec.limits, spec.retention):
        for name in part.__struct_fields__:
            value = getattr(part, name)
            if value is not None:
                changed[name] = value
    return changed


def relation_problems(manifest: Manifest) -> list[Problem]:
    """Find what each field alone can't show: fields that contradict each other."""
    spec = manifest.spec
    found: list[Problem] = []
    if lock_of(spec) == "directory" and fence_of(spec) != "seal":
        found.append(
            Problem(("spec", "fence"), spec.fence, "needs lock.type etcd", "leave it out: the fence follows the lock")
        )
    if spec.lock.type == "directory" and spec.lock.etcd is not None:
        found.append(
            Problem(("spec", "lock", "etcd"), None, "is given, but lock.type is directory", "write type: etcd")
        )
    for name in spec.retention.__struct_fields__:
        if getattr(spec.retention, name) is not None and getattr(spec.limits, name) is not None:
            shown = msgspec.structs.fields(Retention)[Retention.__struct_fields__.index(name)].encode_name
            found.append(
                Problem(
                    ("spec", "limits", shown),
                    getattr(spec.limits, name),
                    f"is also given as retention.{shown}",
                    "keep the one under retention",
                )
            )
    if spec.ingress is not None and 0 < spec.ingress.port > 65536 - spec.replicas * spec.shards:
        what = "replica k takes port + k" if spec.shards == 1 else "replica k of shard s takes port + s * replicas + k"
        found.append(Problem(("spec", "ingress", "port"), spec.ingress.port, what, "choose a lower port"))
    if spec.tls is not None and bool(spec.tls.certificate) != bool(spec.tls.key):
        found.append(
            Problem(("spec", "tls"), None, "needs certificate and key, or neither", "give the paths of both PEM files")
        )
    found += _peer_problems(manifest)
    found += _driver_problems(manifest)
    found += _limit_problems(spec)
    return found


def _peer_problems(manifest: Manifest) -> list[Problem]:
    found: list[Problem] = []
    names: set[str] = set()
    for index, peer in enumerate(manifest.spec.peers):
        at = ("spec", "peers", index, "name")
        if peer.name == manifest.metadata.name:
            found.append(Problem(at, peer.name, "is this service itself", "leave the entry out"))
        elif peer.name in names:
            found.append(Problem(at, peer.name, "is given twice", "keep one of them"))
        if not (peer.path or peer.addresses or peer.shards > 1):
            found.append(Problem(at[:-1], None, "needs path or addresses", "say where it is, or leave the entry out"))
        names.add(peer.name)
    return found


def _driver_problems(manifest: Manifest) -> list[Problem]:
    found: list[Problem] = []
    names = {manifest.metadata.name: "this service itself", **{peer.name: "a peer" for peer in manifest.spec.peers}}
    for index, driver in enumerate(manifest.spec.drivers):
        other = names.setdefault(driver.name, "")
        if other:
            at = ("spec", "drivers", index, "name")
            found.append(Problem(at, driver.name, f"is also the name of {other}", "choose another name"))
        names[driver.name] = other or "another driver"
    return found


def driver_configs(spec: ServiceSpec, folder: str, secrets: str = "") -> tuple[DriverConfig, ...]:
    """Give what the processes of `spec.drivers` are started with.

    Args:
        spec: in order.
        folder: absolute; what relative paths in options start from.
        secrets: absolute; has a folder for each driver with a Secret, which its paths start from. Empty: there is none.
    """
    return tuple(
        DriverConfig(
            name=driver.name,
            kind=driver.kind,
            on_refusal=driver.on_refusal,
            batch_messages=driver.batch_messages,
            options=driver.options,
            folder=f"{secrets}/{driver.name}" if secrets and driver.secret_ref is not None else folder,
        )
        for driver in spec.drivers
    )


def _limit_problems(spec: ServiceSpec) -> list[Problem]:
    try:
        ReplicaConfig(service="x", module="x:x", directory=".", replica="r0", limits=limits_of(spec)).make_limits()
    except InvalidConfig as error:
        what = error.message.removeprefix("limits: ")
        return [Problem(("spec", "limits"), None, camel_words(what), "change one of the fields named")]
    return []


def camel_words(text: str) -> str:
    """Give `text` with snake_case words written as the manifest writes them."""
    return " ".join(_camel(word) if "_" in word else word for word in text.split(" "))


def _camel(word: str) -> str:
    first, *rest = word.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def replica_names(manifest: Manifest) -> list[str]:
    """Give the replicas' names: r0, r1, ..."""
    return [f"r{index}" for index in range(manifest.spec.replicas)]


def replica_configs(
    manifest: Manifest,
    *,
    module: str,
    directory: str,
    token: str,
    peer_tokens: Mapping[str, str] | None = None,
    operator_token: str = "",
    folder: str = ".",
) -> list[ReplicaConfig]:
    """Give each replica's config for processes on this machine, shard by shard.

    Args:
        manifest: in order.
        module: as `spec.module`, its path made absolute.
        directory: the service's, absolute; that of a shard is in it where there are several.
        token: content of `spec.tokenFile`, empty where there is none.
        peer_tokens: by the peer's name: content of its `tokenFile`.
        operator_token: content of `spec.operatorTokenFile`, likewise.
        folder: of the manifest, absolute: what relative paths in options of drivers start from.
    """
    spec = manifest.spec
    tokens = peer_tokens or {}
    return [
        ReplicaConfig(
            service=manifest.metadata.name,
            module=module,
            directory=shard_directory(directory, shard, spec.shards),
            replica=name,
            shard=shard,
            shards=spec.shards,
            ingress_listen=_ingress_address(spec.ingress, shard * spec.replicas + index),
            token=token,
            operator_token=operator_token,
            tls=_local_tls(spec.tls),
            lock=lock_of(spec),
            etcd=_local_etcd(spec.lock.etcd or EtcdSpec()) if lock_of(spec) == "etcd" else None,
            fence=fence_of(spec),
            promote_checkpointer=spec.promote_checkpointer,
            log_level=spec.log_level,
            peers=tuple(
                PeerConfig(
                    name=peer.name,
                    directory=peer.path,
                    addresses=peer.addresses,
                    server_name=peer.server_name,
                    token=tokens.get(peer.name, ""),
                    shards=peer.shards,
                )
                for peer in spec.peers
            ),
            activities=ActivitiesConfig(workers=spec.activities.workers),
            drivers=driver_configs(spec, folder),
            tracing=tracing_config(spec),
            allow_any_file_system=spec.log_storage.allow_any_file_system,
            limits=limits_of(spec),
        )
        for shard in range(spec.shards)
        for index, name in enumerate(replica_names(manifest))
    ]


def tracing_config(spec: ServiceSpec) -> TracingConfig | None:
    """Give where spans go, for a replica; None: nowhere."""
    found = spec.tracing
    return None if found is None else TracingConfig(endpoint=found.endpoint, sample_ratio=found.sample_ratio)


def _local_tls(tls: TlsSpec | None) -> TlsConfig | None:
    """Give the files of `spec.tls`; without files, what it says is for a cluster."""
    if tls is None or not (tls.ca or tls.certificate):
        return None
    return TlsConfig(
        ca=tls.ca,
        certificate=tls.certificate,
        key=tls.key,
        require_client_certificate=bool(tls.require_client_certificate),
        server_name=tls.server_name,
    )


def _local_etcd(etcd: EtcdSpec) -> EtcdConfig:
    files = etcd.tls
    return EtcdConfig(
        endpoints=etcd.endpoints or (LOCAL_ENDPOINT,),
        prefix=etcd.prefix or LOCAL_PREFIX,
        tls=None
        if files is None
        else TlsConfig(ca=files.ca, certificate=files.certificate, key=files.key, server_name=files.server_name),
        username=etcd.username,
        password_file=etcd.password_file,
        lease_ttl_s=etcd.lease_ttl_s,
    )


def _ingress_address(ingress: Ingress | None, index: int) -> str:
    if ingress is None:
        return ""
    return f"{ingress.listen}:{ingress.port + index if ingress.port else 0}"

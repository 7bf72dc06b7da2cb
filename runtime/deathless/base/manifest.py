"""The manifest of a service: kind DeathlessService, the same on a laptop and in a cluster.

    apiVersion: deathless.dev/v1alpha1
    kind: DeathlessService
    metadata: {name: bank}
    spec: {module: bank.py:bank, replicas: 3}

One schema for the local runner and for the Kubernetes resource, so a service that runs here runs there. What has a
meaning in a cluster alone is accepted and, run locally, named as having no effect (`ignored_locally`).

Guarantees: a manifest that converts and has no `relation_problems` gives replica configs. Does not: read files, look
whether paths exist (shell.operate.manifest_file does both). Imports base only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from deathless.base.config import ActivitiesConfig, DriverConfig, PeerConfig, ReplicaConfig, TracingConfig
from deathless.base.errors import InvalidConfig
from deathless.base.foreign.binding import INPUTS, SERVICE_MODULE, Binding, binding_config, binding_problems
from deathless.base.foreign.binding import LIMITS as BINDING_LIMITS
from deathless.base.limits import Limits
from deathless.base.lock_stores import LOCK_STORES, SEAL, lock_store
from deathless.base.manifest_fields import FilePath, Module, Name, NonEmpty, Part, Text, Texts, told
from deathless.base.manifest_ingress import Ingress, allowed_services, authentication_config, authentication_problems
from deathless.base.manifest_local import ingress_address, local_tls
from deathless.base.manifest_parts import (
    DRIVERS_MAX,
    PEERS_MAX,
    REPLICAS_MAX,
    Activities,
    Driver,
    LimitsSpec,
    LockSpec,
    LogStorage,
    NetworkPolicySpec,
    PeerService,
    Resources,
    Retention,
    SecretKeyRef,
    TlsSpec,
    Tracing,
    UpdateStrategy,
)
from deathless.base.manifest_pod import PodTemplate
from deathless.base.schema_check import Path, Problem, find_problems
from deathless.base.shards import SHARDS_MAX, shard_directory
from deathless.base.source_kinds.settings import SOURCES_MAX, Source, source_configs, source_problems
from deathless.base.topics.settings import TOPICS_MAX, Topic, kept_bytes, quantity_bytes, topic_configs
from deathless.base.topics.sinks import SINKS_MAX, Sink, held_bytes, sink_configs, sink_problems
from deathless.base.volume import find_shortage, show_bytes

API_VERSION: Final = "deathless.dev/v1alpha1"
KIND: Final = "DeathlessService"


class Metadata(Part, frozen=True):
    """Who the service is."""

    name: Name
    namespace: NonEmpty = "default"
    labels: Texts = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class ServiceSpec(Part, frozen=True):
    """What to run."""

    module: Annotated[
        Module,
        told(
            "The service: package.module:attribute of the image, or path/to/file.py:attribute. It is left out with a "
            "binding."
        ),
    ] = SERVICE_MODULE
    binding: Annotated[Binding | None, told("An application in any language, which takes the place of the module.")] = (
        None
    )
    image: Annotated[
        Text, told("Image that holds the module and deathless. Needed in a cluster, without effect on a laptop.")
    ] = ""
    image_pull_policy: Annotated[
        Literal["", "Always", "IfNotPresent", "Never"],
        told("When the image is pulled; if empty, the operator's default."),
    ] = ""
    replicas: Annotated[
        int,
        Meta(ge=1, le=REPLICAS_MAX),
        told("Number of replicas: one is primary, one takes checkpoints, the others are standbys."),
    ] = 3
    shards: Annotated[
        int,
        Meta(ge=1, le=SHARDS_MAX),
        told(
            "Number of logs among which keys are divided, each with replicas of its own. Fixed at creation.",
        ),
    ] = 1
    log_storage: Annotated[LogStorage, told("Where the log is stored.")] = LogStorage()
    lock: Annotated[LockSpec, told("What elects the primary.")] = LockSpec()
    fence: Annotated[
        Literal["seal", "etcd"] | None,
        told("What proves, before replies are sent, that a primary is still the primary; if absent, the lock's."),
    ] = None
    retention: Annotated[Retention, told("How much of the log is retained.")] = Retention()
    ingress: Annotated[
        Ingress | None, told("The HTTP interface. When absent: none on a laptop, port 8080 in a cluster.")
    ] = None
    peers: Annotated[
        tuple[PeerService, ...],
        Meta(max_length=PEERS_MAX),
        told("Where to find services that this one sends to; a service of one shard beside this one needs no entry."),
    ] = ()
    activities: Annotated[Activities, told("The processes that run activities.")] = Activities()
    drivers: Annotated[
        tuple[Driver, ...],
        Meta(max_length=DRIVERS_MAX),
        told("Processes beside each replica that deliver messages to databases, files and HTTP addresses."),
    ] = ()
    topics: Annotated[
        tuple[Topic, ...],
        Meta(max_length=TOPICS_MAX),
        told("Topics that the code declares, and how long their rows are kept, in files beside the log."),
    ] = ()
    sinks: Annotated[
        tuple[Sink, ...],
        Meta(max_length=SINKS_MAX),
        told("Processes beside each replica that store the rows of topics in tables, each row exactly once."),
    ] = ()
    sources: Annotated[
        tuple[Source, ...],
        Meta(max_length=SOURCES_MAX),
        told("Processes beside each replica that bring rows from outside to inputs of the code, each exactly once."),
    ] = ()
    tracing: Annotated[Tracing | None, told("Traces of what handlers and activities do. When absent: none.")] = None
    network_policy: Annotated[NetworkPolicySpec, told("What replicas may connect to, in a cluster.")] = (
        NetworkPolicySpec()
    )
    tls: Annotated[
        TlsSpec | None, told("Certificates. When absent: none on a laptop, the operator's in a cluster.")
    ] = None
    token_file: Annotated[FilePath, told("File with the token that callers must present, on a laptop.")] = ""
    operator_token_file: Annotated[
        FilePath,
        told(
            "File with the operators' token for the ingress, on a laptop; the callers' token then permits only calls."
        ),
    ] = ""
    token_secret_ref: Annotated[
        SecretKeyRef | None, told("Secret with the token that callers must present, in a cluster.")
    ] = None
    update_strategy: Annotated[UpdateStrategy | None, told("How a change is rolled out in a cluster.")] = None
    upgrade_policy: Annotated[
        Literal["Compatible", "Automatic", "Manual"],
        told(
            "Which other code is upgraded to in a cluster without asking: code with a compatible interface, all code "
            "that fits with its migrations, or none. No effect on a laptop."
        ),
    ] = "Compatible"
    promote_checkpointer: Annotated[
        Literal["WhenAlone", "Always"],
        told(
            "When the replica that takes checkpoints may become primary: only if there is no other, or like any other."
        ),
    ] = "WhenAlone"
    suspend: Annotated[
        bool, told("Stop every replica, the primary last; the log and all settings are kept. No effect on a laptop.")
    ] = False
    replace_after_seconds: Annotated[
        int,
        Meta(ge=5, le=86400),
        told("How long a node must be unreachable before its replica is recreated on another one."),
    ] = 30
    resources: Annotated[Resources, told("Resource requests and limits of each replica, in a cluster.")] = Resources()
    log_level: Annotated[Literal["debug", "info", "warning", "error"], told("How much replicas log.")] = "info"
    limits: Annotated[LimitsSpec, told("Maximums and periods of the runtime.")] = LimitsSpec()
    pod_template: Annotated[PodTemplate, told("Changes to the pods.")] = PodTemplate()


class Manifest(Part, frozen=True):
    """The whole document."""

    api_version: Literal["deathless.dev/v1alpha1"]
    kind: Literal["DeathlessService"]
    metadata: Metadata
    spec: ServiceSpec


def lock_of(spec: ServiceSpec) -> str:
    """Give what elects the primary on this machine: the type named, or the directory."""
    return spec.lock.type or "directory"


def fence_of(spec: ServiceSpec) -> str:
    """Give the fence: the one named, or the one that follows the lock (design 0003, "The lock and the fence")."""
    return spec.fence or lock_store(lock_of(spec)).fence


def ignored_locally(manifest: Manifest) -> list[str]:
    """Give the fields that were set and mean nothing to processes on one machine."""
    spec = manifest.spec
    storage, tls, ingress = spec.log_storage, spec.tls or TlsSpec(), spec.ingress
    found = {
        "metadata.namespace": manifest.metadata.namespace != "default",
        "spec.image": bool(spec.image),
        "spec.imagePullPolicy": bool(spec.image_pull_policy),
        "spec.logStorage.claimName": bool(storage.claim_name),
        "spec.logStorage.className": bool(storage.class_name),
        "spec.logStorage.size": bool(storage.size),
        "spec.logStorage.subPath": bool(storage.sub_path),
        "spec.logStorage.deletionPolicy": storage.deletion_policy != "Retain",
        **_ignored_of_locks(spec.lock),
        "spec.ingress.serviceType": ingress is not None and ingress.service_type != "ClusterIP",
        "spec.ingress.serviceAnnotations": ingress is not None and bool(ingress.service_annotations),
        "spec.ingress.allowFrom": ingress is not None and bool(ingress.allow_from),
        "spec.ingress.authentication.token.secretRef": _from_cluster(ingress)[0],
        "spec.ingress.authentication.oidc.caSecretRef": _from_cluster(ingress)[1],
        "spec.tls.issuer": tls.issuer != "Operator",
        "spec.tls.issuerRef": tls.issuer_ref is not None,
        "spec.tokenSecretRef": spec.token_secret_ref is not None,
        "spec.drivers[].secretRef": any(driver.secret_ref is not None for driver in spec.drivers),
        "spec.sinks[].secretRef": any(sink.secret_ref is not None for sink in spec.sinks),
        "spec.sources[].secretRef": any(source.secret_ref is not None for source in spec.sources),
        "spec.updateStrategy": spec.update_strategy is not None,
        "spec.upgradePolicy": spec.upgrade_policy != "Compatible",
        "spec.suspend": spec.suspend,
        "spec.replaceAfterSeconds": spec.replace_after_seconds != ServiceSpec(module="x:x").replace_after_seconds,
        "spec.resources": spec.resources != Resources(),
        "spec.networkPolicy": spec.network_policy != NetworkPolicySpec(),
        "spec.podTemplate": spec.pod_template != PodTemplate(),
    }
    return [name for name, is_set in found.items() if is_set]


def _ignored_of_locks(lock: LockSpec) -> dict[str, bool]:
    """Give fields of lock stores: all settings where none is named, and what a store itself leaves to a cluster."""
    found: dict[str, bool] = {}
    for name, settings in lock.given().items():
        found[f"spec.lock.{name}"] = lock.type is None
        found |= {f"spec.lock.{name}.{field}": True for field in settings.ignored_locally()}
    return found


def _from_cluster(ingress: Ingress | None) -> tuple[bool, bool]:
    """Say whether tokens of callers, and authorities of their issuer, are named as Secrets."""
    found = ingress.authentication if ingress is not None else None
    if found is None:
        return False, False
    token, oidc = found.token, found.oidc
    return token is not None and token.secret_ref is not None, oidc is not None and oidc.ca_secret_ref is not None


def limits_of(spec: ServiceSpec) -> dict[str, float]:
    """Give what the manifest changes in the limits, by the names of `Limits`; a binding changes some by itself."""
    changed: dict[str, float] = {} if spec.binding is None else dict(BINDING_LIMITS)
    for part in (spec.limits, spec.retention):
        for name in part.__struct_fields__:
            value = getattr(part, name)
            if value is not None:
                changed[name] = value
    return changed


def volume_problem(spec: ServiceSpec, volume_bytes: int) -> str | None:
    """Say what a volume of this size lacks for the service; None: nothing. The spec is in order.

    Args:
        spec: whose log is to lie there.
        volume_bytes: of the whole volume; 0: not known.
    """
    return find_shortage(
        volume_bytes,
        _limits(spec),
        replicas=spec.replicas,
        shards=spec.shards,
        topics_bytes=_rows_bytes(spec),
    )


def least_volume(spec: ServiceSpec) -> str:
    """Give the size below which a volume does not carry the service, before it has any state. The spec is in order."""
    return show_bytes(_limits(spec).least_volume_bytes(spec.replicas, shards=spec.shards) + _rows_bytes(spec))


def _rows_bytes(spec: ServiceSpec) -> int:
    """Give what the rows of topics may come to: those that are kept, and those that sinks hold beyond that."""
    return kept_bytes(topics_of(spec), spec.shards) + held_bytes(spec.sinks, spec.shards)


def _limits(spec: ServiceSpec) -> Limits:
    return ReplicaConfig(service="x", module="x:x", directory=".", replica="r0", limits=limits_of(spec)).make_limits()


def relation_problems(manifest: Manifest) -> list[Problem]:
    """Find what each field alone can't show: fields that contradict each other."""
    spec = manifest.spec
    found: list[Problem] = []
    if lock_store(lock_of(spec)).in_directory and fence_of(spec) != SEAL:
        outside = " or ".join(name for name, store in LOCK_STORES.items() if not store.in_directory)
        found.append(
            Problem(
                ("spec", "fence"), spec.fence, f"needs lock.type {outside}", "leave it out: the fence follows the lock"
            )
        )
    found += _lock_problems(spec.lock)
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
    found += authentication_problems(spec.ingress)
    found += _peer_problems(manifest)
    found += _driver_problems(manifest)
    found += _sink_problems(spec)
    found += binding_problems(
        spec.binding,
        module=spec.module,
        shards=spec.shards,
        topics=spec.topics,
        sources=tuple(source.name for source in spec.sources),
    )
    found += [
        Problem(("spec", "sources", at, field), value, what, advice)
        for at, field, value, what, advice in source_problems(spec.sources)
    ]
    limits = _limit_problems(spec)
    return found + (limits or _topic_problems(spec))


def _lock_problems(lock: LockSpec) -> list[Problem]:
    """Find settings of another lock store than the one named, settings that lack, and what a store itself finds."""
    found: list[Problem] = []
    given = lock.given()
    for name, settings in given.items():
        at: Path = ("spec", "lock", name)
        if lock.type not in (None, name):
            found.append(Problem(at, None, f"is given, but lock.type is {lock.type}", f"write type: {name}"))
        found += [problem._replace(path=(*at, *problem.path)) for problem in settings.problems()]
    kind = lock_store(lock.type).settings_class() if lock.type is not None and lock.type not in given else None
    missing = find_problems({}, kind) if kind is not None else []
    if missing:
        told = "; ".join(problem.remedy for problem in missing)
        found.append(Problem(("spec", "lock"), None, f"{lock.type} is missing", f"add {lock.type}, and there {told}"))
    return found


def lock_settings(lock: LockSpec, name: str) -> msgspec.Struct | None:
    """Give what replicas on this machine are told of a lock store; None: it has no settings."""
    kind = lock_store(name).settings_class()
    if kind is None:
        return None
    return (lock.given().get(name) or kind()).config()


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
    parts = {
        "driver": [driver.name for driver in manifest.spec.drivers],
        "topic": [topic.name for topic in manifest.spec.topics],
    }
    for word, given in parts.items():
        for index, name in enumerate(given):
            other = names.get(name, "")
            if other:
                shown = f"another {word}" if other == f"a {word}" else other
                at = ("spec", f"{word}s", index, "name")
                found.append(Problem(at, name, f"is also the name of {shown}", "choose another name"))
            names[name] = other or f"a {word}"
    return found


def _sink_problems(spec: ServiceSpec) -> list[Problem]:
    found = sink_problems(spec.sinks, {topic.name for topic in spec.topics})
    return [Problem(("spec", "sinks", at, field), value, what, advice) for at, field, value, what, advice in found]


def _topic_problems(spec: ServiceSpec) -> list[Problem]:
    """Find topics that would fill a volume whose size is said; limits are in order."""
    size = spec.log_storage.size
    lacks = volume_problem(spec, quantity_bytes(size)) if size and _rows_bytes(spec) else None
    if lacks is None:
        return []
    what = f"may have more rows than there is room for: {lacks}"
    lower = "keepBytes or a sink's holdBytesMax" if spec.sinks else "keepBytes"
    return [Problem(("spec", "topics"), None, what, f"lower {lower}, or raise logStorage.size")]


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
            attempts_max=driver.attempts_max,
            age_max_s=driver.age_max_s,
            options=driver.options,
            folder=f"{secrets}/{driver.name}" if secrets and driver.secret_ref is not None else folder,
        )
        for driver in spec.drivers
    )


def _limit_problems(spec: ServiceSpec) -> list[Problem]:
    try:
        _limits(spec)
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


def topics_of(spec: ServiceSpec) -> tuple[Topic, ...]:
    """Give all topics of a service: those that its spec names, and what its application gets."""
    return spec.topics if spec.binding is None else (*spec.topics, INPUTS)


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
            ingress_listen=ingress_address(spec.ingress, shard * spec.replicas + index),
            token=token,
            operator_token=operator_token,
            tls=local_tls(spec.tls),
            fence=fence_of(spec),
            promote_checkpointer=spec.promote_checkpointer,
            log_level=spec.log_level,
            allow_services=allowed_services(spec.ingress),
            authentication=authentication_config(spec.ingress),
            cors_origins=spec.ingress.cors_origins if spec.ingress is not None else (),
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
            drivers=driver_configs(spec, folder)
            + topic_configs(topics_of(spec), shard_directory(directory, shard, spec.shards)),
            sinks=sink_configs(spec.sinks, shard_directory(directory, shard, spec.shards), folder),
            sources=source_configs(spec.sources, folder, index=shard * spec.replicas + index),
            binding=binding_config(spec.binding, manifest.metadata.name, folder),
            tracing=tracing_config(spec),
            allow_any_file_system=spec.log_storage.allow_any_file_system,
            limits=limits_of(spec),
        ).with_lock(lock_of(spec), lock_settings(spec.lock, lock_of(spec)))
        for shard in range(spec.shards)
        for index, name in enumerate(replica_names(manifest))
    ]


def tracing_config(spec: ServiceSpec) -> TracingConfig | None:
    """Give where spans go, for a replica; None: nowhere."""
    found = spec.tracing
    return None if found is None else TracingConfig(endpoint=found.endpoint, sample_ratio=found.sample_ratio)

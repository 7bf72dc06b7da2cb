"""The manifest of a service: kind DeathlessService, the same on a laptop and in a cluster.

    apiVersion: deathless.dev/v1alpha1
    kind: DeathlessService
    metadata: {name: bank}
    spec:
      module: bank.py:bank
      replicas: 3

One schema for the local runner and for the Kubernetes resource, so a service that runs here runs there. What has a
meaning in a cluster alone is accepted and, run locally, named as having no effect (`ignored_locally`).

Guarantees: a manifest that converts and has no `relation_problems` gives replica configs. Does not: read files, look
whether paths exist (shell.manifest does both). Imports base only.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from deathless.base.config import EtcdConfig, ReplicaConfig, TlsConfig
from deathless.base.errors import InvalidConfig
from deathless.base.schema_check import Problem

API_VERSION: Final = "deathless.dev/v1alpha1"
KIND: Final = "DeathlessService"
REPLICAS_MAX: Final = 7

Name = Annotated[
    str,
    Meta(
        pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$",
        max_length=40,
        description="a DNS label: lower-case letters, digits and inner dashes, at most 40 characters",
    ),
]
Count = Annotated[int, Meta(gt=0)]
Seconds = Annotated[float, Meta(gt=0)]
Port = Annotated[int, Meta(ge=0, le=65535)]
Module = Annotated[
    str,
    Meta(
        pattern=r"^[^:]+:[A-Za-z_][A-Za-z0-9_]*$",
        description="package.module:attribute or path/to/file.py:attribute",
    ),
]
NonEmpty = Annotated[str, Meta(min_length=1)]
Host = Annotated[str, Meta(pattern=r"^(\[[0-9a-fA-F:.]+\]|[^:\s]+)$", description="a host without its port")]


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A part of the manifest: camelCase, nothing unknown."""


class Metadata(_Part, frozen=True):
    """Who the service is."""

    name: Name
    namespace: NonEmpty = "default"
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class LogStorage(_Part, frozen=True):
    """Where the log lives: a folder that all replicas share."""

    path: str = ""  # on this machine; relative to the manifest; empty: .deathless/<name> beside the manifest
    claim: dict[str, object] = {}  # the volume in a cluster
    allow_any_file_system: bool = False  # run the seal fence where the allow-list says no


class LockSpec(_Part, frozen=True):
    """What elects the primary."""

    type: Literal["directory", "etcd"] = "directory"
    etcd: EtcdConfig | None = None


class Retention(_Part, frozen=True):
    """When checkpoints are taken and how many are kept; the log below the oldest one is collected."""

    checkpoints_kept: Annotated[int, Meta(ge=2)] | None = None
    checkpoint_every_messages: Count | None = None
    checkpoint_every_bytes: Count | None = None


class Ingress(_Part, frozen=True):
    """The HTTP interface. Run locally, replica k listens on `port` + k; port 0 takes any free one."""

    listen: Host = "127.0.0.1"
    port: Port = 8080


class UpdateStrategy(_Part, frozen=True):
    """How a cluster rolls a change out."""

    type: Literal["RollingUpdate", "OnDelete"] = "RollingUpdate"


class LimitsSpec(_Part, frozen=True):
    """The maximums of `base.limits`, by the same names and with the same meanings; None: the default."""

    message_bytes_max: Count | None = None
    entity_bytes_max: Count | None = None
    reply_bytes_max: Count | None = None
    key_bytes_max: Count | None = None
    frame_messages_max: Count | None = None
    frame_bytes_max: Count | None = None
    segment_bytes_max: Count | None = None
    allocate_bytes: Count | None = None
    spare_bytes: Count | None = None
    pending_messages_max: Count | None = None
    pending_bytes_max: Count | None = None
    pending_queries_max: Count | None = None
    connections_max: Count | None = None
    session_window_max: Count | None = None
    session_reply_bytes_max: Count | None = None
    sessions_max: Count | None = None
    session_idle_max_s: Count | None = None
    idempotency_keys_max: Count | None = None
    idempotency_window_s: Count | None = None
    unconfirmed_bytes_max: Count | None = None
    stream_buffer_bytes_max: Count | None = None
    follower_lag_messages_max: Count | None = None
    time_jump_max_s: Count | None = None
    clock_step_us: Count | None = None
    turn_max_s: Seconds | None = None
    suspect_after_s: Seconds | None = None
    heartbeat_s: Seconds | None = None
    idle_confirm_s: Seconds | None = None
    checkpoint_every_messages: Count | None = None
    checkpoint_every_bytes: Count | None = None
    checkpoints_kept: Count | None = None
    reign_min_s: Seconds | None = None
    reign_max_s: Seconds | None = None
    deaths_before_parking: Count | None = None
    rebases_per_hour_max: Count | None = None


class ServiceSpec(_Part, frozen=True):
    """What to run."""

    module: Module
    image: str = ""  # in a cluster
    replicas: Annotated[int, Meta(ge=1, le=REPLICAS_MAX)] = 3
    shards: Annotated[int, Meta(ge=1, le=1)] = 1
    log_storage: LogStorage = LogStorage()
    lock: LockSpec = LockSpec()
    fence: Literal["seal", "etcd"] | None = None  # None: what the lock suggests
    retention: Retention = Retention()
    ingress: Ingress | None = None  # None: no HTTP interface
    tls: TlsConfig | None = None
    token_file: str = ""
    update_strategy: UpdateStrategy | None = None
    promote_checkpointer: Literal["WhenAlone", "Always"] = "WhenAlone"
    suspend: bool = False
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    limits: LimitsSpec = LimitsSpec()
    pod_template: dict[str, object] = {}


class Manifest(_Part, frozen=True):
    """The whole document."""

    api_version: Literal["deathless.dev/v1alpha1"]
    kind: Literal["DeathlessService"]
    metadata: Metadata
    spec: ServiceSpec


def ignored_locally(manifest: Manifest) -> list[str]:
    """Give the fields that were set and mean nothing to processes on one machine."""
    spec = manifest.spec
    found = {
        "metadata.namespace": manifest.metadata.namespace != "default",
        "spec.image": bool(spec.image),
        "spec.logStorage.claim": bool(spec.log_storage.claim),
        "spec.updateStrategy": spec.update_strategy is not None,
        "spec.podTemplate": bool(spec.pod_template),
    }
    return [name for name, is_set in found.items() if is_set]


def fence_of(spec: ServiceSpec) -> str:
    """Give the fence: the one named, or the one that follows the lock (design section 5)."""
    return spec.fence or ("etcd" if spec.lock.type == "etcd" else "seal")


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
    if spec.lock.type == "directory" and fence_of(spec) != "seal":
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
    if spec.ingress is not None and 0 < spec.ingress.port > 65536 - spec.replicas:
        found.append(
            Problem(("spec", "ingress", "port"), spec.ingress.port, "replica k takes port + k", "choose a lower port")
        )
    if spec.tls is not None and bool(spec.tls.certificate) != bool(spec.tls.key):
        found.append(
            Problem(("spec", "tls"), None, "needs certificate and key, or neither", "give the paths of both PEM files")
        )
    found += _limit_problems(spec)
    return found


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


def replica_configs(manifest: Manifest, *, module: str, directory: str, token: str) -> list[ReplicaConfig]:
    """Give each replica's config for processes on this machine.

    Args:
        manifest: in order.
        module: as `spec.module`, its path made absolute.
        directory: the shard's folder, absolute.
        token: content of `spec.tokenFile`, empty where there is none.
    """
    spec = manifest.spec
    return [
        ReplicaConfig(
            service=manifest.metadata.name,
            module=module,
            directory=directory,
            replica=name,
            ingress_listen=_ingress_address(spec.ingress, index),
            token=token,
            tls=spec.tls,
            lock=spec.lock.type,
            etcd=(spec.lock.etcd or EtcdConfig()) if spec.lock.type == "etcd" else None,
            fence=fence_of(spec),
            promote_checkpointer=spec.promote_checkpointer,
            log_level=spec.log_level,
            allow_any_file_system=spec.log_storage.allow_any_file_system,
            limits=limits_of(spec),
        )
        for index, name in enumerate(replica_names(manifest))
    ]


def _ingress_address(ingress: Ingress | None, index: int) -> str:
    if ingress is None:
        return ""
    return f"{ingress.listen}:{ingress.port + index if ingress.port else 0}"

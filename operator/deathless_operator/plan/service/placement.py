"""The pod template of a service's replicas and the StatefulSet around it.

Why apart from `objects`: everything here decides whether a pod has to be made anew, so it is hashed; a change of this
module that alters the template of an unchanged spec rolls every service of an installation.

Guarantees: pods fit the Pod Security standard `restricted`; what carries the guarantees (command, ports, probes, own
mounts, own variables) can't be changed by a spec; the template's hash stands in its own labels, so a pod tells what it
was made from. Does not: decide when pods are replaced (`rollout`). Imports model and base only.
"""

from __future__ import annotations

import msgspec

from deathless.base.limits import Limits
from deathless.base.manifest import ServiceSpec
from deathless.base.manifest_pod import PodTemplate
from deathless.base.settings_hash import settings_hash
from deathless_operator.model import names
from deathless_operator.model.grace import DRAIN_S
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.model.values import Json, JsonObject, text

FS_GROUP = 65532
RUN_BYTES = 64 << 20  # of what processes of a replica write to it, beside the outbox
SPILL_FACTOR = 2  # bytes of files for each of `outboxBytesMax`, at most


class Mounted(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod mounts, by name; empty: nothing."""

    config_map: str
    claim: str
    tls: str = ""
    lock_tls: str = ""
    lock_user: str = ""
    token: str = ""
    callers: str = ""
    issuer_ca: str = ""
    operator_token: str = ""  # a pod starts without it too


class Former(msgspec.Struct, frozen=True, kw_only=True):
    """The code that is upgraded from, which runs beside the code that is upgraded to, in its own image."""

    image: str
    config_map: str
    fingerprint: str  # of the code that is upgraded to


def digest(value: Json) -> str:
    """Give ten characters that change when the value does."""
    return settings_hash(value)


def stateful_set(
    name: str,
    spec: ServiceSpec,
    settings: OperatorSettings,
    mounted: Mounted,
    *,
    image: str,
    config: str,
    replicas: int,
    shard: int = 0,
    former: Former | None = None,
) -> JsonObject:
    """Give the StatefulSet's spec.

    Args:
        name: of the service.
        spec: of the service.
        settings: of the installation.
        mounted: what pods mount.
        image: the one that is accepted; it may differ from the spec's.
        config: hash of replica.json, so that a change of it rolls.
        replicas: for now; scaling goes step by step.
        shard: whose replicas.
        former: runs beside each replica; None: nothing does.
    """
    template = pod_template(name, spec, settings, mounted, image=image, config=config, shard=shard, former=former)
    return {
        "serviceName": names.headless_service(names.of_shard(name, shard)),
        "replicas": replicas,
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "OnDelete"},
        "revisionHistoryLimit": 3,
        "selector": {"matchLabels": _texts(names.shard_selector(name, shard, spec.shards))},
        "template": template,
    }


def template_hash(template: JsonObject) -> str:
    """Give the hash that a template bears."""
    found = text(template, "metadata", "labels", names.LABEL_TEMPLATE)
    assert found, "each template bears its hash"
    return found


def pod_template(
    name: str,
    spec: ServiceSpec,
    settings: OperatorSettings,
    mounted: Mounted,
    *,
    image: str,
    config: str,
    shard: int = 0,
    former: Former | None = None,
) -> JsonObject:
    """Give the pod template, its hash in its labels."""
    wanted = spec.pod_template
    annotations = dict(wanted.annotations) | {names.CONFIG_ANNOTATION: config}
    annotations.pop(names.UPGRADING_TO_ANNOTATION, None)
    pod = _pod_spec(name, spec, settings, mounted, image, names.shard_selector(name, shard, spec.shards))
    if former is not None:
        annotations[names.UPGRADING_TO_ANNOTATION] = former.fingerprint
        _put_beside(pod, former, spec, settings)
    labels = dict(wanted.labels) | names.labels(name) | {names.LABEL_SERVING: names.SERVING}
    labels |= names.shard_label(shard, spec.shards)
    body: JsonObject = {"metadata": {"labels": _texts(labels), "annotations": _texts(annotations)}, "spec": pod}
    labels[names.LABEL_TEMPLATE] = digest(body)
    return {"metadata": {"labels": _texts(labels), "annotations": _texts(annotations)}, "spec": pod}


def _texts(value: dict[str, str]) -> JsonObject:
    return dict(value)


def _pod_spec(
    name: str, spec: ServiceSpec, settings: OperatorSettings, mounted: Mounted, image: str, alike: dict[str, str]
) -> JsonObject:
    wanted = spec.pod_template
    volumes, mounts = _volumes(spec, mounted)
    volumes += _as_json(list(wanted.volumes))
    mounts += _mounts_of(spec)
    pod: JsonObject = {
        "serviceAccountName": name,
        "automountServiceAccountToken": True,  # the announcer patches its own pod
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": wanted.termination_grace_period_seconds,
        "securityContext": pod_security(wanted),
        "affinity": as_object(wanted.affinity) if wanted.affinity is not None else _apart(alike),
        "topologySpreadConstraints": _spread(alike, wanted),
        "containers": [_container(spec, settings, image, mounts)],
        "volumes": volumes,
    }
    return pod | where_it_runs(spec)


def _put_beside(pod: JsonObject, former: Former, spec: ServiceSpec, settings: OperatorSettings) -> None:
    """Put the container of the former code into a pod's spec: it reads the log, and has no Secret of ours and no token.

    Kubernetes mounts the account's token into every container that has nothing at that path. What the former code gives
    goes through a file in the scratch folder, which has to hold the whole state, and so has no limit.
    """
    volumes, containers = pod["volumes"], pod["containers"]
    assert isinstance(volumes, list), "a pod has volumes"
    assert isinstance(containers, list), "a pod has containers"
    for volume in volumes:
        if isinstance(volume, dict) and volume["name"] == "deathless-run":
            volume["emptyDir"] = {}
    volumes += [
        {"name": "deathless-former-config", "configMap": {"name": former.config_map}},
        {"name": "deathless-no-token", "emptyDir": {"sizeLimit": "1Mi"}},
    ]
    mounts: list[Json] = [
        _mount("deathless-former-config", names.CONFIG_FOLDER, read_only=True),
        _mount("deathless-log", names.LOG_FOLDER, read_only=True, sub_path=spec.log_storage.sub_path),
        _mount("deathless-run", names.RUN_FOLDER, read_only=False),
        _mount("deathless-no-token", names.ACCOUNT_FOLDER, read_only=True),
        *(
            _mount(each.name, each.mount_path, each.read_only, each.sub_path)
            for each in spec.pod_template.volume_mounts
        ),
    ]
    config = f"{names.CONFIG_FOLDER}/{names.CONFIG_FILE}"
    containers.append(
        {
            "name": names.FORMER_CONTAINER,
            "image": former.image,
            "imagePullPolicy": pull_policy(spec, settings),
            "command": ["deathless", "former", "--listen", names.FORMER_SOCKET, "-f", config],
            "env": environment(spec, former.image),
            "resources": _resources(spec),
            "securityContext": container_security(),
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "volumeMounts": mounts,
        }
    )


def where_it_runs(spec: ServiceSpec) -> JsonObject:
    """Give what decides on which nodes a pod of the service may run, and as what: of replicas and of check pods."""
    wanted = spec.pod_template
    optional: JsonObject = {
        "nodeSelector": _texts(wanted.node_selector),
        "tolerations": _as_json([_without_empty(msgspec.to_builtins(item)) for item in wanted.tolerations]),
        "priorityClassName": wanted.priority_class_name,
        "runtimeClassName": wanted.runtime_class_name,
        "schedulerName": wanted.scheduler_name,
        "imagePullSecrets": _as_json([{"name": item.name} for item in wanted.image_pull_secrets]),
    }
    return {key: value for key, value in optional.items() if value}


def pod_security(wanted: PodTemplate) -> JsonObject:
    """Give the pod's security context: restricted, with the users and groups that the spec names."""
    context = wanted.security_context
    result: JsonObject = {
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
        "fsGroup": context.fs_group or FS_GROUP,
        "fsGroupChangePolicy": context.fs_group_change_policy,
    }
    if context.run_as_user is not None:
        result["runAsUser"] = context.run_as_user
    if context.run_as_group is not None:
        result["runAsGroup"] = context.run_as_group
    if context.supplemental_groups:
        result["supplementalGroups"] = list(context.supplemental_groups)
    return result


def container_security() -> JsonObject:
    """Give a container's security context: restricted, with a root file system that is only read."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "capabilities": {"drop": ["ALL"]},
    }


def pull_policy(spec: ServiceSpec, settings: OperatorSettings) -> str:
    """Give when images are pulled."""
    return spec.image_pull_policy or settings.pull_policy


def _container(spec: ServiceSpec, settings: OperatorSettings, image: str, mounts: list[Json]) -> JsonObject:
    ports: list[Json] = [
        {"name": port_name, "containerPort": port, "protocol": "TCP"}
        for port_name, port in (
            ("client", names.CLIENT_PORT),
            ("replication", names.REPLICATION_PORT),
            ("control", names.CONTROL_PORT),
            ("http", names.HTTP_PORT),
            ("health", names.HEALTH_PORT),
        )
    ]
    return {
        "name": names.CONTAINER,
        "image": image,
        "imagePullPolicy": pull_policy(spec, settings),
        "command": ["deathless", "replica"],
        "ports": ports,
        "env": environment(spec, image),
        "resources": _resources(spec),
        "securityContext": container_security(),
        # The supervisor answers; whether the worker may lead is for the lock, not for the kubelet, to say.
        "startupProbe": _probe("/livez", period_s=1, failures=120, timeout_s=2),
        "livenessProbe": _probe("/livez", period_s=5, failures=4, timeout_s=3),
        "readinessProbe": _probe("/readyz", period_s=1, failures=2, timeout_s=1),
        # Endpoints are gone before SIGTERM makes a primary hand over.
        "lifecycle": {"preStop": {"sleep": {"seconds": DRAIN_S}}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }


def _resources(spec: ServiceSpec) -> JsonObject:
    resources: JsonObject = {}
    if spec.resources.requests:
        resources["requests"] = {key: str(value) for key, value in spec.resources.requests.items()}
    if spec.resources.limits:
        resources["limits"] = {key: str(value) for key, value in spec.resources.limits.items()}
    return resources


def environment(spec: ServiceSpec, image: str) -> list[Json]:
    """Give a replica's variables: the pod's own facts, then those of the spec.

    Node and image are written down with the code that runs there: a refusal names them.
    """
    own = (
        ("POD_NAME", "metadata.name"),
        ("POD_NAMESPACE", "metadata.namespace"),
        ("POD_UID", "metadata.uid"),
        ("POD_IP", "status.podIP"),
        ("POD_NODE", "spec.nodeName"),
    )
    found: list[Json] = [{"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}} for key, path in own]
    found.append({"name": "POD_IMAGE", "value": image})
    for item in spec.pod_template.env:
        if item.value_from is not None:
            found.append({"name": item.name, "valueFrom": as_object(item.value_from)})
        else:
            found.append({"name": item.name, "value": item.value})
    return found


def _probe(path: str, *, period_s: int, failures: int, timeout_s: int) -> JsonObject:
    return {
        "httpGet": {"path": path, "port": "health"},
        "periodSeconds": period_s,
        "failureThreshold": failures,
        "timeoutSeconds": timeout_s,
    }


def _mount(name: str, path: str, read_only: bool, sub_path: str = "") -> JsonObject:
    found: JsonObject = {"name": name, "mountPath": path}
    if read_only:
        found["readOnly"] = True
    if sub_path:
        found["subPath"] = sub_path
    return found


def _mounts_of(spec: ServiceSpec) -> list[Json]:
    """Give the mounts that the spec adds."""
    added = spec.pod_template.volume_mounts
    return [_mount(item.name, item.mount_path, item.read_only, item.sub_path) for item in added]


def _volumes(spec: ServiceSpec, mounted: Mounted) -> tuple[list[Json], list[Json]]:
    volumes: list[Json] = [
        {"name": "deathless-config", "configMap": {"name": mounted.config_map}},
        {"name": "deathless-log", "persistentVolumeClaim": {"claimName": mounted.claim}},
        {"name": "deathless-run", "emptyDir": {"sizeLimit": _run_size(spec)}},
    ]
    mounts: list[Json] = [
        _mount("deathless-config", names.CONFIG_FOLDER, read_only=True),
        _mount("deathless-log", names.LOG_FOLDER, read_only=False, sub_path=spec.log_storage.sub_path),
        _mount("deathless-run", names.RUN_FOLDER, read_only=False),
    ]
    secrets = (
        ("deathless-tls", mounted.tls, names.TLS_FOLDER),
        ("deathless-lock-tls", mounted.lock_tls, names.LOCK_TLS_FOLDER),
        ("deathless-lock-user", mounted.lock_user, names.LOCK_USER_FOLDER),
        ("deathless-token", mounted.token, names.TOKEN_FOLDER),
        ("deathless-callers", mounted.callers, names.CALLERS_FOLDER),
        ("deathless-issuer-ca", mounted.issuer_ca, names.ISSUER_CA_FOLDER),
    )
    for volume, secret, folder in secrets:
        if secret:
            volumes.append({"name": volume, "secret": {"secretName": secret, "defaultMode": 0o440}})
            mounts.append(_mount(volume, folder, read_only=True))
    if mounted.operator_token:
        # Optional: without it nobody is an operator at the ingress, and everything else goes on.
        source: JsonObject = {"secretName": mounted.operator_token, "defaultMode": 0o440, "optional": True}
        volumes.append({"name": "deathless-operator-token", "secret": source})
        mounts.append(_mount("deathless-operator-token", names.OPERATOR_TOKEN_FOLDER, read_only=True))
    for index, driver in enumerate(spec.drivers):
        if driver.secret_ref is not None:
            volume = f"deathless-driver-{index}"
            volumes.append({"name": volume, "secret": {"secretName": driver.secret_ref.name, "defaultMode": 0o440}})
            mounts.append(_mount(volume, f"{names.DRIVERS_FOLDER}/{driver.name}", read_only=True))
    for index, sink in enumerate(spec.sinks):
        if sink.secret_ref is not None:
            volume = f"deathless-sink-{index}"
            volumes.append({"name": volume, "secret": {"secretName": sink.secret_ref.name, "defaultMode": 0o440}})
            mounts.append(_mount(volume, f"{names.SINKS_FOLDER}/{sink.name}", read_only=True))
    for index, reads in enumerate(spec.sources):
        if reads.secret_ref is not None:
            volume = f"deathless-source-{index}"
            volumes.append({"name": volume, "secret": {"secretName": reads.secret_ref.name, "defaultMode": 0o440}})
            mounts.append(_mount(volume, f"{names.SOURCES_FOLDER}/{reads.name}", read_only=True))
    return volumes, mounts


def _run_size(spec: ServiceSpec) -> str:
    """Give the size of a pod's own volume: messages that its memory does not hold stand there too."""
    outbox_bytes = spec.limits.outbox_bytes_max or Limits().outbox_bytes_max
    return f"{-(-(RUN_BYTES + SPILL_FACTOR * outbox_bytes) // (1 << 20))}Mi"


def _apart(alike: dict[str, str]) -> JsonObject:
    """Replicas of a shard avoid each other's nodes where they can: with fewer nodes than replicas all still run."""
    term: JsonObject = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": _texts(alike)}}
    preferred: list[Json] = [{"weight": 100, "podAffinityTerm": term}]
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}


def _spread(alike: dict[str, str], wanted: PodTemplate) -> list[Json]:
    chosen = [
        (item.topology_key, item.max_skew, item.when_unsatisfiable) for item in wanted.topology_spread_constraints
    ] or [("topology.kubernetes.io/zone", 1, "ScheduleAnyway")]
    return [
        {
            "topologyKey": key,
            "maxSkew": skew,
            "whenUnsatisfiable": otherwise,
            "labelSelector": {"matchLabels": _texts(alike)},
        }
        for key, skew, otherwise in chosen
    ]


def as_object(value: object) -> JsonObject:
    """Give what the spec hands to Kubernetes as it is."""
    decoded: JsonObject = msgspec.json.decode(msgspec.json.encode(value))
    return decoded


def _as_json(value: list[object]) -> list[Json]:
    decoded: list[Json] = msgspec.json.decode(msgspec.json.encode(value))
    return decoded


def _without_empty(value: object) -> JsonObject:
    return {key: item for key, item in as_object(value).items() if item not in ("", None)}

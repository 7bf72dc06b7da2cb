"""The two pods of a drill: the runner that calls, and the agent that breaks.

Guarantees: both end by themselves at a deadline of their own, whoever lives; neither is started again (a run is
measured once or not at all). The runner has no rights at all: no token, restricted security. Two runs never give the
same pod spec, since the run's mark is an argument, so applying over another run's pod is refused by the API server.
Pure.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from deathless.base.manifest import ServiceSpec
from deathless_operator.model import names
from deathless_operator.model.drill import LASTING, OUTLIVED, DrillResource, DrillRun, DrillSpec
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.model.values import Json, JsonObject
from deathless_operator.plan.service.placement import where_it_runs

PROGRAM: Final = "deathless-operator"
START_ALLOWANCE_S: Final = 20  # from a warm runner to the fault: an agent's pod has to start meanwhile
AGENT_DEADLINE_S: Final = 120  # to start; its fault comes on top
DEADLINE_MARGIN_S: Final = 20  # the runner tells before the run's own deadline; its pod took some to start
DEADLINE_MIN_S: Final = 20
ETCD_PORT: Final = 2379
PEER_PORTS: Final = (names.CLIENT_PORT, names.REPLICATION_PORT, names.CONTROL_PORT)
USER: Final = 65532


def mark_of(resource: DrillResource, run: DrillRun) -> str:
    """Name a run for good: on pods, nodes and in reports."""
    return f"{resource.namespace}/{resource.name}/{run.id}"


def fault_seconds(spec: DrillSpec) -> int:
    """Give how long the fault lasts; 0 for one that is over as it begins."""
    return spec.fault.duration_seconds if spec.fault.type in LASTING else 0


def observe_seconds(spec: DrillSpec) -> int:
    """Give how long the runner calls after it is warm."""
    return START_ALLOWANCE_S + fault_seconds(spec) + spec.probe.settle_seconds


def runner_manifest(
    resource: DrillResource, spec: DrillSpec, run: DrillRun, service: ServiceSpec, settings: OperatorSettings
) -> JsonObject:
    """Give the runner's pod."""
    name, mark = spec.service_ref.name, mark_of(resource, run)
    secure = service.tls is None or service.tls.issuer != "Off"
    url, primary_url = (
        f"{'https' if secure else 'http'}://{host}.{resource.namespace}.svc:{names.SERVICE_HTTP_PORT}"
        for host in (name, names.primary_service(names.of_shard(name, spec.fault.shard)))
    )
    mounts: list[Json] = []
    volumes: list[Json] = []
    arguments: list[Json] = [
        "drill-run",
        f"--run={mark}",
        f"--service={name}",
        f"--url={url}",
        f"--primary-url={primary_url}",
        f"--clients={spec.probe.clients}",
        f"--witnesses={spec.probe.witnesses if spec.fault.type in OUTLIVED else 0}",
        f"--per-second={spec.probe.calls_per_second}",
        f"--warm={spec.probe.warm_up_seconds}",
        f"--observe={observe_seconds(spec)}",
        f"--settle={spec.probe.settle_seconds}",
        f"--call-timeout={spec.probe.call_timeout_seconds}",
        f"--unavailable-max={spec.limits.unavailable_seconds_max:g}",
        f"--deadline={max(DEADLINE_MIN_S, spec.active_deadline_seconds - DEADLINE_MARGIN_S)}",
    ]
    if service.shards > 1:
        arguments += [f"--shard={spec.fault.shard}", f"--shards={service.shards}"]
    if secure:
        arguments.append(f"--tls={names.TLS_FOLDER}")
        volumes.append({"name": "tls", "secret": {"secretName": names.client_tls_secret(name)}})
        mounts.append({"name": "tls", "mountPath": names.TLS_FOLDER, "readOnly": True})
    if service.token_secret_ref is not None:
        token = service.token_secret_ref
        items: list[Json] = [{"key": token.key, "path": "token"}]
        arguments.append(f"--token-file={names.TOKEN_FOLDER}/token")
        volumes.append({"name": "token", "secret": {"secretName": token.name, "items": items}})
        mounts.append({"name": "token", "mountPath": names.TOKEN_FOLDER, "readOnly": True})
    owner: JsonObject = {
        "apiVersion": names.API_VERSION,
        "kind": names.DRILL_KIND,
        "name": resource.name,
        "uid": resource.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }
    container: JsonObject = {
        "name": "runner",
        "image": spec.runner_image or settings.image,
        "imagePullPolicy": settings.pull_policy,
        "command": [PROGRAM],
        "args": arguments,
        "readinessProbe": {
            "httpGet": {"path": "/readyz", "port": names.HEALTH_PORT},
            "periodSeconds": 1,
            "failureThreshold": 1,
        },
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": mounts,
    }
    pod_spec: JsonObject = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": spec.active_deadline_seconds + 30,
        "terminationGracePeriodSeconds": 10,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": volumes,
    }
    pod_spec |= where_it_runs(service)
    metadata = _metadata(names.runner_pod(name), resource.namespace, run.id, mark)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata | {"ownerReferences": [owner]}, "spec": pod_spec}


def agent_manifest(
    resource: DrillResource, spec: DrillSpec, run: DrillRun, service: ServiceSpec, settings: OperatorSettings
) -> JsonObject:
    """Give the agent's pod, on the victim's node."""
    mark, fault = mark_of(resource, run), spec.fault
    arguments: list[Json] = [
        "drill-agent",
        f"--run={mark}",
        f"--pod-uid={run.target_uid}",
        f"--fault={fault.type}",
        f"--duration={fault_seconds(spec)}",
    ]
    if fault.type == "ProcessKill":
        arguments.append(f"--process={fault.process.lower()}")
    if fault.type == "Partition":
        arguments += ["--everything"] if fault.cut == "All" else [f"--served={port}" for port in PEER_PORTS]
    if fault.type == "LockOutage":
        arguments += [f"--called={port}" for port in lock_ports(service, settings)]
    container: JsonObject = {
        "name": "agent",
        "image": settings.image,
        "imagePullPolicy": settings.pull_policy,
        "command": [PROGRAM],
        "args": arguments,
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}},
        "securityContext": {"privileged": True, "runAsUser": 0, "runAsGroup": 0, "readOnlyRootFilesystem": True},
    }
    pod_spec: JsonObject = {
        "restartPolicy": "Never",
        "nodeName": run.node,
        "hostPID": True,
        "activeDeadlineSeconds": AGENT_DEADLINE_S + fault_seconds(spec),
        "terminationGracePeriodSeconds": 10,
        "serviceAccountName": settings.drill_agent_account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
    }
    name = names.agent_pod(resource.namespace, spec.service_ref.name)
    metadata = _metadata(name, settings.namespace, run.id, mark)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec}


def lock_ports(service: ServiceSpec, settings: OperatorSettings) -> list[int]:
    """Give the ports of the lock store that the service uses."""
    etcd = service.lock.etcd
    endpoints = (etcd.endpoints if etcd is not None else ()) or settings.lock_endpoints
    return sorted({urlsplit(endpoint).port or ETCD_PORT for endpoint in endpoints} or {ETCD_PORT})


def _metadata(name: str, namespace: str, run: str, mark: str) -> JsonObject:
    # Not the label of the service: its pods are its replicas.
    return {
        "name": name,
        "namespace": namespace,
        "labels": {
            names.LABEL_NAME: "deathless",
            names.LABEL_MANAGED_BY: names.FIELD_MANAGER,
            names.LABEL_PURPOSE: names.PURPOSE_DRILL,
            f"{names.GROUP}/run": run,
        },
        "annotations": {names.DRILL_ANNOTATION: mark},
    }

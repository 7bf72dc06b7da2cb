"""Every object of one SparkPipeline, as it should be: its service, and what belongs to its drivers.

    DeathlessService <name>            the pipeline's service; the operator's plan for services does the rest
    StatefulSet <name>-drivers         a pod for each driver, with its agent
    ServiceAccount, Role, RoleBinding  of these pods: each may patch pods of the set, by name, and nothing else
    Service <name>-ui                  the pod whose driver drives
    PodDisruptionBudget, NetworkPolicy

The agent's whole config is a variable of the pod, so a change of it makes the pods anew, one after the other. A pod is
ready while its driver drives or is warm, so the last warm driver is not taken away for a new one that is not.

Guarantees: a pure function; pods fit the Pod Security standard `restricted`; no secret stands in a manifest. Does not:
say when objects are applied (`plan`). Imports base, model and plan.
"""

from __future__ import annotations

from typing import Final

import msgspec

from deathless.base.manifest import ServiceSpec
from deathless.base.manifest_parts import PeerService, TlsSpec
from deathless.base.pipelines.agents import CONFIG_VARIABLE, READY_FILE, AgentConfig
from deathless.base.pipelines.manifest import (
    DRIVER_REPLICAS_MAX,
    PipelineService,
    SparkPipeline,
    service_manifest,
    spark_conf,
    trigger_text,
)
from deathless.base.tls import TlsConfig
from deathless_operator.model import names
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.model.values import Json, JsonObject
from deathless_operator.plan.service.objects import DNS_PORT, peer_of, port_of
from deathless_operator.plan.service.placement import FS_GROUP, container_security, digest

GRACE_S: Final = 30  # an agent ends its driver and says so to the service, which takes 5 seconds at most
AGENT_FOLDER: Final = f"{names.RUN_FOLDER}/agent"
RBAC: Final = "rbac.authorization.k8s.io"


class PipelineObjects:
    """Makes the manifests of one pipeline.

    Args:
        pipeline: in order.
        namespace: where it is.
        uid: of the SparkPipeline.
        settings: of the installation.
    """

    def __init__(self, pipeline: SparkPipeline, namespace: str, uid: str, settings: OperatorSettings) -> None:
        self._pipeline = pipeline
        self._spec = pipeline.spec
        self._name = pipeline.metadata.name
        self._namespace = namespace
        self._uid = uid
        self._settings = settings

    @property
    def _secure(self) -> bool:
        return (self._spec.tls or TlsSpec()).issuer != "Off"

    def all(self) -> list[JsonObject]:
        """Give every object, in the order they are to be applied."""
        found = [self.service(), *self.access(), self.ui(), self.budget()]
        if self._settings.network_policies:
            found.append(self.network_policy())
        return [*found, self.stateful_set()]

    def _make(self, api_version: str, kind: str, name: str, body: JsonObject, labels: dict[str, str]) -> JsonObject:
        """Give a manifest with labels, owner and the hash of all of it."""
        owner: JsonObject = {
            "apiVersion": names.API_VERSION,
            "kind": names.PIPELINE_KIND,
            "name": self._name,
            "uid": self._uid,
            "controller": True,
            "blockOwnerDeletion": False,
        }
        noted: JsonObject = {names.INSTALLATION_ANNOTATION: self._settings.namespace}
        metadata: JsonObject = {
            "name": name,
            "namespace": self._namespace,
            "labels": dict(labels),
            "ownerReferences": [owner],
        }
        head: JsonObject = {"apiVersion": api_version, "kind": kind, "metadata": metadata}
        manifest = head | body
        noted[names.APPLIED_ANNOTATION] = digest([manifest, dict(noted)])
        metadata["annotations"] = noted
        return manifest

    def _of_drivers(self, api_version: str, kind: str, body: JsonObject, name: str = "") -> JsonObject:
        return self._make(api_version, kind, name or names.drivers(self._name), body, names.driver_labels(self._name))

    # ---- the service -----------------------------------------------------------------------------------------

    def service(self) -> JsonObject:
        """Give the pipeline's service, which is called as the pipeline is."""
        made = service_manifest(self._pipeline).spec
        peers = tuple(map(self._peer, self._spec.services))
        spec = msgspec.structs.replace(made, peers=peers, token_file="", resources=self._spec.resources)
        given = _given(msgspec.to_builtins(spec), msgspec.to_builtins(ServiceSpec(module="")))
        assert isinstance(given, dict), "a spec is a mapping"
        labels = {
            names.LABEL_NAME: "deathless",
            names.LABEL_INSTANCE: self._name,
            names.LABEL_MANAGED_BY: names.FIELD_MANAGER,
            names.LABEL_PIPELINE: self._name,
        }
        return self._make(names.API_VERSION, names.SERVICE_KIND, self._name, {"spec": given}, labels)

    def _peer(self, service: PipelineService) -> PeerService:
        """Give where a service is to which rows are sent: in this namespace, where nothing else is said."""
        given = bool(service.addresses) or service.shards > 1
        there = (f"{names.primary_service(service.name)}.{self._namespace}.svc:{names.CLIENT_PORT}",)
        its_name = names.server_name(self._namespace, service.name) if self._secure else ""
        return PeerService(
            name=service.name,
            addresses=service.addresses if given else there,
            server_name=service.server_name or ("" if given else its_name),
            shards=service.shards,
        )

    # ---- the drivers -----------------------------------------------------------------------------------------

    def access(self) -> list[JsonObject]:
        """Give the identity of the pods: they may patch pods of their own set, by name."""
        account = names.drivers(self._name)
        pods: list[Json] = [names.pod(account, ordinal) for ordinal in range(DRIVER_REPLICAS_MAX)]
        rule: JsonObject = {"apiGroups": [""], "resources": ["pods"], "resourceNames": pods, "verbs": ["patch"]}
        subject: JsonObject = {"kind": "ServiceAccount", "name": account, "namespace": self._namespace}
        bound: JsonObject = {
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": account},
            "subjects": [subject],
        }
        return [
            self._of_drivers("v1", "ServiceAccount", {"automountServiceAccountToken": False}),
            self._of_drivers(f"{RBAC}/v1", "Role", {"rules": [rule]}),
            self._of_drivers(f"{RBAC}/v1", "RoleBinding", bound),
        ]

    def ui(self) -> JsonObject:
        """Give the Service of Spark's pages, which listen on the loopback address: for `kubectl port-forward`."""
        chosen: JsonObject = dict(names.driver_selector(self._name) | {names.LABEL_ROLE: names.ROLE_DRIVER})
        port: JsonObject = {"name": "ui", "port": names.SPARK_UI_PORT, "targetPort": "ui", "protocol": "TCP"}
        body: JsonObject = {"spec": {"type": "ClusterIP", "selector": chosen, "ports": [port]}}
        return self._of_drivers("v1", "Service", body, names.ui_service(self._name))

    def budget(self) -> JsonObject:
        """Give the PodDisruptionBudget: one driver at a time may be evicted."""
        chosen: JsonObject = {"matchLabels": dict(names.driver_selector(self._name))}
        body: JsonObject = {
            "spec": {"maxUnavailable": 1, "selector": chosen, "unhealthyPodEvictionPolicy": "AlwaysAllow"}
        }
        return self._of_drivers("policy/v1", "PodDisruptionBudget", body)

    def network_policy(self) -> JsonObject:
        """Give the NetworkPolicy of the pods: nobody calls them, and they call services, DNS and the API server."""
        named = {port_of(url) for service in self._spec.services for url in service.urls}
        called = sorted({names.CLIENT_PORT, names.HTTP_PORT, *self._settings.api_server_ports, *named})
        dns: list[Json] = [{"protocol": kind, "port": DNS_PORT} for kind in ("UDP", "TCP")]
        reached: list[Json] = [{"protocol": "TCP", "port": port} for port in called]
        outwards: list[Json] = [{"ports": dns}, {"ports": reached}]
        if self._spec.drivers.allow_to:
            outwards.append({"to": [peer_of(peer) for peer in self._spec.drivers.allow_to]})
        spec: JsonObject = {
            "podSelector": {"matchLabels": dict(names.driver_selector(self._name))},
            "policyTypes": ["Ingress", "Egress"],
            "egress": outwards,
        }
        return self._of_drivers("networking.k8s.io/v1", "NetworkPolicy", {"spec": spec})

    def agent_config(self) -> AgentConfig:
        """Give what the agent of each pod is started with."""
        spec, token = self._spec, self._spec.token_secret_ref
        token_file = f"{names.TOKEN_FOLDER}/{token.key}" if token is not None else ""
        folder = names.TLS_FOLDER
        tls = TlsConfig(
            ca=f"{folder}/ca.crt",
            certificate=f"{folder}/tls.crt",
            key=f"{folder}/tls.key",
            server_name=names.server_name(self._namespace, self._name),
        )
        return AgentConfig(
            pipeline=self._name,
            name=names.drivers(self._name),
            module=spec.module,
            addresses=(f"{names.primary_service(self._name)}.{self._namespace}.svc:{names.CLIENT_PORT}",),
            tls=tls if self._secure else None,
            service_token_file=token_file,
            services={each.name: self._topics_at(each) for each in spec.services},
            token_file=token_file,
            trigger=trigger_text(spec.trigger),
            conf={**spark_conf(spec), "spark.ui.port": str(names.SPARK_UI_PORT)},
        )

    def _topics_at(self, service: PipelineService) -> str:
        """Give where the topics of a service are read: at its front door in this namespace, if nothing else is said."""
        scheme = "https" if self._secure else "http"
        return ",".join(service.urls) or f"{scheme}://{names.server_name(self._namespace, service.name)}"

    def stateful_set(self) -> JsonObject:
        """Give the StatefulSet of the drivers."""
        name, drivers = self._name, self._spec.drivers
        labels: JsonObject = dict(names.driver_labels(name))
        chosen: JsonObject = dict(names.driver_selector(name))
        spec: JsonObject = {
            "serviceName": names.ui_service(name),
            "replicas": 0 if self._spec.suspend else drivers.replicas,
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "RollingUpdate"},
            "revisionHistoryLimit": 3,
            "selector": {"matchLabels": chosen},
            "template": {"metadata": {"labels": labels}, "spec": self._pod()},
        }
        return self._of_drivers("apps/v1", "StatefulSet", {"spec": spec})

    def _pod(self) -> JsonObject:
        volumes, mounts = self._volumes()
        alike: JsonObject = {"matchLabels": dict(names.driver_selector(self._name))}
        apart: JsonObject = {"labelSelector": alike, "topologyKey": "kubernetes.io/hostname"}
        return {
            "serviceAccountName": names.drivers(self._name),
            "automountServiceAccountToken": True,  # the agent patches its own pod
            "enableServiceLinks": False,
            "shareProcessNamespace": True,  # what Java and Python leave behind is reaped by the pod's first process
            "terminationGracePeriodSeconds": GRACE_S,
            "securityContext": {
                "runAsNonRoot": True,
                "seccompProfile": {"type": "RuntimeDefault"},
                "fsGroup": FS_GROUP,
                "fsGroupChangePolicy": "OnRootMismatch",
            },
            "affinity": {
                "podAntiAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": apart}]
                }
            },
            "containers": [self._container(mounts)],
            "volumes": volumes,
        }

    def _container(self, mounts: list[Json]) -> JsonObject:
        spec = self._spec
        config = msgspec.json.encode(self.agent_config(), order="sorted").decode()
        environment: list[Json] = [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
            {"name": "HOME", "value": names.RUN_FOLDER},
            {"name": CONFIG_VARIABLE, "value": config},
        ]
        return {
            "name": names.DRIVER_CONTAINER,
            "image": spec.image,
            "imagePullPolicy": spec.image_pull_policy or self._settings.pull_policy,
            "command": ["python", "-m", "deathless.spark.host"],
            "ports": [{"name": "ui", "containerPort": names.SPARK_UI_PORT, "protocol": "TCP"}],
            "env": environment,
            "resources": self._resources(),
            "securityContext": container_security(),
            "readinessProbe": {
                "exec": {"command": ["test", "-f", f"{AGENT_FOLDER}/{READY_FILE}"]},
                "periodSeconds": 2,
                "failureThreshold": 1,
                "timeoutSeconds": 5,
            },
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "volumeMounts": mounts,
        }

    def _resources(self) -> JsonObject:
        asked = self._spec.drivers.resources
        parts = (("requests", asked.requests), ("limits", asked.limits))
        return {word: {key: str(value) for key, value in given.items()} for word, given in parts if given}

    def _volumes(self) -> tuple[list[Json], list[Json]]:
        volumes: list[Json] = [{"name": "deathless-run", "emptyDir": {}}]
        mounts: list[Json] = [{"name": "deathless-run", "mountPath": names.RUN_FOLDER}]
        token, secret_ref = self._spec.token_secret_ref, self._spec.drivers.secret_ref
        secrets = (
            ("deathless-tls", names.client_tls_secret(self._name) if self._secure else "", names.TLS_FOLDER),
            ("deathless-token", token.name if token is not None else "", names.TOKEN_FOLDER),
            ("deathless-secret", secret_ref.name if secret_ref is not None else "", names.DRIVER_SECRET_FOLDER),
        )
        for volume, secret, folder in secrets:
            if secret:
                volumes.append({"name": volume, "secret": {"secretName": secret, "defaultMode": 0o440}})
                mounts.append({"name": volume, "mountPath": folder, "readOnly": True})
        return volumes, mounts


def _given(value: object, default: object) -> Json:
    """Give what of a mapping is not as by default, likewise in what stands in it."""
    if isinstance(value, dict):
        usual = default if isinstance(default, dict) else {}
        return {
            key: _given(inner, usual.get(key))
            for key, inner in value.items()
            if inner != usual.get(key) and (key in usual or inner not in ("", None))
        }
    if isinstance(value, list | tuple):
        return [_given(each, None) for each in value]
    assert value is None or isinstance(value, str | int | float), "a manifest holds plain values"
    return value

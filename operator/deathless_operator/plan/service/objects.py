"""Every object of one DeathlessService, as it should be (0005, "Objects of one DeathlessService").

Guarantees: a pure function of resource, settings and the code that was accepted; each manifest bears the labels, the
owner, and a hash of itself, so that what has to be applied is seen without asking the API server. Does not: say when
they are applied (`plan`), or know pods. Imports model and base only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from deathless.base.config import ActivitiesConfig, PeerConfig, ReplicaConfig, TlsConfig
from deathless.base.foreign.binding import binding_config
from deathless.base.limits import REPLICATED, Limits
from deathless.base.lock_stores.etcd import EtcdConfig
from deathless.base.manifest import ServiceSpec, driver_configs, limits_of, topics_of, tracing_config
from deathless.base.manifest_ingress import Ingress, allowed_services, authentication_config
from deathless.base.manifest_parts import REPLICAS_MAX, Peer, PeerService, TlsSpec
from deathless.base.shards import shard_directory
from deathless.base.source_kinds.settings import gate_ports, source_configs
from deathless.base.topics.settings import topic_configs
from deathless.base.topics.sinks import sink_configs
from deathless_operator.model import names
from deathless_operator.model.grace import handover_wait_s
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.model.values import Json, JsonObject
from deathless_operator.plan.service.placement import Former, Mounted, digest, stateful_set
from deathless_operator.plan.snapshot import ResourceView

DNS_PORT: Final = 53
UPGRADERS: Final = 2  # pods that are made for an upgrade: one makes it, the other takes over from that
# What differs from a laptop's config; the rest a pod finds out by itself.
_DEFAULTS: Final = ReplicaConfig(service="x", module="x:x", directory="x", replica="x")


class Lock(msgspec.Struct, frozen=True, kw_only=True):
    """Where the lock store is, and the Secrets in the service's namespace that open it."""

    endpoints: tuple[str, ...]
    prefix: str
    tls_secret: str = ""
    tls_has_certificate: bool = False  # whether the Secret holds tls.crt, or the authority alone
    user_secret: str = ""
    lease_ttl_s: int = 10


class Code(msgspec.Struct, frozen=True, kw_only=True):
    """What runs, as far as the fingerprint looks: the accepted image, module, and limits that decide over turns."""

    image: str
    module: str
    limits: dict[str, int | float] = {}  # of `REPLICATED`, those that are not as by default
    peers: dict[str, int] = {}  # shards of the services that have several: turns know whom they send to


class UpgradingTo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The code that a service is upgraded to, as it is noted on its StatefulSet."""

    image: str
    module: str
    fingerprint: str
    replicas: int  # that the service had when it began: upgraders come behind them
    limits: dict[str, int | float] = {}
    peers: dict[str, int] = {}
    spellings: tuple[str, ...] = ()  # other fingerprints that mean this code
    instead: str = ""  # `mark_of` the code that the spec names, where a LiveUpgrade asks for this one instead

    @property
    def code(self) -> Code:
        """The code itself."""
        return Code(image=self.image, module=self.module, limits=self.limits, peers=self.peers)

    def is_told_by(self, fingerprint: str) -> bool:
        """Tell whether a fingerprint means this code."""
        return bool(fingerprint) and fingerprint in (self.fingerprint, *self.spellings)

    def note(self) -> str:
        """Give it as it is noted."""
        return msgspec.json.encode(self, order="sorted").decode()


def code_of(spec: ServiceSpec) -> Code:
    """Give the code that a spec names."""
    given = limits_of(spec)
    default = Limits()
    limits: dict[str, int | float] = {
        str(name): given[name] for name in REPLICATED if name in given and given[name] != getattr(default, name)
    }
    peers = {peer.name: peer.shards for peer in spec.peers if peer.shards > 1}
    return Code(image=spec.image, module=spec.module, limits=limits, peers=peers)


def mark_of(spec: ServiceSpec) -> str:
    """Give the hash of the image and the module that a spec names."""
    return digest([spec.image, spec.module])


def tls_of(spec: ServiceSpec) -> TlsSpec:
    """Give the certificates that are wanted: in a cluster the operator's where nothing is said."""
    return spec.tls or TlsSpec()


def claim_of(resource: ResourceView, spec: ServiceSpec) -> str:
    """Name the claim that holds the log."""
    return spec.log_storage.claim_name or names.log_claim(resource.name)


def replica_config(resource: ResourceView, spec: ServiceSpec, lock: Lock, code: Code, shard: int = 0) -> JsonObject:
    """Give replica.json: what all replicas of a shard share; each adds its own name, instance and address."""
    tls = None
    if tls_of(spec).issuer != "Off":
        asked = tls_of(spec).require_client_certificate
        tls = TlsConfig(
            ca=f"{names.TLS_FOLDER}/ca.crt",
            certificate=f"{names.TLS_FOLDER}/tls.crt",
            key=f"{names.TLS_FOLDER}/tls.key",
            require_client_certificate=True if asked is None else asked,
            server_name=names.server_name(resource.namespace, resource.name),
        )
    config = ReplicaConfig(
        service=resource.name,
        module=code.module,
        directory=shard_directory(names.LOG_FOLDER, shard, spec.shards),
        replica="",
        shard=shard,
        shards=spec.shards,
        tls=tls,
        lock="etcd",
        etcd=etcd_config(lock),
        fence="etcd",
        promote_checkpointer=spec.promote_checkpointer,
        log_level=spec.log_level,
        allow_services=allowed_services(spec.ingress),
        authentication=authentication_config(
            spec.ingress, tokens=names.CALLERS_FOLDER, authorities=issuer_authorities(spec)
        ),
        cors_origins=spec.ingress.cors_origins if spec.ingress is not None else (),
        peers=_peers(resource.namespace, spec, code),
        activities=ActivitiesConfig(workers=spec.activities.workers),
        drivers=driver_configs(spec, ".", names.DRIVERS_FOLDER)
        + topic_configs(topics_of(spec), shard_directory(names.LOG_FOLDER, shard, spec.shards)),
        sinks=sink_configs(spec.sinks, shard_directory(names.LOG_FOLDER, shard, spec.shards), ".", names.SINKS_FOLDER),
        sources=source_configs(spec.sources, ".", names.SOURCES_FOLDER, everywhere=True),
        binding=binding_config(spec.binding, resource.name, "."),
        tracing=tracing_config(spec),
        allow_any_file_system=spec.log_storage.allow_any_file_system,
        token_file=f"{names.TOKEN_FOLDER}/{spec.token_secret_ref.key}" if spec.token_secret_ref else "",
        limits=_limits_of(spec, code),
    )
    encoded: JsonObject = msgspec.json.decode(msgspec.json.encode(config))
    plain: JsonObject = msgspec.json.decode(msgspec.json.encode(_DEFAULTS))
    return {key: value for key, value in encoded.items() if value != plain.get(key) and key != "replica"}


def _limits_of(spec: ServiceSpec, code: Code) -> dict[str, int | float]:
    """Give the limits of replicas: those that decide over turns are the accepted code's."""
    limits: dict[str, int | float] = {name: value for name, value in limits_of(spec).items() if name not in REPLICATED}
    if handover_wait_s(spec) != Limits().handover_wait_s:
        limits["handover_wait_s"] = handover_wait_s(spec)
    return limits | code.limits


def caller_secrets(spec: ServiceSpec) -> tuple[str, str]:
    """Name the Secrets with callers' tokens and with the authorities of their issuer; empty: none."""
    how = spec.ingress.authentication if spec.ingress is not None else None
    token = how.token.secret_ref if how is not None and how.token is not None else None
    oidc = how.oidc.ca_secret_ref if how is not None and how.oidc is not None else None
    return (token.name if token is not None else "", oidc.name if oidc is not None else "")


def issuer_authorities(spec: ServiceSpec) -> str:
    """Give the file in a pod with the authorities of the callers' issuer; empty: the image's own."""
    how = spec.ingress.authentication if spec.ingress is not None else None
    found = how.oidc.ca_secret_ref if how is not None and how.oidc is not None else None
    return f"{names.ISSUER_CA_FOLDER}/{found.key}" if found is not None else ""


def _peers(namespace: str, spec: ServiceSpec, code: Code) -> tuple[PeerConfig, ...]:
    """Give the other services that are named: how many shards each has is part of the code that was accepted."""
    found = []
    known = {peer.name: peer for peer in spec.peers}
    for name in [*known, *(name for name in code.peers if name not in known)]:
        peer, shards = known.get(name, PeerService(name=name)), code.peers.get(name, 1)
        server_name = peer.server_name
        addresses = peer.addresses
        if shards > 1 and not addresses:
            bases = [names.of_shard(name, shard) for shard in range(shards)]
            addresses = tuple(f"{names.primary_service(base)}.{namespace}.svc:{names.CLIENT_PORT}" for base in bases)
            server_name = server_name or names.server_name(namespace, name)
        if addresses:
            found.append(PeerConfig(name=name, addresses=addresses, server_name=server_name, shards=shards))
    return tuple(found)


def etcd_config(lock: Lock) -> EtcdConfig:
    """Give how a pod reaches the lock store, with the lock's Secrets mounted."""
    tls = None
    if lock.tls_secret:
        folder, shown = names.LOCK_TLS_FOLDER, lock.tls_has_certificate
        tls = TlsConfig(
            ca=f"{folder}/ca.crt",
            certificate=f"{folder}/tls.crt" if shown else "",
            key=f"{folder}/tls.key" if shown else "",
        )
    user = names.LOCK_USER_FOLDER if lock.user_secret else ""
    return EtcdConfig(
        endpoints=lock.endpoints,
        prefix=lock.prefix,
        tls=tls,
        username_file=f"{user}/username" if user else "",
        password_file=f"{user}/password" if user else "",
        lease_ttl_s=lock.lease_ttl_s,
    )


class Objects:
    """Makes the manifests of one service.

    Args:
        resource: the service.
        spec: its spec.
        settings: of the installation.
    """

    def __init__(self, resource: ResourceView, spec: ServiceSpec, settings: OperatorSettings) -> None:
        self._resource = resource
        self._spec = spec
        self._settings = settings
        self._name = resource.name

    def owner(self) -> JsonObject:
        """Give the ownerReference of everything that goes with the service."""
        return {
            "apiVersion": names.API_VERSION,
            "kind": names.SERVICE_KIND,
            "name": self._name,
            "uid": self._resource.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }

    def make(
        self,
        api_version: str,
        kind: str,
        name: str,
        body: JsonObject,
        *,
        owned: bool = True,
        annotations: dict[str, str] | None = None,
    ) -> JsonObject:
        """Give a manifest with labels, owner and the hash of all of it."""
        labels: JsonObject = dict(names.labels(self._name))
        noted: JsonObject = {names.INSTALLATION_ANNOTATION: self._settings.namespace, **(annotations or {})}
        metadata: JsonObject = {"name": name, "namespace": self._resource.namespace, "labels": labels}
        if owned:
            metadata["ownerReferences"] = [self.owner()]
        head: JsonObject = {"apiVersion": api_version, "kind": kind, "metadata": metadata}
        manifest = head | body
        noted[names.APPLIED_ANNOTATION] = digest([manifest, dict(noted)])
        metadata["annotations"] = noted
        return manifest

    def supports(
        self,
        lock: Lock,
        codes: Sequence[Code],
        *,
        labelled: bool = True,
        former: bool = False,
        upgrades: Mapping[int, UpgradingTo] | None = None,
    ) -> list[JsonObject]:
        """Give everything beside claim, certificates and StatefulSet, in the order they are to be applied.

        Args:
            lock: the lock store.
            codes: that were accepted, by shard.
            labelled: see `services`.
            former: see `config_map`.
            upgrades: by shard: the code that pods are made from beside those of the accepted code.
        """
        shards = range(self._spec.shards)
        to = (upgrades or {}).items()
        found = [
            *self.access(),
            *(self.config_map(lock, codes[shard], shard, former=former) for shard in shards),
            *(self.config_map(lock, upgrade.code, shard, upgrades=True) for shard, upgrade in to),
            *self.services(labelled=labelled),
            *(self.budget(shard) for shard in shards),
        ]
        if self._settings.network_policies and self._spec.network_policy.type == "Managed":
            found.append(self.network_policy(lock))
        return found

    def access(self) -> list[JsonObject]:
        """Give the identity of the pods: they may read and patch pods of the service, by name."""
        sets = [names.of_shard(self._name, shard) for shard in range(self._spec.shards)]
        pods: list[Json] = [names.pod(found, ordinal) for found in sets for ordinal in range(REPLICAS_MAX + UPGRADERS)]
        rules: list[Json] = [
            {"apiGroups": [""], "resources": ["pods"], "resourceNames": pods, "verbs": ["get", "watch", "patch"]}
        ]
        rbac = "rbac.authorization.k8s.io"
        subject: JsonObject = {"kind": "ServiceAccount", "name": self._name, "namespace": self._resource.namespace}
        return [
            self.make(
                "v1",
                "ServiceAccount",
                self._name,
                {"automountServiceAccountToken": False},
                annotations=dict(self._spec.pod_template.service_account_annotations),
            ),
            self.make(f"{rbac}/v1", "Role", self._name, {"rules": rules}),
            self.make(
                f"{rbac}/v1",
                "RoleBinding",
                self._name,
                {"roleRef": {"apiGroup": rbac, "kind": "Role", "name": self._name}, "subjects": [subject]},
            ),
        ]

    def config_name(
        self, lock: Lock, code: Code, shard: int = 0, *, former: bool = False, upgrades: bool = False
    ) -> str:
        """Name the ConfigMap with a shard's replica.json; arguments as for `config_map`."""
        base = names.of_shard(self._name, shard)
        content = self.config(lock, code, shard, upgrades=upgrades)
        return names.config_map(base, "" if former else digest([content, lock.tls_secret, lock.user_secret]))

    def config_map(
        self, lock: Lock, code: Code, shard: int = 0, *, former: bool = False, upgrades: bool = False
    ) -> JsonObject:
        """Give the ConfigMap with a shard's replica.json, whose name tells its content.

        Args:
            lock: the lock store.
            code: that was accepted, or is upgraded to.
            shard: whose.
            former: as former operators made it, under one name for every content (`pod_settings`).
            upgrades: see `config`.
        """
        config = self.config(lock, code, shard, upgrades=upgrades)
        text = msgspec.json.format(msgspec.json.encode(config, order="sorted"), indent=2).decode()
        name = self.config_name(lock, code, shard, former=former, upgrades=upgrades)
        body: JsonObject = {"data": {names.CONFIG_FILE: f"{text}\n"}}
        if former:
            return self.make("v1", "ConfigMap", name, body)
        held = ",".join(each for each in (lock.tls_secret, lock.user_secret) if each.startswith(f"{self._name}-lock-"))
        noted = {names.LOCK_SECRETS_ANNOTATION: held} if held else None
        return self.make("v1", "ConfigMap", name, {"immutable": True, **body}, annotations=noted)

    def config(self, lock: Lock, code: Code, shard: int = 0, *, upgrades: bool = False) -> JsonObject:
        """Give a shard's replica.json.

        Args:
            lock: the lock store.
            code: that replicas run.
            shard: whose.
            upgrades: the replica may find a log of other code; that runs beside it, and answers at a socket.
        """
        found = replica_config(self._resource, self._spec, lock, code, shard)
        return found | {"former": names.FORMER_SOCKET} if upgrades else found

    def _chosen(self, shard: int) -> JsonObject:
        """Give the labels that the pods of a shard have."""
        return dict(names.shard_selector(self._name, shard, self._spec.shards))

    def services(self, *, labelled: bool = True) -> list[JsonObject]:
        """Give the Services: any replica of any shard, and for each shard the primary, and names for pods.

        A replica's front door sends what it is asked to the shard of its key, so callers need no other Service.

        Args:
            labelled: every pod says by its label whether callers are sent to it. Pods made by an operator before that
                label have none: until they are rolled the Service selects as it did, or it would have no endpoints.
        """
        ingress = self._spec.ingress or Ingress()
        ports: list[Json] = [
            {"name": "http", "port": names.SERVICE_HTTP_PORT, "targetPort": "http", "protocol": "TCP"},
            {"name": "client", "port": names.CLIENT_PORT, "targetPort": "client", "protocol": "TCP"},
        ]
        if tls_of(self._spec).issuer != "Off":
            secure: JsonObject = {"name": "https", "port": names.SERVICE_HTTPS_PORT, "targetPort": "http"}
            ports.append(secure | {"protocol": "TCP"})
        own: JsonObject = dict(names.selector(self._name))
        serving: JsonObject = own | {names.LABEL_SERVING: names.SERVING} if labelled else own
        inner: list[Json] = [
            {"name": "replication", "port": names.REPLICATION_PORT, "protocol": "TCP"},
            {"name": "control", "port": names.CONTROL_PORT, "protocol": "TCP"},
        ]
        found = [
            self.make(
                "v1",
                "Service",
                self._name,
                {"spec": {"type": ingress.service_type, "selector": serving, "ports": ports}},
                annotations=dict(ingress.service_annotations),
            )
        ]
        for shard in range(self._spec.shards):
            base, chosen = names.of_shard(self._name, shard), self._chosen(shard)
            gates = self._gate_ports() if shard == 0 else []  # they are beside the primary of shard 0
            led: JsonObject = {"selector": chosen | {names.LABEL_ROLE: names.ROLE_PRIMARY}, "ports": [*ports, *gates]}
            named: JsonObject = {"selector": chosen, "ports": [ports[1], *inner]}
            found += [
                self.make("v1", "Service", names.primary_service(base), {"spec": {"type": "ClusterIP", **led}}),
                self.make(
                    "v1",
                    "Service",
                    names.headless_service(base),
                    {"spec": {"clusterIP": "None", "publishNotReadyAddresses": True, **named}},
                ),
            ]
        return found

    def _gate_ports(self) -> list[Json]:
        """Give the ports at which programs connect to gates, for a Service."""
        found = sorted(set(gate_ports(self._spec.sources).values()))
        return [{"name": f"connector-{port}", "port": port, "targetPort": port, "protocol": "TCP"} for port in found]

    def budget(self, shard: int = 0) -> JsonObject:
        """Give a shard's PodDisruptionBudget: one of its replicas at a time may be evicted."""
        chosen: JsonObject = {"matchLabels": self._chosen(shard)}
        # A replica that does not serve may go: it protects nothing, and its node may need to be emptied.
        body: JsonObject = {
            "spec": {"maxUnavailable": 1, "selector": chosen, "unhealthyPodEvictionPolicy": "AlwaysAllow"}
        }
        return self.make("policy/v1", "PodDisruptionBudget", names.of_shard(self._name, shard), body)

    def claim(self) -> JsonObject | None:
        """Give the claim that the operator makes; None where the spec names one.

        It goes with the service (by its ownerReference) only where the spec says Delete.
        """
        storage = self._spec.log_storage
        if storage.claim_name:
            return None
        body: JsonObject = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": storage.size}}}
        if storage.class_name:
            body["storageClassName"] = storage.class_name
        return self.make(
            "v1",
            "PersistentVolumeClaim",
            names.log_claim(self._name),
            {"spec": body},
            owned=storage.deletion_policy == "Delete",
        )

    def network_policy(self, lock: Lock) -> JsonObject:
        """Give the NetworkPolicy of the replicas' pods."""
        own: JsonObject = {"podSelector": {"matchLabels": dict(names.selector(self._name))}}
        leads: JsonObject = {names.LABEL_INSTANCE: self._name, names.LABEL_PURPOSE: names.PURPOSE_UPGRADE}
        upgrades: JsonObject = {"podSelector": {"matchLabels": leads}}
        drills: JsonObject = {"podSelector": {"matchLabels": {names.LABEL_PURPOSE: "drill"}}}
        front = _ports(names.CLIENT_PORT, names.HTTP_PORT, *sorted(set(gate_ports(self._spec.sources).values())))
        ingress = self._spec.ingress or Ingress()
        door: JsonObject = {"ports": front}
        if ingress.allow_from:
            door["from"] = [drills, *map(peer_of, ingress.allow_from)]
        elif ingress.service_type == "ClusterIP":
            door["from"] = [{"namespaceSelector": {}}]
        inwards: list[Json] = [
            {"from": [own, upgrades], "ports": [*_ports(names.REPLICATION_PORT, names.CONTROL_PORT), *front]},
            door,
            # Probes come from nodes and metrics from anywhere; there are no data behind this port.
            {"ports": _ports(names.HEALTH_PORT)},
        ]
        policy = self._spec.network_policy
        outwards: list[Json] = [{}]
        if policy.egress == "Restricted":
            store = sorted({port_of(endpoint) for endpoint in lock.endpoints})
            dns: list[Json] = [{"protocol": kind, "port": DNS_PORT} for kind in ("UDP", "TCP")]
            outwards = [
                {"to": [own]},
                {"ports": dns},
                {"ports": _ports(*store)},
                {"ports": _ports(*self._settings.api_server_ports)},
            ]
            # A peer is looked up at its addresses and then called at its replicas' own.
            called = {port_of(address) for peer in self._spec.peers for address in peer.addresses}
            if called:
                outwards.append({"ports": _ports(*sorted(called | {names.CLIENT_PORT}))})
            if policy.allow_to:
                outwards.append({"to": [peer_of(peer) for peer in policy.allow_to]})
        body: JsonObject = {
            "podSelector": {"matchLabels": dict(names.selector(self._name))},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": inwards,
            "egress": outwards,
        }
        return self.make("networking.k8s.io/v1", "NetworkPolicy", self._name, {"spec": body})

    def stateful_set(
        self,
        mounted: Mounted,
        lock: Lock,
        code: Code,
        *,
        replicas: int,
        shard: int = 0,
        upgrade: UpgradingTo | None = None,
        noted: UpgradingTo | None = None,
        losses: str = "",
        left_behind: str = "",
    ) -> JsonObject:
        """Give a shard's StatefulSet, with what was accepted written on it.

        Args:
            mounted: what pods mount.
            lock: the lock store.
            code: that was accepted.
            replicas: for now.
            shard: whose replicas.
            upgrade: pods are made from this code, with the accepted one beside it.
            noted: the code of an upgrade that may still be made, though it is not wanted any more.
            losses: how often an upgrade was spoilt by replicas that were lost; empty: none was.
            left_behind: `mark_of` the spec, where its code is no order any more; empty: it is.
        """
        former, made = None, code
        if upgrade is not None:
            accepted = self.config_name(lock, code, shard)
            former = Former(image=code.image, config_map=accepted, fingerprint=upgrade.fingerprint)
            made = upgrade.code
        body = stateful_set(
            self._name,
            self._spec,
            self._settings,
            mounted,
            image=made.image,
            config=digest(self.config(lock, made, shard, upgrades=upgrade is not None)),
            replicas=replicas,
            shard=shard,
            former=former,
        )
        accepted_code = {names.IMAGE_ANNOTATION: code.image, names.MODULE_ANNOTATION: code.module}
        if code.limits:
            accepted_code[names.LIMITS_ANNOTATION] = msgspec.json.encode(code.limits, order="sorted").decode()
        if code.peers:
            accepted_code[names.PEERS_ANNOTATION] = msgspec.json.encode(code.peers, order="sorted").decode()
        if (note := upgrade or noted) is not None:
            accepted_code[names.UPGRADING_TO_ANNOTATION] = note.note()
        if losses:
            accepted_code[names.LOSSES_ANNOTATION] = losses
        if left_behind:
            accepted_code[names.LEFT_BEHIND_ANNOTATION] = left_behind
        name = names.of_shard(self._name, shard)
        return self.make("apps/v1", "StatefulSet", name, {"spec": body}, annotations=accepted_code)


def _ports(*ports: int) -> list[Json]:
    return [{"protocol": "TCP", "port": port} for port in ports]


def peer_of(peer: Peer) -> JsonObject:
    """Give an entry of allowFrom or allowTo as a NetworkPolicy has it."""
    pairs = (
        ("namespaceSelector", peer.namespace_selector),
        ("podSelector", peer.pod_selector),
        ("ipBlock", peer.ip_block),
    )
    shown = {key: value for key, value in pairs if value is not None}
    decoded: JsonObject = msgspec.json.decode(msgspec.json.encode(shown))
    return decoded


def port_of(endpoint: str) -> int:
    """Give the port of a URL or an address that its field's pattern takes; of a URL without one, that of its scheme."""
    tail = endpoint.rpartition(":")[2]
    if tail.isdecimal():
        return int(tail)
    return 443 if endpoint.startswith("https:") else 80

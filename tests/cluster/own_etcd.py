"""An etcd that is not the chart's: three members in a namespace of their own, TLS, a client certificate, and a login.

    store = OwnEtcd(cluster, namespace, tmp_path)
    store.start()
    cluster.apply(*store.secrets(ledger.namespace))
    Ledger(cluster, "own", lock=store.lock)

Guarantees: `start` returns when the members serve and let nobody in without the user's password. The user may do no
more than the documents ask for: read and write below /deathless/. Does not: keep anything; it goes with its namespace.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from lab.cluster.certificates import Authority
from lab.cluster.cluster import Pod
from lab.cluster.machine import CommandFailed, wait_until
from tests.cluster.installed import Lab

from deathless_operator.model.names import LOCK_TLS_FOLDER

MEMBERS = 3
IMAGE = "gcr.io/etcd-development/etcd:v3.6.16"
SELECTOR = "app=store"
USER, PASSWORD = "deathless", "of-a-test"
PREFIX = "/deathless/"
TOKEN_S = 2
"""A token that a member has not seen used for so long ends; each member counts for itself."""
ARGUMENTS = (
    "--name=$(NAME)",
    "--data-dir=/data/etcd",
    "--log-level=warn",
    "--bcrypt-cost=4",
    f"--auth-token-ttl={TOKEN_S}",
    "--listen-client-urls=https://0.0.0.0:2379",
    "--advertise-client-urls=https://$(NAME).$(DOMAIN):2379",
    "--listen-peer-urls=http://0.0.0.0:2380",
    "--initial-advertise-peer-urls=http://$(NAME).$(DOMAIN):2380",
    "--initial-cluster=$(MEMBERS)",
    "--client-cert-auth",
    "--trusted-ca-file=/tls/ca.crt",
    "--cert-file=/tls/tls.crt",
    "--key-file=/tls/tls.key",
    "--unsafe-no-fsync",  # it goes with its pods; a disk that stalls is no finding
)
ASK = """
import ssl, sys, urllib.error, urllib.request
url, folder, body, token = sys.argv[1:]
context = ssl.create_default_context(cafile=f"{folder}/ca.crt")
context.load_cert_chain(f"{folder}/tls.crt", f"{folder}/tls.key")
headers = {"Authorization": token} if token else {}
request = urllib.request.Request(url, body.encode(), headers)
try:
    print(urllib.request.urlopen(request, timeout=30, context=context).read().decode())
except urllib.error.HTTPError as refused:
    print(refused.read().decode())
"""
"""Asks a member past our own client, and prints what it answers."""
COMMAND_S = 60
"""etcdctl's patience on a busy machine; its own is five seconds. As variables alone: beside its flag it refuses one."""


class OwnEtcd:
    """One store.

    Args:
        cluster: where.
        namespace: of the members.
        folder: where its certificates are made.
    """

    def __init__(self, cluster: Lab, namespace: str, folder: Path) -> None:
        self.namespace = namespace
        self._cluster = cluster
        self._folder = folder
        self._domain = f"store.{namespace}.svc.cluster.local"
        authority = Authority(folder, "ca")
        authority.issue("server", "store", hosts=[f"*.{self._domain}", "localhost", "127.0.0.1"])
        # With logins switched on etcd's gateway refuses a client whose certificate has a common name.
        authority.issue("client", "")

    @property
    def lock(self) -> dict[str, Any]:
        """What a service's spec says of it."""
        refs = {"tlsSecretRef": {"name": "store-tls"}, "userSecretRef": {"name": "store-user"}}
        return {"etcd": {"endpoints": self._endpoints, **refs}}

    @property
    def values(self) -> dict[str, Any]:
        """What `lockStore` of the installation's values says of it."""
        there = {"endpoints": self._endpoints, "tlsSecret": "store-tls", "userSecret": "store-user"}
        return {"enabled": False, "external": there}

    @property
    def _endpoints(self) -> list[str]:
        return [f"https://store-{number}.{self._domain}:2379" for number in range(MEMBERS)]

    def secrets(self, namespace: str) -> list[dict[str, Any]]:
        """The Secrets that `lock` and `values` name."""
        return [
            secret("store-tls", namespace, self._files("client")),
            secret("store-user", namespace, {"username": USER.encode(), "password": PASSWORD.encode()}),
        ]

    def start(self) -> None:
        """Start the members and switch on logins."""
        tls = secret("server-tls", self.namespace, self._files("server"))
        ports = [{"name": "client", "port": 2379}, {"name": "peer", "port": 2380}]
        names = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"app": "store"}, "ports": ports}
        service = {"apiVersion": "v1", "kind": "Service", "metadata": self._meta("store"), "spec": names}
        self._cluster.apply(tls, service, self._members())
        self._cluster.wait_rolled_out(self.namespace, "statefulset/store")
        wait_until(self._healthy, "the store serves", within_s=3 * COMMAND_S)
        for line in (
            f"user add {USER}:{PASSWORD}",
            f"role add {USER}",
            f"role grant-permission {USER} --prefix=true readwrite {PREFIX}",
            f"user grant-role {USER} {USER}",
            f"user add root:{PASSWORD}",
            "user grant-role root root",
            "auth enable",
        ):
            self.etcdctl(*line.split())

    def _healthy(self) -> bool:
        try:
            self.etcdctl("endpoint", "health")
        except CommandFailed:
            return False
        return True

    def etcdctl(self, *words: str) -> str:
        """Run etcdctl in the first member's pod as root, and return its output.

        Raises:
            CommandFailed: it said no.
        """
        return self._cluster.exec(
            self._cluster.pod(self.namespace, "store-0"), "etcdctl", *words, timeout_s=COMMAND_S + 30
        )

    def kill_leader(self) -> Pod:
        """Kill the leader's process; gives its pod."""
        return self._cluster.kill_etcd_leader(self.namespace, SELECTOR)

    @contextmanager
    def frozen_leader(self) -> Iterator[Pod]:
        """The leader hangs."""
        with self._cluster.frozen_etcd_leader(self.namespace, SELECTOR) as leader:
            yield leader

    def wait_tokens_end(self, replica: Pod) -> None:
        """Wait until each member has forgotten a token of now that nobody shows to it.

        Args:
            replica: a pod of a service that uses this store; it has what a member asks of a client.
        """
        login = {"name": USER, "password": PASSWORD}
        for endpoint in self._endpoints:
            token = str(self._ask(replica, f"{endpoint}/v3/auth/authenticate", login)["token"])
            wait_until(
                partial(self._forgotten, replica, endpoint, token),
                f"the end of a token at {endpoint}",
                within_s=COMMAND_S,
                poll_s=2.0 * TOKEN_S,  # to show it is to prolong it
            )

    def _forgotten(self, replica: Pod, endpoint: str, token: str) -> bool:
        key = base64.b64encode(PREFIX.encode()).decode()
        told = self._ask(replica, f"{endpoint}/v3/kv/range", {"key": key}, token)
        assert "header" in told or "invalid auth token" in str(told), told
        return "header" not in told

    def _ask(self, replica: Pod, url: str, body: dict[str, str], token: str = "") -> dict[str, Any]:
        words = ("python3", "-c", ASK, url, LOCK_TLS_FOLDER, json.dumps(body), token)
        told: dict[str, Any] = json.loads(self._cluster.exec(replica, *words))
        return told

    def keys(self) -> list[str]:
        """The keys it holds."""
        return self.etcdctl("get", "--prefix", "--keys-only", PREFIX).split()

    def _files(self, leaf: str) -> dict[str, bytes]:
        names = {"ca.crt": "ca.crt", "tls.crt": f"{leaf}.crt", "tls.key": f"{leaf}.key"}
        return {key: (self._folder / name).read_bytes() for key, name in names.items()}

    def _meta(self, name: str) -> dict[str, Any]:
        return {"name": name, "namespace": self.namespace, "labels": {"app": "store"}}

    def _members(self) -> dict[str, Any]:
        members = ",".join(f"store-{number}=http://store-{number}.{self._domain}:2380" for number in range(MEMBERS))
        login = {"USER": f"root:{PASSWORD}", "ENDPOINTS": "https://localhost:2379"}
        files = {"CACERT": "/tls/ca.crt", "CERT": "/tls/tls.crt", "KEY": "/tls/tls.key"}
        patience = {"COMMAND_TIMEOUT": f"{COMMAND_S}s", "DIAL_TIMEOUT": "30s"}
        environment = {"DOMAIN": self._domain, "MEMBERS": members}
        environment |= {f"ETCDCTL_{name}": value for name, value in (login | files | patience).items()}
        container = {
            "name": "etcd",
            "image": IMAGE,
            "imagePullPolicy": "Never",
            "command": ["etcd", *ARGUMENTS],
            "env": [
                {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                *({"name": name, "value": value} for name, value in environment.items()),
            ],
            "ports": [{"name": "client", "containerPort": 2379}, {"name": "peer", "containerPort": 2380}],
            "readinessProbe": {"tcpSocket": {"port": 2379}, "periodSeconds": 1},
            "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "tls", "mountPath": "/tls"}],
        }
        volumes = [{"name": "data", "emptyDir": {}}, {"name": "tls", "secret": {"secretName": "server-tls"}}]
        pod = {"containers": [container], "volumes": volumes, "terminationGracePeriodSeconds": 0}
        spec = {
            "serviceName": "store",
            "replicas": MEMBERS,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": "store"}},
            "template": {"metadata": {"labels": {"app": "store"}}, "spec": pod},
        }
        return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": self._meta("store"), "spec": spec}


def secret(name: str, namespace: str, data: dict[str, bytes]) -> dict[str, Any]:
    """A Secret that its owner lets the operator look at."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace, "labels": {"deathless.dev/readable": "true"}},
        "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
    }

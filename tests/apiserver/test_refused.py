"""An admission policy or webhook of a real API server lets one kind of object through no more, and a node dies.

What is shown for each kind: the dead node's pod is replaced, the condition names what was refused with the API server's
words, and the object comes back once it is admitted. What else goes on stands in the plan's own tests.
"""

from __future__ import annotations

import base64
import json
import secrets
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from etcd_server import wait_until
from operator_process import OperatorProcess
from real_api_server import RealApiServer
from test_services import conditions, exists, make_service, mounted

from deathless_operator.cluster.authority import Authority, issue, new_signer
from deathless_operator.cluster.kinds import (
    BUDGET,
    CONFIG_MAP,
    KUBE_SERVICE,
    NETWORK_POLICY,
    NODE,
    POD,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE_ACCOUNT,
    STATEFUL_SET,
    Kind,
)

pytestmark = pytest.mark.apiserver

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
KINDS: tuple[tuple[Kind, str], ...] = (
    (NETWORK_POLICY, "bank"),
    (BUDGET, "bank"),
    (KUBE_SERVICE, "bank-primary"),
    (CONFIG_MAP, ""),  # that of the StatefulSet
    (SERVICE_ACCOUNT, "bank"),
    (ROLE, "bank"),
    (ROLE_BINDING, "bank"),
    (SECRET, "bank-operator-token"),
    (SECRET, "bank-tls"),
    (STATEFUL_SET, "bank"),
)


@contextmanager
def denying(server: RealApiServer, namespace: str, kind: Kind, written: str) -> Iterator[None]:
    """Deny writing a kind in a namespace; in force once a dry run on the object of a name is denied."""
    name = f"deny-{secrets.token_hex(4)}"
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": [kind.plural]}
    policy = {
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": "false", "message": "not in this namespace, says the policy"}],
        },
    }
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    binding = {
        "metadata": {"name": name},
        "spec": {
            "policyName": name,
            "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": selector},
        },
    }
    server.request("POST", POLICIES, policy)
    server.request("POST", BINDINGS, binding)
    path, change = f"{kind.path(namespace, written)}?dryRun=All", {"metadata": {"labels": {"probe": "1"}}}

    def is_denied() -> bool:
        answer: bytes = server.request("PATCH", path, change, content="application/merge-patch+json", raw=True)
        return b"says the policy" in answer

    wait_until(is_denied, "the policy is in force")
    try:
        yield
    finally:
        server.request("DELETE", f"{BINDINGS}/{name}")
        server.request("DELETE", f"{POLICIES}/{name}")


class Webhook(BaseHTTPRequestHandler):
    """Says "later" for what it is asked, or nothing at all."""

    hangs: threading.Event | None = None  # until it is set; None: it answers

    def do_POST(self) -> None:
        """Answer an AdmissionReview."""
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.hangs is not None:
            self.hangs.wait()
            return
        later = {"code": 503, "message": "later, says the webhook"}
        body = {"response": {"uid": review["request"]["uid"], "allowed": False, "status": later}}
        answer = json.dumps({"apiVersion": review["apiVersion"], "kind": review["kind"]} | body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name is the library's
        """Nobody reads it."""


@contextmanager
def asking_a_webhook(
    server: RealApiServer, namespace: str, kind: Kind, written: str, folder: Path, *, hangs: bool
) -> Iterator[None]:
    """Have a webhook asked before a kind is written in a namespace; in force once it is for the object of a name."""
    now = time.time()
    authority = Authority(current=new_signer(now, 3600))
    pair = issue(authority, common_name="", dns_names=["localhost"], purpose="replicas", now=now, life_s=3600)
    (folder / "webhook.pem").write_bytes(b"".join(pair))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "webhook.pem")
    over = threading.Event()
    handler = type("Asked", (Webhook,), {"hangs": over if hangs else None})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as listening:
        listening.socket = context.wrap_socket(listening.socket, server_side=True)
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        name = f"ask-{secrets.token_hex(4)}"
        rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"]}
        webhook = {
            "name": "later.webhook.test",
            "clientConfig": {
                "url": f"https://localhost:{listening.server_port}/",
                "caBundle": base64.b64encode(authority.bundle).decode(),
            },
            "rules": [rule | {"resources": [kind.plural]}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "failurePolicy": "Fail",
            "timeoutSeconds": 30,
        }
        server.request("POST", WEBHOOKS, {"metadata": {"name": name}, "webhooks": [webhook]})
        path = f"{kind.path(namespace, written)}?dryRun=All&timeout=1s"
        change = {"metadata": {"labels": {"probe": "1"}}}

        def is_asked() -> bool:
            try:
                answer = server.request("PATCH", path, change, content="application/merge-patch+json", raw=True)
            except OSError:  # an API server that is busy ends the connection of a write that takes too long
                return True
            return b"later.webhook.test" in answer or b"imeout" in answer or b"says the webhook" in answer

        try:
            wait_until(is_asked, "the webhook is asked")
            yield
        finally:
            over.set()
            server.request("DELETE", f"{WEBHOOKS}/{name}")
            listening.shutdown()
            thread.join()


def pod_on_a_dead_node(server: RealApiServer, namespace: str) -> str:
    """Make the pod of a replica on a node that has been silent for long; gives the pod's uid."""
    node = f"dead-{namespace}"
    if not exists(server, NODE, "", node):
        server.request("POST", NODE.path(None), {"metadata": {"name": node}})
        silent = {"type": "Ready", "status": "Unknown", "lastTransitionTime": "2020-01-01T00:00:00Z"}
        status = {"status": {"conditions": [silent]}}
        server.request("PATCH", f"{NODE.path(None, node)}/status", status, content="application/merge-patch+json")
    labels = {
        "app.kubernetes.io/name": "deathless",
        "app.kubernetes.io/instance": "bank",
        "app.kubernetes.io/managed-by": "deathless-operator",
        "deathless.dev/service": "bank",
        "deathless.dev/serving": "true",
    }
    spec = {"nodeName": node, "containers": [{"name": "replica", "image": "bank:1"}]}
    made = server.request("POST", POD.path(namespace), {"metadata": {"name": "bank-1", "labels": labels}, "spec": spec})
    return str(made["metadata"]["uid"])


def test_dead_nodes_pod_is_replaced_while_any_one_kind_is_denied(
    api_server: RealApiServer, namespace: str, tmp_path: Path
) -> None:
    arguments = (f"--watch-namespaces={namespace}", "--lock-endpoints=http://lock.test:2379")
    with OperatorProcess(api_server, tmp_path, namespace, *arguments) as operator:
        operator.wait_leading()
        make_service(api_server, namespace)
        wait_until(lambda: exists(api_server, STATEFUL_SET, namespace, "bank"), f"it is made, see {operator.log}")
        for kind, name in KINDS:
            refuse_one(api_server, namespace, kind, name or mounted(api_server, namespace), operator.log)


@pytest.mark.parametrize("hangs", [False, True])
def test_dead_nodes_pod_is_replaced_while_a_webhook_hangs_or_says_later(
    api_server: RealApiServer, namespace: str, tmp_path: Path, *, hangs: bool
) -> None:
    """Neither is a refusal, and both are one object's: everything else goes on."""
    arguments = (f"--watch-namespaces={namespace}", "--lock-endpoints=http://lock.test:2379")
    with OperatorProcess(api_server, tmp_path, namespace, *arguments) as operator:
        operator.wait_leading()
        make_service(api_server, namespace)
        wait_until(lambda: exists(api_server, STATEFUL_SET, namespace, "bank"), f"it is made, see {operator.log}")

        def told() -> bool:
            degraded = {each["type"]: each["message"] for each in conditions(api_server, namespace)}.get("Degraded", "")
            return "NetworkPolicy bank was refused" in degraded

        with asking_a_webhook(api_server, namespace, NETWORK_POLICY, "bank", tmp_path, hangs=hangs):
            api_server.request("DELETE", NETWORK_POLICY.path(namespace, "bank"))
            pod_on_a_dead_node(api_server, namespace)
            wait_until(lambda: not exists(api_server, POD, namespace, "bank-1"), f"it is replaced, see {operator.log}")
            wait_until(told, f"it is told, see {operator.log}")
        wait_until(lambda: exists(api_server, NETWORK_POLICY, namespace, "bank"), f"it comes back, see {operator.log}")


def refuse_one(server: RealApiServer, namespace: str, kind: Kind, name: str, log: Path) -> None:
    """Delete an object and deny it; then the dead node's pod is replaced, the object told, and it comes back."""

    def told() -> bool:
        degraded = {each["type"]: each["message"] for each in conditions(server, namespace)}.get("Degraded", "")
        return f"{kind.kind} {name} was refused" in degraded and "says the policy" in degraded

    with denying(server, namespace, kind, name):
        server.request("DELETE", kind.path(namespace, name))
        pod_on_a_dead_node(server, namespace)
        wait_until(lambda: not exists(server, POD, namespace, "bank-1"), f"{kind.kind}: the pod is replaced, see {log}")
        wait_until(told, f"{kind.kind}: it is told, see {log}")
    wait_until(lambda: exists(server, kind, namespace, name), f"{kind.kind}: it comes back, see {log}")

"""A small API server over real HTTP for the plugin's tests: objects in memory, lists, merge patches, deletes.

Guarantees: what is asked is noted in `asked`, in order; a hook sees each request before it is answered and may change
the objects. Does not: watch, admit or default.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

Object = dict[str, Any]


class ApiServer:
    """Objects by path, such as `/api/v1/namespaces/ns/pods/bank-0`."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.asked: list[tuple[str, str, Object]] = []
        self.hook: Callable[[str, str], None] = lambda _method, _path: None
        self.port = 0

    def put(self, path: str, **fields: Any) -> Object:
        """Store an object; its name and uid come from its path."""
        name = path.rsplit("/", 1)[-1]
        metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": "1"}
        metadata |= fields.pop("metadata", {})
        self.objects[path] = {"metadata": metadata, **fields}
        return self.objects[path]

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Object) -> tuple[int, Object]:
        """Do what is asked."""
        self.asked.append((method, path, body))
        self.hook(method, path)
        if method == "POST":
            self.objects[f"{path}/{body['metadata']['name']}"] = body
            return 201, body
        found = self.objects.get(path)
        if found is None and method == "GET":
            items = [each for at, each in self.objects.items() if at.rsplit("/", 1)[0] == path]
            if items or path.rsplit("/", 1)[-1] in {"deathlessservices", "failoverdrills", "liveupgrades", "pods"}:
                wanted = [pair.split("=") for pair in query.get("labelSelector", [""])[0].split(",") if pair]
                kept = [
                    each for each in items if all(each["metadata"].get("labels", {}).get(k) == v for k, v in wanted)
                ]
                return 200, {"items": kept, "metadata": {}}
        if found is None:
            return 404, {"message": f"{path} not found", "reason": "NotFound"}
        if method == "DELETE":
            del self.objects[path]
        if method == "PATCH":
            merge(found, body)
        return 200, found


def merge(into: Object, patch: Object) -> None:
    """Merge as RFC 7386 does."""
    for key, value in patch.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict):
            merge(into.setdefault(key, {}), value)
        else:
            into[key] = value


@contextmanager
def api_server(folder: Path) -> Iterator[tuple[ApiServer, str]]:
    """Run one; yields it and the path of a kubeconfig for it, namespace `ns`."""
    server = ApiServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            raw = self.rfile.read(int(self.headers.get("content-length") or 0))
            url = urlsplit(self.path)
            status, found = server.answer(self.command, url.path, parse_qs(url.query), json.loads(raw or b"{}"))
            told = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(told)))
            self.end_headers()
            self.wfile.write(told)

        do_GET = do_POST = do_PATCH = do_DELETE = do_PUT = _serve  # noqa: N815 - the library's names

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
            """Say nothing."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.port = http.server_address[1]
    thread = threading.Thread(target=http.serve_forever, args=(0.02,))
    thread.start()
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "namespace": "ns"}}],
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.port}"}}],
    }
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(json.dumps(config))
    try:
        yield server, str(kubeconfig)
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


SERVICES = "/apis/deathless.dev/v1alpha1/namespaces/ns/deathlessservices"
DRILLS = "/apis/deathless.dev/v1alpha1/namespaces/ns/failoverdrills"
PODS = "/api/v1/namespaces/ns/pods"


def put_bank(server: ApiServer, *, ready: bool = True, primary: int = 0) -> None:
    """Store service `bank` with three replicas."""
    condition = {"type": "Ready", "status": "True" if ready else "False", "reason": "X", "message": "no primary"}
    status = {
        "replicas": 3,
        "readyReplicas": 3,
        "ready": "3/3",
        "primary": f"bank-{primary}",
        "epoch": 4,
        "members": [{"name": f"r{i}", "pod": f"bank-{i}", "node": f"n{i}", "ready": True} for i in range(3)],
        "conditions": [condition],
    }
    spec = {"module": "bank:bank", "image": "bank:1", "logStorage": {"claimName": "log"}}
    server.put(f"{SERVICES}/bank", spec=spec, status=status)
    for index in range(3):
        put_pod(server, index, leads=index == primary)


def put_pod(server: ApiServer, index: int, *, leads: bool, epoch: int = 4, uid: str = "") -> None:
    """Store one replica's pod."""
    role = "primary" if leads else "standby"
    labels = {
        "app.kubernetes.io/name": "deathless",
        "app.kubernetes.io/instance": "bank",
        "deathless.dev/replica": f"r{index}",
        "deathless.dev/role": role,
    }
    told = json.dumps({"replica": f"r{index}", "role": role, "epoch": epoch, "since": 1.0})
    metadata = {"labels": labels, "annotations": {"deathless.dev/status": told}}
    if uid:
        metadata["uid"] = uid  # type: ignore[assignment]
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    server.put(f"{PODS}/bank-{index}", metadata=metadata, spec={"nodeName": f"n{index}"}, status=status)


def put_shards(server: ApiServer) -> None:
    """Bank has two shards, and the second one two replicas."""
    found = server.objects[f"{SERVICES}/bank"]
    found["spec"]["shards"] = 2
    shards = [{"shard": 0, "primary": "bank-0", "epoch": 4}, {"shard": 1, "primary": "bank-s1-0", "epoch": 7}]
    found["status"] |= {"primary": "2 of 2 shards led", "shards": shards}
    for path in [path for path in server.objects if path.startswith(PODS)]:
        server.objects[path]["metadata"]["labels"]["deathless.dev/shard"] = "0"
    for index in range(2):
        first = server.objects[f"{PODS}/bank-{index}"]
        pod = server.put(f"{PODS}/bank-s1-{index}", **json.loads(json.dumps(first)))
        pod["metadata"] |= {"name": f"bank-s1-{index}", "uid": f"uid-bank-s1-{index}"}
        pod["metadata"]["labels"]["deathless.dev/shard"] = "1"

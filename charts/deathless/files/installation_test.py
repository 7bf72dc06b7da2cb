"""What `helm test` runs in a pod: is the installation able to carry a service?

Checks what a user's first service would stumble over: the operator has a leader and gives metrics, the API server
takes a DeathlessService (as a dry run), and every lock store endpoint answers to the certificate services will show.
Needs the standard library alone. Prints a line for each check and ends with 1 when one failed. Changes nothing. What
does not hold yet is looked at again for PATIENCE_S: after an upgrade the operator has no leader for some seconds.
"""

import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path

TIMEOUT_S = 10.0
PATIENCE_S = 30.0  # for all checks together
PAUSE_S = 1.0
PROBLEMS = (OSError, RuntimeError, ValueError, KeyError)
ACCOUNT = Path(os.environ.get("ACCOUNT_FOLDER", "/var/run/secrets/kubernetes.io/serviceaccount"))
LOCK_TLS = Path(os.environ.get("LOCK_TLS_FOLDER", "/etc/lock-tls"))
SERVICE = {
    "apiVersion": "deathless.dev/v1alpha1",
    "kind": "DeathlessService",
    "metadata": {"name": "installation-test"},
    "spec": {"image": "example.invalid/bank:1", "module": "service:bank", "logStorage": {"claimName": "bank-log"}},
}


def api(path: str, body: object = None) -> object:
    """Ask the API server; raises what the caller prints."""
    context = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    headers = {"Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}", "Content-Type": "application/json"}
    server = os.environ.get("API_SERVER", "https://kubernetes.default.svc")
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(server + path, content, headers)
    with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=context) as answer:
        return json.load(answer)


def service_is_taken() -> str:
    """The resource is known and admitted."""
    namespace = os.environ["NAMESPACE"]
    api(f"/apis/deathless.dev/v1alpha1/namespaces/{namespace}/deathlessservices?dryRun=All", SERVICE)
    return "the API server takes a DeathlessService (dry run)"


def operator_gives_metrics() -> str:
    """The operator's pods are reached through their Service."""
    with urllib.request.urlopen(os.environ["METRICS_URL"], timeout=TIMEOUT_S) as answer:
        lines = answer.read().count(b"\n")
    return f"the operator answers with {lines} lines of metrics"


def operator_has_leader() -> str:
    """One of the operator's pods holds the Lease."""
    namespace = os.environ["NAMESPACE"]
    lease = api(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/deathless-operator")
    assert isinstance(lease, dict)
    holder = lease["spec"].get("holderIdentity")
    if not holder:
        raise RuntimeError("nobody holds the Lease deathless-operator")
    return f"{holder} leads"


def lock_store_answers(endpoint: str) -> str:
    """The endpoint takes the certificate of services and says that it is healthy."""
    context = None
    if endpoint.startswith("https:"):
        authority = LOCK_TLS / "ca.crt"
        context = ssl.create_default_context(cafile=str(authority) if authority.exists() else None)
        if (LOCK_TLS / "tls.crt").exists():
            context.load_cert_chain(LOCK_TLS / "tls.crt", LOCK_TLS / "tls.key")
    with urllib.request.urlopen(f"{endpoint}/health", timeout=TIMEOUT_S, context=context) as answer:
        health = json.load(answer)
    if str(health.get("health")) != "true":
        raise RuntimeError(f"{endpoint} says {health}")
    return f"{endpoint} is healthy"


def settled(check: Callable[[], str], until: float) -> str:
    """Carry a check out, again and again until `until` while it fails."""
    while time.monotonic() < until:
        try:
            return check()
        except PROBLEMS:
            time.sleep(PAUSE_S)
    return check()


def main() -> int:
    """Run every check; 1 when one failed."""
    checks: list[tuple[str, Callable[[], str]]] = [
        ("DeathlessService", service_is_taken),
        ("operator", operator_gives_metrics),
    ]
    if os.environ.get("LEADER_ELECTION") == "true":
        checks.append(("leader", operator_has_leader))
    endpoints = filter(None, os.environ.get("LOCK_ENDPOINTS", "").split(","))
    checks += [("lock store", partial(lock_store_answers, endpoint)) for endpoint in endpoints]
    failed, until = 0, time.monotonic() + PATIENCE_S
    for name, check in checks:
        try:
            print(f"ok    {name}: {settled(check, until)}", flush=True)
        except PROBLEMS as error:
            failed += 1
            words = error.read().decode("utf-8", "replace") if isinstance(error, urllib.error.HTTPError) else ""
            print(f"FAIL  {name}: {error} {words}", flush=True)
    print("the installation works" if not failed else f"{failed} checks failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

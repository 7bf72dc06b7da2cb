"""Two services with a user of the lock store each: a pod of one is refused at every key of the other."""

from __future__ import annotations

import base64
import json
from functools import partial

import pytest
from lab.cluster.cluster import Pod
from tests.cluster.installed import LOCK_STORE, NAMESPACE, UNSYNCED, Lab, Ledger, install_for_tests
from tests.cluster.under_load import called, wait_epoch

from deathless_operator.model import names

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("deathless")]

# Runs in a pod of a service, with what is mounted there: by our client, and past it without any header.
ATTEMPT = """
import asyncio, base64, http.client, json, sys, urllib.parse
import msgspec
from deathless.base.config import EtcdConfig
from deathless.base.errors import DeathlessError
from deathless.shell.lock_stores.etcd.client import EtcdClient
from deathless.shell.lock_stores.etcd.opening import settings_of

with open("/etc/deathless/replica.json") as file:
    settings = settings_of(msgspec.convert(json.load(file)["etcd"], EtcdConfig))

def bare(path, body):
    at = urllib.parse.urlsplit(settings.endpoints[0])
    call = http.client.HTTPSConnection(at.hostname, at.port, timeout=10, context=settings.tls.context())
    call.putrequest("POST", "/v3/" + path, skip_accept_encoding=True)
    content = json.dumps(body).encode()
    call.putheader("Content-Length", str(len(content)))
    call.endheaders(content)
    return call.getresponse().status

async def run():
    told = []
    async with EtcdClient(settings) as client:
        for key in sys.argv[1:]:
            for what, attempt in (
                ("put", client.put(key.encode(), b"mine")),
                ("delete", client.delete(key.encode())),
                ("read", client.range(key.encode())),
            ):
                try:
                    await attempt
                    told.append([what, key, "done"])
                except DeathlessError as error:
                    told.append([what, key, error.message])
            body = {"key": base64.b64encode(key.encode()).decode()}
            told.append(["bare delete", key, bare("kv/deleterange", body)])
    told.append(["bare disable", "", bare("auth/disable", {})])
    print(json.dumps(told))

asyncio.run(run())
"""


def etcdctl(cluster: Lab, *words: str) -> str:
    """Ask a member of the lock store as its administrator, as the page says."""
    secret = cluster.get("secret", names.LOCK_ADMIN_SECRET, NAMESPACE)["data"]["password"]
    user = f"--user={names.LOCK_ADMIN}:{base64.b64decode(secret).decode()}"
    return cluster.kubectl("-n", NAMESPACE, "exec", "deathless-lock-store-0", "--", "etcdctl", user, *words)


def says(cluster: Lab, sentence: str) -> bool:
    """Is this what the pod that carries users says now?"""
    log = cluster.kubectl("-n", NAMESPACE, "logs", "deployment/deathless-lock-users", "--tail=1")
    return sentence in log


def keys_of(cluster: Lab, ledger: Ledger) -> list[str]:
    """All keys of a service."""
    prefix = f"/deathless/{ledger.namespace}/{ledger.name}/"
    return etcdctl(cluster, "get", "--prefix", "--keys-only", prefix).split()


def attempts(cluster: Lab, pod: Pod, keys: list[str]) -> list[tuple[str, str, object]]:
    """What a pod may do with keys: put, delete, read."""
    said = cluster.exec(pod, "python", "-I", "-c", ATTEMPT, *keys, container=names.CONTAINER)
    return [(what, key, outcome) for what, key, outcome in json.loads(said.splitlines()[-1])]


def test_pod_of_one_service_is_refused_at_each_key_of_another(cluster: Lab) -> None:
    with Ledger(cluster, "mine") as mine, Ledger(cluster, "theirs") as theirs:
        mine.wait_ready()
        with called(mine) as callers, called(theirs):
            try:
                install_for_tests(cluster, lockStore=UNSYNCED | {"users": {"enabled": True}})
                mine.wait_for(partial(says, cluster, "logins are on"), "everybody logs in")
                keys = keys_of(cluster, theirs)
                assert len(keys) >= 4
                for what, key, outcome in attempts(cluster, mine.primary(), keys):
                    refused = outcome in {400, 403} if what.startswith("bare") else "permission denied" in str(outcome)
                    assert refused, f"{what} {key}: {outcome}"
                assert set(keys) <= set(keys_of(cluster, theirs))
                epoch = mine.epoch()
                cluster.kill_process(mine.primary(), "deathless.shell.worker.worker")
                wait_epoch(mine, epoch)
                callers.wait_more()
                with Ledger(cluster, "later") as later:
                    later.wait_ready()
            finally:
                withdraw(cluster, mine)
        for ledger in (mine, theirs):
            ledger.wait_for(partial(mounts_no_user, ledger), "no pod has a user")


def withdraw(cluster: Lab, ledger: Ledger) -> None:
    """As the page says: the setting off again, twice."""
    install_for_tests(cluster)
    ledger.wait_for(partial(says, cluster, "logins are off"), "nobody is asked for a login")
    install_for_tests(cluster)
    left = cluster.kubectl("-n", NAMESPACE, "get", "deployment", "deathless-lock-users", "--ignore-not-found")
    assert not left.strip(), "the second one takes the rest away"
    assert len(cluster.pods(NAMESPACE, LOCK_STORE)) == 3


def mounts_no_user(ledger: Ledger) -> bool:
    """Are all pods there, and none with a login?"""
    found = json.loads(ledger.cluster.kubectl("-n", ledger.namespace, "get", "pods", "-o", "json"))["items"]
    volumes = [each["name"] for pod in found for each in pod["spec"]["volumes"]]
    return len(found) == 3 and "deathless-lock-user" not in volumes

"""An etcd that is not the chart's, over TLS and with a login: one service's own, and the whole installation's."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from lab.cluster.cluster import Pod
from tests.cluster.installed import LOCK_STORE, NAMESPACE, Lab, Ledger, install_for_tests
from tests.cluster.own_etcd import PREFIX, OwnEtcd
from tests.cluster.under_load import called, wait_epoch

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("deathless")]


def test_service_with_an_etcd_of_its_own_outlives_its_primary_its_logins_and_the_etcd_leader(
    cluster: Lab, namespace: str, tmp_path: Path
) -> None:
    store = OwnEtcd(cluster, namespace, tmp_path)
    store.start()
    with Ledger(cluster, "own", lock=store.lock) as ledger:
        assert "store-tls" in ledger.wait_condition("LockReady", "False", "SecretMissing")
        cluster.apply(*store.secrets(ledger.namespace))
        outlive(store, ledger)


def test_installation_with_an_etcd_that_was_there_before(cluster: Lab, namespace: str, tmp_path: Path) -> None:
    store = OwnEtcd(cluster, namespace, tmp_path)
    store.start()
    secrets = store.secrets(NAMESPACE)
    with Ledger(cluster, "inside") as before:
        before.wait_ready()
        with called(before):
            try:
                cluster.apply(*secrets)
                install_for_tests(cluster, lockStore=store.values)
                assert len(cluster.pods(NAMESPACE, LOCK_STORE)) == 3  # it is kept: services that began with it need it
                assert "DL4007" in before.wait_condition("StorageReady", "False", "HalfCopy")
                with Ledger(cluster, "outside") as ledger:
                    outlive(store, ledger)
            finally:  # the chart's own is used again, with all it holds
                install_for_tests(cluster)
                for each in secrets:
                    cluster.kubectl("-n", NAMESPACE, "delete", "secret", each["metadata"]["name"], "--ignore-not-found")
            before.wait_ready()
            before.wait_for(partial(only_its_own, before), "nothing of the other store is left")


def only_its_own(ledger: Ledger) -> bool:
    """Is there one ConfigMap with settings, and one Secret of a lock store, and do all pods mount these?"""
    cluster, namespace = ledger.cluster, ledger.namespace
    there = {
        f"{kind}/{found['metadata']['name']}"
        for kind, base in (("configmap", "config"), ("secret", "lock-tls"))
        for found in listed(cluster, kind, namespace)
        if found["metadata"]["name"].startswith(f"{ledger.name}-{base}")
    }
    mounted = [
        {
            f"configmap/{each['configMap']['name']}"
            if "configMap" in each
            else f"secret/{each['secret']['secretName']}"
            for each in found["spec"]["volumes"]
            if each["name"] in ("deathless-config", "deathless-lock-tls")
        }
        for found in listed(cluster, "pod", namespace)
    ]
    return len(there) == 2 and all(each == there for each in mounted)


def listed(cluster: Lab, kind: str, namespace: str) -> list[dict[str, Any]]:
    """All objects of a kind in a namespace."""
    found: dict[str, Any] = json.loads(cluster.kubectl("-n", namespace, "get", kind, "-o", "json"))
    return list(found["items"])


def outlive(store: OwnEtcd, ledger: Ledger) -> None:
    """Call a service while logins end, its primary dies, and the leader of its store dies, and then another hangs.

    Logins die with a member's process, and end by themselves: no member knows any but those that are shown to it.
    """
    cluster = ledger.cluster
    with called(ledger) as callers:
        own = f"{PREFIX}{ledger.namespace}/"
        held = store.keys()
        assert held and all(key.startswith(own) for key in held), held
        epoch = ledger.epoch()
        cluster.kill_process(ledger.primary(), "deathless.shell.worker.worker")
        wait_epoch(ledger, epoch)
        callers.wait_more()
        store.wait_tokens_end(ledger.primary())
        leader = store.kill_leader()
        callers.wait_more()
        ledger.wait_for(partial(started_again, cluster, leader), "it starts again")
        store.wait_tokens_end(ledger.primary())
        with store.frozen_leader():
            callers.wait_more()
            epoch = ledger.epoch()
            cluster.kill_process(ledger.primary(), "deathless.shell.worker.worker")
            wait_epoch(ledger, epoch)
            callers.wait_more()


def started_again(cluster: Lab, before: Pod) -> bool:
    """Has a pod begun anew since it was seen, and is it Ready?"""
    now = cluster.pod(before.namespace, before.name)
    return now.ready and now.restarts > before.restarts

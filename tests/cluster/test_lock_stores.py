"""An etcd that is not the chart's, over TLS and with a login: one service's own, and the whole installation's."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from tests.cluster.installed import LOCK_STORE, NAMESPACE, Lab, Ledger, install_for_tests
from tests.cluster.lab.cluster import Pod
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
        cluster.kill_process(ledger.primary(), "deathless.shell.worker")
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
            cluster.kill_process(ledger.primary(), "deathless.shell.worker")
            wait_epoch(ledger, epoch)
            callers.wait_more()


def started_again(cluster: Lab, before: Pod) -> bool:
    """Has a pod begun anew since it was seen, and is it Ready?"""
    now = cluster.pod(before.namespace, before.name)
    return now.ready and now.restarts > before.restarts

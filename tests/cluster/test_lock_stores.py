"""A service with an etcd of its own, over TLS and with a login, which the installation knows nothing of."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from tests.cluster.installed import Lab, Ledger
from tests.cluster.lab.cluster import Pod
from tests.cluster.own_etcd import PREFIX, OwnEtcd
from tests.cluster.under_load import called, wait_epoch

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("deathless")]


def test_service_with_an_etcd_of_its_own_outlives_its_primary_and_the_etcd_leader(
    cluster: Lab, namespace: str, tmp_path: Path
) -> None:
    store = OwnEtcd(cluster, namespace, tmp_path)
    store.start()
    with Ledger(cluster, "own", lock=store.lock) as ledger:
        assert "store-tls" in ledger.wait_condition("LockReady", "False", "SecretMissing")
        cluster.apply(*store.secrets(ledger.namespace))
        with called(ledger) as callers:
            own = f"{PREFIX}{ledger.namespace}/"
            held = store.keys()
            assert held and all(key.startswith(own) for key in held), held
            epoch = ledger.epoch()
            cluster.kill_process(ledger.primary(), "deathless.shell.worker")
            wait_epoch(ledger, epoch)
            callers.wait_more()
            leader = store.kill_leader()
            callers.wait_more()
            ledger.wait_for(partial(started_again, cluster, leader), "it starts again")


def started_again(cluster: Lab, before: Pod) -> bool:
    """Has a pod begun anew since it was seen, and is it Ready?"""
    now = cluster.pod(before.namespace, before.name)
    return now.ready and now.restarts > before.restarts

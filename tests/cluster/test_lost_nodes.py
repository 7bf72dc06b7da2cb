"""A node that is lost for good: its replica is made anew on another one, and what comes back late releases nothing."""

from __future__ import annotations

import pytest
from tests.cluster.installed import CALM, Lab, Ledger
from tests.cluster.under_load import called, wait_pods

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("deathless")]


def test_i2_replica_of_a_node_that_stays_lost_moves_and_its_thawed_twin_releases_nothing(cluster: Lab) -> None:
    with Ledger(cluster, "lost", limits=CALM, replaceAfterSeconds=5) as ledger, called(ledger) as callers:
        old = ledger.primary()
        with cluster.frozen_node(old.node):
            ledger.wait_other_primary(old)
            callers.wait_more()
            ledger.wait_for(lambda: moved(ledger, old.name, old.uid, old.node), f"{old.name} on another node")
            ledger.wait_ready()
            wait_pods(ledger, 3)
            callers.wait_more()
            epoch = ledger.epoch()
        # Its old pod goes on in the middle of a call, until its kubelet hears that it was replaced.
        callers.wait_more()
        ledger.wait_for(lambda: old.node in cluster.ready_nodes(), f"{old.node} is back")
        ledger.wait_for(lambda: not cluster.processes(old), "the old pod is cleared away")
        callers.wait_more()
        assert ledger.epoch() == epoch
        assert old.uid not in {pod.uid for pod in ledger.pods()}


def moved(ledger: Ledger, name: str, uid: str, node: str) -> bool:
    """Is the replica there again, as another pod on another node, and Ready?"""
    found = next((pod for pod in ledger.pods() if pod.name == name), None)
    return found is not None and found.uid != uid and found.node not in ("", node) and found.ready

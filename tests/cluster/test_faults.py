"""A service in a real cluster is called all the time while something is broken: lost 0, doubled 0.

Each test breaks one thing, lets it heal, and compares what callers were told with what the service holds. The slow
part is Kubernetes noticing; callers are served again by the takeover, which the bench measures.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import pytest
from lab.cluster.bare import BareCluster
from lab.cluster.cluster import LOG, Pod
from lab.cluster.machine import wait_until
from tests.cluster.front_door import Callers, figure
from tests.cluster.installed import CALM, LOCK_STORE, NAMESPACE, OPERATOR, Lab, Ledger
from tests.cluster.under_load import called, check_no_call_failed, wait_caught_up, wait_epoch

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("deathless")]

AWAY_S = 60.0  # the API server
EPOCH = "deathless_replica_epoch"
SMALL = {
    "segmentBytesMax": 4 << 20,
    "frameBytesMax": 1 << 20,
    "spareBytes": 2 << 20,
    "allocateBytes": 1 << 16,
    "messageBytesMax": 1 << 19,
}
"""Limits of a service whose log is soon full."""


@pytest.fixture(scope="module")
def ledger(cluster: Lab, deathless: None) -> Iterator[Ledger]:
    """One service for all the faults that it heals from; its log can hang on one node."""
    with Ledger(cluster, "faults", top=LOG) as ledger:
        ledger.wait_ready()
        yield ledger


def test_killed_process_loses_nothing(ledger: Ledger) -> None:
    with called(ledger) as callers:
        for pattern in ("deathless.shell.worker.worker", "deathless replica"):
            old = ledger.epoch()
            ledger.cluster.kill_process(ledger.primary(), pattern)
            callers.wait_more()
            wait_epoch(ledger, old)
            ledger.wait_ready()


def test_pod_deleted_without_grace_loses_nothing(ledger: Ledger) -> None:
    with called(ledger) as callers:
        old = ledger.primary()
        ledger.cluster.delete_pod(old, grace_s=0)
        ledger.wait_other_primary(old)
        callers.wait_more()


def test_all_pods_deleted_at_once_lose_nothing(ledger: Ledger) -> None:
    with called(ledger):
        for pod in ledger.pods():
            ledger.cluster.delete_pod(pod, grace_s=0)


def test_crashed_node_loses_nothing(ledger: Ledger) -> None:
    with called(ledger) as callers:
        old = ledger.primary()
        with ledger.cluster.crashed_node(old.node):
            ledger.wait_other_primary(old)
            callers.wait_more()


def test_i2_node_that_freezes_and_thaws_releases_nothing_more(ledger: Ledger) -> None:
    with called(ledger) as callers:
        old = ledger.primary()
        with ledger.cluster.frozen_node(old.node):
            ledger.wait_other_primary(old)
            callers.wait_more()


def test_unplugged_node_loses_nothing(ledger: Ledger) -> None:
    with called(ledger) as callers:
        old = ledger.primary()
        with ledger.cluster.unplugged_node(old.node):
            ledger.wait_other_primary(old)
            callers.wait_more()


def test_primary_cut_from_the_lock_store_is_replaced(ledger: Ledger) -> None:
    with called(ledger) as callers:
        old = ledger.primary()
        with ledger.cluster.partitioned(old, ledger.cluster.addresses(NAMESPACE, LOCK_STORE)):
            ledger.wait_other_primary(old)
            callers.wait_more()


def test_primary_behind_a_slow_link_goes_on(ledger: Ledger) -> None:
    with called(ledger) as callers, ledger.cluster.slow_link(ledger.primary(), delay_s=0.03, jitter_s=0.01):
        callers.wait_more(100)


def test_primary_cut_from_its_peers_loses_nothing(ledger: Ledger) -> None:
    with called(ledger) as callers:
        old = ledger.primary()
        others = [pod.address for pod in ledger.pods() if pod.uid != old.uid]
        with ledger.cluster.partitioned(old, others):
            callers.wait_more()
        callers.wait_more()


def test_log_that_hangs_on_the_primarys_node_is_left_behind(ledger: Ledger, bare: BareCluster) -> None:
    with called(ledger) as callers:
        old = ledger.primary()
        with bare.hung_log(old.node):
            ledger.wait_other_primary(old)
            callers.wait_more()


def test_log_that_dies_on_the_primarys_node_is_left_behind(ledger: Ledger, bare: BareCluster) -> None:
    with called(ledger) as callers:
        old = ledger.primary()
        bare.kill_log(old.node)
        try:
            ledger.wait_other_primary(old)
            callers.wait_more()
        finally:
            bare.start_log(old.node)
        stuck(ledger, old)


def stuck(ledger: Ledger, pod: Pod) -> None:
    """A pod keeps the dead mount until somebody replaces it: a person on call would."""
    ledger.cluster.delete_pod(ledger.cluster.pod(pod.namespace, pod.name), grace_s=0)


def test_full_volume_refuses_calls_until_there_is_room_and_loses_nothing(bare: BareCluster) -> None:
    name = f"full-{uuid.uuid4().hex[:5]}"
    with (
        bare.small_volume(name, size_mb=96) as folder,
        Ledger(bare, "full", volume=name, limits=CALM | SMALL) as ledger,
        called(ledger) as callers,
    ):
        door = ledger.door()
        with bare.full_volume(folder):
            ledger.wait_for(lambda: refused(callers, "507"), "calls are refused for want of room")
            ledger.wait_for(lambda: figure(door, "deathless_replica_full") == 1, "the metrics tell a full log")
            ledger.wait_condition("StorageReady", "False", "OutOfSpace")
            ledger.wait_condition("Ready", "False", "OutOfSpace")
        callers.wait_more()
        ledger.wait_condition("Ready", "True")
        ledger.wait_for(lambda: figure(door, "deathless_replica_full") == 0, "the metrics tell of room")


def refused(callers: Callers, status: str) -> bool:
    """Was an attempt answered so?"""
    return any(told.startswith(status) for told in list(callers.failures))


def test_stale_directory_caches_at_a_takeover_lose_nothing(bare: BareCluster) -> None:
    with bare.stale_logs() as top, Ledger(bare, "stale", top=top) as ledger, called(ledger) as callers:
        for _ in range(3):
            epoch = ledger.epoch()
            for node in bare.workers:  # the kernel of each learns that the next epochs' files are not there
                names = " ".join(f"{top}/{ledger.volume}/log/e{epoch + ahead:012d}.r000000.seg" for ahead in range(9))
                bare.node_exec(node, "sh", "-c", f"ls {names} 2>/dev/null || true")
            bare.kill_process(ledger.primary(), "deathless.shell.worker.worker")
            wait_epoch(ledger, epoch)
            callers.wait_more()


def test_service_goes_on_while_the_api_server_is_down_for_a_minute(ledger: Ledger) -> None:
    wait_caught_up(ledger)
    with called(ledger) as callers:
        primary, epoch, door = ledger.primary(), ledger.epoch(), ledger.door()
        with ledger.cluster.api_server_down():
            began = time.monotonic()
            call_until(callers, began + AWAY_S / 2)
            ledger.cluster.kill_process(primary, "deathless.shell.worker.worker")
            # Nobody can tell the cluster of the successor now: the front door does.
            wait_until(
                lambda: figure(door, EPOCH) > epoch,
                f"an epoch above {epoch} at the front door",
                within_s=120,
                poll_s=0.2,
            )
            callers.wait_more()
            call_until(callers, began + AWAY_S)
        wait_epoch(ledger, epoch)
        callers.wait_more()
        ledger.wait_ready(within_s=300)


def call_until(callers: Callers, end: float) -> None:
    """Be answered again and again until a moment of the monotonic clock."""
    while time.monotonic() < end:
        callers.wait_more()


def test_without_an_operator_takeovers_go_on(ledger: Ledger) -> None:
    cluster = ledger.cluster
    with called(ledger) as callers:
        cluster.kubectl("-n", NAMESPACE, "scale", "deployment/deathless-operator", "--replicas=0")
        try:
            # Until then one of them may mend what is broken here.
            ledger.wait_for(lambda: not cluster.pods(NAMESPACE, OPERATOR), "no operator is left")
            old = ledger.primary()
            cluster.delete_pod(old, grace_s=0)
            ledger.wait_other_primary(old)
            callers.wait_more()
            assert cluster.pods(NAMESPACE, OPERATOR) == []
        finally:
            cluster.kubectl("-n", NAMESPACE, "scale", "deployment/deathless-operator", "--replicas=2")
            cluster.wait_rolled_out(NAMESPACE, "deployment/deathless-operator")


@pytest.mark.parametrize("fault", ["killed", "frozen"])
def test_leader_of_the_lock_store_that_is_gone_loses_nothing(ledger: Ledger, fault: str) -> None:
    cluster = ledger.cluster
    with called(ledger) as callers:
        if fault == "killed":
            cluster.kill_etcd_leader(NAMESPACE, LOCK_STORE)
            callers.wait_more()
        else:
            with cluster.frozen_etcd_leader(NAMESPACE, LOCK_STORE):
                callers.wait_more()


def test_drain_of_every_node_in_turn_fails_no_call_and_takes_over_once_for_each_primary(cluster: Lab) -> None:
    with Ledger(cluster, "drains", limits=CALM) as ledger:
        with called(ledger, patient=True) as callers:
            for node in cluster.workers:
                wait_caught_up(ledger)  # as the operator does between two pods: the next primary has followed this one
                primary, epoch = ledger.primary(), ledger.epoch()
                # One that leads after the primary of its own node is drained as well.
                may_lead = sum(pod.node == node for pod in ledger.pods()) if primary.node == node else 0
                with cluster.drained(node):
                    callers.wait_more()
                wait_caught_up(ledger)
                assert ledger.epoch() - epoch <= may_lead, f"{node} was drained, {primary.name} led on {primary.node}"
                if primary.node == node:
                    assert ledger.epoch() > epoch
        check_no_call_failed(callers)

"""What is done to the installation while services are called: its lock store rolls, its kinds' chart goes and comes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.cluster.installed import HELM_S, LOCK_STORE, NAMESPACE, UNSYNCED, Lab, Ledger, install_for_tests
from tests.cluster.under_load import called, check_no_call_failed, uids

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("deathless")]

KINDS = ("deathlessservices.deathless.dev", "failoverdrills.deathless.dev")


def members(cluster: Lab) -> set[str]:
    """The lock store's pods, as no later pod is called."""
    return {pod.uid for pod in cluster.pods(NAMESPACE, LOCK_STORE)}


def fewest_kept(ledger: Ledger, notes: dict[str, str]) -> int:
    """Give the lock store's pods other annotations, by helm; gives how many members at least were left alone meanwhile.

    Left alone is one that is there and not going. Whether it is Ready is no measure: while a member that led is rolled
    the others have no leader, and none of them is.
    """
    cluster, seen = ledger.cluster, [len(members(ledger.cluster))]
    with ThreadPoolExecutor(max_workers=1) as pool:
        doing = pool.submit(install_for_tests, cluster, lockStore=UNSYNCED | {"podAnnotations": notes})

        def look() -> bool:
            seen.append(sum(not pod.going for pod in cluster.pods(NAMESPACE, LOCK_STORE)))
            return doing.done()

        ledger.wait_for(look, "helm has upgraded", within_s=2 * HELM_S)
        doing.result()
    return min(seen)


def test_helm_upgrade_rolls_the_lock_store_one_member_at_a_time_and_loses_nothing(cluster: Lab, calm: Ledger) -> None:
    with called(calm) as callers:
        before = members(cluster)
        assert len(before) == 3
        try:
            assert fewest_kept(calm, {"changed": "by-a-test"}) >= 2
            cluster.wait_rolled_out(NAMESPACE, "statefulset/deathless-lock-store")
            rolled = members(cluster)
            assert len(rolled) == 3
            assert not rolled & before
            callers.wait_more()
        finally:
            least = fewest_kept(calm, {})
            cluster.wait_rolled_out(NAMESPACE, "statefulset/deathless-lock-store")
        assert least >= 2
        assert not members(cluster) & rolled
        callers.wait_more()


def kinds(cluster: Lab) -> dict[str, Any]:
    """The uid of each kind's definition."""
    return {name: cluster.get("crd", name)["metadata"]["uid"] for name in KINDS}


def test_uninstalling_the_kinds_chart_keeps_the_kinds_and_every_service(cluster: Lab, calm: Ledger) -> None:
    for name in KINDS:  # else all services of the cluster would go
        assert cluster.get("crd", name)["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    with called(calm, patient=True) as callers:
        before, service, pods = kinds(cluster), calm.get()["metadata"]["uid"], uids(calm)
        try:
            cluster.helm("uninstall", "deathless-crds", "--wait")
            assert kinds(cluster) == before
            assert not any("deletionTimestamp" in cluster.get("crd", name)["metadata"] for name in KINDS)
            callers.wait_more()
            assert (calm.get()["metadata"]["uid"], uids(calm)) == (service, pods)
        finally:
            install_for_tests(cluster)
        callers.wait_more()
    assert kinds(cluster) == before
    assert (calm.get()["metadata"]["uid"], uids(calm)) == (service, pods)
    check_no_call_failed(callers)

"""What stands in a service's way is told in its conditions, in words that say what to do; nothing is lost by it."""

from __future__ import annotations

import uuid

import pytest
from lab.cluster.bare import BareCluster
from tests.cluster.front_door import Callers
from tests.cluster.installed import CALM, Lab, Ledger
from tests.cluster.under_load import called, check_no_call_failed, wait_pods

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("deathless")]


def test_missing_claim_is_named_and_mended_by_making_it(cluster: Lab) -> None:
    with Ledger(cluster, "noclaim", claim=False) as ledger:
        message = ledger.wait_condition("StorageReady", "False")
        assert "log" in message
        ledger.make_claim()
        ledger.wait_ready()


def test_claim_that_is_gone_is_named_and_what_it_held_is_there_once_it_is_made_again(cluster: Lab) -> None:
    with Ledger(cluster, "lostclaim") as ledger, called(ledger) as callers:
        ledger.apply(suspend=True)
        wait_pods(ledger, 0)
        answered = len(callers.answered)
        ledger.delete_claim()
        ledger.apply(suspend=False)
        assert "log" in ledger.wait_told("StorageReady", "False", "ClaimNotFound")
        assert ledger.condition("Available")[0] == "False"
        assert len(callers.answered) == answered
        ledger.make_claim()
        ledger.wait_ready()


def test_volume_that_can_not_carry_the_fence_is_refused_and_another_claim_mends_it(bare: BareCluster) -> None:
    name = f"linkless-{uuid.uuid4().hex[:5]}"
    with bare.linkless_volume(name), Ledger(bare, "unfit", volume=name) as ledger:
        message = ledger.wait_told("StorageReady", "False", "StorageUnfit")
        assert "DL3027" in message
        assert "lacks a call" in message
        assert ledger.condition("Ready")[:2] == ("False", "StorageUnfit")
        # The claim of a service stays for its life: it is made again, as the runbook says.
        bare.kubectl("-n", ledger.namespace, "delete", "dls", ledger.name, "--cascade=foreground", timeout_s=190)
        wait_pods(ledger, 0)
        ledger.delete_claim()
        ledger.volume = f"{name}-fit"
        ledger.make_claim()
        ledger.apply()
        with called(ledger):
            pass


def test_quota_that_is_exceeded_is_named_and_mended_by_raising_it(cluster: Lab) -> None:
    with Ledger(cluster, "quota", replicas=1, limits=CALM) as ledger:
        quota = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "few", "namespace": ledger.namespace},
            "spec": {"hard": {"pods": "1"}},
        }
        with called(ledger, patient=True) as callers:
            cluster.apply(quota)
            # Before it is counted a pod is refused with other words.
            ledger.wait_for(lambda: used(ledger, "few"), "the quota is counted")
            ledger.apply(replicas=3)
            message = ledger.wait_told("Degraded", "True", "QuotaExceeded")
            assert "exceeded quota: few" in message
            assert "raise the quota" in message.lower()
            ledger.wait_condition("Available", "True")
            callers.wait_more()
            cluster.kubectl("-n", ledger.namespace, "delete", "resourcequota", "few")
            ledger.wait_told("Degraded", "False")
            ledger.wait_ready()
            wait_pods(ledger, 3)
        check_no_call_failed(callers)


def used(ledger: Ledger, quota: str) -> object:
    """What a quota has counted; nothing until it has."""
    return ledger.cluster.get("resourcequota", quota, ledger.namespace).get("status", {}).get("used")


def test_two_services_with_one_log_are_refused_and_the_first_goes_on(cluster: Lab) -> None:
    volume = f"shared-{uuid.uuid4().hex[:5]}"
    with Ledger(cluster, "first", volume=volume, limits=CALM) as first:
        with called(first, patient=True) as callers:
            second = Ledger(cluster, "second", volume=volume)
            second.keep_volume = True
            with second:
                second.wait_for(lambda: "DL4" in second.told(), "the second names the error's code")
                assert second.condition("Ready")[0] == "False"
                callers.wait_more()
        check_no_call_failed(callers)


def test_volume_that_came_back_empty_is_refused(cluster: Lab) -> None:
    with Ledger(cluster, "emptied") as ledger:
        ledger.wait_ready()
        with Callers(ledger.door()) as callers:
            callers.wait_more()
        ledger.apply(suspend=True)
        wait_pods(ledger, 0)
        folder = cluster.shared_folder(ledger.volume)
        aside = folder.with_name(f"{ledger.volume}-aside")
        folder.rename(aside)
        cluster.shared_folder(ledger.volume)
        ledger.apply(suspend=False)
        ledger.wait_for(lambda: "DL4" in ledger.told(), "the status names the error's code")
        assert ledger.condition("Available")[0] == "False"
        ledger.apply(suspend=True)
        wait_pods(ledger, 0)
        cluster.node_exec(cluster.workers[0], "rm", "-rf", f"/srv/shared/{ledger.volume}")
        aside.rename(folder)
        ledger.apply(suspend=False)
        ledger.wait_ready()
        callers.check_exactly_once()

"""A service of two shards in a real cluster: each heals by itself, a roll costs each one takeover, one door for all.

The last test gives it other code.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from lab.cluster.cluster import Pod
from lab.cluster.machine import CommandFailed
from tests.cluster.front_door import Callers
from tests.cluster.installed import CALM, OTHER_IMAGE, Lab, Ledger, says_it_leads
from tests.cluster.under_load import called, check_no_call_failed, uids, wait_gone, wait_pods

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("deathless")]

SHARDS, REPLICAS = 2, 2
UPGRADE_S = 1200.0
"""Of both shards, one after the other, on a slow machine."""


@pytest.fixture(scope="module")
def ledger(cluster: Lab, deathless: None) -> Iterator[Ledger]:
    """One service of two shards for all that happens to it here."""
    with Ledger(cluster, "shards", shards=SHARDS, replicas=REPLICAS, limits=CALM) as ledger:
        ledger.wait_ready()
        yield ledger


def primary(ledger: Ledger, shard: int) -> Pod:
    """The pod that says it leads a shard; waits for one."""
    found: list[Pod] = []

    def look() -> bool:
        of_shard = [pod for pod in ledger.pods() if pod.labels.get("deathless.dev/shard") == str(shard)]
        found[:] = [pod for pod in of_shard if says_it_leads(pod)]
        return len(found) == 1

    ledger.wait_for(look, f"one pod is primary of shard {shard}")
    return found[0]


def epochs(ledger: Ledger) -> list[int]:
    """The epoch of each shard, as the status tells it."""
    return [int(one.get("epoch", 0)) for one in ledger.get().get("status", {}).get("shards", [])]


def test_every_shard_has_its_pods_and_the_status_tells_of_each(ledger: Ledger) -> None:
    wait_pods(ledger, SHARDS * REPLICAS)
    ledger.wait_ready()
    wanted = {"primary": "2 of 2 shards led", "ready": "4/4"}
    status: dict[str, Any] = {}

    def whole() -> bool:
        status.update(ledger.get()["status"])
        return wanted.items() <= status.items()

    ledger.wait_for(whole, f"the status tells {wanted}")
    assert [one["primary"].rpartition("-")[0] for one in status["shards"]] == ["ledger", "ledger-s1"]
    assert len({one["serviceId"] for one in status["shards"]}) == SHARDS, "each drew its own"


@pytest.mark.parametrize("shard", range(SHARDS))
def test_killed_primary_of_a_shard_loses_nothing(ledger: Ledger, shard: int) -> None:
    with called(ledger) as callers:
        before = epochs(ledger)[shard]
        ledger.cluster.kill_process(primary(ledger, shard), "deathless.shell.worker.worker")
        ledger.wait_for(lambda: epochs(ledger)[shard] > before, f"shard {shard} has a later epoch than {before}")
        callers.wait_more()


def test_service_of_one_shards_primary_answers_for_every_key(ledger: Ledger) -> None:
    ledger.wait_ready()
    with Callers(ledger.door("ledger-s1-primary"), patient=True) as callers:
        callers.wait_each(20)
    callers.check_exactly_once()


def test_rolling_change_takes_over_once_in_each_shard_and_fails_no_call(ledger: Ledger) -> None:
    with called(ledger, patient=True) as callers:
        before, pods = epochs(ledger), uids(ledger)
        ledger.apply(resources={"requests": {"cpu": "150m", "memory": "96Mi"}})
        wait_gone(ledger, pods)
        ledger.wait_ready()
    after = epochs(ledger)
    assert len(after) == SHARDS
    assert all(late <= early + 1 for early, late in zip(before, after, strict=True)), (before, after)
    check_no_call_failed(callers)


def test_another_number_of_shards_is_refused(ledger: Ledger) -> None:
    fields = '{"spec":{"shards":3}}'
    with pytest.raises(CommandFailed, match="shards can't change"):
        ledger.cluster.kubectl("-n", ledger.namespace, "patch", "dls", ledger.name, "--type=merge", f"--patch={fields}")


def test_shards_under_load_are_upgraded_one_after_the_other(ledger: Ledger) -> None:
    ledger.wait_ready()
    with called(ledger, patient=True) as callers:
        before = ledger.get()["status"]["fingerprint"]
        ledger.apply(image=OTHER_IMAGE)
        ledger.wait_told("Progressing", "True", "Upgrading")
        callers.wait_more()
        ledger.wait_ready(UPGRADE_S)
        callers.wait_more()
    wait_pods(ledger, SHARDS * REPLICAS)
    status = ledger.get()["status"]
    assert {one["image"] for one in status["shards"]} == {OTHER_IMAGE}
    assert before not in {one["fingerprint"] for one in status["shards"]}
    assert status["ready"] == "4/4"

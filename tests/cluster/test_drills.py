"""Drills break the real thing and ask what matters: how long did a client wait, and was anything lost?"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from lab.cluster.machine import ROOT, run
from tests.cluster.drilling import drill, judged, status
from tests.cluster.installed import LEDGER_IMAGE, Lab, Ledger

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("deathless")]

SABOTAGED = "docker.io/library/deathless-sabotaged:1"


@pytest.mark.parametrize(
    "fault",
    [
        {"type": "ProcessKill"},
        {"type": "PodDelete"},
        {"type": "NodeDrain", "durationSeconds": 20},
        # Long enough for somebody to take over on a busy machine, and shorter than its kubelet is patient.
        {"type": "Freeze", "durationSeconds": 10},
        {"type": "Partition", "durationSeconds": 10, "cut": "All"},
        {"type": "Partition", "durationSeconds": 10},
        {"type": "LockOutage", "durationSeconds": 10},
    ],
    ids=lambda fault: fault["type"] + fault.get("cut", ""),
)
def test_drill_of_each_fault_passes(settled: Ledger, fault: dict[str, Any]) -> None:
    name = (fault["type"] + fault.get("cut", "")).lower()
    settled.wait_ready()
    pods = {pod.name: pod for pod in settled.pods()}
    settled.cluster.apply(drill(settled, name, fault))
    last = judged(settled, name)
    assert last["verdict"] == "Passed", json.dumps(last)
    target = pods[last["target"]]
    assert (last["fault"], last["targetUid"], last["node"]) == (fault["type"], target.uid, target.node)
    told = status(settled, name)
    assert (told["verdict"], told["callsLost"], told["callsDoubled"]) == ("Passed", 0, 0), json.dumps(told)
    assert last["callsAnswered"] == last["callsSent"] > 0
    assert 0 <= last["unavailableSeconds"] == told["unavailableSeconds"] <= 60
    # Somebody has taken over, so it was broken indeed: by itself no primary of a service that is well goes.
    assert 0 <= last["takeoverSeconds"] == told["takeoverSeconds"], json.dumps(last)
    assert last["epochAfter"] > last["epochBefore"] > 0


def test_scheduled_drill_runs_by_itself_and_records_its_verdict(settled: Ledger) -> None:
    settled.wait_ready()
    settled.cluster.apply(drill(settled, "nightly", {"type": "ProcessKill"}, schedule="* * * * *"))
    try:
        last = judged(settled, "nightly")
        assert last["verdict"] == "Passed", json.dumps(last)
        told = status(settled, "nightly")
        assert told["nextScheduleTime"] > told["last"]["scheduledTime"]
        assert told["history"]
    finally:  # else it goes on breaking things beside the next test
        settled.cluster.kubectl("-n", settled.namespace, "delete", "fdr", "nightly")


SABOTAGE = """
import os
import sys
import traceback


def instead(owner, name, ours):
    getattr(owner, name)  # what is not there any more is switched off by nobody
    setattr(owner, name, ours)


def worker():
    from deathless.core.replica.replica import Replica
    from deathless.shell.lock_stores.etcd.lock import EtcdLock

    async def owns(self, holder):
        return True

    instead(EtcdLock, "owns", owns)
    instead(Replica, "_seen_as_primary", lambda *_: [])


def ingress():
    from deathless.core.client.link import Link, LinkState

    outdoes = Link.outdoes

    def seldom(self, main, *, suspected):
        ours = main.address.startswith(os.environ["POD_IP"] + ":") and main.state is LinkState.LEADING
        return not ours and outdoes(self, main, suspected=suspected)

    instead(Link, "outdoes", seldom)


try:
    for name, sabotage in (("deathless.shell.worker.worker", worker), ("deathless.shell.ingress.ingress", ingress)):
        if any(name in word for word in sys.orig_argv):
            sabotage()
except BaseException:  # Python itself would go on without it
    traceback.print_exc()
    os._exit(70)
"""
"""The fence is off: a worker believes for ever that it owns the lock. What may besides lead callers away from one that
wakes, by chance sooner than it answers them, is off as well: it hears of no successor, and its front door stays."""


def sabotaged_image(cluster: Lab, folder: Path) -> None:
    """Build a ledger with SABOTAGE in each of its processes."""
    context = folder / "sabotaged"
    context.mkdir()
    shutil.copy(ROOT / "tests" / "process" / "ledger.py", context / "ledger.py")
    (context / "Dockerfile").write_text(f"FROM {LEDGER_IMAGE}\nCOPY sitecustomize.py /app/sitecustomize.py\n")
    (context / "sitecustomize.py").write_text(SABOTAGE)
    output = context / "image.tar"
    build = [sys.executable, str(ROOT / "tools" / "image.py"), "--tag", SABOTAGED, "--output", str(output)]
    run(*build, "--file", str(context / "Dockerfile"), str(context), timeout_s=600)
    cluster.load_image(output)


def test_build_without_its_fence_fails_the_freeze_drill(cluster: Lab, tmp_path: Path) -> None:
    sabotaged_image(cluster, tmp_path)
    with Ledger(cluster, "sabotaged", image=SABOTAGED) as ledger:
        ledger.wait_ready()
        # Longer than the others take to decide on a busy machine, or there is no second primary; shorter than the
        # patience of the frozen front door, which must still pass on what its worker answers.
        # Its calls never go well again, so the run lasts until its deadline.
        fault = {"type": "Freeze", "durationSeconds": 6}
        ledger.cluster.apply(drill(ledger, "freeze", fault, activeDeadlineSeconds=200))
        last = judged(ledger, "freeze")
    assert (last["verdict"], last["reason"]) == ("Failed", "Lost"), json.dumps(last)
    assert last["callsLost"] > 0

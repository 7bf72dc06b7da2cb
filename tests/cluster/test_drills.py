"""Drills break the real thing and ask what matters: how long did a client wait, and was anything lost?"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.installed import LEDGER_IMAGE, Lab, Ledger
from tests.cluster.lab.machine import ROOT, run

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("deathless")]

SABOTAGED = "docker.io/library/deathless-sabotaged:1"


def drill(ledger: Ledger, name: str, fault: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A FailoverDrill of the ledger that is quick."""
    return {
        "apiVersion": "deathless.dev/v1alpha1",
        "kind": "FailoverDrill",
        "metadata": {"name": name, "namespace": ledger.namespace},
        "spec": {
            "serviceRef": {"name": ledger.name},
            "fault": fault,
            "probe": {"warmUpSeconds": 2, "settleSeconds": 3},
            "limits": {"unavailableSecondsMax": 20.0},
            "activeDeadlineSeconds": 180,
            **spec,
        },
    }


def status(ledger: Ledger, name: str) -> dict[str, Any]:
    """A drill's status."""
    found: dict[str, Any] = ledger.cluster.get("fdr", name, ledger.namespace).get("status", {})
    return found


def judged(ledger: Ledger, name: str) -> dict[str, Any]:
    """The last run of a drill, once there is one."""
    ledger.wait_for(lambda: status(ledger, name).get("last"), f"drill {name} is judged", 240)
    last: dict[str, Any] = status(ledger, name)["last"]
    return last


@pytest.mark.parametrize(
    "fault",
    [
        {"type": "ProcessKill"},
        {"type": "PodDelete"},
        {"type": "NodeDrain", "durationSeconds": 5},
        {"type": "Freeze", "durationSeconds": 5},
        {"type": "Partition", "durationSeconds": 5, "cut": "All"},
        {"type": "LockOutage", "durationSeconds": 5},
    ],
    ids=lambda fault: fault["type"],
)
def test_drill_of_each_fault_passes(settled: Ledger, fault: dict[str, Any]) -> None:
    name = fault["type"].lower()
    settled.wait_ready()
    settled.cluster.apply(drill(settled, name, fault))
    last = judged(settled, name)
    assert last["verdict"] == "Passed", json.dumps(last)
    assert (last.get("callsLost", 0), last.get("callsDoubled", 0)) == (0, 0)
    assert last["callsAnswered"] > 0


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


def sabotaged_image(cluster: Lab, folder: Path) -> None:
    """Build a ledger whose replicas believe for ever that they own the lock: the fence is off."""
    context = folder / "sabotaged"
    context.mkdir()
    shutil.copy(ROOT / "tests" / "process" / "ledger.py", context / "ledger.py")
    (context / "Dockerfile").write_text(f"FROM {LEDGER_IMAGE}\nCOPY sitecustomize.py /app/sitecustomize.py\n")
    (context / "sitecustomize.py").write_text(
        "import sys\n"
        "if any('deathless.shell.worker' in word for word in sys.orig_argv):\n"
        "    from deathless.shell.etcd_lock import EtcdLock\n"
        "    async def owns(self, holder):\n"
        "        return True\n"
        "    EtcdLock.owns = owns\n"
    )
    output = context / "image.tar"
    build = [sys.executable, str(ROOT / "tools" / "image.py"), "--tag", SABOTAGED, "--output", str(output)]
    run(*build, "--file", str(context / "Dockerfile"), str(context), timeout_s=600)
    cluster.load_image(output)


def test_build_without_its_fence_fails_the_freeze_drill(cluster: Lab, tmp_path: Path) -> None:
    sabotaged_image(cluster, tmp_path)
    with Ledger(cluster, "sabotaged", image=SABOTAGED) as ledger:
        ledger.wait_ready()
        verdicts = []
        for number in range(4):
            ledger.wait_ready()  # a drill of a service that is not well is left out
            ledger.cluster.apply(
                drill(ledger, f"freeze{number}", {"type": "Freeze", "durationSeconds": 1 + number % 2},
                      probe={"warmUpSeconds": 2, "settleSeconds": 5, "callsPerSecond": 200, "clients": 16})
            )  # fmt: skip
            last = judged(ledger, f"freeze{number}")
            verdicts.append(f"{last['verdict']} {last.get('reason')}: {last.get('message')}")
            if last["verdict"] == "Failed":
                assert last.get("callsLost", 0) + last.get("callsDoubled", 0) > 0, json.dumps(last)
                return
        raise AssertionError(f"nobody noticed: {verdicts}")

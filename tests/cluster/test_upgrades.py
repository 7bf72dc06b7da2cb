"""A service gets other code by a changed spec while it is called, on a real cluster: nothing is lost or done twice."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cluster.installed import CALM, LEDGER_IMAGE, MISFIT_IMAGE, OTHER_IMAGE, Lab, Ledger
from tests.cluster.under_load import called, uids, wait_pods

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("deathless")]

UPGRADE_S = 900.0
"""Pods are made, fed, rolled one after the other, and go: a slow machine takes its time for each."""


def images(ledger: Ledger) -> set[str]:
    """Images that the replicas' pods run."""
    found = [ledger.cluster.get("pod", pod.name, ledger.namespace) for pod in ledger.pods()]
    return {one["image"] for pod in found for one in pod["spec"]["containers"]}


def check_whole(ledger: Ledger, image: str) -> None:
    """Three pods of the StatefulSet's template run that image and nothing beside it."""
    wait_pods(ledger, 3)
    status = ledger.get()["status"]
    assert (status["image"], status["ready"], status["replicas"]) == (image, "3/3", 3)
    assert images(ledger) == {image}
    found = ledger.cluster.get("statefulset", ledger.name, ledger.namespace)
    template = found["spec"]["template"]["metadata"]["labels"]["deathless.dev/template"]
    pods = [ledger.cluster.get("pod", pod.name, ledger.namespace) for pod in ledger.pods()]
    assert {pod["metadata"]["labels"]["deathless.dev/template"] for pod in pods} == {template}
    assert "deathless.dev/upgrading-to" not in found["metadata"]["annotations"]


def events(ledger: Ledger) -> list[str]:
    """Reasons of the service's events."""
    found = json.loads(ledger.cluster.kubectl("-n", ledger.namespace, "get", "events", "-o", "json"))
    return [event["reason"] for event in found["items"]]


def check_exported(ledger: Ledger, folder: Path) -> None:
    """The log that a pod writes to its standard output is whole, and read where no cluster is."""
    command = "deathless log export - --from 0 -f /etc/deathless/replica.json | base64 -w0"
    told = ledger.cluster.exec(ledger.pods()[0], "sh", "-ec", command, container="replica")
    (folder / "log.tar").write_bytes(base64.b64decode(told))
    for words in (
        ["import", str(folder / "log.tar"), str(folder / "log")],
        ["verify", "--quick", "--dir", str(folder / "log")],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "deathless.cli.main", "log", *words], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{words}: {done.stdout} {done.stderr}"


def test_service_under_load_is_upgraded_to_compatible_code(cluster: Lab, tmp_path: Path) -> None:
    with Ledger(cluster, "upgraded", limits=CALM) as ledger:
        with called(ledger, patient=True) as callers:
            before = ledger.get()["status"]["fingerprint"]
            ledger.apply(image=OTHER_IMAGE)
            ledger.wait_told("Progressing", "True", "Upgrading")
            callers.wait_more()
            ledger.wait_ready(UPGRADE_S)
            callers.wait_more()
        check_whole(ledger, OTHER_IMAGE)
        assert ledger.get()["status"]["fingerprint"] != before
        told = events(ledger)
        assert "UpgradeStarted" in told
        assert "Upgraded" in told
        check_exported(ledger, tmp_path)


def test_code_that_does_not_fit_is_refused_and_the_old_one_serves_on(cluster: Lab) -> None:
    with Ledger(cluster, "misfit", limits=CALM, upgradePolicy="Automatic") as ledger:
        with called(ledger, patient=True) as callers:
            before = uids(ledger)
            ledger.apply(image=MISFIT_IMAGE)
            message = ledger.wait_told("UpgradeRequired", "True", "UpgradeRefused", UPGRADE_S)
            assert "DL1023" in message
            wait_pods(ledger, 3)
            assert uids(ledger) == before, "no pod that serves was touched"
            callers.wait_more()
            ledger.apply(image=LEDGER_IMAGE)
            ledger.wait_told("UpgradeRequired", "False")
        check_whole(ledger, LEDGER_IMAGE)


def test_code_that_waits_for_a_word_is_upgraded_to_once_it_is_given(cluster: Lab) -> None:
    with Ledger(cluster, "word", limits=CALM, upgradePolicy="Manual") as ledger:
        with called(ledger, patient=True):
            ledger.apply(image=OTHER_IMAGE)
            message = ledger.wait_told("Ready", "False", "OtherFingerprint")
            word = message.partition("deathless.dev/upgrade=")[2].partition("`")[0]
            annotate = ("annotate", f"dls/{ledger.name}", f"deathless.dev/upgrade={word}")
            cluster.kubectl("-n", ledger.namespace, *annotate)
            ledger.wait_ready(UPGRADE_S)
        check_whole(ledger, OTHER_IMAGE)


def wait_upgrade(ledger: Ledger, condition: str) -> None:
    """Wait for a condition of the LiveUpgrade, as a pipeline does."""
    words = ("wait", f"--for=condition={condition}", f"--timeout={UPGRADE_S:g}s", "liveupgrade/second")
    ledger.cluster.kubectl("-n", ledger.namespace, *words)


def act(ledger: Ledger, action: str) -> None:
    """Change the action of the LiveUpgrade."""
    words = ("annotate", "--overwrite", "lup/second", f"deathless.dev/action={action}")
    ledger.cluster.kubectl("-n", ledger.namespace, *words)


def live_upgrade(ledger: Ledger) -> dict[str, object]:
    """One that is held until somebody says Go."""
    named = {"name": ledger.name}
    spec = {"serviceRef": named, "from": {"image": LEDGER_IMAGE}, "to": {"image": OTHER_IMAGE}, "action": "Hold"}
    metadata = {"name": "second", "namespace": ledger.namespace}
    return {"apiVersion": "deathless.dev/v1alpha1", "kind": "LiveUpgrade", "metadata": metadata, "spec": spec}


def test_a_live_upgrade_is_tried_first_handed_over_at_a_word_and_backed_out(cluster: Lab) -> None:
    with Ledger(cluster, "live", limits=CALM, upgradePolicy="Manual") as ledger:
        with called(ledger, patient=True) as callers:
            before = uids(ledger)
            cluster.apply(live_upgrade(ledger))
            wait_upgrade(ledger, "Ready")
            callers.wait_more()
            assert before < uids(ledger), "the pods that serve were not touched, and others are beside them"
            assert ledger.get()["status"]["image"] == LEDGER_IMAGE, "nothing was handed over"
            act(ledger, "Go")
            wait_upgrade(ledger, "Succeeded")
            callers.wait_more()
            ledger.wait_told("Accepted", "True", "SpecBehind", UPGRADE_S)
            ledger.wait_ready(UPGRADE_S)
            check_whole(ledger, OTHER_IMAGE)
            told = cluster.get("liveupgrade", "second", ledger.namespace)["status"]
            assert told["former"]["image"] == LEDGER_IMAGE
            assert told["unavailableSeconds"] > 0
            act(ledger, "BackOut")
            ledger.wait_told("Accepted", "True", "SpecAccepted", UPGRADE_S)
            ledger.wait_ready(UPGRADE_S)
            callers.wait_more()
        check_whole(ledger, LEDGER_IMAGE)
        assert cluster.get("liveupgrade", "second", ledger.namespace)["status"]["phase"] == "BackedOut"

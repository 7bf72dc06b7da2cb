"""A service's log is run again in pods of their own while it is called, on a real cluster."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cluster.installed import CALM, LEDGER_IMAGE, OTHER_IMAGE, Lab, Ledger
from tests.cluster.under_load import called, uids

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("deathless")]

RUN_S = 600.0


def make(ledger: Ledger, kind: str, name: str, **spec: object) -> None:
    """Make a run of the ledger's log."""
    metadata = {"name": name, "namespace": ledger.namespace}
    whole = {"serviceRef": {"name": ledger.name}, **spec}
    ledger.cluster.apply({"apiVersion": "deathless.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": whole})


def status(ledger: Ledger, kind: str, name: str) -> dict[str, Any]:
    """Wait until a run has ended, as a pipeline does; gives its status."""
    words = ("wait", "--for=condition=Progressing=False", f"--timeout={RUN_S:g}s", f"{kind}/{name}")
    ledger.cluster.kubectl("-n", ledger.namespace, *words, timeout_s=RUN_S + 30)
    found: dict[str, Any] = ledger.cluster.get(kind, name, ledger.namespace)["status"]
    return found


def test_log_of_a_service_under_load_gives_what_it_gave(cluster: Lab) -> None:
    with Ledger(cluster, "replayed", limits=CALM) as ledger:
        with called(ledger, patient=True) as callers:
            callers.wait_more()
            before = uids(ledger)
            make(ledger, "Replay", "again")
            told = status(ledger, "replay", "again")
            callers.wait_more()
        assert (told["phase"], told["reason"]) == ("Succeeded", "Replayed"), told
        assert told["result"]["messages"] > 0
        assert told["image"] == LEDGER_IMAGE
        assert uids(ledger) == before, "no pod that serves was touched"


def test_log_is_run_by_the_image_that_serves_and_by_another_one(cluster: Lab) -> None:
    with Ledger(cluster, "rehearsed", limits=CALM) as ledger:
        with called(ledger, patient=True) as callers:
            callers.wait_more()
            before = uids(ledger)
            make(ledger, "Rehearsal", "same", image=LEDGER_IMAGE)
            make(ledger, "Rehearsal", "other", image=OTHER_IMAGE)
            same, other = status(ledger, "rehearsal", "same"), status(ledger, "rehearsal", "other")
            callers.wait_more()
        assert (same["phase"], same["verdict"]) == ("Succeeded", "Passed"), same
        assert same["result"]["sameCode"] is True
        assert same["result"]["messages"] > 0
        assert other["verdict"] in ("Passed", "Failed"), other
        assert other["result"]["messages"] > 0
        assert other["image"] == LEDGER_IMAGE, "the code that serves is still the former one"
        assert uids(ledger) == before, "no pod that serves was touched"

"""`kubectl deathless` as a user types it: kubectl finds the plugin on the PATH, and it works on a real cluster."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from lab.cluster.machine import CommandFailed, run
from tests.cluster.installed import CALM, Lab, Ledger
from tests.cluster.under_load import called, check_no_call_failed

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("deathless")]


def deathless(ledger: Ledger, *words: str, timeout_s: float = 120.0) -> str:
    """What `kubectl deathless ... --namespace ...` prints; it calls kubectl itself, too."""
    cluster = ledger.cluster
    places = [Path(sys.executable).parent, cluster.binaries["kubectl"].parent, os.environ["PATH"]]
    return run(
        cluster.binaries["kubectl"],
        *("deathless", *words, "--namespace", ledger.namespace),
        environment={"KUBECONFIG": str(cluster.kubeconfig), "PATH": os.pathsep.join(map(str, places))},
        timeout_s=timeout_s,
    )


def told(ledger: Ledger, *words: str, timeout_s: float = 120.0) -> Any:
    """What it prints for programs."""
    return json.loads(deathless(ledger, *words, "--json", timeout_s=timeout_s))


def test_plugin_shows_calls_moves_and_drills_a_service(cluster: Lab) -> None:
    with Ledger(cluster, "plugin", limits=CALM) as ledger:
        with called(ledger, patient=True) as callers:
            epoch, primary = ledger.epoch(), ledger.primary()
            ledger.wait_for(lambda: ledger.get()["status"].get("epoch") == epoch, "the status tells the epoch")
            status = told(ledger, "status", ledger.name)
            assert (status["name"], status["status"]["primary"]) == (ledger.name, primary.name)
            assert status["status"]["epoch"] == epoch
            assert ledger.name in deathless(ledger, "status")
            with pytest.raises(CommandFailed, match="DL"):
                deathless(ledger, "status", "nobody")

            call = ("call", ledger.name, "note", "--key", "plugin", "--arg", "tag=by-hand", "--timeout", "60")
            once = told(ledger, *call, "--idempotency-key", "only-once")
            assert once["idempotencyKey"] == "only-once"
            assert told(ledger, *call, "--idempotency-key", "only-once") == once
            held = told(ledger, "call", ledger.name, "notes", "--key", "plugin", "--query", "--timeout", "60")
            assert held == ["by-hand"]

            moved = told(ledger, "switchover", ledger.name, "--timeout", "120", timeout_s=180)
            assert moved["before"] == primary.name
            assert moved["epoch"] > epoch
            assert moved["after"] != primary.name
            ledger.wait_ready()
            assert deathless(ledger, "logs", ledger.name, "--tail", "5").strip()
        check_no_call_failed(callers)

        # A drill makes calls of its own; others beside them would keep a busy machine from ever being warm.
        words = ("drill", ledger.name, "--fault", "PodDelete", "--unavailable-max", "60", "--timeout", "600")
        drilled = told(ledger, *words, timeout_s=660)
        assert drilled["run"]["verdict"] == "Passed", json.dumps(drilled)
        assert drilled["run"]["fault"] == "PodDelete"
        assert drilled["run"]["callsAnswered"] == drilled["run"]["callsSent"] > 0
        ledger.wait_for(lambda: not drills(ledger), "the drill is deleted once it is judged")
        ledger.wait_ready()
        callers.check_exactly_once()


def drills(ledger: Ledger) -> object:
    """The drills that there are."""
    return json.loads(ledger.cluster.kubectl("-n", ledger.namespace, "get", "fdr", "-o", "json"))["items"]

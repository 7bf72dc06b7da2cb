"""FailoverDrills of a ledger that are quick, and what came of them."""

from __future__ import annotations

from typing import Any

from tests.cluster.installed import Ledger


def drill(ledger: Ledger, name: str, fault: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A FailoverDrill of the ledger that is quick."""
    return {
        "apiVersion": "deathless.dev/v1alpha1",
        "kind": "FailoverDrill",
        "metadata": {"name": name, "namespace": ledger.namespace},
        "spec": {
            "serviceRef": {"name": ledger.name},
            "fault": fault,
            # While it settles is also when an agent's pod starts on a machine that is busy.
            "probe": {"warmUpSeconds": 2, "settleSeconds": 20},
            "limits": {"unavailableSecondsMax": 60.0},
            "activeDeadlineSeconds": 400,
            **spec,
        },
    }


def status(ledger: Ledger, name: str) -> dict[str, Any]:
    """A drill's status."""
    found: dict[str, Any] = ledger.cluster.get("fdr", name, ledger.namespace).get("status", {})
    return found


def judged(ledger: Ledger, name: str, within_s: float = 500) -> dict[str, Any]:
    """The last run of a drill, once there is one."""
    ledger.wait_for(lambda: status(ledger, name).get("last"), f"drill {name} is judged", within_s)
    last: dict[str, Any] = status(ledger, name)["last"]
    return last

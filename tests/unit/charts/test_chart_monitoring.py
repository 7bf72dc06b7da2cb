"""Alerts and dashboards speak only of metrics that exist, and every alert has its runbook."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.unit.charts.rendering import ALL_ON, CHART, ROOT, Object, find, render
from tests.unit.charts.test_alerts import rules

from deathless.shell.link.application_status import ApplicationStatus
from deathless.shell.link.sink_status import SinkStatus
from deathless.shell.link.source_status import SourceStatus
from deathless.shell.link.standing import Standing
from deathless.shell.pod.health_port import expose_standing
from deathless.shell.web.application_metrics import expose_application
from deathless.shell.web.replica_metrics import MESSAGING, expose_status
from deathless.shell.web.sink_metrics import expose_sinks
from deathless.shell.web.source_metrics import expose_sources
from deathless_operator.handlers.metrics import Metrics

RUNBOOKS = ROOT / "docs" / "runbooks" / "alerts.md"
DASHBOARDS = sorted((CHART / "dashboards").glob("*.json"))
# The status of a worker (shell/worker/worker.py), which the replica's metrics are made of.
STATUS: dict[str, object] = {
    "role": "primary", "epoch": 1, "lsn": 1, "sessions": 1, "keys": 1, "states": 1, "parked": 0, "uptime_s": 1.0,
    "clock_ahead_seconds": 0.0,
    "counters": {
        "calls": 1, "frames": 1, "bytes": 1, "refused": 0, "duplicates": 0, "dropped": 0, "queries": 0, "proofs": 0,
        "confirmed": 1, "full": False,
    },
    "followers": {"r1": 1},
    "messaging": dict.fromkeys(MESSAGING, 0) | {n: {"a": 0} for n in MESSAGING if n.startswith(("peer_", "driver_"))},
}  # fmt: skip
INGRESS = {
    "deathless_ingress_requests_total", "deathless_ingress_request_seconds_bucket", "deathless_ingress_in_flight",
    "deathless_ingress_ready",
}  # fmt: skip


def known() -> set[str]:
    """Return the names of our metrics, as Prometheus sees them."""
    replica = expose_status(STATUS, {"service": "bank", "replica": "r0"}).decode()
    replica += expose_standing(Standing(service="bank", replica="r0"), {}).decode()
    replica += expose_sinks({"facts": SinkStatus(sink="facts", topic="departures", state="ready")}, {}).decode()
    source = SourceStatus(source="rows", kind="files", input="rows", state="reading")
    replica += expose_sources({"rows": source}, {}).decode()
    replica += expose_application(ApplicationStatus(replica="r0", state="leading"), {}).decode()
    told = re.findall(r"^# TYPE (\S+) (\S+)", replica + Metrics().text().decode(), re.MULTILINE)
    names = set(INGRESS)
    for name, kind in told:
        names |= {f"{name}_bucket", f"{name}_count", f"{name}_sum"} if kind == "histogram" else {name}
        if kind == "counter":
            names.add(f"{name.removesuffix('_total')}_total")
    return names


def expressions() -> list[tuple[str, str]]:
    """Return every query with where it stands."""
    found = [(str(rule["alert"]), str(rule["expr"])) for rule in rules()]
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            found += [(f"{path.stem}: {panel['title']}", target["expr"]) for target in panel["targets"]]
    return found


@pytest.mark.parametrize(("where", "query"), expressions())
def test_query_names_metrics_that_exist(where: str, query: str) -> None:
    ours = set(re.findall(r"\bdeathless_[a-z_]+", query))
    assert ours <= known(), where
    assert ours or re.search(r"\betcd_[a-z_]+", query), where


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_alert_says_what_is_wrong_how_bad_it_is_and_has_a_runbook(rule: Object) -> None:
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert rule["annotations"]["summary"] and rule["annotations"]["description"]
    assert f"\n## {rule['alert']}\n" in RUNBOOKS.read_text()


def test_runbooks_speak_of_no_other_alert() -> None:
    headed = set(re.findall(r"^## (Deathless\w+)$", RUNBOOKS.read_text(), re.MULTILINE))
    assert headed == {rule["alert"] for rule in rules()}


def test_page_of_metrics_lists_each() -> None:
    page = (ROOT / "docs" / "kubernetes" / "metrics.md").read_text()
    for name in known():
        stem = re.sub(r"_(bucket|count|sum)$", "", name)
        short = re.sub(r"^deathless_(replica|supervisor)", "", stem)
        if stem == name or f"{stem}_bucket" in known():
            assert f"`{stem}" in page or f"`{short}" in page, name


def rendered(values: Object) -> list[dict[str, Any]]:
    """Return the alerts of the rendered chart."""
    groups = find(render(values), "PrometheusRule", "deathless")["spec"]["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_values_add_labels_and_links_and_leave_alerts_out() -> None:
    made = rendered(ALL_ON)
    assert len(made) == len(rules())
    assert all(rule["labels"]["team"] == "blue" for rule in made)
    anchor = "https://docs.example/alerts/#deathlessreplicadown"
    assert anchor in {rule["annotations"]["runbook_url"] for rule in made}
    fewer = rendered({"alerts": {"mode": "Always", "disabled": ["DeathlessReplicaDown"]}})
    assert {rule["alert"] for rule in made} - {rule["alert"] for rule in fewer} == {"DeathlessReplicaDown"}


def test_alerts_of_the_lock_store_go_with_it() -> None:
    values = {"alerts": {"mode": "Always"}, "lockStore": {"enabled": False}}
    assert not any("LockStore" in rule["alert"] for rule in rendered(values))


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: Path(path).stem)
def test_dashboard_is_one_that_grafana_reads(path: Path) -> None:
    board = json.loads(path.read_text())
    assert board["uid"] and board["title"] and board["panels"]
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    assert all(panel["datasource"]["uid"] == "${datasource}" for panel in board["panels"])
    stored = find(render({"dashboards": {"enabled": True}}), "ConfigMap", f"deathless-dashboard-{path.stem}")
    assert stored["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(stored["data"][path.name]) == board

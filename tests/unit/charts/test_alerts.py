"""Every alert fires when it has to, and is silent when it has not to, as Prometheus evaluates it.

The files in `alerts/` hold cases. Samples lie 30 s apart, and rules are evaluated as often:

    name    a sentence
    about   alerts whose firing or silence is the point; they have series to look at
    series  values by series, in promtool's notation: `1x9` is ten samples of 1, `_` is none, `stale` ends a series,
            and ten of 0 are `0+0x9`, because 0x9 is a number. Those of a service get
            `namespace="shop"` and `service="bank"`.
    looks   at a time: what `fires`, all of it, with its summaries. No `fires`: nothing does

An operator leads and the lock store has its members, where a case does not say otherwise.
"""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from lab import kubernetes
from tests.unit.charts.rendering import ALL_ON, CHART, Object, find, render

CASES: list[Object] = [
    case for path in sorted(Path(__file__).parent.glob("alerts/*.yaml")) for case in yaml.safe_load(path.read_text())
]
BASE = {
    'deathless_operator_leader{namespace="deathless-system",pod="operator-9"}': "1x300",
    'etcd_server_has_leader{namespace="deathless-system",pod="deathless-lock-store-9"}': "1x300",
}
OF_A_SERVICE = re.compile(
    r"^(deathless_(?:replica|supervisor|ingress|peer|driver|program|sink|source|outbox|outcomes|operator_service)_\w+)\{"
)


def rules() -> list[Object]:
    """Return every alert."""
    groups = yaml.safe_load((CHART / "alerts" / "rules.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def evaluate(asked: Object) -> Object:
    """Have the rules evaluated; see lab/alert_tests.go."""
    tool = kubernetes.ensure("alert-tests")["alert-tests"]
    done = subprocess.run([tool], input=json.dumps(asked), capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    answer: Object = json.loads(done.stdout)
    return answer


def series_of(case: Object) -> list[Object]:
    """Return the series of a case, with those that are there anyway."""
    given: dict[str, object] = case["series"]
    own = {name.partition("{")[0] for name in given}
    assert not any(re.search(r"(^| )0x", str(values)) for values in given.values()), "that is hexadecimal"
    there = {name: values for name, values in BASE.items() if name.partition("{")[0] not in own}
    return [
        {"series": OF_A_SERVICE.sub(r'\1{namespace="shop",service="bank",', name), "values": str(values)}
        for name, values in (there | given).items()
    ]


@cache
def told() -> list[list[list[Object]]]:
    """Return what fires, by case and look; all cases in one go."""
    tests = [
        {"interval": "30s", "series": series_of(case), "times": [look["at"] for look in case["looks"]]}
        for case in CASES
    ]
    answer = evaluate({"rules": rules(), "tests": tests})
    assert answer["errors"] == []
    found: list[list[list[Object]]] = answer["tests"]
    return found


@pytest.mark.parametrize("index", range(len(CASES)), ids=lambda index: str(CASES[index]["name"]))
def test_these_alerts_fire_and_no_other(index: int) -> None:
    for look, fired in zip(CASES[index]["looks"], told()[index], strict=True):
        summaries: dict[str, list[str]] = {}
        for alert in fired:
            summaries.setdefault(alert["alert"], []).append(alert["annotations"]["summary"])
        assert summaries == look.get("fires", {}), look["at"]


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_alert_has_a_case_in_which_it_fires_and_one_in_which_it_is_silent(rule: Object) -> None:
    name, metrics = rule["alert"], set(re.findall(r"\b(?:deathless|etcd)_[a-z_]+", rule["expr"]))
    about = [case for case in CASES if name in case["about"]]
    for case in about:
        assert metrics & {series.partition("{")[0] for series in case["series"]}, "it has something to look at"
    assert any(name in look.get("fires", {}) for case in about for look in case["looks"])
    assert any(all(name not in look.get("fires", {}) for look in case["looks"]) for case in about)


def test_cases_speak_of_no_other_alert() -> None:
    named = {
        name
        for case in CASES
        for name in (*case["about"], *(n for look in case["looks"] for n in look.get("fires", {})))
    }
    assert named == {rule["alert"] for rule in rules()}


def test_rendered_rules_are_those_that_are_tested() -> None:
    values = ALL_ON | {"alerts": {"mode": "Always"}}
    groups: list[Any] = find(render(values), "PrometheusRule", "deathless")["spec"]["groups"]
    rendered = {rule["alert"]: (rule["expr"], rule.get("for")) for group in groups for rule in group["rules"]}
    assert rendered == {rule["alert"]: (rule["expr"], rule.get("for")) for rule in rules()}


def dashboard_queries() -> list[str]:
    """Return every query of the dashboards; Grafana fills in its variables."""
    boards = [json.loads(path.read_text()) for path in sorted((CHART / "dashboards").glob("*.json"))]
    found = [target["expr"] for board in boards for panel in board["panels"] for target in panel["targets"]]
    return [query.replace("$__rate_interval", "1m") for query in found]


def test_prometheus_reads_every_query() -> None:
    assert evaluate({"queries": dashboard_queries(), "rules": rules()})["errors"] == []


def test_query_that_prometheus_does_not_read_is_told() -> None:
    (told,) = evaluate({"queries": ["sum by (service (up)"]})["errors"]
    assert "sum by (service (up)" in told


def test_annotation_that_can_not_be_filled_in_is_told() -> None:
    rule = {"alert": "A", "expr": "up == 1", "annotations": {"summary": "{{ $labels.job | nothing }}"}}
    test = {"interval": "30s", "series": [{"series": "up", "values": "1x4"}], "times": ["1m"]}
    (said,) = evaluate({"rules": [rule], "tests": [test]})["errors"]
    assert "nothing" in said

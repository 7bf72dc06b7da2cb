"""Values: explained once, refused where they are unknown or cannot work together."""

from __future__ import annotations

import json

import pytest
from tests.unit.charts.rendering import CHART, CRD_CHART, VARIANTS, Object, Refused, render
from tools import chart


@pytest.mark.parametrize("values", VARIANTS.values(), ids=VARIANTS)
def test_values_of_every_variant_are_taken(values: Object) -> None:
    assert render(values)


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"replicas": 2}, "replicas"),
        ({"operator": {"replica": 2}}, "replica"),
        ({"operator": {"replicas": "two"}}, "replicas"),
        ({"operator": {"replicas": 10}}, "replicas"),
        ({"operator": {"leaderElection": {"leaseDuration": 3}}}, "leaseDuration"),
        ({"operator": {"watchNamespaces": ["Blue"]}}, "watchNamespaces"),
        ({"operator": {"watchNamespaces": ["a", "a"]}}, "watchNamespaces"),
        ({"operator": {"logLevel": "loud"}}, "logLevel"),
        ({"operator": {"apiServerPorts": [0]}}, "apiServerPorts"),
        ({"image": {"digest": "sha256:1"}}, "digest"),
        ({"image": {"pullPolicy": "Sometimes"}}, "pullPolicy"),
        ({"image": {"pullSecrets": ["name"]}}, "pullSecrets"),
        ({"lockStore": {"members": 2}}, "members"),
        ({"lockStore": {"storage": {"type": "Tape"}}}, "type"),
        ({"lockStore": {"certificates": {"source": "Hope"}}}, "source"),
        ({"lockStore": {"external": {"endpoints": ["etcd:2379"]}}}, "endpoints"),
        ({"lockStore": {"antiAffinity": "required"}}, "antiAffinity"),
        ({"alerts": {"mode": "auto"}}, "mode"),
        ({"drills": {"privileged": True}}, "privileged"),
        ({"commonLabels": {"a": 1}}, "commonLabels"),
        ({"extraObjects": [1]}, "extraObjects"),
    ],
)
def test_value_that_is_not_in_the_schema_is_refused(values: Object, word: str) -> None:
    with pytest.raises(Refused, match=word) as refused:
        render(values)
    assert "don't meet the specifications of the schema" in str(refused.value)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"operator": {"leaderElection": {"enabled": False}}}, "two leaders would work against each other"),
        ({"operator": {"leaderElection": {"renewSeconds": 20}}}, "leaseSeconds > renewSeconds > retrySeconds"),
        ({"operator": {"leaderElection": {"retrySeconds": 10}}}, "leaseSeconds > renewSeconds > retrySeconds"),
        ({"lockStore": {"electionMilliseconds": 400}}, "at least five times"),
        ({"lockStore": {"external": {"endpoints": ["https://a:1"]}}}, "choose one of them"),
        ({"lockStore": {"storage": {"type": "EmptyDir"}}}, "cannot join again"),
    ],
)
def test_values_that_do_not_go_together_are_refused_with_a_reason(values: Object, sentence: str) -> None:
    with pytest.raises(Refused, match=sentence):
        render(values)


def test_unknown_value_of_the_crd_chart_is_refused() -> None:
    with pytest.raises(Refused, match="keeps"):
        render({"keeps": True}, CRD_CHART)


def test_schema_and_table_and_crds_are_up_to_date() -> None:
    assert chart.differing() == []


def test_every_object_of_the_schema_is_closed_or_says_that_it_is_open() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    free = []

    def walk(path: str, part: Object) -> None:
        if part.get("type") == "object" and part.get("additionalProperties") is not False:
            free.append(path)
        for name, inner in (part.get("properties") or {}).items():
            walk(f"{path}.{name}", inner)

    walk("", schema)
    assert set(free) == {
        ".global",
        *(f".{name}" for name in ("commonLabels", "commonAnnotations")),
        *(f".operator.{name}" for name in ("resources", "podAnnotations", "podLabels", "podSecurityContext")),
        *(f".operator.{name}" for name in ("securityContext", "nodeSelector", "affinity")),
        ".serviceAccount.annotations",
        *(f".lockStore.{name}" for name in ("resources", "podSecurityContext", "securityContext", "podAnnotations")),
        ".lockStore.nodeSelector",
        ".lockStore.certificates.issuerRef",
        ".podMonitor.labels",
        *(f".alerts.{name}" for name in ("labels", "alertLabels")),
        *(f".dashboards.{name}" for name in ("labels", "annotations")),
    }

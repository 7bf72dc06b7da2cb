"""The chart of the kinds: exactly those of crds/, kept when it is uninstalled."""

from __future__ import annotations

import yaml
from tests.unit.charts.rendering import CRD_CHART, ROOT, render


def test_kinds_are_those_of_the_models() -> None:
    wanted = [yaml.safe_load(path.read_text()) for path in sorted((ROOT / "crds").glob("*.yaml"))]
    made = render({}, CRD_CHART)
    for each in made:
        del each["metadata"]["labels"], each["metadata"]["annotations"]
    assert sorted(made, key=lambda crd: str(crd["metadata"]["name"])) == wanted


def test_kinds_stay_when_the_chart_goes_unless_told_otherwise() -> None:
    policy = "helm.sh/resource-policy"
    assert all(each["metadata"]["annotations"][policy] == "keep" for each in render({}, CRD_CHART))
    assert all("annotations" not in each["metadata"] for each in render({"keep": False}, CRD_CHART))


def test_labels_of_the_user_are_added() -> None:
    made = render({"commonLabels": {"team": "blue"}}, CRD_CHART)
    assert all(each["metadata"]["labels"]["team"] == "blue" for each in made)

"""What helm keeps when a release is uninstalled is what the documents tell people to delete."""

from __future__ import annotations

import re

import pytest
from tests.unit.charts.rendering import ROOT, VARIANTS, Object, render

PAGE = (ROOT / "docs" / "kubernetes" / "uninstall.md").read_text()
LABEL = "app.kubernetes.io/part-of"


def deleted() -> set[str]:
    """Return the kinds that the page deletes by our label, lower-case."""
    lines = re.sub(r"\\\n\s*", "", PAGE).splitlines()
    found = [re.search(r"delete (\S+) +-l " + LABEL + "=deathless", line) for line in lines]
    return {kind for each in found if each is not None for kind in each[1].split(",")}


@pytest.mark.parametrize("values", VARIANTS.values(), ids=VARIANTS)
def test_everything_that_is_kept_is_deleted_by_the_pages_last_commands(values: Object) -> None:
    kept = [
        each
        for each in render(values)
        if (each["metadata"].get("annotations") or {}).get("helm.sh/resource-policy") == "keep"
    ]
    assert {each["kind"].lower() for each in kept} <= deleted()
    assert {each["metadata"]["labels"][LABEL] for each in kept} <= {"deathless"}


def test_secrets_that_nobody_owns_are_named() -> None:
    for name in (
        "deathless-ca",
        "deathless-lock-store-ca",
        "deathless-lock-store-tls",
        "deathless-lock-store-client-tls",
    ):
        assert name in PAGE

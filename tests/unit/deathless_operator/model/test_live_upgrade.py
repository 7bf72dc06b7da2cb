"""What a LiveUpgrade says that its schema can't see, and how it is read."""

from __future__ import annotations

from typing import Any

import pytest

from deathless_operator.model.live_upgrade import LiveUpgradeStatus
from deathless_operator.plan.service.reading import read_live_upgrade


def raw(**spec: Any) -> dict[str, Any]:
    """A LiveUpgrade as the API server gives it."""
    metadata = {"name": "second", "namespace": "prod", "uid": "u", "resourceVersion": "7", "generation": 2}
    return {"metadata": metadata, "spec": {"serviceRef": {"name": "bank"}, "to": {"image": "bank:2"}, **spec}}


def test_defaults_ask_for_the_upgrade_at_any_time() -> None:
    found = read_live_upgrade(raw())
    assert found.spec is not None
    assert (found.service, found.version, found.spec.action, found.spec.window) == ("bank", "7", "Go", None)
    assert (found.spec.to.module, found.spec.from_.image) == ("", "")


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"to": {"image": ""}}, "spec.to.image"),
        ({"to": {"image": "x", "module": "no colon"}}, "spec.to.module"),
        ({"action": "Perhaps"}, "spec.action"),
        ({"window": {"schedule": "0 2 * *"}}, "five fields"),
        ({"window": {"schedule": "99 2 * * *"}}, "99 2 * * *"),
        ({"window": {"schedule": "0 2 * * *", "timeZone": "Mars/Base"}}, "Mars/Base"),
        ({"window": {"schedule": "0 2 * * *", "durationSeconds": 5}}, "spec.window.durationSeconds"),
        ({"ramp": [{"shards": 2}, {"shards": 2}]}, "spec.ramp: shards of each step"),
        ({"ramp": [{"shards": 1, "metrics": [{"name": "m", "query": "q"}]}]}, "ramp[0].metrics: m has neither"),
        (
            {"ramp": [{"shards": 1, "metrics": [{"name": "m", "query": "q", "min": 2.0, "max": 1.0}]}]},
            "min of m is above its max",
        ),
        ({"ramp": [{"shards": 1, "metrics": [{"name": "m", "query": "", "max": 1.0}]}]}, "ramp[0].metrics[0].query"),
        ({"ramp": [{"shards": 0}]}, "spec.ramp[0].shards"),
        ({"colour": "red"}, "spec"),
    ],
)
def test_what_can_not_be_read_is_told_with_its_place(spec: dict[str, Any], told: str) -> None:
    found = read_live_upgrade(raw(**spec))
    assert found.spec is None
    assert told in "; ".join(found.problems)
    assert found.service == "bank", "its service is looked at all the same"


def test_status_that_can_not_be_read_is_an_empty_one() -> None:
    assert read_live_upgrade(raw() | {"status": {"phase": "Elsewhere"}}).status == LiveUpgradeStatus()
    assert read_live_upgrade(raw() | {"status": {"phase": "Ready", "later": 1}}).status.phase == "Ready"

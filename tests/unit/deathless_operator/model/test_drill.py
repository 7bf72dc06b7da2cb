"""A drill's fields, and what contradicts itself."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from deathless_operator.model.drill import AGENT_FAULTS, LASTING, DrillSpec, drill_problems

SPEC: dict[str, Any] = {"serviceRef": {"name": "bank"}, "fault": {"type": "Freeze"}}


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({}, 0),
        ({"activeDeadlineSeconds": 30, "fault": {"type": "Freeze", "durationSeconds": 20}}, 1),
        ({"activeDeadlineSeconds": 30, "fault": {"type": "PodDelete", "durationSeconds": 20}}, 0),
        ({"timeZone": "UTC"}, 1),
        ({"timeZone": "UTC", "schedule": "0 4 * * 1"}, 0),
    ],
)
def test_contradiction_is_found(changes: dict[str, Any], count: int) -> None:
    assert len(drill_problems(msgspec.convert({**SPEC, **changes}, DrillSpec))) == count


def test_faults_that_last_are_undone_by_an_agent_or_by_uncordoning() -> None:
    assert set(LASTING) - set(AGENT_FAULTS) == {"NodeDrain"}

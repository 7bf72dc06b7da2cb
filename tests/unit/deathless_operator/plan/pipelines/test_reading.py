"""What an agent tells on its pod, and what else may stand there."""

from __future__ import annotations

import msgspec
import pytest

from deathless.base.pipelines.agents import AgentStatus
from deathless_operator.plan.pipelines.reading import read_agent_status


def test_what_an_agent_tells_is_read() -> None:
    told = AgentStatus(pid=1, agent="a", role="driver", number=4)
    assert read_agent_status(msgspec.json.encode(told).decode()) == told


@pytest.mark.parametrize("value", ["", "{", '{"role":"primary"}', "\udc80"])
def test_what_can_not_be_read_is_nothing(value: str) -> None:
    assert read_agent_status(value) is None

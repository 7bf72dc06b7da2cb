"""What stands in the files of an agent."""

from __future__ import annotations

import msgspec
import pytest

from deathless.base.pipelines.agents import AgentConfig, AgentStatus


def test_config_and_status_are_read_as_they_were_written() -> None:
    config = AgentConfig(pipeline="delays", name="d0", module="m:build", directory="/d", services={"a": "/a"})
    assert set(msgspec.json.decode(msgspec.json.encode(config))) == {
        "pipeline", "name", "module", "directory", "services",
    }, "an older agent is told of nothing that is as by default"  # fmt: skip
    status = AgentStatus(pid=7, agent="host.7.ab", role="driver", number=3, driver_pid=8, ui="http://h:1")
    assert msgspec.json.decode(msgspec.json.encode(config), type=AgentConfig) == config
    assert msgspec.json.decode(msgspec.json.encode(status), type=AgentStatus) == status


def test_a_role_that_there_is_not_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"\$\.role"):
        msgspec.json.decode(b'{"pid":1,"agent":"a","role":"primary"}', type=AgentStatus)

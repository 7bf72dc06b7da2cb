"""The status is small, and unknown fields are passed over."""

from __future__ import annotations

import msgspec

from deathless_operator.model.status import Condition, ServiceStatus, condition

READY = Condition(type="Ready", status="True", reason="AllReplicasReady")


def test_condition_is_found_by_type() -> None:
    assert condition((READY,), "Ready") is READY
    assert condition((READY,), "Degraded") is None


def test_what_is_not_known_is_not_written() -> None:
    assert msgspec.to_builtins(ServiceStatus(ready="1/3")) == {"ready": "1/3"}
    assert msgspec.convert({"ready": "1/3", "newer": 1}, ServiceStatus) == ServiceStatus(ready="1/3")


def test_condition_is_written_whole() -> None:
    assert set(msgspec.to_builtins(READY)) == {
        "type",
        "status",
        "reason",
        "message",
        "lastTransitionTime",
        "observedGeneration",
    }

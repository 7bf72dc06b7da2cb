"""Why a pod has not begun, in Kubernetes' words and with the field that names what is missing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from deathless.base.manifest import ServiceSpec
from deathless_operator.plan.mounting import secret_fields, why_not_begun
from deathless_operator.plan.snapshot import ContainerView, PodView, Warned

SPEC: dict[str, Any] = {
    "module": "m:s",
    "topics": [{"name": "rows"}],
    "sinks": [
        {
            "name": "facts",
            "kind": "columns",
            "topic": "rows",
            "options": {"store": "postgresql", "table": "t", "dsnFile": "d"},
            "secretRef": {"name": "db"},
        }
    ],
    "sources": [
        {
            "name": "flights",
            "kind": "kafka",
            "input": "flights",
            "options": {"bootstrapServers": "k:9092", "topic": "t"},
            "secretRef": {"name": "kafka"},
        }
    ],
}


def warned(message: str, **fields: Any) -> Warned:
    given: dict[str, Any] = {"kind": "Pod", "name": "bank-0", "reason": "FailedMount", "at": 5.0} | fields
    return Warned(message=message, **given)


def pod(**fields: Any) -> PodView:
    return PodView(name="bank-0", uid="u", **fields)


@pytest.mark.parametrize(
    ("volume", "remedy"),
    [
        ("deathless-sink-0", "create it in this namespace, or correct spec.sinks[0].secretRef (of facts)"),
        ("deathless-source-0", "create it in this namespace, or correct spec.sources[0].secretRef (of flights)"),
        ("deathless-token", "create it in this namespace, or correct spec.tokenSecretRef"),
        ("mine", "create what is missing, or correct the spec"),
    ],
)
def test_what_is_missing_is_told_with_its_field(volume: str, remedy: str) -> None:
    fields = secret_fields(msgspec.convert(SPEC, ServiceSpec))
    said = f'MountVolume.SetUp failed for volume "{volume}" : secret "x" not found'
    told = why_not_begun(pod(), [warned("older", at=1.0), warned(said)], fields)
    assert told == f"bank-0 can't mount what it needs: {said}. What to do: {remedy}"


@pytest.mark.parametrize(
    ("found", "warning"),
    [
        (pod(created_at=6.0), warned("no")),  # another pod of that name
        (pod(), warned("no", name="bank-1")),
        (pod(), warned("no", reason="Unhealthy")),
        (pod(), warned('volume "deathless-log" can\'t be attached')),
        (pod(containers=(ContainerView(name="replica", running=True),)), warned("no")),
        (pod(containers=(ContainerView(name="replica", restarts=1),)), warned("no")),
    ],
)
def test_of_a_pod_that_has_begun_and_of_others_nothing_is_told(found: PodView, warning: Warned) -> None:
    assert why_not_begun(found, [warning], {}) == ""

"""How runs of logs are read from what the API server holds."""

from __future__ import annotations

from typing import Any

import pytest

from deathless_operator.model.replay import ReplayStatus
from deathless_operator.plan.log_runs.reading import read_rehearsal, read_replay


def raw(**spec: Any) -> dict[str, Any]:
    """A Replay as the API server gives it."""
    metadata = {"name": "again", "namespace": "prod", "uid": "u", "resourceVersion": "7", "generation": 1}
    return {"metadata": metadata, "spec": {"serviceRef": {"name": "bank"}, **spec}}


def test_what_is_left_out_has_its_default() -> None:
    found = read_replay(raw())
    assert found.spec is not None
    assert (found.namespace, found.name, found.version, found.service) == ("prod", "again", "7", "bank")
    assert (found.spec.shard, found.spec.from_lsn, found.spec.to_lsn) == (0, None, None)
    assert (found.spec.ttl_seconds_after_finished, found.deleted) == (None, False)


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"fromLsn": -1}, "spec.fromLsn"),
        ({"toLsn": 1 << 53}, "spec.toLsn"),
        ({"fromLsn": 5, "toLsn": 4}, "spec.toLsn"),
        ({"activeDeadlineSeconds": 1}, "spec.activeDeadlineSeconds"),
        ({"resources": {"limits": {"memory": "much"}}}, "spec.resources"),
        ({"colour": "red"}, "spec"),
        ({"serviceRef": {}}, "spec.serviceRef"),
    ],
)
def test_what_can_not_be_read_is_told_with_its_place(spec: dict[str, Any], told: str) -> None:
    found = read_replay(raw(**spec))
    assert found.spec is None
    assert told in found.problems[0]


@pytest.mark.parametrize("status", [{"phase": "Perhaps"}, {"result": []}, "x", None])
def test_status_that_can_not_be_read_is_an_empty_one(status: object) -> None:
    assert read_replay(raw() | {"status": status}).status == ReplayStatus()


def test_rehearsal_needs_an_image_and_takes_the_module_that_serves() -> None:
    assert read_rehearsal(raw()).spec is None
    assert "image is missing" in read_rehearsal(raw()).problems[0]
    found = read_rehearsal(raw(image="bank:2"))
    assert found.spec is not None
    assert (found.spec.image, found.spec.module, found.spec.messages) == ("bank:2", "", None)
    assert read_rehearsal(raw(image="bank:2", module="no colon")).spec is None
    assert read_rehearsal(raw(image="bank:2", messages=0)).spec is None

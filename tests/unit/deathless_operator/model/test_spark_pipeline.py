"""A SparkPipeline as the API server has it."""

from __future__ import annotations

from typing import Any

import pytest

from deathless_operator.model.spark_pipeline import read_pipeline


def raw(**spec: object) -> dict[str, Any]:
    """One with these fields of spec."""
    meta = {"name": "delays", "namespace": "shop", "uid": "u", "resourceVersion": "9", "generation": 2}
    base = {"module": "delays.py:build", "image": "delays:1", "logStorage": {"size": "5Gi"}}
    return {"metadata": meta, "spec": base | spec}


def test_it_is_read_with_its_status() -> None:
    found = read_pipeline(raw() | {"status": {"number": 4, "unknown": 1, "installation": "here"}})
    assert (found.name, found.namespace, found.version, found.generation) == ("delays", "shop", "9", 2)
    assert found.pipeline is not None
    assert found.pipeline.metadata.name == "delays"
    assert (found.status.number, found.status.installation) == (4, "here")


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        ({"image": ""}, "spec.image: is missing"),
        ({"logStorage": {}}, "spec.logStorage: needs one of claimName and size"),
        ({"conf": {"spark.remote": "x"}}, "spec.conf.spark.remote: can't be set"),
        ({"services": [{"name": "delays"}]}, "spec.services[0].name: is this pipeline itself"),
        ({"drivers": {"replicas": 9}}, "spec.drivers.replicas"),
        ({"executors": {}}, "spec.executors: is no field here"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(spec: dict[str, object], word: str) -> None:
    found = read_pipeline(raw(**spec))
    assert found.pipeline is None
    assert found.problems[0].startswith(word)


def test_a_status_that_can_not_be_read_is_an_empty_one() -> None:
    assert read_pipeline(raw() | {"status": {"number": "four"}}).status.number == 0

"""The manifest of a pipeline: what contradicts itself, the service that it becomes, and its drivers' configurations."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from deathless.base.manifest_parts import LogStorage, PeerService, Resources
from deathless.base.pipelines.manifest import (
    SERVICE_MODULE,
    SparkPipeline,
    agent_configs,
    ignored_of_pipelines,
    pipeline_problems,
    service_manifest,
    spark_conf,
    trigger_text,
)
from deathless.base.schema_check import find_problems, show_path

FOLDERS = {"airports": "/x/airports"}


def document(**spec: object) -> dict[str, Any]:
    """A document with these fields of spec."""
    return {
        "apiVersion": "deathless.dev/v1alpha1",
        "kind": "SparkPipeline",
        "metadata": {"name": "delays"},
        "spec": {"module": "delays.py:build", **spec},
    }


def pipeline(**spec: object) -> SparkPipeline:
    """The same, read."""
    return msgspec.convert(document(**spec), SparkPipeline)


def problems(**spec: object) -> list[tuple[str, str]]:
    """Where something contradicts itself, and what to write instead."""
    return [(show_path(found.path), found.remedy) for found in pipeline_problems(pipeline(**spec))]


def test_its_service_has_its_name_and_the_code_that_comes_with_us() -> None:
    made = service_manifest(pipeline(replicas=2, logStorage={"size": "5Gi"}, suspend=True, image="i:1"))
    assert (made.kind, made.metadata.name, made.spec.module) == ("DeathlessService", "delays", SERVICE_MODULE)
    assert (made.spec.replicas, made.spec.suspend, made.spec.image) == (2, True, "i:1")
    assert made.spec.log_storage == LogStorage(size="5Gi")
    assert made.spec.peers == ()


def test_services_that_are_elsewhere_are_peers_of_its_service() -> None:
    made = service_manifest(
        pipeline(
            services=[{"name": "airports"}, {"name": "carriers", "path": "x"}, {"name": "far", "urls": ["http://f"]}]
        )
    )
    assert made.spec.peers == (PeerService(name="carriers", path="x"),)


@pytest.mark.parametrize(
    ("spec", "at", "remedy"),
    [
        ({"conf": {"spark.speculation": "true"}}, "spec.conf.spark.speculation", "leave it out"),
        ({"conf": {"spark.master": "yarn"}}, "spec.conf.spark.master", "set spec.drivers.cores instead"),
        ({"services": [{"name": "delays"}]}, "spec.services[0].name", "leave the entry out"),
        ({"services": [{"name": "a"}, {"name": "a"}]}, "spec.services[1].name", "keep one of them"),
        ({"tls": {"certificate": "c"}}, "spec.tls", "give the paths of both PEM files"),
    ],
)
def test_what_contradicts_itself_is_named_with_a_remedy(spec: dict[str, object], at: str, remedy: str) -> None:
    assert problems(**spec) == [(at, remedy)]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("drivers", {"replicas": 0}),
        ("drivers", {"memory": "1Gi"}),
        ("drivers", {"cores": 0}),
        ("trigger", "100"),
        ("trigger", "0s"),
        ("conf", {"spark.sql.shuffle.partitions": 8}),
        ("executors", {"instances": 2}),
    ],
)
def test_what_the_schema_does_not_take_is_named_with_its_place(field: str, value: object) -> None:
    [found] = find_problems(document(**{field: value}), SparkPipeline)
    assert found.path[1] == field


def test_agents_are_told_all_that_their_drivers_need() -> None:
    services = [{"name": "airports"}, {"name": "far", "urls": ["http://a:1", "http://b:1"]}]
    made = pipeline(services=services, trigger="5s", drivers={"replicas": 2, "cores": 4, "memory": "2g"})
    found = agent_configs(
        made,
        module="/x/delays.py:build",
        directory="/x/d",
        beside="/x",
        folder="/m",
        folders={"airports": "/x/airports"},
    )
    assert [each.name for each in found] == ["d0", "d1"]
    assert (found[0].pipeline, found[0].module, found[0].directory) == ("delays", "/x/delays.py:build", "/x/d")
    assert found[0].services == {"airports": "/x/airports", "far": "http://a:1,http://b:1"}
    assert (found[0].trigger, found[0].beside, found[0].folder) == ("5 seconds", "", "/m")
    assert found[0].conf["spark.master"] == "local[4]"
    assert found[0].conf["spark.driver.memory"] == "2g"


def test_without_services_all_that_stand_beside_are_known() -> None:
    [one, _] = agent_configs(
        pipeline(), module="m:b", directory="/x/d", beside="/x", folder="/m", folders={}, token_file="/t"
    )
    assert (one.beside, one.services, one.token_file) == ("/x", {}, "/t")


def test_what_a_user_sets_of_spark_counts() -> None:
    found = spark_conf(pipeline(conf={"spark.ui.enabled": "false", "spark.x": "y"}).spec)
    assert (found["spark.ui.enabled"], found["spark.x"]) == ("false", "y")
    assert found["spark.ui.killEnabled"] == "false"


def test_triggers_are_told_as_spark_writes_them_and_resources_mean_nothing_here() -> None:
    assert [trigger_text(each) for each in ("100ms", "5s", "1m")] == ["100 milliseconds", "5 seconds", "1 minutes"]
    assert ignored_of_pipelines(pipeline()) == []
    drivers = {"resources": {"requests": {"cpu": 1}}, "secretRef": {"name": "s"}, "allowTo": [{"podSelector": {}}]}
    ignored = [f"spec.drivers.{name}" for name in drivers]
    assert ignored_of_pipelines(pipeline(drivers=drivers)) == ignored
    assert ignored_of_pipelines(pipeline(resources={"requests": {"cpu": 1}})) == ["spec.resources"]
    assert service_manifest(pipeline()).spec.resources == Resources(), "a laptop is told of none that nobody gave"

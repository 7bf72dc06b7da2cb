"""What a tool's pod has of a replica's, and what it must not have."""

from __future__ import annotations

import pytest
from tests.unit.deathless_operator.plan.plan_world import World

from deathless.base.manifest_parts import Resources
from deathless_operator.model import names
from deathless_operator.model.values import JsonObject, objects, part
from deathless_operator.plan.snapshot import SecretFacts
from deathless_operator.plan.tool_pods import pod_spec, reading, template_of, whole, with_resources

SPEC = {
    "tokenSecretRef": {"name": "door", "key": "token"},
    "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}},
    "drivers": [{"name": "hook", "kind": "webhook", "secretRef": {"name": "hook-key"}}],
    "podTemplate": {
        "volumes": [{"name": "models", "emptyDir": {}}],
        "volumeMounts": [{"name": "models", "mountPath": "/models"}],
    },
}


@pytest.fixture(name="template")
def make_template() -> JsonObject:
    """The pod spec of the replicas of a service that has everything."""
    world = World()
    world.spec |= SPEC
    world.secrets["door"] = SecretFacts(name="door", keys=("token",))
    world.secrets["hook-key"] = SecretFacts(name="hook-key", keys=("key",))
    for _ in range(5):
        world.operate()
    found = world.stateful_set()
    assert found is not None
    return template_of(found)


def mounts(program: JsonObject) -> dict[str, bool]:
    """The volumes that a container mounts, and whether it only reads each."""
    return {str(each["name"]): each.get("readOnly") is True for each in objects(program, "volumeMounts")}


def test_tool_that_reads_has_the_log_read_only_and_no_secret_but_the_lock_stores(template: JsonObject) -> None:
    found = mounts(reading(template, "replay", ["replay"]))
    assert found == {
        "deathless-config": True,
        "deathless-log": True,
        "deathless-run": False,
        "deathless-lock-tls": True,
        "models": False,
    }
    assert {"deathless-tls", "deathless-token", "deathless-driver-0"} <= set(mounts(whole(template, "x", [])))
    volumes = {str(each["name"]) for each in objects(pod_spec(template, [reading(template, "r", [])], 60), "volumes")}
    assert volumes == set(found)


@pytest.mark.parametrize("make", [whole, reading])
def test_tool_is_no_replica(template: JsonObject, make: object) -> None:
    assert callable(make)
    program = make(template, "tool", ["log", "verify"])
    assert (program["name"], program["command"]) == ("tool", ["deathless", "log", "verify"])
    assert not {"ports", "startupProbe", "livenessProbe", "readinessProbe", "lifecycle"} & set(program)
    pod = pod_spec(template, [program], 60)
    assert (pod["restartPolicy"], pod["automountServiceAccountToken"]) == ("Never", False)
    assert pod["activeDeadlineSeconds"] == 60
    assert "serviceAccountName" not in pod
    assert part(program, "securityContext", "readOnlyRootFilesystem") is True


def test_other_image_is_named_in_its_environment(template: JsonObject) -> None:
    program = reading(template, "rehearsal", [], image="bank:2")
    named = {str(each["name"]): each.get("value") for each in objects(program, "env")}
    assert (program["image"], named["POD_IMAGE"]) == ("bank:2", "bank:2")
    assert "POD_NODE" in named


def test_resources_that_are_not_named_stay(template: JsonObject) -> None:
    program = whole(template, names.CONTAINER, [])
    found = with_resources(program, Resources(limits={"memory": "4Gi"}))
    assert found["resources"] == {"requests": {"cpu": "1"}, "limits": {"memory": "4Gi"}}
    assert with_resources(program, Resources()) == program

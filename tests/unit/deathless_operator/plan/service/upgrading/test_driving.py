"""The pod that leads through an upgrade has what a replica has, and is none."""

from __future__ import annotations

from typing import Any

from tests.unit.deathless_operator.plan.plan_world import World
from tests.unit.deathless_operator.plan.service.upgrading.test_upgrade import driven, drivers

from deathless_operator.model import names
from deathless_operator.plan.service.upgrading.driving import DEADLINE_S, DRIVE_S


def driver_and_replica(**spec: Any) -> tuple[World, dict[str, Any], dict[str, Any]]:
    """A driving pod, and the template that upgraders are made from."""
    world = driven(**spec)
    (pod,) = drivers(world)
    return world, pod, world.children["StatefulSet", "bank"]["spec"]["template"]["spec"]


def test_driving_pod_mounts_what_a_replica_mounts_and_runs_the_new_image() -> None:
    world, pod, template = driver_and_replica()
    (program,) = pod["spec"]["containers"]
    replica = template["containers"][0]
    kept = ("image", "volumeMounts", "env", "securityContext", "resources")
    assert {key: program[key] for key in kept} == {key: replica[key] for key in kept}
    mounted = {mount["name"] for mount in program["volumeMounts"]}
    assert {volume["name"] for volume in pod["spec"]["volumes"]} == mounted
    assert {"deathless-log", "deathless-tls", "deathless-lock-tls"} <= mounted
    assert world.config()["former"] == names.FORMER_SOCKET


def test_driving_pod_says_what_is_to_be_done() -> None:
    _, pod, _ = driver_and_replica()
    command = pod["spec"]["containers"][0]["command"]
    assert command[:5] == ["deathless", "upgrade", "drive", "-f", "/etc/deathless/replica.json"]
    assert command[command.index("--upgraders") + 1] == "r3,r4"
    assert command[command.index("--timeout") + 1] == str(DRIVE_S)
    assert command[command.index("--fingerprint") + 1] == "bb" * 16
    assert command[-2:] == ["--termination-file", "/dev/termination-log"]
    assert "--only-compatible" in command
    _, pod, _ = driver_and_replica(upgradePolicy="Automatic", replicas=1)
    command = pod["spec"]["containers"][0]["command"]
    assert (command[command.index("--upgraders") + 1], "--only-compatible" in command) == ("r1,r2", False)


def test_driving_pod_is_no_replica_and_ends() -> None:
    _, pod, _ = driver_and_replica()
    labels, spec = pod["metadata"]["labels"], pod["spec"]
    assert not names.selector("bank").items() <= labels.items(), "no Service finds it"
    assert labels[names.LABEL_SERVICE] == "bank", "the operator does"
    assert (spec["restartPolicy"], spec["automountServiceAccountToken"]) == ("Never", False)
    assert "serviceAccountName" not in spec
    assert spec["activeDeadlineSeconds"] == DEADLINE_S > DRIVE_S
    assert "readinessProbe" not in spec["containers"][0]


def test_driving_pod_may_reach_replicas_and_no_other_may() -> None:
    world, pod, _ = driver_and_replica()
    inner = world.children["NetworkPolicy", "bank"]["spec"]["ingress"][0]
    chosen = [each["podSelector"]["matchLabels"] for each in inner["from"]]
    assert any(labels.items() <= pod["metadata"]["labels"].items() for labels in chosen)
    assert all(labels.get(names.LABEL_INSTANCE) == "bank" for labels in chosen)

"""The runner has no rights; the agent has all, on one node, for one fault; both end by themselves."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.deathless_operator.plan.drill_world import World, good_service, make_spec

from deathless.base.manifest_parts import EtcdSpec, LockSpec, SecretRef, TlsSpec
from deathless.base.manifest_pod import PodTemplate, Toleration
from deathless_operator.cli.drill_agent import command as agent_command
from deathless_operator.cli.drill_run import command as run_command
from deathless_operator.model.drill import DrillRun
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.model.values import JsonObject, part, text
from deathless_operator.plan.drill.pods import agent_manifest, lock_ports, runner_manifest

RUN = DrillRun(id="nightly-1", target="bank-0", target_uid="uid-0", node="worker0")
BANK = good_service().spec
assert BANK is not None
SETTINGS = OperatorSettings(image="deathless:9", lock_endpoints=("https://etcd.ns.svc:3379", "https://b.ns.svc"))


def runner(fault: str = "ProcessKill", **changes: object) -> JsonObject:
    world = World(make_spec(fault))
    assert BANK is not None
    return runner_manifest(world.resource(), world.spec, RUN, msgspec.structs.replace(BANK, **changes), SETTINGS)


def agent(fault: str, **fields: object) -> JsonObject:
    world = World(make_spec(fault, **fields))
    assert BANK is not None
    return agent_manifest(world.resource(), world.spec, RUN, BANK, SETTINGS)


def arguments(manifest: JsonObject) -> list[str]:
    found = part(manifest, "spec", "containers", 0, "args")
    assert isinstance(found, list)
    return [str(one) for one in found]


def test_runner_has_no_rights() -> None:
    manifest = runner()
    assert part(manifest, "spec", "automountServiceAccountToken") is False
    security = part(manifest, "spec", "containers", 0, "securityContext")
    assert isinstance(security, dict)
    assert security["readOnlyRootFilesystem"] is True
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert part(manifest, "spec", "securityContext", "runAsNonRoot") is True


def test_runner_is_placed_as_replicas_are() -> None:
    template = PodTemplate(
        node_selector={"disk": "fast"},
        tolerations=(Toleration(key="dedicated", operator="Exists", effect="NoSchedule"),),
        priority_class_name="high",
        runtime_class_name="sandbox",
        image_pull_secrets=(SecretRef(name="registry"),),
    )
    placed = runner(pod_template=template)
    assert part(placed, "spec", "nodeSelector") == {"disk": "fast"}
    assert text(placed, "spec", "tolerations", 0, "key") == "dedicated"
    assert (text(placed, "spec", "priorityClassName"), text(placed, "spec", "runtimeClassName")) == ("high", "sandbox")
    assert text(placed, "spec", "imagePullSecrets", 0, "name") == "registry"


def test_runner_calls_through_the_front_door_with_the_clients_certificate() -> None:
    manifest = runner()
    assert "--url=https://bank.ns.svc:80" in arguments(manifest)
    assert "--primary-url=https://bank-primary.ns.svc:80" in arguments(manifest)
    assert text(manifest, "spec", "volumes", 0, "secret", "secretName") == "bank-client-tls"


def test_runner_of_a_service_without_tls_calls_plainly() -> None:
    manifest = runner(tls=TlsSpec(issuer="Off"))
    assert "--url=http://bank.ns.svc:80" in arguments(manifest)
    assert part(manifest, "spec", "volumes") == []


@pytest.mark.parametrize(
    ("fault", "count"),
    [("ProcessKill", 0), ("PodDelete", 0), ("NodeDrain", 0), ("Freeze", 4), ("Partition", 4), ("LockOutage", 4)],
)
def test_fault_that_the_old_primary_outlives_has_witnesses(fault: str, count: int) -> None:
    assert f"--witnesses={count}" in arguments(runner(fault))


def test_pods_end_by_themselves_and_are_not_started_again() -> None:
    for manifest in (runner(), agent("Freeze")):
        assert text(manifest, "spec", "restartPolicy") == "Never"
        assert part(manifest, "spec", "activeDeadlineSeconds")


def test_runner_ends_before_the_runs_own_deadline() -> None:
    assert "--deadline=580" in arguments(runner())


def test_runner_is_told_how_long_a_call_may_take() -> None:
    assert "--call-timeout=30" in arguments(runner())


def test_pods_are_not_taken_for_replicas() -> None:
    for manifest in (runner(), agent("Freeze")):
        labels = part(manifest, "metadata", "labels")
        assert isinstance(labels, dict)
        assert "deathless.dev/service" not in labels
        assert "app.kubernetes.io/instance" not in labels
        assert labels["deathless.dev/purpose"] == "drill"


def test_agent_runs_beside_the_victim_with_all_rights() -> None:
    manifest = agent("Freeze")
    assert text(manifest, "metadata", "namespace") == "deathless-system"
    assert text(manifest, "spec", "nodeName") == "worker0"
    assert part(manifest, "spec", "hostPID") is True
    assert part(manifest, "spec", "containers", 0, "securityContext", "privileged") is True
    assert text(manifest, "spec", "serviceAccountName") == "deathless-drill-agent"


@pytest.mark.parametrize(
    ("fault", "fields", "expected"),
    [
        ("ProcessKill", {}, ["--process=worker", "--duration=0"]),
        ("ProcessKill", {"fault_process": "Replica"}, ["--process=replica"]),
        ("Freeze", {"fault_durationSeconds": 7}, ["--duration=7"]),
        ("Partition", {}, ["--served=7401", "--served=7402", "--served=7403"]),
        ("Partition", {"fault_cut": "All"}, ["--everything"]),
        ("LockOutage", {}, ["--called=2379", "--called=3379"]),
    ],
)
def test_agent_is_told_the_fault(fault: str, fields: dict[str, object], expected: list[str]) -> None:
    found = arguments(agent(fault, **fields))
    assert f"--fault={fault}" in found
    assert "--pod-uid=uid-0" in found
    assert set(expected) <= set(found)


def test_arguments_are_those_that_the_commands_take() -> None:
    for command, manifest in (
        (run_command, runner()),
        *((agent_command, agent(fault)) for fault in ("ProcessKill", "Freeze", "Partition", "LockOutage")),
    ):
        command.make_context("x", arguments(manifest)[1:])


def test_lock_store_is_the_services_own_where_it_names_one() -> None:
    assert BANK is not None
    own = LockSpec(type="etcd", etcd=EtcdSpec(endpoints=("https://mine:4001",)))
    assert lock_ports(msgspec.structs.replace(BANK, lock=own), SETTINGS) == [4001]
    assert lock_ports(BANK, OperatorSettings()) == [2379]

"""An object that the API server refuses for good holds back what needs it, and nothing else.

Each kind of object is deleted and then refused, as an admission policy or a quota does it; then what an on-call person
counts on has to go on: a dead node's pod, a fence, a roll.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from tests.unit.deathless_operator.plan.plan_world import SPEC, World, is_fenced, role, running, template_of

from deathless_operator.model import names
from deathless_operator.plan.actions import Apply, DeletePod, Target, target
from deathless_operator.plan.service.plan import make_plan
from deathless_operator.plan.snapshot import Failure

KINDS = (
    Target("NetworkPolicy", "bank"),
    Target("PodDisruptionBudget", "bank"),
    Target("Service", "bank"),
    Target("Service", "bank-primary"),
    Target("Service", "bank-replicas"),
    Target("ConfigMap", "bank-config"),
    Target("ServiceAccount", "bank"),
    Target("Role", "bank"),
    Target("RoleBinding", "bank"),
    Target("Secret", "bank-operator-token"),
    Target("Secret", "bank-lock-tls"),
    Target("Secret", "bank-tls"),
    Target("StatefulSet", "bank"),
)
MARKED = (Target("ConfigMap", "bank-config"), Target("Secret", "bank-lock-tls"))
"""The names of these end in a mark."""
ROLL_NEEDS = {"ConfigMap", "ServiceAccount", "StatefulSet"}
"""Without these a pod would be made with the settings of before, or not at all."""


def refusing(gone: Target) -> World:
    """A service that runs; an object of it was deleted, and is refused from now on."""
    world = running()
    if gone in MARKED:
        for each in [key for key in world.children if key[0] == gone.kind and key[1].startswith(gone.name)]:
            del world.children[each]
    world.children.pop((gone.kind, gone.name), None)
    if gone.kind == "Secret":
        for name in [name for name in world.secrets if name.startswith(gone.name)]:
            del world.secrets[name]
            world.copied.pop(name, None)
        world.certificates.pop(gone.name, None)
    world.refuses = (gone,)
    return world


def names_of(failures: Iterable[Failure]) -> list[str]:
    """What was refused."""
    return [f"{each.kind} {each.name}" for each in failures]


def go_on(world: World, seconds: int) -> None:
    """Let everybody work, whether or not it comes to rest."""
    for _ in range(seconds):
        world.operate()
        world.others_work()


@pytest.mark.parametrize("gone", KINDS, ids=str)
def test_pod_of_a_dead_node_is_made_anew_while_an_object_is_refused(gone: Target) -> None:
    world = refusing(gone)
    victim = next(name for name, pod in world.replicas().items() if role(pod) != "primary")
    before = world.pods[victim]["metadata"]["uid"]
    world.lose_node(world.pods[victim]["spec"]["nodeName"])
    go_on(world, 60)
    assert victim not in world.pods or world.pods[victim]["metadata"]["uid"] != before


@pytest.mark.parametrize("gone", KINDS, ids=str)
def test_fence_is_carried_to_the_pods_while_an_object_is_refused(gone: Target) -> None:
    world = refusing(gone)
    world.annotations[names.FENCED_ANNOTATION] = "r1"
    go_on(world, 2)
    assert is_fenced(world.pods["bank-1"])


@pytest.mark.parametrize("gone", KINDS, ids=str)
def test_roll_goes_on_unless_it_needs_what_is_refused(gone: Target) -> None:
    world = refusing(gone)
    before = {name: pod["metadata"]["uid"] for name, pod in world.replicas().items()}
    world.edit(resources={"requests": {"cpu": "1"}})
    go_on(world, 90)
    after = {name: pod["metadata"]["uid"] for name, pod in world.replicas().items()}
    if gone.kind in ROLL_NEEDS or gone.name == "bank-lock-tls":
        assert after == before, "a pod was taken that could not be made as it should"
    else:
        assert {template_of(pod) for pod in world.replicas().values()} == {world.template()}
        assert not set(after.values()) & set(before.values())


@pytest.mark.parametrize("gone", KINDS, ids=str)
def test_condition_names_what_was_refused_and_why_and_what_to_do(gone: Target) -> None:
    world = refusing(gone)
    world.operate()
    told = world.condition("Degraded")
    assert (told["status"], told["reason"]) == ("True", "ObjectRefused")
    shown = next(each for each in names_of(world.failures) if each.startswith(str(gone)))
    assert f"{shown} was refused (403 Forbidden): denied by policy. What to do: " in told["message"]
    assert world.condition("Ready")["reason"] == "ObjectRefused", "the spec is not in force"
    assert world.condition("Available")["status"] == "True"
    world.refuses = ()
    go_on(world, 20)
    assert world.condition("Degraded")["status"] == "False"
    assert world.condition("Ready")["status"] == "True"


def test_refusal_is_told_beside_a_lost_node() -> None:
    world = refusing(Target("NetworkPolicy", "bank"))
    world.lose_node(world.pods["bank-1"]["spec"]["nodeName"])
    go_on(world, 3)
    told = world.condition("Degraded")
    assert told["reason"] == "NodeUnreachable"
    assert "Also ObjectRefused: NetworkPolicy bank was refused" in told["message"]


def test_what_waits_for_a_refused_object_is_named_with_it() -> None:
    world = running()
    before = world.template()
    world.refuses = (Target("ConfigMap", "bank-config"),)
    world.edit(logLevel="debug")
    world.operate()
    assert "StatefulSet bank waits for it" in world.condition("Degraded")["message"]
    assert world.template() == before


def test_first_pods_wait_for_the_policy_that_closes_them_and_later_ones_do_not() -> None:
    world = World(refuses=(Target("NetworkPolicy", "bank"),))
    go_on(world, 5)
    assert world.stateful_set() is None
    world.refuses = ()
    world.settle()
    del world.children["NetworkPolicy", "bank"], world.children["StatefulSet", "bank"]
    world.refuses = (Target("NetworkPolicy", "bank"),)
    go_on(world, 2)
    assert world.stateful_set() is not None, "it has served before"


def test_record_of_keys_is_there_before_pods_that_write_keys() -> None:
    storage = {"logStorage": {"size": "1Gi", "deletionPolicy": "Delete"}}
    world = World(spec={**SPEC, **storage}, refuses=(Target("ConfigMap", names.erase_record("prod", "bank")),))
    go_on(world, 5)
    assert world.stateful_set() is None


@pytest.mark.parametrize("size", ["1Gi", "20Gi"])
def test_claim_that_is_refused_is_told_and_holds_up_nothing_but_its_first_pods(size: str) -> None:
    world = World(spec={**SPEC, "logStorage": {"size": "1Gi"}})
    world.refuses = (Target("PersistentVolumeClaim", "bank-log"),)
    go_on(world, 5)
    assert world.stateful_set() is None
    assert "PersistentVolumeClaim bank-log was refused" in world.condition("Degraded")["message"]
    world.refuses = ()
    go_on(world, 60)
    assert world.condition("Ready")["status"] == "True"
    world.refuses = (Target("PersistentVolumeClaim", "bank-log"),)
    world.edit(logStorage={"size": size}, resources={"requests": {"cpu": "1"}})
    go_on(world, 120)
    assert {template_of(pod) for pod in world.replicas().values()} == {world.template()}, "the roll went on"
    assert (world.condition("Ready")["status"] == "True") == (size == "1Gi")


@pytest.mark.parametrize(
    "spec", [{"quorum": 2}, {"lock": {"etcd": {"endpoints": ["https://gone:2379"], "tlsSecretRef": {"name": "gone"}}}}]
)
def test_lost_pods_are_replaced_and_fences_carried_also_where_the_spec_cannot_be_carried_out(
    spec: dict[str, object],
) -> None:
    world = running()
    world.edit(**spec)
    world.annotations[names.FENCED_ANNOTATION] = "r0"
    victim = world.pods["bank-1"]
    world.lose_node(victim["spec"]["nodeName"])
    go_on(world, 40)
    assert world.pods["bank-1"]["metadata"]["uid"] != victim["metadata"]["uid"]
    assert is_fenced(world.pods["bank-0"])


def test_remedies_come_first() -> None:
    world = running()
    del world.children["NetworkPolicy", "bank"]
    world.lose_node(world.pods["bank-1"]["spec"]["nodeName"])
    world.pass_time(60)
    first, *others = make_plan(world.snapshot(), world.settings).actions
    assert type(first).__name__ == "DeletePod"
    assert any(isinstance(action, Apply) for action in others)


@pytest.mark.parametrize("kind", ["NetworkPolicy", "ConfigMap", "Role", "PodDisruptionBudget"])
def test_kind_that_may_not_be_read_is_left_alone_and_told_while_lost_pods_are_replaced(kind: str) -> None:
    world = running()
    world.lose_node(world.pods["bank-1"]["spec"]["nodeName"])
    world.pass_time(60)
    unread = Failure(kind=kind, name="bank", status=403, reason="Forbidden", message="cannot list")
    seen = world.snapshot()
    blind = tuple(child for child in seen.children if child.kind != kind)
    plan = make_plan(replace(seen, children=blind, unread=(unread,)), world.settings)
    assert any(isinstance(action, DeletePod) and action.name == "bank-1" for action in plan.actions)
    assert kind not in {target(action).kind for action in plan.actions}
    assert plan.status is not None
    told = next(found for found in plan.status.conditions if found.type == "Degraded")
    assert f"{kind} bank was refused (403 Forbidden): cannot list" in told.message


def test_secrets_that_may_not_be_looked_at_are_told_and_not_written_and_no_pod_goes_for_them() -> None:
    world = running()
    seen = world.snapshot()
    certificates = {each.secret for each in seen.certificates}
    assert {"bank-tls", "bank-client-tls"} <= certificates
    hidden = tuple(
        Failure(kind="Secret", name=name, status=422, reason="Invalid", message="says the policy")
        for name in sorted(certificates)
    )
    plan = make_plan(replace(seen, certificates=(), hidden=hidden), world.settings)
    assert [target(each) for each in plan.actions] == [target(each) for each in make_plan(seen, world.settings).actions]
    assert plan.status is not None
    told = next(found for found in plan.status.conditions if found.type == "Degraded")
    assert "Secret bank-tls was refused (422 Invalid): says the policy" in told.message

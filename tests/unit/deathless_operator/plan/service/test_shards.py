"""A service of several shards: objects, status, fencing, erasing and drills of each."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from tests.unit.deathless_operator.plan.drill_world import World as DrillWorld
from tests.unit.deathless_operator.plan.drill_world import good_service, make_spec, replica
from tests.unit.deathless_operator.plan.plan_world import (
    SPEC,
    START,
    Raw,
    World,
    is_fenced,
    role,
    running,
    set_ready,
    template_of,
)

from deathless.base.manifest import ServiceSpec
from deathless.shell.lock_stores.erasing import read_order
from deathless_operator.model import names
from deathless_operator.model.drill import DrillRun
from deathless_operator.plan.actions import DeletePod
from deathless_operator.plan.drill.faults import choose_victim
from deathless_operator.plan.drill.guard import refusal
from deathless_operator.plan.drill.outcome import primary_of
from deathless_operator.plan.drill.pods import runner_manifest
from deathless_operator.plan.service.certificates import dns_names
from deathless_operator.plan.service.erasure import eraser_manifest, read_record
from deathless_operator.plan.snapshot import PodView

TWO: Raw = {"shards": 2}


def selector(world: World, kind: str, name: str) -> Raw:
    """Whom an object is about."""
    found: Raw = world.children[kind, name]["spec"]["selector"]
    chosen: Raw = found.get("matchLabels", found)
    return {key.removeprefix("deathless.dev/"): value for key, value in chosen.items() if "kubernetes" not in key}


def test_each_shard_has_objects_of_its_own_and_callers_one_door() -> None:
    world = running(TWO)
    sets = sorted(name for kind, name in world.children if kind == "StatefulSet")
    assert sets == ["bank", "bank-s1"]
    assert sorted(world.replicas()) == [*(f"bank-{i}" for i in range(3)), *(f"bank-s1-{i}" for i in range(3))]
    assert selector(world, "Service", "bank") == {"serving": "true"}, "any replica of any shard"
    for shard, name in (("0", "bank"), ("1", "bank-s1")):
        assert selector(world, "StatefulSet", name) == {"shard": shard}
        assert selector(world, "PodDisruptionBudget", name) == {"shard": shard}
        assert selector(world, "Service", f"{name}-primary") == {"shard": shard, "role": "primary"}
        assert selector(world, "Service", f"{name}-replicas") == {"shard": shard}
        body = world.children["StatefulSet", name]["spec"]
        assert body["serviceName"] == f"{name}-replicas"
        pod = body["template"]["spec"]
        assert {each["metadata"]["labels"][names.LABEL_SHARD] for each in world.replicas(name).values()} == {shard}
        apart = pod["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"][0]
        assert apart["podAffinityTerm"]["labelSelector"]["matchLabels"][names.LABEL_SHARD] == shard
        config = world.config(name)
        assert (config["directory"], config.get("shard", 0), config["shards"]) == (
            f"/var/lib/deathless/log/shards/{shard}",
            int(shard),
            2,
        )
        assert pod["volumes"][0]["configMap"]["name"].startswith(f"{name}-config-")
    (rule,) = world.children["Role", "bank"]["rules"]
    assert {"bank-0", "bank-6", "bank-s1-0", "bank-s1-6"} <= set(rule["resourceNames"])


def test_one_shard_is_called_and_labelled_as_ever() -> None:
    world = running()
    assert not [name for _, name in world.children if "-s" in name.removeprefix("bank")]
    assert not any(names.LABEL_SHARD in pod["metadata"]["labels"] for pod in world.replicas().values())
    assert world.status.get("shards") is None
    assert selector(world, "StatefulSet", "bank") == {}


def test_certificate_carries_the_names_of_every_shard() -> None:
    world = running(TWO)
    found = dns_names(world.snapshot(), world.settings, "replicas")
    assert {"bank.prod.svc", "bank-s1-primary.prod.svc.cluster.local", "*.bank-s1-replicas.prod.svc"} <= set(found)


def test_status_tells_of_each_shard_and_is_ready_once_all_are() -> None:
    world = running(TWO)
    assert (world.status["primary"], world.status["ready"]) == ("2 of 2 shards led", "6/6")
    assert [(one["primary"], one["ready"]) for one in world.status["shards"]] == [
        ("bank-0", "3/3"),
        ("bank-s1-0", "3/3"),
    ]
    assert {member["name"] for member in world.status["members"]} == {f"{s}/r{i}" for s in (0, 1) for i in range(3)}
    assert world.condition("Ready")["message"] == "6 of 6 replicas are ready, each of 2 shards has a primary"
    set_ready(world.pods["bank-s1-1"], ready=False)
    world.operate()
    assert world.condition("Ready")["status"] == "False"
    assert world.condition("Available")["status"] == "True"
    set_ready(world.pods["bank-s1-0"], ready=False)
    world.operate()
    assert world.condition("Available")["message"] == "bank-s1-0 was primary last and is not ready"
    del world.pods["bank-s1-0"]
    world.operate()
    assert world.condition("Available")["message"].startswith("no replica of shard 1 is primary; ")
    assert (world.status["primary"], world.status["shards"][0]["primary"]) == ("1 of 2 shards led", "bank-0")


def test_new_primary_of_a_shard_is_told_with_its_time() -> None:
    world = running(TWO)
    del world.pods["bank-s1-0"]
    world.told.clear()
    world.settle()
    assert world.told.count("PrimaryChanged") == 1
    assert world.status["shards"][1]["primary"] == "bank-s1-1"
    assert world.status["shards"][1]["lastTakeoverTime"] and "lastTakeoverTime" not in world.status["shards"][0]


def test_replica_is_fenced_by_shard_and_name() -> None:
    world = running(TWO)
    world.annotations[names.FENCED_ANNOTATION] = "1/r2"
    world.settle()
    assert [key for key, pod in world.replicas().items() if is_fenced(pod)] == ["bank-s1-2"]
    world.annotations[names.FENCED_ANNOTATION] = "*"
    world.settle()
    assert all(is_fenced(pod) for pod in world.replicas().values())


def test_scaling_and_suspending_mean_every_shard() -> None:
    world = running(TWO)
    world.edit(replicas=2)
    world.settle()
    assert sorted(world.replicas()) == ["bank-0", "bank-1", "bank-s1-0", "bank-s1-1"]
    world.edit(suspend=True)
    world.settle()
    assert world.replicas() == {}
    world.edit(suspend=False)
    world.settle()
    assert sum(role(pod) == "primary" for pod in world.replicas().values()) == 2


def test_a_shard_waits_until_the_one_before_is_whole() -> None:
    world = running(TWO)
    world.edit(image="bank:2")
    while not (plan := world.operate()).sentence.startswith("rolling bank-s1-"):
        assert world.now < START + 1000, plan.sentence
        world.others_work()
    # The last pod of shard 0 was replaced, and is not back: nothing of shard 1 goes.
    assert plan.sentence.endswith("waiting for bank-0 to become ready"), plan.sentence
    assert not [action for action in plan.actions if isinstance(action, DeletePod)]
    world.settle()
    assert world.template("bank-s1") == next(iter(map(template_of, world.replicas("bank-s1").values())))


def test_lost_node_has_replicas_of_every_shard_on_it_replaced() -> None:
    world = running({**TWO, "replicas": 2})
    on_it = [key for key, pod in world.replicas().items() if pod["spec"]["nodeName"] == "n0"]
    world.lose_node("n0")
    world.pass_time(31)
    deleted = {action.name for action in world.plan().actions if isinstance(action, DeletePod)}
    assert deleted == set(on_it) and on_it
    world.settle()
    assert len(world.replicas()) == 4


def test_other_services_shards_are_code_and_are_found_by_their_primaries() -> None:
    world = World(spec={**copy.deepcopy(SPEC), "peers": [{"name": "stock", "shards": 2}]})
    world.settle()
    (peer,) = world.config()["peers"]
    assert peer["addresses"] == ["stock-primary.prod.svc:7401", "stock-s1-primary.prod.svc:7401"]
    assert (peer["shards"], peer["server_name"]) == (2, "stock.prod.svc")
    world.pass_time(60)
    world.edit(peers=[{"name": "stock", "shards": 3}])
    plan = world.operate()
    assert plan.status is not None
    check = next(pod for key, pod in world.pods.items() if "-check-" in key)
    command = check["spec"]["containers"][0]["command"]
    assert command[command.index("--peers") + 1] == '{"stock":3}'
    assert world.config()["peers"] == [peer]


def test_shards_count_in_the_fingerprint_that_is_asked_for() -> None:
    world = running(TWO)
    world.edit(image="bank:2")
    world.operate()
    check = next(pod for key, pod in world.pods.items() if "-check-" in key)
    command = check["spec"]["containers"][0]["command"]
    assert command[command.index("--shards") + 1] == "2"


def test_keys_of_every_shard_are_noted_and_erased() -> None:
    world = running({**TWO, "logStorage": {"size": "1Gi", "deletionPolicy": "Delete"}})
    record = read_record(world.snapshot().record)
    assert record is not None
    assert (record.shards, record.shard_ids, record.service_id) == (2, ("ab" * 16, "ab" * 16), "")
    pod: Any = eraser_manifest(record, world.settings)
    text = next(each for each in pod["spec"]["containers"][0]["args"] if each.startswith("--order="))
    order = read_order(text.removeprefix("--order="))
    assert (order.shards, order.shard_ids) == (2, ("ab" * 16, "ab" * 16))
    world.pods.clear()
    again = read_record(world.snapshot().record)
    assert again == record, "what was told outlives the pods"


def drilled(shard: int) -> DrillWorld:
    """A service of two shards that is drilled."""
    service = good_service(spec=ServiceSpec(module="bank:bank", image="bank:1", shards=2))
    world = DrillWorld(make_spec(fault_shard=shard), service=service)
    first = [labelled(pod, "0", "bank") for pod in world.replicas]
    second = [labelled(replica(i, ("standby", "primary")[i], epoch=9), "1", "bank-s1") for i in range(2)]
    world.replicas = first + second
    return world


def labelled(pod: PodView, shard: str, name: str) -> PodView:
    """The same of a shard."""
    own = name + pod.name.removeprefix("bank")
    return replace(pod, name=own, uid=f"uid-{own}-1", labels=pod.labels | {names.LABEL_SHARD: shard})


def test_drill_hits_and_calls_the_shard_it_names() -> None:
    for shard, pod in ((0, "bank-0"), (1, "bank-s1-1")):
        world = drilled(shard)
        victim = choose_victim(world.snapshot(), world.spec, DrillRun(id="r"))
        assert victim is not None and victim.target == pod
        leader = primary_of(world.snapshot().target, shard)
        assert leader is not None and leader.name == pod
        assert refusal(world.snapshot(), world.spec, world.settings) is None
        spec = world.service.spec if world.service is not None else None
        assert spec is not None
        made: Any = runner_manifest(world.resource(), world.spec, DrillRun(id="r"), spec, world.settings)
        door = pod.rpartition("-")[0] + "-primary"
        wanted = {f"--shard={shard}", "--shards=2", f"--primary-url=https://{door}.ns.svc:80"}
        assert wanted <= set(made["spec"]["containers"][0]["args"]), "witnesses hear the primary that is hit"


def test_drill_of_a_shard_that_is_not_there_does_not_begin() -> None:
    found = refusal(drilled(2).snapshot(), make_spec(fault_shard=2), DrillWorld(make_spec()).settings)
    assert found is not None and (found.reason, found.lasting) == ("NoSuchShard", True)

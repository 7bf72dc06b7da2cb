"""A pod goes on with the settings that its template was made with, whatever the spec and the installation say since."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.unit.deathless_operator.plan.plan_world import SETTINGS, SPEC, World, role, running, set_ready, template_of

from deathless.base.settings_hash import settings_hash
from deathless_operator.model import names
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.plan.actions import DeletePod, Target
from deathless_operator.plan.service.access import plan_access
from deathless_operator.plan.service.objects import Objects, code_of
from deathless_operator.plan.service.placement import Mounted
from deathless_operator.plan.service.pods import OTHER_SETTINGS_S
from deathless_operator.plan.service.upgrading.accepted import accepted_code
from deathless_operator.plan.snapshot import SecretFacts

OTHER = msgspec.structs.replace(SETTINGS, lock_endpoints=("https://other:2379",), lock_tls_secret="other-client")


def told(world: World) -> dict[tuple[str, str], Any]:
    """All that pods may mount: contents of ConfigMaps, and what each copied Secret was copied from."""
    maps = {key: found["data"] for key, found in world.children.items() if key[0] == "ConfigMap"}
    return maps | {("Secret", name): (facts.source, facts.keys) for name, facts in world.secrets.items()}


def mounted(world: World) -> set[tuple[str, str]]:
    """ConfigMaps and copied Secrets that pods refer to."""
    kept = {"bank-tls", "bank-client-tls", "bank-operator-token"}
    return {each for pod in world.snapshot().pods for each in pod.mounts if each[1] not in kept}


def made(world: World) -> set[tuple[str, str]]:
    """ConfigMaps and copied Secrets that are there."""
    return {key for key in world.children if key[0] == "ConfigMap"} | {("Secret", name) for name in world.copied}


def other_store(world: World) -> None:
    """The installation is told of another lock store."""
    world.sources["other-client"] = SecretFacts(name="other-client", keys=("ca.crt", "tls.crt", "tls.key"), digest="d9")
    world.settings = OTHER


def step(world: World) -> None:
    """Let everybody work once."""
    world.operate()
    world.others_work()


CHANGES: dict[str, Callable[[World], None]] = {
    "lock store": other_store,
    "settings": lambda world: world.edit(logLevel="debug"),
    "limits of turns": lambda world: world.edit(limits={"entityBytesMax": 1 << 20}),
    "image": lambda world: world.edit(image="bank:2"),
    "resources": lambda world: world.edit(resources={"requests": {"cpu": "1"}}),
}


@pytest.mark.parametrize("first", CHANGES)
@pytest.mark.parametrize("then", ["lock store", "settings"])
def test_what_a_pod_mounts_never_changes_while_it_lives(first: str, then: str) -> None:
    world = running()
    seen: dict[str, dict[tuple[str, str], Any]] = {}
    for change in (first, then):
        CHANGES[change](world)
        for _ in range(40):
            for pod in world.snapshot().pods:
                shown = {each: told(world).get(each) for each in pod.mounts if each in made(world)}
                assert seen.setdefault(pod.uid, shown) == shown, f"{pod.name} after {change}"
            step(world)
    world.settle()
    assert {template_of(pod) for pod in world.replicas().values()} == {world.template()}
    assert made(world) == mounted(world), "nothing is left of former settings"


def test_store_that_is_chosen_again_has_pods_with_its_own_settings_and_secrets() -> None:
    world = running()
    before, uids = told(world), {name: pod["metadata"]["uid"] for name, pod in world.replicas().items()}
    other_store(world)
    for _ in range(8):
        step(world)
    assert len({world.template(), *(template_of(pod) for pod in world.replicas().values())}) == 2, "half is rolled"
    world.settings = SETTINGS
    world.settle()
    assert {template_of(pod) for pod in world.replicas().values()} == {world.template()}
    assert told(world) == before
    kept = [name for name, pod in world.replicas().items() if pod["metadata"]["uid"] == uids[name]]
    assert kept, "who was not rolled yet went on, and is right again"


def test_renewed_certificate_of_the_same_store_reaches_running_pods() -> None:
    world = running()
    pods = {name: pod["metadata"]["uid"] for name, pod in world.replicas().items()}
    (name,) = world.copied
    world.sources["etcd-client"] = SecretFacts(name="etcd-client", keys=("ca.crt", "tls.crt", "tls.key"), digest="d2")
    world.settle()
    assert list(world.copied) == [name] and world.secrets[name].source == "d2"
    assert {name: pod["metadata"]["uid"] for name, pod in world.replicas().items()} == pods


def test_settings_are_immutable_and_named_by_their_content() -> None:
    world = running()
    first = world.children["ConfigMap", world.config_name()]
    assert first["immutable"] is True and first["metadata"]["name"].startswith("bank-config-")
    world.edit(logLevel="debug")
    step(world)
    assert world.children["ConfigMap", world.config_name()]["metadata"]["name"] != first["metadata"]["name"]
    assert world.children["ConfigMap", first["metadata"]["name"]] == first, "pods of before refer to it"


def test_settings_that_a_pod_of_another_purpose_refers_to_stay() -> None:
    world = running()
    former = world.config_name()
    world.make_pod("bank-adopt", copy.deepcopy(world.children["StatefulSet", "bank"]["spec"]["template"]))
    world.pods["bank-adopt"]["metadata"]["labels"][names.LABEL_PURPOSE] = names.PURPOSE_ADOPT
    world.pods["bank-adopt"]["status"]["phase"] = "Running"
    world.edit(logLevel="debug")
    world.settle()
    assert ("ConfigMap", former) in world.children
    del world.pods["bank-adopt"]
    world.settle()
    assert ("ConfigMap", former) not in world.children


def test_config_map_stays_while_the_secret_that_it_alone_tells_of_can_not_be_deleted() -> None:
    world = running()
    former, (secret,) = world.config_name(), world.copied
    world.refuses = (Target("Secret", secret),)
    other_store(world)
    for _ in range(60):
        step(world)
    assert former != world.config_name() and ("ConfigMap", former) in world.children
    world.refuses = ()
    world.settle()
    assert ("ConfigMap", former) not in world.children and secret not in world.copied


def test_objects_of_a_user_with_such_a_name_stay() -> None:
    world = running()
    world.children["ConfigMap", "bank-config-mine"] = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "bank-config-mine", "uid": "u", "labels": {names.LABEL_SERVICE: "bank"}},
    }
    world.edit(logLevel="debug")
    world.settle()
    assert ("ConfigMap", "bank-config-mine") in world.children


# ---------------------------------------------------------------- services of a former operator


def formerly(spec: dict[str, Any] | None = None, settings: OperatorSettings = SETTINGS) -> World:
    """A service that runs as a former operator left it: one ConfigMap and one Secret for every content."""
    world = World(spec={**copy.deepcopy(SPEC), **(spec or {})}, settings=settings)
    world.settle()
    snapshot = world.snapshot()
    spec_read = snapshot.resource.spec
    assert spec_read is not None
    objects = Objects(snapshot.resource, spec_read, settings)
    access = plan_access(snapshot, spec_read, settings, objects, former=True)
    assert access.lock is not None
    for action in access.actions:
        world.carry_out(action)
    for shard in range(spec_read.shards):
        base, code = names.of_shard("bank", shard), code_of(spec_read)
        world.apply(objects.config_map(access.lock, code, shard, former=True))
        mounts = Mounted(
            config_map=names.config_map(base),
            claim="shared",
            tls="bank-tls",
            lock_tls=access.lock.tls_secret,
            operator_token="bank-operator-token",
        )
        world.apply(objects.stateful_set(mounts, access.lock, code, replicas=3, shard=shard))
        for name in list(world.replicas(base)):
            del world.pods[name]
    for key in [key for key in world.children if key[0] == "ConfigMap" and "-config-" in key[1]]:
        del world.children[key]
    for name in [name for name in world.copied if name != "bank-lock-tls"]:
        del world.copied[name], world.secrets[name]
    world.settle()
    world.pass_time(60)
    return world


@pytest.mark.parametrize("spec", [{}, {"shards": 2}], ids=["one shard", "two shards"])
def test_operator_of_now_leaves_a_service_of_a_former_one_as_it_is(spec: dict[str, Any]) -> None:
    world = formerly(spec)
    assert world.config_name() == "bank-config"
    assert world.plan().actions == ()
    assert ("Secret", "bank-lock-tls") in mounted(world)


@pytest.mark.parametrize("change", CHANGES)
def test_first_change_of_a_service_of_a_former_operator_names_what_its_pods_mount(change: str) -> None:
    world = formerly()
    before = told(world)
    CHANGES[change](world)
    for _ in range(6):
        step(world)
        assert told(world)["ConfigMap", "bank-config"] == before["ConfigMap", "bank-config"]
        assert told(world)["Secret", "bank-lock-tls"] == before["Secret", "bank-lock-tls"]
    world.settle()
    assert world.config_name().startswith("bank-config-")
    assert {template_of(pod) for pod in world.replicas().values()} == {world.template()}
    assert made(world) == mounted(world)


def test_former_copy_is_renewed_for_its_own_store_as_long_as_pods_have_it() -> None:
    world = formerly({"updateStrategy": {"type": "OnDelete"}})
    world.edit(logLevel="debug")
    world.settle()
    assert ("Secret", "bank-lock-tls") in mounted(world), "pods wait for somebody to delete them"
    world.sources["etcd-client"] = SecretFacts(name="etcd-client", keys=("ca.crt", "tls.crt", "tls.key"), digest="d2")
    world.settle()
    assert world.secrets["bank-lock-tls"].source == "d2"
    other_store(world)
    world.settle()
    assert world.secrets["bank-lock-tls"].source == "d2", "another store's would not open the one that they know"


def test_pods_of_a_former_operator_whose_set_was_deleted_keep_their_settings() -> None:
    world = formerly()
    uids = {name: pod["metadata"]["uid"] for name, pod in world.replicas().items()}
    del world.children["StatefulSet", "bank"]
    world.settle()
    assert world.config_name() == "bank-config"
    assert {name: pod["metadata"]["uid"] for name, pod in world.replicas().items()} == uids


def test_deleted_settings_of_a_former_operator_come_back_under_their_name() -> None:
    world = formerly()
    before = world.children.pop(("ConfigMap", "bank-config"))["data"]
    world.settle()
    assert world.children["ConfigMap", "bank-config"]["data"] == before
    assert world.config_name() == "bank-config"


def test_code_of_running_pods_is_read_from_the_settings_that_they_mount() -> None:
    for world in (running(), formerly()):
        for found in (world.children["StatefulSet", "bank"]["metadata"], world.status):
            found.pop("annotations", None)
            found.pop("image", None)
        code = accepted_code(world.snapshot())
        assert code is not None and (code.image, code.module) == ("bank:1", "bank:bank")


# ---------------------------------------------------------------- replicas that were started with others


def start_with(world: World, name: str, settings: str, *, ready: bool) -> None:
    """A replica says which settings it was started with."""
    pod = world.pods[name]
    told = json.loads(pod["metadata"]["annotations"][names.STATUS_ANNOTATION])
    pod["metadata"]["annotations"][names.STATUS_ANNOTATION] = json.dumps(told | {"settings": settings})
    set_ready(pod, ready=ready, at=world.now)


@pytest.mark.parametrize(
    ("settings", "ready", "waited_s", "made_anew"),
    [
        ("other", False, OTHER_SETTINGS_S + 1, True),
        ("other", False, OTHER_SETTINGS_S - 30, False),
        ("other", True, OTHER_SETTINGS_S + 1, False),
        ("wanted", False, OTHER_SETTINGS_S + 1, False),
        ("", False, OTHER_SETTINGS_S + 1, False),
    ],
    ids=["stuck", "has time to start again", "serves", "of the template", "does not tell"],
)
def test_replica_that_never_serves_with_other_settings_is_made_anew(
    settings: str, ready: bool, waited_s: float, made_anew: bool
) -> None:
    world = running()
    name = next(name for name, pod in world.replicas().items() if role(pod) != "primary")
    wanted = world.pods[name]["metadata"]["annotations"][names.CONFIG_ANNOTATION]
    start_with(world, name, wanted if settings == "wanted" else settings, ready=ready)
    world.pass_time(waited_s)
    deleted = [action.name for action in world.plan().actions if isinstance(action, DeletePod)]
    assert deleted == ([name] if made_anew else [])
    world.operate()
    told = world.condition("Degraded")
    assert (told["reason"] == "OtherSettings") == made_anew, told
    assert world.condition("Ready")["status"] == ("True" if ready else "False")
    if made_anew:
        world.settle()
        assert world.condition("Ready")["status"] == "True"


def test_hash_that_replicas_tell_is_the_one_on_their_pods() -> None:
    world = running()
    data = world.children["ConfigMap", world.config_name()]["data"][names.CONFIG_FILE]
    pod = next(iter(world.replicas().values()))
    assert settings_hash(msgspec.json.decode(data)) == pod["metadata"]["annotations"][names.CONFIG_ANNOTATION]

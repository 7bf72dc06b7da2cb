"""Ready is True only while what the spec of `observedGeneration` says is what serves, whatever happened before.

Any order of edits, refusals, losses, hands and switches is tried; what is served is judged by the pods and by what they
mount, not by anything that the plan says of itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.deathless_operator.plan.plan_world import SETTINGS, World, is_going, is_ready, role, running, set_ready
from tests.unit.deathless_operator.plan.service.test_pod_settings import OTHER, other_store

from deathless_operator.model import names
from deathless_operator.plan.actions import Target
from deathless_operator.plan.snapshot import SecretFacts

EXPECTED = (
    ("StatefulSet", "bank"), ("Service", "bank"), ("Service", "bank-primary"), ("Service", "bank-replicas"),
    ("ServiceAccount", "bank"), ("Role", "bank"), ("RoleBinding", "bank"), ("PodDisruptionBudget", "bank"),
    ("NetworkPolicy", "bank"),
)  # fmt: skip
REFUSED = (
    "NetworkPolicy/bank",
    "ConfigMap/bank-config",
    "StatefulSet/bank",
    "Secret/bank-lock-tls",
    "Pod/bank-check",
    "Role/bank",
)


def served_wrongly(world: World) -> list[str]:
    """What of the spec is not what serves now; empty: nothing."""
    spec, wrong = world.spec, []
    pods = world.replicas()
    wanted = {names.pod("bank", ordinal) for ordinal in range(spec["replicas"])}
    if spec.get("suspend") or set(pods) != wanted:
        wrong.append(f"pods {sorted(pods)}")
    if not any(role(pod) == names.ROLE_PRIMARY for pod in pods.values()):
        wrong.append("nobody leads")
    for name, pod in pods.items():
        container = pod["spec"]["containers"][0]
        if not is_ready(pod) or is_going(pod):
            wrong.append(f"{name} does not serve")
        if container["image"] != spec["image"]:
            wrong.append(f"{name} runs {container['image']}")
        if container["resources"].get("requests", {}) != spec.get("resources", {}).get("requests", {}):
            wrong.append(f"{name} has other resources")
        config = world.children["ConfigMap", world.config_name()]["data"]["replica.json"]
        mounts = [volume.get("configMap", {}).get("name") for volume in pod["spec"]["volumes"]]
        if world.config_name() not in mounts or f'"{spec.get("logLevel", "")}"' not in f'{config}""':
            wrong.append(f"{name} has other settings")
        if world.settings.lock_endpoints[0] not in config:
            wrong.append(f"{name} has another lock store")
    return wrong + [f"no {kind} {name}" for kind, name in EXPECTED if (kind, name) not in world.children]


def lose(world: World) -> None:
    """The node of bank-1 goes silent."""
    if "bank-1" in world.pods and (node := world.pods["bank-1"]["spec"].get("nodeName")):
        world.lose_node(node)


def find(world: World) -> None:
    """Every node answers."""
    for index in range(4):
        world.find_node(f"n{index}")


def refuse(what: str) -> Callable[[World], None]:
    """The API server refuses to write an object."""
    kind, _, name = what.partition("/")

    def step(world: World) -> None:
        world.refuses = (*world.refuses, Target(kind, name))

    return step


def admit(world: World) -> None:
    """It refuses nothing any more."""
    world.refuses = ()


def unready(world: World) -> None:
    """A replica stops to serve for a moment."""
    if "bank-2" in world.pods:
        set_ready(world.pods["bank-2"], ready=False, at=world.now)


def same_store(world: World) -> None:
    """The installation names its first lock store again."""
    world.settings = SETTINGS


def pause(world: World) -> None:
    """Somebody pauses the service, or lets it go on."""
    if world.annotations.pop(names.PAUSED_ANNOTATION, None) is None:
        world.annotations[names.PAUSED_ANNOTATION] = "true"


def meddle(world: World) -> None:
    """Somebody writes into the status what is not so."""
    world.status |= {"image": world.spec["image"], "epoch": 999, "observedGeneration": world.generation}


def delete(kind: str, name: str) -> Callable[[World], object]:
    """Somebody deletes an object."""
    return lambda world: world.children.pop((kind, name), None)


def renew(world: World) -> None:
    """The lock store's certificate is renewed."""
    facts = world.sources["etcd-client"]
    world.sources["etcd-client"] = replace(facts, digest=f"{facts.digest}'")


def edit(**changes: object) -> Callable[[World], None]:
    """The spec is edited."""
    return lambda world: world.edit(**changes)


STEPS: dict[str, Callable[[World], object]] = {
    **{f"image {image}": edit(image=image) for image in ("bank:1", "bank:2", "bank:other", "bank:gone")},
    "resources": edit(resources={"requests": {"cpu": "1"}}),
    "no resources": edit(resources={}),
    "settings": edit(logLevel="debug"),
    "more": edit(replicas=4),
    "fewer": edit(replicas=2),
    "suspend": edit(suspend=True),
    "resume": edit(suspend=False),
    "on delete": edit(updateStrategy={"type": "OnDelete"}),
    "rolling": edit(updateStrategy={"type": "RollingUpdate"}),
    "unreadable": edit(quorum=2),
    **{f"refuse {what}": refuse(what) for what in REFUSED},
    "admit": admit,
    "lose": lose,
    "find": find,
    "unready": unready,
    "other store": other_store,
    "same store": same_store,
    "pause": pause,
    "meddle": meddle,
    "renew": renew,
    **{f"delete {kind} {name}": delete(kind, name) for kind, name in EXPECTED},
}


def act(world: World) -> None:
    """Everybody works once; where Ready is told, it is true."""
    world.operate()
    told = world.condition("Ready")
    if told["status"] == "True":
        assert world.status["observedGeneration"] == world.generation, "it tells of the spec of before"
        assert served_wrongly(world) == [], told
    world.run_controller()
    for name in list(world.pods):
        world.run_kubelet(name)
    world.elect()
    world.pass_time(7)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(1, 12)), min_size=1, max_size=6))
def test_ready_is_never_told_of_a_spec_that_does_not_serve(steps: list[tuple[str, int]]) -> None:
    world = running()
    world.strict = False
    world.unpullable = ("bank:gone",)
    for name, rounds in steps:
        STEPS[name](world)
        for _ in range(rounds):
            act(world)


def test_judge_of_what_serves_finds_what_is_wrong() -> None:
    world = running()
    assert served_wrongly(world) == []
    for name, told in {
        "image bank:2": "runs bank:1", "resources": "other resources", "settings": "other settings",
        "more": "pods", "suspend": "pods", "other store": "another lock store", "unready": "does not serve",
        "delete Role bank": "no Role bank",
    }.items():  # fmt: skip
        broken = running()
        STEPS[name](broken)
        assert any(told in each for each in served_wrongly(broken)), name
    assert OTHER.lock_endpoints != SETTINGS.lock_endpoints
    assert isinstance(world.sources["etcd-client"], SecretFacts)

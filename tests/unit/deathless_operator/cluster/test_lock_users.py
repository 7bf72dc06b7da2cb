"""A user for each service: granted when it is there, asked for when all have one, taken away with its service."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.deathless_operator.cluster.lock_users_world import (
    HOME,
    Broken,
    Cluster,
    Cut,
    Fuse,
    Store,
    bearer,
    service,
    stateful_set,
)

from deathless.base.errors import InvalidConfig
from deathless_operator.cluster import lock_users
from deathless_operator.cluster.lock_users import LockUsers
from deathless_operator.model import names
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.plan.service.access import store_mark, with_users

SETTINGS = OperatorSettings(namespace=HOME, lock_endpoints=("https://e0:2379", "https://e1:2379"), lock_users=True)
MARK = store_mark(with_users(SETTINGS))


def mounted(name: str) -> tuple[str, str]:
    """What pods mount that log in."""
    return names.lock_tls_secret(name, MARK), names.lock_user_secret(name, MARK)


class World:
    """One installation; each look is a process of its own unless `keep` says otherwise."""

    def __init__(self, *services: tuple[str, str]) -> None:
        self.fuse = Fuse()
        self.cluster, self.store = Cluster(self.fuse), Store(self.fuse)
        self.drawn = 0
        for namespace, name in services:
            self.cluster.objects["DeathlessService"].append(service(namespace, name))

    def process(self, **more: Any) -> LockUsers:
        """`deathless-operator lock-users`, begun anew."""
        return LockUsers(self.cluster, self.store, SETTINGS, draw=self.draw, **more)

    def draw(self) -> str:
        """A password that no other is."""
        self.drawn += 1
        return f"password {self.drawn}"

    def look(self, process: LockUsers | None = None, *, withdraw: bool = False, cut: int | None = None) -> str:
        """Look once; the process dies after so many changes."""
        self.fuse.left = cut
        try:
            return asyncio.run((process or self.process()).look(withdraw=withdraw))
        except Cut:
            return "dead"
        finally:
            self.fuse.left = None

    def put(self, kind: str, *objects: dict[str, Any]) -> None:
        """Have the API server hold these."""
        self.cluster.objects[kind] = list(objects)


def test_each_service_is_granted_its_own_keys_and_logins_are_asked_for() -> None:
    world = World(("shop", "bank"), ("shop", "bank-2"), ("other", "bank"))
    assert world.look() == "logins are on: 3 services log in, each with a user of its own"
    assert world.store.on
    assert world.store.ranges == {
        "shop.bank": "/deathless/shop/bank/",
        "shop.bank-2": "/deathless/shop/bank-2/",
        "other.bank": "/deathless/other/bank/",
    }
    granted = world.cluster.granted()
    assert set(granted) == set(world.store.ranges) and len(set(granted.values())) == 3
    assert all(world.store.serves(user, password) for user, password in granted.items())
    writes = world.cluster.writes
    world.look()
    assert world.cluster.writes == writes and world.store.changed == [], "a second look changes nothing"


@pytest.mark.parametrize("kind", ["Pod", "StatefulSet"])
def test_logins_stay_off_while_somebody_is_without_a_user(kind: str) -> None:
    world = World(("shop", "bank"))

    def make(secrets: list[str]) -> dict[str, Any]:
        return bearer("shop", "bank", "bank", secrets) if kind == "Pod" else stateful_set("shop", "bank", secrets)

    world.put(kind, make(["bank-lock-tls-0123", "bank-tls"]))
    assert world.look() == f"logins stay off: without a user are {kind} shop/bank"
    assert not world.store.on and "shop.bank" in world.cluster.granted(), "it can roll"
    world.put(kind, make(["bank-lock-tls", "bank-tls"]))
    assert "stay off" in world.look(), "as a former operator made it"
    world.put(kind, make([*mounted("bank"), "bank-tls"]))
    assert "logins are on" in world.look() and world.store.on


def test_stateful_set_that_its_controller_has_not_read_counts_as_it_was() -> None:
    world = World(("shop", "bank"))
    world.put("StatefulSet", stateful_set("shop", "bank", mounted("bank"), observed=0))
    assert "without a user are StatefulSet shop/bank" in world.look()


def test_service_that_names_this_store_itself_needs_a_user_of_its_own() -> None:
    world, etcd = World(), {"endpoints": ["https://e1:2379"], "tlsSecretRef": {"name": "tls"}}
    world.put("DeathlessService", service("shop", "bank", etcd=etcd))
    world.put("Pod", bearer("shop", "bank", "bank-0", ["tls"]))
    assert "without a user are Pod shop/bank-0" in world.look()
    world.put("DeathlessService", service("shop", "bank", etcd=etcd | {"userSecretRef": {"name": "user"}}))
    assert "logins are on: 0 services" in world.look()


def test_service_with_another_store_or_another_installation_is_no_matter() -> None:
    world = World()
    other = service("shop", "cafe", installation="elsewhere")
    world.put("DeathlessService", service("shop", "bank", etcd={"endpoints": ["https://own:2379"]}), other)
    world.put("Pod", bearer("shop", "bank", "bank-0", []), bearer("shop", "cafe", "cafe-0", ["cafe-lock-tls-77"]))
    assert "logins are on: 0 services" in world.look()
    assert world.cluster.granted() == {}


def test_status_that_a_person_wrote_takes_no_service_out_of_the_count() -> None:
    """Whoever may write a status must not have logins asked for that pods of the service could not give."""
    world = World()
    mine = {"annotations": {names.INSTALLATION_ANNOTATION: HOME}}
    world.put("DeathlessService", service("shop", "bank", installation="elsewhere"))
    world.put("Pod", bearer("shop", "bank", "bank-0", ["bank-lock-tls-77"], **mine))
    assert "without a user are Pod shop/bank-0" in world.look()


def test_prefix_of_a_services_own_choice_is_not_granted_since_it_may_be_anothers() -> None:
    world = World(("shop", "bank"))
    thief = service("evil", "bank", etcd={"prefix": "/deathless/shop/"})
    world.cluster.objects["DeathlessService"].append(thief)
    world.look()
    assert set(world.cluster.granted()) == {"shop.bank"}
    thief["spec"]["lock"]["etcd"]["prefix"] = "/deathless/evil/"
    world.look()
    assert world.store.ranges["evil.bank"] == "/deathless/evil/bank/"


def test_spec_that_cannot_be_read_holds_logins_back_and_loses_no_user() -> None:
    world = World(("shop", "bank"))
    world.look()
    world.store.on = False
    world.cluster.objects["DeathlessService"][0]["spec"]["replicas"] = "many"
    world.put("Pod", bearer("shop", "bank", "bank-0", ["bank-lock-tls-0123"]))
    assert "without a user are Pod shop/bank-0" in world.look()
    assert "shop.bank" in world.store.passwords


def test_user_goes_when_the_service_and_its_pods_are_gone() -> None:
    world = World(("shop", "bank"), ("shop", "cafe"))
    world.look()
    world.put("Pod", bearer("shop", "bank", "bank-0", mounted("bank")))
    gone = world.cluster.objects["DeathlessService"].pop(0)
    world.look()
    assert "shop.bank" in world.store.passwords, "a pod ends politely"
    world.put("Pod")
    world.look()
    assert set(world.store.ranges) == set(world.cluster.table()) == {"shop.cafe"}
    world.cluster.objects["DeathlessService"].append(gone)
    world.look()
    assert world.store.serves("shop.bank", world.cluster.granted()["shop.bank"]), "one of that name gets another user"


def test_user_of_the_members_name_is_refused_since_everybody_would_be_it() -> None:
    world = World(("shop", "bank"))
    world.store.passwords[names.LOCK_MEMBERS] = "whose ever"
    with pytest.raises(InvalidConfig, match="everybody with a way in would be that user"):
        world.look()
    assert not world.store.on


def test_foreign_users_of_the_store_are_left_alone() -> None:
    world = World(("shop", "bank"))
    world.store.passwords["ops.monitor"] = "theirs"
    world.look()
    assert world.store.passwords["ops.monitor"] == "theirs"


def test_withdrawing_switches_logins_off_first_and_is_taken_back() -> None:
    world = World(("shop", "bank"))
    world.look()
    assert world.look(withdraw=True, cut=1) == "dead"
    assert (world.store.on, world.cluster.withdrawn) == (False, False), "it died between the two"
    world.look(withdraw=True)
    assert (world.store.on, world.cluster.withdrawn) == (False, True)
    assert "shop.bank" in world.store.passwords, "nothing is taken away"
    assert "logins are on" in world.look()
    assert (world.store.on, world.cluster.withdrawn) == (True, False)


def test_store_from_a_backup_is_mended_before_anybody_logs_in() -> None:
    world = World(("shop", "bank"), ("shop", "cafe"))
    process = world.process()
    world.look(process)
    for held in (world.store.passwords, world.store.ranges, world.store.roles):
        held.pop("shop.cafe", None)
    world.store.passwords["shop.bank"] = "of another time"
    world.look(process)
    granted = world.cluster.granted()
    assert world.store.serves("shop.cafe", granted["shop.cafe"]), "a user that is missing is seen at every look"
    world.look()  # begun anew, as after every failure
    assert world.store.serves("shop.bank", granted["shop.bank"])
    world.store.on, world.store.passwords["shop.bank"] = False, "of another time"
    world.look(process)
    assert world.store.on and world.store.serves("shop.bank", granted["shop.bank"]), "every password is set once more"


def test_only_named_namespaces_are_looked_at() -> None:
    world = World(("shop", "bank"), ("other", "bank"))
    world.look(world.process(namespaces=("shop",)))
    assert set(world.cluster.granted()) == {"shop.bank"}
    assert {place for _, place in world.cluster.listed} == {"shop"}


def test_services_that_are_too_many_are_named_and_the_others_have_users(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(("shop", "bank"))
    monkeypatch.setattr(lock_users, "USERS_MAX", 2)
    world.look()
    more = [service("shop", name) for name in ("aft", "cafe", "deli")]
    world.put("DeathlessService", service("shop", "bank"), *more)
    told = world.look()
    assert told.startswith("logins are on: 2 services log in")
    assert "There are 2 users and no more, so these services get none: shop.cafe, shop.deli. What to do:" in told
    assert set(world.cluster.granted()) == set(world.store.ranges) == {"shop.bank", "shop.aft"}, "who had one keeps it"
    world.put("DeathlessService", *more)
    assert "get none: shop.deli" in world.look()
    assert set(world.cluster.granted()) == set(world.store.ranges) == {"shop.aft", "shop.cafe"}, "there is room again"


def test_administrator_without_password_is_refused() -> None:
    world = World(("shop", "bank"), ("shop", "cafe"))
    world.look()
    world.cluster.secrets[names.LOCK_ADMIN_SECRET]["data"] = {}
    with pytest.raises(InvalidConfig, match="holds no password"):
        world.look()


def test_passwords_are_drawn_at_random() -> None:
    world = World()
    drawn = {LockUsers(world.cluster, world.store, SETTINGS)._draw() for _ in range(20)}
    assert len(drawn) == 20 and min(map(len, drawn)) >= 43


STEPS = st.one_of(
    st.tuples(st.just("look"), st.integers(0, 25)),
    st.tuples(st.just("withdraw"), st.integers(0, 3)),
    st.tuples(st.just("come"), st.integers(0, 3)),
    st.tuples(st.just("go"), st.integers(0, 3)),
    st.tuples(st.just("restore"), st.integers(0, 3)),
)


@settings(max_examples=200, deadline=None)
@given(steps=st.lists(STEPS, max_size=30))
def test_wherever_it_dies_whoever_is_granted_is_let_in_and_it_converges(steps: list[tuple[str, int]]) -> None:
    world, present = World(), set[int]()
    for what, which in steps:
        match what:
            case "look":
                world.look(cut=which)
            case "withdraw":
                world.look(withdraw=True, cut=which)
            case "come":
                present.add(which)
            case "go":
                present.discard(which)
            case "restore":  # of a backup that was made before this user
                world.store.remove_all(f"shop.s{which}")
        world.put("DeathlessService", *(service("shop", f"s{each}") for each in sorted(present)))
        if what == "look":
            check_granted(
                world, {f"shop.s{each}" for each in present}, restored="restore" in {each[0] for each in steps}
            )
    world.look()
    assert world.store.on and not world.cluster.withdrawn
    assert set(world.cluster.table()) == set(world.store.ranges) == {f"shop.s{each}" for each in present}
    check_granted(world, set(world.cluster.table()), restored=False)


def check_granted(world: World, present: set[str], *, restored: bool) -> None:
    """Nobody is granted what is not there, but for a store that was taken back in time."""
    for user, password in world.cluster.granted().items():
        if user in present and not restored and not world.store.serves(user, password):
            raise Broken(f"{user} is granted, and could not log in")

"""Services come to users of the lock store and leave them again, wherever operator and `lock-users` die on the way.

Why: two processes and a chart move a service that serves, step by step, and each may be cut off after any change. A
small cluster (plan_world) is driven beside `lock-users` over memory (lock_users_world). Shown here: whenever logins are
on, every pod has a user mounted, and it is one that the lock store knows; a service that serves keeps its pods while
its user is not granted; all comes to rest with users, and without them as it was before.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.deathless_operator.cluster.lock_users_world import Broken, Cluster, Cut, Fuse, Store
from tests.unit.deathless_operator.plan.plan_world import SETTINGS, SPEC, World, is_ready, running

from deathless.shell.lock_stores.erasing import read_order
from deathless_operator.cluster.lock_users import LockUsers
from deathless_operator.model import names
from deathless_operator.plan.safeguards import ALL_PLAN_SAFEGUARDS, PlanSafeguards
from deathless_operator.plan.service import erasure, lock_users
from deathless_operator.plan.service.access import in_force, store_mark, with_users
from deathless_operator.plan.service.objects import Lock
from deathless_operator.plan.service.reading import read_mounts
from deathless_operator.plan.snapshot import SecretFacts

USERS = msgspec.structs.replace(SETTINGS, lock_users=True)
WITH, WITHOUT = with_users(USERS), SETTINGS
COPY = names.lock_user_secret("bank", store_mark(WITH))
USER = "prod.bank"
BEFORE = running().template()  # whatever the number of replicas is
CERTIFICATE = SecretFacts(name=names.LOCK_USERS_TLS_SECRET, keys=("ca.crt", "tls.crt", "tls.key"), digest="c1")


@dataclass
class Moving:
    """A service with its operator, beside a lock store with its `lock-users`."""

    world: World = field(default_factory=running)

    def __post_init__(self) -> None:
        self.fuse = Fuse()
        self.cluster, self.store = Cluster(self.fuse), Store(self.fuse)
        self.mode = ""  # as the chart has it: "", "on" or "withdraw"
        self.drawn = 0
        self.sync()

    def sync(self) -> None:
        """Have each see what the other's API server holds, and look whether a rule is broken."""
        world, cluster = self.world, self.cluster
        world.lock_users_withdrawn = cluster.withdrawn
        world.sources.pop(names.LOCK_USERS_SECRET, None)
        if USER in cluster.granted():
            login = SecretFacts(
                name=names.LOCK_USERS_SECRET, keys=("password", "username"), digest=cluster.granted()[USER]
            )
            world.sources[names.LOCK_USERS_SECRET] = login
        cluster.objects["DeathlessService"] = [world.resource()]
        sets = [found for (kind, _), found in world.children.items() if kind == "StatefulSet"]
        cluster.objects["StatefulSet"] = [placed(found) for found in sets]
        cluster.objects["Pod"] = [placed(found) for found in world.pods.values()]
        if self.store.on:
            self.check_logins()

    def check_logins(self) -> None:
        """Every pod that opens the store can log in."""
        for name, pod in self.world.replicas().items():
            if ("Secret", COPY) not in read_mounts(pod["spec"]):
                raise Broken(f"{name} has no user, and logins are on")
            if not self.store.serves(USER, self.world.secrets[COPY].source):
                raise Broken(f"{name} mounts a user that the lock store does not know")

    def look(self, cut: int | None = None) -> None:
        """`lock-users` looks once, as the chart has it, and dies after so many changes."""
        if not self.mode:
            return
        self.fuse.left = cut
        process = LockUsers(self.cluster, self.store, USERS, draw=self.draw)
        try:
            asyncio.run(process.look(withdraw=self.mode == "withdraw"))
        except Cut:
            pass
        finally:
            self.fuse.left = None
        self.sync()

    def draw(self) -> str:
        """A password that no other is."""
        self.drawn += 1
        return f"password {self.drawn}"

    def upgrade(self, mode: str) -> None:
        """`helm upgrade`: off at once only where nothing is left to withdraw, as the chart looks for it."""
        if not mode and names.LOCK_USERS_SECRET in self.cluster.secrets and not self.cluster.withdrawn:
            mode = "withdraw"
        self.mode = mode
        self.world.settings = USERS if mode else SETTINGS
        if mode:
            self.world.sources[CERTIFICATE.name] = CERTIFICATE  # the Job's

    def move(self, what: str, which: int) -> None:
        """One thing happens."""
        match what:
            case "upgrade":
                self.upgrade(("on", "withdraw", "", "on")[which % 4])
            case "look":
                self.look(which)
            case "operate":
                self.world.operate(which)
            case "others":
                self.world.others_work()
            case "controller":
                self.world.run_controller()
            case "suspend":
                self.world.edit(suspend=bool(which % 2))
        self.sync()

    def work(self) -> None:
        """The operator and what makes pods work."""
        for _ in range(3):
            self.move("operate", 99)
            self.move("controller", 0)

    def settle(self) -> None:
        """All look, until nothing changes."""
        for _ in range(3):
            self.look()
            self.world.settle()
            self.sync()
        self.look()

    def copies(self) -> set[str]:
        """Secrets of the lock store in the service's namespace."""
        return {name for name in self.world.copied if "-lock-" in name}


def placed(raw: dict[str, Any]) -> dict[str, Any]:
    """An object with its namespace, which the small cluster leaves out."""
    return {**raw, "metadata": {"namespace": "prod", **raw["metadata"]}}


MOVES = st.one_of(
    st.tuples(st.just("upgrade"), st.integers(0, 3)),
    st.tuples(st.just("look"), st.integers(0, 20)),
    st.tuples(st.just("operate"), st.integers(0, 6)),
    st.tuples(st.just("operate"), st.just(99)),
    st.tuples(st.just("others"), st.just(0)),
    st.tuples(st.just("controller"), st.just(0)),
    st.tuples(st.just("suspend"), st.integers(0, 1)),
)


@settings(max_examples=25, deadline=None)
@given(moves=st.lists(MOVES, max_size=30), fresh=st.booleans())
def test_wherever_anybody_dies_it_comes_to_rest_with_users_and_without(
    moves: list[tuple[str, int]], fresh: bool
) -> None:
    moving = Moving(World(spec={**SPEC, "replicas": 2}) if fresh else running({"replicas": 2}))
    for what, which in moves:
        moving.move(what, which)
    moving.world.edit(suspend=False)
    moving.sync()
    moving.upgrade("on")
    moving.settle()
    assert moving.store.on and moving.world.plan().actions == ()
    assert moving.copies() == {COPY, names.lock_tls_secret("bank", store_mark(WITH))}, "what is not mounted is gone"
    assert moving.world.condition("Ready")["status"] == "True"
    moving.upgrade("")
    moving.settle()
    moving.upgrade("")
    assert (moving.mode, moving.store.on) == ("", False)
    moving.settle()
    assert moving.copies() == {names.lock_tls_secret("bank", store_mark(WITHOUT))}
    assert moving.world.template() == BEFORE, "as it was before there were users"


def test_first_pod_waits_until_its_user_is_granted() -> None:
    moving = Moving(World())
    moving.upgrade("on")
    moving.world.settle()
    assert moving.world.pods == {} and ("StatefulSet", "bank") not in moving.world.children
    told = moving.world.condition("LockReady")
    assert (told["status"], told["reason"]) == ("False", "UserNotGranted")
    assert "prod.bank" in told["message"] and "deployment/deathless-lock-users" in told["message"]
    moving.sync()
    moving.settle()
    assert moving.store.on and all(is_ready(pod) for pod in moving.world.replicas().values())


def test_service_that_serves_is_not_held_up_by_a_user_that_does_not_come() -> None:
    moving = Moving()
    before = {pod["metadata"]["uid"] for pod in moving.world.pods.values()}
    moving.upgrade("on")
    moving.world.settle()
    assert {pod["metadata"]["uid"] for pod in moving.world.pods.values()} == before
    moving.world.edit(resources={"requests": {"cpu": "1"}})
    moving.world.settle()
    assert moving.world.condition("Ready")["status"] == "True", "it is rolled for other reasons meanwhile"
    moving.sync()
    moving.settle()
    moving.cluster.secrets.pop(names.LOCK_USERS_SECRET)  # by hand
    moving.sync()
    template = moving.world.template()
    moving.world.settle()
    assert moving.world.template() == template, "it goes on with the user that it has"


def test_pod_of_a_former_operator_keeps_its_names_until_its_user_is_granted() -> None:
    world = World(safeguards=PlanSafeguards(settings_by_content=False))
    world.settle()
    world.safeguards = ALL_PLAN_SAFEGUARDS
    moving = Moving(world)
    template = world.template()
    moving.upgrade("on")
    world.settle()
    assert world.template() == template and names.lock_tls_secret("bank") in world.secrets
    moving.sync()
    moving.settle()
    assert moving.store.on and names.lock_tls_secret("bank") not in world.secrets


def test_rule_about_logins_is_seen_when_nobody_waits_for_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_users, "without_user", lambda *_: ())
    moving = Moving()
    moving.upgrade("on")
    with pytest.raises(Broken, match="has no user, and logins are on"):
        moving.look()


def test_rule_about_grants_is_seen_when_the_operator_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deathless_operator.plan.service.access.in_force", lambda snapshot, given: given)
    moving = Moving(World())
    moving.upgrade("on")
    moving.look()
    with pytest.raises(Broken, match="has no user, and logins are on"):
        moving.work()


def test_settings_without_users_are_what_they_were() -> None:
    world = running()
    assert in_force(world.snapshot(), SETTINGS) is SETTINGS
    world.lock_users_withdrawn = True
    assert in_force(world.snapshot(), USERS) is USERS, "and they open the store as before"


def test_bearer_is_read_of_pods_and_of_templates() -> None:
    world = running()
    found = lock_users.read_bearer(placed(world.children["StatefulSet", "bank"]))
    assert (found.user, str(found), found.seen) == (USER, "StatefulSet prod/bank", True)
    assert found.installation == SETTINGS.namespace
    assert names.lock_tls_secret("bank", store_mark(SETTINGS)) in found.secrets
    pod = lock_users.read_bearer({**placed(world.pods["bank-0"]), "kind": "Pod"})
    assert (pod.secrets, pod.seen) == (found.secrets, True)


def test_eraser_logs_in_as_the_administrator_where_services_have_users() -> None:
    storage = {"size": "1Gi", "deletionPolicy": "Delete"}
    snapshot = World(spec={**SPEC, "logStorage": storage}).snapshot()
    assert snapshot.resource.spec is not None
    lock = Lock(endpoints=SETTINGS.lock_endpoints, prefix="/deathless/prod/", tls_secret="bank-lock-tls-1")
    before = erasure.record_of(snapshot, snapshot.resource.spec, SETTINGS, lock)
    logging_in = msgspec.structs.replace(lock, user_secret="bank-lock-user-1")
    found = erasure.record_of(snapshot, snapshot.resource.spec, USERS, logging_in)
    assert found == before and found is not None, "the record stays as it is while a service is moved"
    pod: Any = erasure.eraser_manifest(found, USERS)
    secrets = [volume["secret"]["secretName"] for volume in pod["spec"]["volumes"]]
    assert secrets == [names.LOCK_USERS_TLS_SECRET, names.LOCK_ADMIN_SECRET]
    order = read_order(pod["spec"]["containers"][0]["args"][2].removeprefix("--order="))
    assert order.etcd.username_file == "/etc/deathless-lock-user/username"
    own = msgspec.structs.replace(found, lock=msgspec.structs.replace(lock, tls_secret="mine"))
    assert erasure.eraser_manifest(own, USERS) == erasure.eraser_manifest(own, SETTINGS), "a store of its own"

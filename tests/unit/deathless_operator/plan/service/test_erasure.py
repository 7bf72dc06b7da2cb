"""Keys of a service that is deleted with its log: erased when nothing of it is left, wherever the operator dies."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.deathless_operator.plan.plan_world import SETTINGS, START, Broken, Raw, World, is_going, is_ready
from tests.unit.deathless_operator.plan.storing import copied

from deathless.shell.lock_stores.erasing import read_order
from deathless_operator.model import names
from deathless_operator.model.values import text
from deathless_operator.plan.actions import Action, Apply, DeleteObject, DeletePod
from deathless_operator.plan.service import erasure
from deathless_operator.plan.service.erasure import plan_erasure, read_record
from deathless_operator.plan.service.objects import Lock
from deathless_operator.plan.service.reading import read_child, read_claim, read_pod, show_time
from deathless_operator.plan.snapshot import ChildView, Remains, Snapshot

DELETE: Raw = {"size": "1Gi", "deletionPolicy": "Delete"}
RETAIN: Raw = {"size": "1Gi", "deletionPolicy": "Retain"}
QUIET_ROUNDS = 8  # of five seconds: longer than a pod that failed is left alone
RECORD = "prod.bank.erase"
CLAIM = ("PersistentVolumeClaim", "bank-log")


@dataclass
class LifeWorld(World):
    """A service that is made, deleted and made again, its log on a claim, its keys in a lock store.

    `keys` and the log of a claim hold the id of the service that wrote them; a replica that starts compares them.
    """

    alive: bool = True
    lives: int = 1
    keys: str = ""
    logs: dict[str, str] = field(default_factory=dict)  # by the claim's uid
    record: Raw | None = None
    eraser: Raw | None = None
    store_away: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.spec["logStorage"] = copied(DELETE)

    @property
    def uid(self) -> str:
        """Of the resource."""
        return f"uid-life-{self.lives}"

    def resource(self) -> Raw:
        found = super().resource()
        found["metadata"]["uid"] = self.uid
        return found

    def snapshot(self) -> Snapshot:
        child = self._record_view()
        record = read_record(child)
        former = record is not None and record.uid != self.uid
        return replace(super().snapshot(), record=child, remains=self.remains() if former else None)

    def _record_view(self) -> ChildView | None:
        return read_child(copied(self.record)) if self.record else None

    def remains(self) -> Remains:
        """What is left of a service that is gone."""
        child, stateful_set, claim = self._record_view(), self.stateful_set(), self.children.get(CLAIM)
        assert child is not None
        return Remains(
            now=self.now,
            record=child,
            stateful_sets=(read_child(stateful_set),) if stateful_set else (),
            pods=tuple(read_pod(copied(pod)) for pod in self.replicas().values()),
            claim=read_claim(claim) if claim else None,
            eraser=read_pod(copied(self.eraser)) if self.eraser else None,
        )

    def work(self, actions_max: int | None = None) -> None:
        """Run the operator once, whether the service is there or not; it dies after so many actions."""
        if self.alive:
            self.operate(actions_max)
        elif self.record is not None:
            found = plan_erasure(self.remains(), self.settings)
            for action in found.actions[:actions_max]:
                self.carry_out(action)
            self.told += [event.reason for event in found.events]

    def carry_out(self, action: Action) -> None:
        match action:
            case Apply(manifest=manifest) if erasing(dict(manifest)):
                self._make(dict(manifest))
            case DeleteObject(name=name, uid=uid) if name == RECORD:
                assert action.namespace == self.settings.namespace
                if self.record is not None and self.record["metadata"]["uid"] == uid:
                    self.record = None
            case DeletePod(name=name, uid=uid) if "-erase-" in name:
                if self.eraser is not None and self.eraser["metadata"]["uid"] == uid:
                    self.eraser = None
            case _:
                super().carry_out(action)

    def _make(self, manifest: Raw) -> None:
        self.made += 1
        manifest = copied(manifest)
        if manifest["kind"] == "ConfigMap":
            old = self.record["metadata"]["uid"] if self.record else f"uid-{self.made}"
            manifest["metadata"]["uid"] = old
            self.record = manifest
        elif self.eraser is None:
            manifest["metadata"] |= {"uid": f"uid-{self.made}", "creationTimestamp": show_time(self.now)}
            self.eraser = manifest | {"status": {"phase": "Pending"}}

    # ------------------------------------------------------------ what the cluster does

    def _start(self, pod: Raw, name: str) -> None:
        claim = self.children.get(CLAIM)
        if claim is None or claim["metadata"].get("deletionTimestamp"):
            return  # the volume does not come
        uid = claim["metadata"]["uid"]
        log = self.logs.get(uid, "")
        if log != self.keys:
            raise Broken(f"a replica finds the log of {log or 'nobody'} and the keys of {self.keys or 'nobody'}")
        self.keys = self.logs[uid] = log or f"id-{self.lives}"
        super()._start(pod, name)

    def run_eraser(self) -> None:
        """The pod that erases takes its next step."""
        if self.eraser is None or self.eraser["status"]["phase"] != "Pending":
            return
        order = read_order(self.eraser["spec"]["containers"][0]["args"][2].removeprefix("--order="))
        assert order.service == "bank" and order.etcd.prefix == "/deathless/prod/"
        if self.store_away:
            ended = {"exitCode": 75, "message": "DL1004 no answer", "finishedAt": show_time(self.now)}
            phase = "Failed"
        else:
            if living := [name for name, pod in self.replicas().items() if pod["status"]["phase"] == "Running"]:
                raise Broken(f"keys are erased under {living}")
            if CLAIM in self.children:
                raise Broken("keys are erased and the log is there")
            self.keys, ended, phase = "", {"exitCode": 0}, "Succeeded"
        told = [{"name": "erase", "state": {"terminated": ended}}]
        self.eraser["status"] = {"phase": phase, "containerStatuses": told}

    def collect(self) -> None:
        """The garbage collector: what is owned by a resource that is gone goes; a claim waits for its pods."""
        for key, found in list(self.children.items()):
            owners = [owner["uid"] for owner in found["metadata"].get("ownerReferences") or ()]
            going = bool(found["metadata"].get("deletionTimestamp"))  # for good, whoever owned it
            if not going and (not owners or (self.alive and self.uid in owners)):
                continue
            if key == CLAIM and self.replicas():
                found["metadata"].setdefault("deletionTimestamp", show_time(self.now))
            else:
                del self.children[key]
                self.claims.pop(key[1], None)
        if self.stateful_set() is None:
            for pod in self.replicas().values():
                pod["metadata"].setdefault("deletionTimestamp", show_time(self.now + 30))

    def delete(self, *, orphan: bool = False) -> None:
        """A user deletes the service; with `orphan` its objects, and nobody else's, lose their owner."""
        if not self.alive:
            return
        self.alive = False
        for found in self.children.values() if orphan else ():
            owners = found["metadata"].get("ownerReferences") or ()
            if self.uid in [owner["uid"] for owner in owners]:
                del found["metadata"]["ownerReferences"]

    def create(self, storage: Raw) -> None:
        """A user makes it (again)."""
        if not self.alive:
            self.alive, self.lives, self.status, self.generation = True, self.lives + 1, {}, 1
            self.epoch = 0
            self.spec["logStorage"] = copied(storage)

    def rest(self) -> None:
        """Let everybody work until it is quiet."""
        self.store_away = False
        quiet = 0
        while quiet < QUIET_ROUNDS:
            before = self.whole()
            self.work()
            self.step()
            self.pass_time(5)
            quiet = quiet + 1 if self.whole() == before else 0
            if self.now > START + 1_000_000:
                raise Broken("it does not come to rest")

    def whole(self) -> str:
        """All that may still change, as text."""
        return json.dumps([self.shape().decode(), self.keys, self.record, self.eraser, self.alive])

    def step(self) -> None:
        """Everybody but the operator takes a step."""
        self.collect()
        self.run_controller()
        for name in list(self.pods):
            self.run_kubelet(name)
        self.elect()
        self.run_eraser()


def erasing(manifest: Raw) -> bool:
    return bool(manifest["metadata"]["labels"].get(names.LABEL_PURPOSE) == names.PURPOSE_ERASE)


def recorded(world: LifeWorld) -> str:
    """Whose record there is, by the resource's uid; empty: none."""
    return str(json.loads(world.record["data"][erasure.RECORD_KEY])["uid"]) if world.record else ""


def running(storage: Raw) -> LifeWorld:
    """A service that serves."""
    world = LifeWorld()
    world.spec["logStorage"] = copied(storage)
    world.rest()
    assert all(map(is_ready, world.replicas().values())) and world.keys == "id-1"
    return world


def left(world: LifeWorld) -> list[object]:
    """Everything that is of the service."""
    found: list[object] = [*world.children, *world.pods]
    return found + [one for one in (world.record, world.eraser, world.keys) if one]


# ---------------------------------------------------------------- what happens, step by step


def test_service_that_is_deleted_with_its_log_leaves_nothing() -> None:
    world = running(DELETE)
    assert world.record is not None
    world.delete()
    world.rest()
    assert left(world) == [] and "KeysErased" in world.told


def test_service_that_keeps_its_log_keeps_its_keys_and_goes_on() -> None:
    world = running(RETAIN)
    assert world.record is None
    world.delete()
    world.rest()
    assert left(world) == [CLAIM, "id-1"]
    world.create(RETAIN)
    world.rest()
    assert all(map(is_ready, world.replicas().values())) and world.keys == "id-1"


def test_claim_of_the_user_stays_and_so_do_its_keys() -> None:
    world = LifeWorld()
    world.spec["logStorage"] = {"claimName": "shared", "deletionPolicy": "Delete"}
    world.operate()
    assert world.stateful_set() is not None and world.record is None


def test_record_stands_before_anything_that_could_write_a_key() -> None:
    world = LifeWorld()
    made = [action.manifest for action in world.plan().actions if isinstance(action, Apply)]
    kinds = [str(manifest["kind"]) for manifest in made]
    records = [index for index, manifest in enumerate(made) if erasing(dict(manifest))]
    assert records and records[0] < kinds.index("StatefulSet")


def test_policy_may_be_changed_while_it_serves() -> None:
    world = running(RETAIN)
    world.edit(logStorage=DELETE)
    world.rest()
    assert recorded(world) == "uid-life-1"
    world.edit(logStorage=RETAIN)
    world.rest()
    assert not recorded(world)
    world.delete()
    world.rest()
    assert left(world) == [CLAIM, "id-1"]


def test_service_made_again_at_once_waits_for_the_keys_of_the_former_one() -> None:
    world = running(DELETE)
    world.delete()
    world.create(DELETE)
    world.work()  # it is claimed
    world.work()
    assert world.condition("LockReady")["reason"] == "ErasingKeys"
    assert recorded(world) == "uid-life-1"
    world.rest()
    assert world.keys == "id-2" and all(map(is_ready, world.replicas().values()))
    assert recorded(world) == "uid-life-2"
    assert world.condition("Ready")["status"] == "True" and world.eraser is None


def test_lock_store_that_is_away_is_tried_until_it_is_back() -> None:
    world = running(DELETE)
    world.store_away = True
    world.delete()
    for _ in range(20):
        world.work()
        world.step()
        world.pass_time(10)
    assert world.keys == "id-1" and world.record is not None and "EraseFailed" in world.told
    world.rest()
    assert left(world) == []


def test_orphaned_objects_keep_their_keys() -> None:
    world = running(DELETE)
    world.delete(orphan=True)
    world.rest()
    assert world.record is None and world.keys == "id-1" and "KeysKept" in world.told
    assert all(map(is_ready, world.replicas().values()))


def test_keys_of_a_service_that_began_anew_stay() -> None:
    world = running(DELETE)
    world.delete()
    while world.eraser is None:
        world.work()
        world.collect()
        for name in list(world.pods):
            world.run_kubelet(name)
    ended = {"exitCode": 65, "message": "DL4005 the keys are those of another", "finishedAt": show_time(world.now)}
    told = [{"name": "erase", "state": {"terminated": ended}}]
    world.eraser["status"] = {"phase": "Failed", "containerStatuses": told}
    world.rest()
    assert left(world) == ["id-1"] and "KeysKept" in world.told


def test_record_that_cannot_be_read_erases_nothing_and_stops_nobody() -> None:
    world = running(DELETE)
    assert world.record is not None
    world.record["data"] = {erasure.RECORD_KEY: "{}"}
    world.delete()
    found = plan_erasure(replace(world.remains(), pods=(), stateful_sets=(), claim=None), SETTINGS)
    assert found.actions == () and "can't be read" in found.sentence
    world.rest()
    world.keys = ""  # erased by hand
    world.create(DELETE)
    world.rest()
    assert all(map(is_ready, world.replicas().values()))


# ---------------------------------------------------------------- the pod


def record(**changes: Any) -> erasure.Record:
    snapshot = running(DELETE).snapshot()
    assert snapshot.resource.spec is not None
    lock = Lock(endpoints=("https://etcd:2379",), prefix="/deathless/prod/", tls_secret="bank-lock-tls")
    found = erasure.record_of(snapshot, snapshot.resource.spec, SETTINGS, lock)
    assert found is not None
    return msgspec.structs.replace(found, **changes)


def test_pod_has_the_secrets_of_the_installation_where_the_store_is_its_own() -> None:
    found = record()
    assert (found.place, found.lock.tls_secret) == (SETTINGS.namespace, SETTINGS.lock_tls_secret)
    assert found.service_id == "ab" * 16
    pod: Any = erasure.eraser_manifest(found, SETTINGS)
    assert pod["metadata"]["namespace"] == SETTINGS.namespace
    assert [volume["secret"]["secretName"] for volume in pod["spec"]["volumes"]] == [SETTINGS.lock_tls_secret]
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert names.LABEL_SERVICE not in pod["metadata"]["labels"], (
        "a new service of the name must not take it for its own"
    )


def test_pod_is_beside_the_secrets_that_the_spec_names() -> None:
    world = LifeWorld()
    etcd = {"endpoints": ["http://mine:2379"], "userSecretRef": {"name": "mine"}, "leaseTtlS": 5}
    world.edit(lock={"etcd": etcd})
    snapshot = world.snapshot()
    assert snapshot.resource.spec is not None
    lock = Lock(endpoints=("http://mine:2379",), prefix="/deathless/prod/", user_secret="mine", lease_ttl_s=5)
    found = erasure.record_of(snapshot, snapshot.resource.spec, SETTINGS, lock)
    assert found is not None and (found.place, found.lock.user_secret) == ("prod", "mine")
    pod: Any = erasure.eraser_manifest(found, SETTINGS)
    order = read_order(pod["spec"]["containers"][0]["args"][2].removeprefix("--order="))
    assert pod["metadata"]["namespace"] == "prod" and order.etcd.password_file == "/etc/deathless-lock-user/password"


def written(world: LifeWorld) -> dict[str, Any]:
    """What the service's record says."""
    child = world.snapshot().record
    assert child is not None
    told: dict[str, Any] = msgspec.json.decode(text(child.raw, "data", erasure.RECORD_KEY))
    return told


def test_pod_runs_where_the_replicas_of_the_service_could() -> None:
    tolerations = [{"key": "dedicated", "operator": "Exists"}]
    template = {"tolerations": tolerations, "nodeSelector": {"disk": "x"}, "imagePullSecrets": [{"name": "theirs"}]}
    world = running(DELETE)
    assert "where" not in written(world), "the record of a service whose pods run anywhere is as it ever was"
    world.edit(podTemplate=template)
    world.rest()
    assert "where" in written(world)
    found = erasure.read_record(world.snapshot().record)
    assert found is not None
    pod: Any = erasure.eraser_manifest(found, SETTINGS)
    assert (pod["spec"]["tolerations"], pod["spec"]["nodeSelector"]) == (tolerations, {"disk": "x"})
    assert "imagePullSecrets" not in pod["spec"], "they lie in the service's namespace, and the pod does not"


def test_two_lives_of_one_name_have_pods_of_two_names() -> None:
    assert erasure.pod_name(record()) != erasure.pod_name(record(uid="another"))


# ---------------------------------------------------------------- whatever happens

MOVES = st.one_of(
    st.tuples(st.just("work"), st.integers(0, 6)),
    st.tuples(st.sampled_from(["work", "collect", "step", "kubelets", "controller", "eraser"]), st.just(99)),
    st.tuples(st.sampled_from(["delete", "orphan", "store", "time"]), st.integers(0, 60)),
    st.tuples(st.just("create"), st.integers(0, 1)),
    st.tuples(st.just("edit"), st.integers(0, 1)),
)


def move(world: LifeWorld, what: str, which: int) -> None:
    """One thing happens."""
    match what:
        case "work":
            world.work(which)
        case "collect":
            world.collect()
        case "step":
            world.step()
        case "kubelets":
            for name in list(world.pods):
                world.run_kubelet(name)
        case "controller":
            world.run_controller()
        case "eraser":
            world.run_eraser()
        case "delete" | "orphan":
            world.delete(orphan=what == "orphan")
        case "store":
            world.store_away = which % 2 == 0
        case "time":
            world.pass_time(which)
        case "create":
            world.create((DELETE, RETAIN)[which])
        case "edit" if world.alive:
            world.edit(logStorage=(DELETE, RETAIN)[which])


@settings(max_examples=100, deadline=None)
@given(begun=st.booleans(), moves=st.lists(MOVES, max_size=40))
def test_wherever_the_operator_dies_keys_go_with_the_log_and_stay_with_it(
    begun: bool, moves: list[tuple[str, int]]
) -> None:
    world = running(DELETE) if begun else LifeWorld()
    for what, which in moves:
        move(world, what, which)
    world.rest()
    check(world)


def check(world: LifeWorld) -> None:
    """At rest keys and log are of one service, and nothing waits."""
    claim = world.children.get(CLAIM)
    assert world.keys == (world.logs.get(claim["metadata"]["uid"], "") if claim else "")
    assert world.eraser is None
    if world.alive:
        assert all(is_ready(pod) and not is_going(pod) for pod in world.replicas().values())
        assert len(world.replicas()) == world.spec["replicas"] and world.plan().actions == ()
        assert (world.record is not None) is (world.spec["logStorage"]["deletionPolicy"] == "Delete")
    else:
        assert world.record is None


def test_safeguard_of_the_claim_is_seen_when_it_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    world = running(DELETE)
    real = LifeWorld.remains
    monkeypatch.setattr(LifeWorld, "remains", lambda world: replace(real(world), claim=None))
    world.delete(orphan=True)
    world.children.pop(("StatefulSet", "bank"))
    with pytest.raises(Broken, match="the log is there"):
        world.rest()


def test_safeguard_of_the_pods_is_seen_when_it_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    world = running(DELETE)
    real = LifeWorld.remains
    monkeypatch.setattr(LifeWorld, "remains", lambda world: replace(real(world), pods=(), claim=None))
    world.delete()
    world.children.pop(("StatefulSet", "bank"))
    world.work()
    with pytest.raises(Broken, match="erased under"):
        world.run_eraser()

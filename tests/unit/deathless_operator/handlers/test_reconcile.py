"""What a look at a service tells Prometheus; `tests/apiserver` looks at services of a real API server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.deathless_operator.handlers.willing import Willing
from tests.unit.deathless_operator.plan.plan_world import SETTINGS, START, World, running

from deathless_operator.cluster.errors import ApiUnreachable
from deathless_operator.cluster.kinds import LIVE_UPGRADE, SERVICE
from deathless_operator.cluster.observe import Seen
from deathless_operator.handlers.metrics import Metrics
from deathless_operator.handlers.reconcile import ServiceReconciler
from deathless_operator.handlers.watches import NodeTable
from deathless_operator.handlers.work_queue import Key
from deathless_operator.model.live_upgrade import LiveUpgradeResource


class Cluster(Willing):
    """Sees one world, or nothing."""

    def __init__(self, world: World) -> None:
        self.world: World | None = world
        self.forgotten = 0
        self.orphans: tuple[LiveUpgradeResource, ...] = ()
        self.written: list[tuple[str, str, str, str]] = []  # of LiveUpgrades: name, version, phase, reason
        self.writes = True

    def forget(self, *_: object) -> None:
        self.forgotten += 1

    async def observe(self, *_: object) -> Seen | None:
        return Seen(snapshot=self.world.snapshot(), version="1") if self.world is not None else None

    async def observe_remains(self, *_: object) -> None:
        return None

    def now(self) -> float:
        return START

    async def live_upgrades(self, *_: object) -> tuple[LiveUpgradeResource, ...]:
        return self.orphans

    async def write_status(self, *told: Any) -> bool:
        subject, version, before, after = told
        if subject.kind is LIVE_UPGRADE and before != after:
            self.written.append((subject.name, version, after.phase, after.reason))
        return self.writes


class Looking:
    """One service that is looked at, and what Prometheus is told of it."""

    def __init__(self, world: World) -> None:
        self.cluster, self.metrics = Cluster(world), Metrics()
        self.reconciler = ServiceReconciler(
            observer=self.cluster,  # type: ignore[arg-type]  # as far as it is asked
            performer=self.cluster,  # type: ignore[arg-type]
            recorder=self.cluster,  # type: ignore[arg-type]
            settings=SETTINGS,
            metrics=self.metrics,
            nodes=NodeTable(),
        )

    def told(self, name: str) -> list[str]:
        asyncio.run(self.reconciler.reconcile(Key(SERVICE.kind, "prod", "bank")))
        start = f"deathless_operator_service_{name}{{"
        return [line for line in self.metrics.text().decode().splitlines() if line.startswith(start)]


def wanted(looking: Looking) -> list[float]:
    return [float(line.rpartition(" ")[2]) for line in looking.told("replicas_wanted")]


def test_replicas_wanted_are_told_until_the_service_is_gone() -> None:
    world = running()
    looking = Looking(world)
    assert wanted(looking) == [3]
    world.edit(replicas=1)
    assert wanted(looking) == [1]
    world.edit(suspend=True)
    assert wanted(looking) == [0]
    looking.cluster.world = None
    assert wanted(looking) == []


def test_what_is_remembered_of_a_service_is_forgotten_when_something_was_done_and_when_it_is_gone() -> None:
    world = running()
    looking = Looking(world)
    wanted(looking)
    assert looking.cluster.forgotten == 0
    world.edit(replicas=1)
    wanted(looking)
    assert looking.cluster.forgotten == 1
    looking.cluster.world = None
    wanted(looking)
    assert looking.cluster.forgotten == 2


def test_what_was_begun_and_broke_off_is_forgotten_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object) -> None:
        raise ApiUnreachable("gone")

    world = running()
    looking = Looking(world)
    monkeypatch.setattr(looking.cluster, "carry_out", broken)
    world.edit(replicas=1)
    with pytest.raises(ApiUnreachable):
        wanted(looking)
    assert looking.cluster.forgotten == 1


def test_service_that_goes_wants_no_replicas_and_has_no_conditions() -> None:
    world = running()
    looking = Looking(world)
    assert any('condition="Ready"' in line for line in looking.told("condition"))
    world.deleted_at = "2027-01-15T08:00:00Z"
    assert (looking.told("condition"), wanted(looking)) == ([], [0])


def test_each_shard_is_told_of() -> None:
    looking = Looking(running({"shards": 2}))
    assert [line.partition("shard=")[2] for line in looking.told("replicas_wanted")] == ['"0"} 3.0', '"1"} 3.0']


def test_a_live_upgrade_is_told_about_with_its_service_and_counted_once_it_ends() -> None:
    world = running()
    world.ask("second", "bank:1")
    looking = Looking(world)
    looking.told("condition")
    assert looking.cluster.written == [("second", "1", "Succeeded", "ServesAlready")]
    ended = 'deathless_operator_live_upgrades_total{namespace="prod",phase="Succeeded",service="bank"} 1.0'
    assert ended in looking.metrics.text().decode().splitlines()


def test_a_live_upgrade_that_was_changed_meanwhile_is_looked_at_again_at_once() -> None:
    world = running()
    world.ask("second", "bank:1")
    looking = Looking(world)
    looking.cluster.writes = False
    found = asyncio.run(looking.reconciler.reconcile(Key(SERVICE.kind, "prod", "bank")))
    assert found.again_in_s == 0.0
    assert b"live_upgrades_total{" not in looking.metrics.text()


def test_a_live_upgrade_of_a_service_that_is_not_there_says_so() -> None:
    world = running()
    world.ask("second", "bank:other")
    looking = Looking(world)
    looking.cluster.orphans = world.snapshot().live_upgrades
    looking.cluster.world = None
    looking.told("condition")
    assert looking.cluster.written == [("second", "1", "Pending", "ServiceMissing")]

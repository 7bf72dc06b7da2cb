"""What a cluster is called, and what it calls others: shards as handshakes name them, services of one by their own."""

from __future__ import annotations

import pytest

from deathless.base.shards import Sharding
from deathless.codec.peer_messages import Target
from deathless.simulation.nodes.surroundings import Surroundings
from deathless.simulation.workload.visits import make_service
from deathless.simulation.world.network import Network, NetworkProfile
from deathless.simulation.world.scheduler import Scheduler

SHARDED = Sharding(shard=1, shards=2, peers={"bee": 3})


def surroundings(sharding: Sharding) -> Surroundings:
    scheduler = Scheduler(1)
    network = Network(scheduler, scheduler.fork("network"), NetworkProfile())
    return Surroundings(scheduler, network, make_service("ant"), {}, sharding)


@pytest.mark.parametrize(
    ("sharding", "name", "target"),
    [(Sharding(), "ant", Target("ant", 0)), (SHARDED, "ant/1/2", Target("ant", 1))],
)
def test_cluster_is_called_by_its_service_or_as_the_shard_that_it_is(
    sharding: Sharding, name: str, target: Target
) -> None:
    beside = surroundings(sharding)
    assert (beside.service_name, beside.target) == (name, target)


@pytest.mark.parametrize(
    ("sharding", "target", "name"),
    [
        (Sharding(), Target("bee", 0), "bee"),
        (SHARDED, Target("ant", 0), "ant/0/2"),
        (SHARDED, Target("bee", 2), "bee/2/3"),
        (SHARDED, Target("cat", 0), "cat"),
    ],
)
def test_others_are_called_as_they_call_themselves(sharding: Sharding, target: Target, name: str) -> None:
    assert surroundings(sharding).name_of(target) == name

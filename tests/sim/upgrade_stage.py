"""What scenarios of upgrades share: an upgrader brought up to date, the order to go, and whoever runs the set.

Guarantees: the same scenario gives the same run. Does not: judge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from tests.sim.stage import SECOND_US, Moment, end, epoch_of, given_up, leads_after, make, primary_of

from deathless.base.errors import UpgradeRequired
from deathless.base.safeguards import Safeguards
from deathless.codec.generations import NEWEST
from deathless.core import events as ev
from deathless.simulation.checkers import Violation
from deathless.simulation.nodes.cluster import LAB_LIMITS, Cluster
from deathless.simulation.nodes.former import SimUpgrade
from deathless.simulation.nodes.replica_node import ReplicaNode
from deathless.simulation.runs.injector import ADMIN_CONN
from deathless.simulation.runs.upgrades import Written, stopped_for_its_code, written
from deathless.simulation.workload.codes import LabCode

ID = b"an upgrade of it"
REFUSED = frozenset({UpgradeRequired.code})
"""What a replica of the former code stops with once the upgrade is made."""

COLLECTING: Final = replace(LAB_LIMITS, segment_bytes_max=1 << 15, checkpoint_every_messages=12)
"""Files end, and the log is collected, all the time."""

Act = Callable[[ReplicaNode], None]


def with_upgrader(
    cluster: Cluster, name: str = "u0", to: LabCode | None = None, *, ahead: int = 0, level: int = NEWEST
) -> ReplicaNode:
    """Start a replica of other code, and wait until the primary streams to it; the rest: see SimUpgrade."""
    worker = primary_of(cluster).worker_node
    assert worker is not None
    code = worker.running_code
    upgrade = SimUpgrade(
        ID, to or cluster.shared.beside.other_code(code), generation_of(cluster), ahead=ahead, level=level
    )
    node = cluster.add_upgrader(name, code, upgrade)
    node.start()
    assert comes_up_to_date(cluster, name), f"{name} is not up to date"
    return node


def comes_up_to_date(cluster: Cluster, name: str) -> bool:
    """Wait until the primary streams to an upgrader. False: it does not come to that."""
    return cluster.run_until(partial(_streams_to, cluster, name), 5 * SECOND_US)


def _streams_to(cluster: Cluster, name: str) -> bool:
    node = cluster.maybe_primary()
    if node is None or node.worker_node is None:
        return False
    primary = node.worker_node.running.core.primary
    return primary is not None and name in primary.stream.upgraders


def go(cluster: Cluster, name: str = "u0", upgrade: bytes = ID) -> None:
    """Have the primary hand over to the upgrader."""
    worker = primary_of(cluster).worker_node
    assert worker is not None
    worker.process.post(lambda: worker.post(ev.SwitchoverOrdered(ADMIN_CONN, 1, name, upgrade)))


def leads(cluster: Cluster, node: ReplicaNode) -> bool:
    """Is this replica the primary?"""
    return cluster.maybe_primary() is node


def upgrade_to(cluster: Cluster, node: ReplicaNode) -> bool:
    """Order an upgrader to go, and wait until it leads. False: it does not come to that."""
    go(cluster, node.name)
    return cluster.run_until(partial(leads, cluster, node), 3 * SECOND_US)


def served(cluster: Cluster, within_us: int = 10 * SECOND_US) -> bool:
    """Wait until somebody leads."""
    return cluster.run_until(lambda: cluster.maybe_primary() is not None, within_us)


def generation_of(cluster: Cluster) -> int:
    """Of the primary's state."""
    worker = primary_of(cluster).worker_node
    assert worker is not None
    return worker.running.place.generation.number


def become(node: ReplicaNode, code: LabCode) -> None:
    """Start a replica again, with this code and to make no upgrade."""
    node.kill_both()
    node.code, node.upgrade = code, None
    node.start()


def follow_suit(cluster: Cluster) -> Written:
    """Have everybody run the code that the log is of, as whoever runs the set does; gives what that is.

    An upgrader whose upgrade was not made becomes a replica like the others.
    """
    found = written(cluster)
    assert found is not None
    for node in cluster.replicas.values():
        waits = node.upgrade is not None and node.upgrade.from_generation == found.generation
        other = node.upgrade is None and node.code.fingerprint != found.code.fingerprint
        if waits or other or stopped_for_its_code(node):
            become(node, found.code)
    return found


def finish_upgrade(cluster: Cluster, *extra: str, generation: int | None = None) -> list[Violation]:
    """Come to the end with the code that the log is of; `generation`: that it must be of."""
    found = follow_suit(cluster)
    wrong = [] if generation in (None, found.generation) else [f"generation {found.generation}, not {generation}"]
    if not served(cluster):
        return given_up(cluster, *extra, *wrong, "nobody leads with the code that the log is of")
    return end(cluster, *extra, *wrong, expected=REFUSED)


def take_over(cluster: Cluster, times: int = 1) -> list[str]:
    """End the primary's worker, so often, and wait for its successor; gives what was wrong."""
    for _ in range(times):
        before = epoch_of(cluster)
        primary_of(cluster).kill_worker()
        if not cluster.run_until(leads_after(cluster, before), 5 * SECOND_US):
            return ["nobody takes over"]
    return []


def stopped_at(
    cluster: Cluster, node: ReplicaNode, point: tuple[str, str, int], act: Act, *, helper: bool = False
) -> Moment:
    """Stop a replica before a call of its file system: operation, part of the path, calls to pass before it."""
    operation, path, skip = point
    return Moment(cluster, node, operation, path, "before", lambda: act(node), skip, helper=helper)


def upgraded_cluster(safeguards: Safeguards, **setup: Any) -> tuple[Cluster, ReplicaNode]:
    """Give a cluster of generation 2, whose other replicas follow suit, and the upgrader, which leads."""
    cluster = make(safeguards, **setup)
    node = with_upgrader(cluster)
    assert upgrade_to(cluster, node), "the upgrade is not made"
    follow_suit(cluster)
    return cluster, node


def wait_for_all(cluster: Cluster, names: Sequence[str]) -> bool:
    """Wait until these replicas' engines run."""
    return cluster.run_until(lambda: {w.host.name for w in cluster.workers()} >= set(names), 5 * SECOND_US)

"""What scenarios share: a cluster brought to the point where its primary serves, ways to stop it there, ways to end it.

Guarantees: the same scenario gives the same run. Does not: judge (the simulation's verdict does).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from deathless.base.safeguards import Safeguards
from deathless.simulation.checkers import Violation
from deathless.simulation.nodes.cluster import LAB_LIMITS, Cluster, Setup
from deathless.simulation.nodes.replica_node import ReplicaNode
from deathless.simulation.runs.run import finish
from deathless.simulation.workload.workload import Request, WorkloadProfile
from deathless.simulation.world.network import NetworkProfile

Scenario = Callable[[Safeguards], list[Violation]]
SECOND_US: Final = 1_000_000
BUSY: Final = WorkloadProfile(
    requests=60,
    window=4,
    reads_share=0.3,
    keyed_share=0.3,
    twice_share=0.0,
    pause_max_us=40_000,
    models=("bank", "counter", "register"),
)
SMALL_FILES: Final = replace(LAB_LIMITS, segment_bytes_max=1 << 15)


def make(safeguards: Safeguards, *, seed: int = 1, **setup: Any) -> Cluster:
    """Give a started cluster whose primary serves."""
    base = Setup(workload=BUSY, safeguards=safeguards, network=NetworkProfile(spike_share=0.0, split_share=0.0))
    cluster = Cluster(seed, replace(base, **setup))
    cluster.start()
    assert cluster.run_until(lambda: cluster.maybe_primary() is not None, 2 * SECOND_US), "nobody became primary"
    cluster.run_for(300_000)
    return cluster


def primary_of(cluster: Cluster) -> ReplicaNode:
    """The primary; there must be one."""
    node = cluster.maybe_primary()
    assert node is not None
    return node


def others_of(cluster: Cluster, node: ReplicaNode) -> list[ReplicaNode]:
    """All other replicas."""
    return [other for other in cluster.replicas.values() if other is not node]


def keep_apart(cluster: Cluster, node: ReplicaNode) -> Callable[[], None]:
    """Replicas and this one hear nothing of each other, clients reach all; gives what ends that."""
    ways = [(a.name, b.name) for other in others_of(cluster, node) for a, b in ((node, other), (other, node))]
    for source, target in ways:
        cluster.network.hold(source, target)

    def heal() -> None:
        for source, target in ways:
            cluster.network.heal(source, target)

    return heal


def epoch_of(cluster: Cluster) -> int:
    """The epoch of the primary."""
    return primary_of(cluster).worker_node.running.core.known_epoch  # type: ignore[union-attr]  # it runs


def end(cluster: Cluster, *extra: str, expected: frozenset[str] = frozenset()) -> list[Violation]:
    """Let a healed cluster come to its end; workers may have stopped with an expected code."""
    try:
        violations = finish(cluster, cluster.scheduler.now_us, expected)
        return [*violations, *(Violation(checker="scenario", text=text) for text in extra)]
    finally:
        cluster.close()


def leads_after(cluster: Cluster, epoch: int) -> Callable[[], bool]:
    """Does somebody lead in a later epoch?"""
    return lambda: cluster.last_epoch > epoch and cluster.maybe_primary() is not None


def given_up(cluster: Cluster, *extra: str) -> list[Violation]:
    """End a cluster that must not go on: only what the scenario itself saw counts."""
    cluster.close()
    return [Violation(checker="scenario", text=text) for text in extra]


class Moment:
    """Stops a replica's worker, or its helper, at its nth call of the file system that fits; `act` says how."""

    def __init__(
        self,
        cluster: Cluster,
        node: ReplicaNode,
        operation: str,
        path: str,
        when: str,
        act: Callable[[], None],
        skip: int = 0,
        *,
        helper: bool = False,
    ) -> None:
        self.hit = False
        self._left = skip
        self._fits = (node.name, operation, when)
        self._path = path
        self._act = act
        self._cluster = cluster
        if helper:
            cluster.shared.gates["helper"] = self
        else:
            cluster.shared.gates["worker"] = self

    def __call__(self, replica: str, operation: str, path: str, when: str) -> None:
        """See Shared.gates."""
        if self.hit or (replica, operation, when) != self._fits or self._path not in path:
            return
        if self._left:
            self._left -= 1
            return
        self.hit = True
        self._act()
        # Being stopped takes effect at the next pause: have one here.
        process = self._cluster.scheduler.current
        assert process is not None
        process.pause(0)


class FirstThere:
    """Stops whichever replica's worker is the first to come to this call of the file system; `act` says how."""

    def __init__(self, cluster: Cluster, operation: str, path: str, act: Callable[[ReplicaNode], None]) -> None:
        self.hit = False
        self._fits = (operation, path, "before")
        self._act = act
        self._cluster = cluster
        cluster.shared.gates["worker"] = self

    def __call__(self, replica: str, operation: str, path: str, when: str) -> None:
        """See Shared.gates."""
        if self.hit or (operation, path, when) != self._fits:
            return
        self.hit = True
        self._cluster.scheduler.call_later(0, lambda: self._act(self._cluster.replicas[replica]))
        process = self._cluster.scheduler.current
        assert process is not None
        process.pause(10)


def request_of(action: str, *, tag: str = "", pause_us: int = 0) -> Request:
    """Something to ask of one counter."""
    argument = None if action == "read" else 1
    return Request(
        model="counter",
        action=action,
        keys=("counter-x",),
        argument=argument,
        tag=tag,
        idempotency_key=b"",
        pause_us=pause_us,
    )


def ask(cluster: Cluster, tag: str, name: str = "victim") -> None:
    cluster.add_client(name, [request_of("add", tag=tag)]).start()


def cut_power(cluster: Cluster) -> None:
    for node in cluster.replicas.values():
        node.lose_power()
    cluster.disk.cut_power()


def restore_power(cluster: Cluster) -> None:
    for node in cluster.replicas.values():
        node.start()

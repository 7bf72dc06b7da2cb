"""Carries a fault plan out on a cluster, and ends every fault.

Guarantees: after the plan's `heal_us` nothing is broken any more: what was frozen goes on, what was killed is back,
links, disks and lock stores work. A copy of the directory stays where it woke up. Does not: draw faults (faults.py
does). May import the simulation's parts.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence

from deathless.base.errors import LogTruncated
from deathless.core import events as ev
from deathless.simulation.nodes.cluster import Cluster
from deathless.simulation.nodes.copies import Copy, draw_copy
from deathless.simulation.nodes.replica_node import ReplicaNode
from deathless.simulation.runs.faults import PRIMARY_TARGET, Fault, FaultKind, FaultPlan

ADMIN_CONN = ev.Conn(1 << 40)
"""A connection that does not exist: answers to what it asks go nowhere."""


class Injector:
    """Hangs a plan on a cluster's clock."""

    def __init__(self, cluster: Cluster, plan: FaultPlan) -> None:
        self._cluster = cluster
        self._frozen: dict[str, int] = {}  # replica -> how many faults freeze it
        self._read_only = 0  # how many faults keep the volume from changing
        for fault in plan.faults:
            self._plan(fault)

    def _plan(self, fault: Fault) -> None:
        self._cluster.scheduler.call_at(fault.at_us, lambda: self._begin(fault))

    def _begin(self, fault: Fault) -> None:
        cluster = self._cluster
        cluster.scheduler.note("fault", str(fault))
        if fault.kind is FaultKind.CLIENT_KILL:
            cluster.clients[fault.target].kill()
            return
        if fault.kind is FaultKind.CLIENT_RESET:
            for end in cluster.network.open_connections(fault.target):
                cluster.network.reset(end)
            return
        if fault.kind is FaultKind.COPY:
            chance = cluster.scheduler.fork(f"{cluster.setup.prefix}copy's profile")
            Copy(cluster, draw_copy(chance, has_peers=bool(cluster.shared.beside.directory)))
            return
        node = self._target(fault)
        end_fault = self._start(fault, node)
        if end_fault is not None:
            ending = end_fault

            def heal() -> None:
                cluster.scheduler.note("fault", f"{fault.kind} {node.name} is over")
                ending()

            cluster.scheduler.call_later(fault.duration_us, heal)

    def _target(self, fault: Fault) -> ReplicaNode:
        cluster = self._cluster
        if fault.target != PRIMARY_TARGET:
            return cluster.replicas[fault.target]
        return cluster.maybe_primary() or cluster.replicas[fault.other]

    def _start(self, fault: Fault, node: ReplicaNode) -> Callable[[], None] | None:
        """Begin a fault on its replica; gives what ends it."""
        cluster = self._cluster
        match fault.kind:
            case FaultKind.KILL:
                node.kill_worker()
            case FaultKind.KILL_BOTH:
                node.kill_both()
                return node.start
            case FaultKind.STOP:
                node.stop()
                return lambda: self._start_again(node)
            case FaultKind.FENCE:
                node.fence(True)
                return lambda: node.fence(False)
            case FaultKind.HANG:
                node.hang(fault.duration_us)
            case FaultKind.POWER_CUT:
                for each in cluster.replicas.values():
                    each.lose_power()
                cluster.disk.cut_power()
                return self._restore_power
            case FaultKind.FREEZE | FaultKind.FREEZE_WORKER:
                return self._freeze(node, supervisor_too=fault.kind is FaultKind.FREEZE)
            case FaultKind.SYNC_ERROR:
                cluster.disk.fail("sync", "log/", number=errno.EIO, view=node.view_name())
                return cluster.disk.heal
            case FaultKind.SLOW_DISK:
                node.weather.slow_us = fault.size
                return lambda: setattr(node.weather, "slow_us", 0)
            case FaultKind.DISK_FULL:
                return self._fill()
            case FaultKind.READ_ONLY:
                return self._remount()
            case FaultKind.SLOW_STORAGE:
                return self._slow_down(fault.size)
            case FaultKind.DEAD_DISK:
                node.set_dead_disk(True)
                return lambda: node.set_dead_disk(False)
            case FaultKind.STALE_LOOKUPS:
                if cluster.lock_store is None:
                    return None  # the lock in the directory is kept off such file systems
                node.set_stale(True)
                return lambda: self._freshen(node)
            case FaultKind.CLOCK_FORWARD | FaultKind.CLOCK_BACK:
                node.clock.jump(fault.size if fault.kind is FaultKind.CLOCK_FORWARD else -fault.size)
            case FaultKind.SLEEP:
                node.clock.sleep(fault.size)
            case FaultKind.LOCK_SILENT:
                return self._silence_lock()
            case FaultKind.LOCK_CUT_OFF:
                node.set_lock_reachable(False)
                return lambda: node.set_lock_reachable(True)
            case FaultKind.STEAL:
                steal(self._cluster)
            case FaultKind.SWITCHOVER:
                self._switch_over(node)
            case _:
                return self._start_network(fault, node)
        return None

    def _start_network(self, fault: Fault, node: ReplicaNode) -> Callable[[], None] | None:
        network = self._cluster.network
        others = [name for name in self._cluster.replicas if name != node.name]
        match fault.kind:
            case FaultKind.PARTITION:
                pairs = [pair for other in others for pair in ((node.name, other), (other, node.name))]
                if fault.at_us % 2:  # clients are cut off as well
                    strangers = [*self._cluster.clients, *self._cluster.outsiders]
                    pairs += [p for c in strangers for p in ((node.name, c), (c, node.name))]
                for source, target in pairs:
                    network.hold(source, target)
                return lambda: self._heal(pairs)
            case FaultKind.PARTITION_ONE_WAY | FaultKind.CUT:
                other = fault.other if fault.other != node.name else next(iter(others), node.name)
                (network.cut if fault.kind is FaultKind.CUT else network.hold)(node.name, other)
                return lambda: network.heal(node.name, other)
            case FaultKind.RESET | FaultKind.HALF_OPEN:
                for end in network.open_connections(node.name):
                    network.reset(end, half_open=fault.kind is FaultKind.HALF_OPEN)
                return None
            case FaultKind.SLOW_NETWORK:
                network.slow(node.name, fault.size)
                return lambda: network.slow(node.name, 0)
            case _:
                raise AssertionError(f"nobody carries {fault.kind} out")

    def _heal(self, pairs: Sequence[tuple[str, str]]) -> None:
        for source, target in pairs:
            self._cluster.network.heal(source, target)

    def _freshen(self, node: ReplicaNode) -> None:
        """Names are looked up again; an operator starts what found files missing that were there."""
        node.set_stale(False)
        supervisor = node.supervisor_node
        if supervisor is not None and supervisor.machine.report.condition == LogTruncated.code:
            node.kill_both()
            node.start()

    def _start_again(self, node: ReplicaNode) -> None:
        """What has not come to its end by now is ended; then it starts."""
        if node.stopping:
            node.kill_both()
        node.start()

    def _restore_power(self) -> None:
        for node in self._cluster.replicas.values():
            node.start()

    def _freeze(self, node: ReplicaNode, *, supervisor_too: bool) -> Callable[[], None]:
        self._frozen[node.name] = self._frozen.get(node.name, 0) + 1
        node.freeze(supervisor_too=supervisor_too)

        def thaw() -> None:
            self._frozen[node.name] -= 1
            if not self._frozen[node.name]:
                node.thaw()

        return thaw

    def _fill(self) -> Callable[[], None]:
        disk = self._cluster.disk
        capacity = self._cluster.setup.capacity_bytes
        disk.capacity_bytes = disk.used_bytes()

        def empty() -> None:
            disk.capacity_bytes = capacity

        return empty

    def _remount(self) -> Callable[[], None]:
        disk = self._cluster.disk
        disk.read_only = True
        self._read_only += 1

        def writable() -> None:
            self._read_only -= 1
            disk.read_only = self._read_only > 0

        return writable

    def _slow_down(self, slow_us: int) -> Callable[[], None]:
        """Every machine's syncs wait as long; where two such faults overlap, their times add up."""
        weathers = [node.weather for node in self._cluster.replicas.values()]
        for weather in weathers:
            weather.all_slow_us += slow_us

        def quicken() -> None:
            for weather in weathers:
                weather.all_slow_us -= slow_us

        return quicken

    def _silence_lock(self) -> Callable[[], None] | None:
        store = self._cluster.lock_store
        if store is None:
            return None
        silent = store
        silent.available = False

        def answer() -> None:
            silent.available = True

        return answer

    def _switch_over(self, node: ReplicaNode) -> None:
        worker = node.worker_node
        if worker is not None and worker.engine is not None and worker.engine.core.primary is not None:
            worker.process.post(lambda: worker.post(ev.SwitchoverOrdered(ADMIN_CONN, 1, "")))


def steal(cluster: Cluster) -> None:
    """Have a standby take over though the primary lives."""
    worker = cluster.maybe_follower()
    if worker is not None:
        epoch = worker.running.core.known_epoch
        worker.process.post(lambda: worker.post(ev.TakeoverOrdered(epoch, "stolen by the plan")))

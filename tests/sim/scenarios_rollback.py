"""Scenarios of storage that is put back to an older moment: the witness of what is confirmed tells.

Each takes a copy of the disk while the service runs, lets more calls be answered, ends all replicas in one way, puts
the copy back and starts them again. Who serves then has lost what was answered in between.
"""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

from tests.sim.stage import SECOND_US, end, given_up, make, others_of, primary_of

from deathless.base.safeguards import Safeguards
from deathless.simulation.checkers import Violation
from deathless.simulation.nodes.cluster import Cluster
from deathless.simulation.nodes.replica_node import ReplicaNode

NEVER_S = 1e6


def _answered(cluster: Cluster) -> int:
    """The last lsn that is confirmed."""
    worker = primary_of(cluster).worker_node
    assert worker is not None
    return worker.running.core.confirmed_lsn


def _put_back(safeguards: Safeguards, *, fence: str, how: str, witness_s: float | None = None) -> list[Violation]:
    """Put the disk back behind confirmed calls, and see who serves.

    Args:
        safeguards: of the run.
        fence: seal (the lock is in the directory and goes back with it) or etcd (the store stays as it is).
        how: all end by `power`, `kill` or `stop`; the primary is the last to stop.
        witness_s: between two points in the lock store, seconds; None: as always.
    """
    cluster = make(safeguards, fence=fence)
    if witness_s is not None:
        _set_interval(cluster, witness_s)
    before = _answered(cluster)
    kept = copy.deepcopy(cluster.disk.folders)
    assert cluster.run_until(lambda: _answered(cluster) > before + 5, 2 * SECOND_US), "nothing was answered"
    if how == "power":
        cluster.run_for(2 * SECOND_US)
    first = primary_of(cluster)
    for node in (*others_of(cluster, first), first):
        {"power": node.lose_power, "kill": node.kill_both, "stop": node.stop}[how]()
        if how == "stop":
            assert cluster.run_until(partial(_has_ended, node), 5 * SECOND_US)
    return _put_copy_back(cluster, kept, power=how != "kill")


def _has_ended(node: ReplicaNode) -> bool:
    return not node.supervisor.alive


def _put_copy_back(cluster: Cluster, kept: Any, *, power: bool) -> list[Violation]:
    """With all ended: the disk is as it was, and all are started; whoever serves has lost answered calls."""
    if power:  # what only a machine's memory knows is gone
        for node in cluster.replicas.values():
            node.lose_power()
    cluster.disk.folders = kept
    for node in cluster.replicas.values():
        node.set_unheard("")
        node.set_stale(False)
        node.start()
    cluster.run_for(5 * SECOND_US)
    served = cluster.maybe_primary() is not None
    return given_up(cluster, *(["somebody serves without calls that were answered"] if served else []))


def _set_interval(cluster: Cluster, witness_s: float) -> None:
    for worker in cluster.workers():
        worker.running.witness.set_interval(witness_s)


def log_put_back_after_a_power_cut(safeguards: Safeguards) -> list[Violation]:
    """Every machine lost power, no page is left: the lock store knows."""
    return _put_back(safeguards, fence="etcd", how="power")


def log_put_back_after_an_orderly_stop(safeguards: Safeguards) -> list[Violation]:
    """The lock store's point is old, but for the one that the stop itself wrote."""
    return _put_back(safeguards, fence="etcd", how="stop", witness_s=NEVER_S)


def log_put_back_after_a_successor_ended(safeguards: Safeguards) -> list[Violation]:
    """The primary is stopped: the successor hears that it leads and takes the lock, and ends before it leads.

    What the primary wrote of its last place did not get to the lock store until then, which refuses it from then on.
    """
    cluster = make(safeguards, fence="etcd")
    _set_interval(cluster, NEVER_S)
    before, first = _answered(cluster), primary_of(cluster)
    kept = copy.deepcopy(cluster.disk.folders)
    assert cluster.run_until(lambda: _answered(cluster) > before + 5, 2 * SECOND_US), "nothing was answered"
    first.set_unheard("witness")
    for node in others_of(cluster, first):
        node.set_unheard("set_head")
    first.stop()
    store = cluster.shared.lock_store
    assert store is not None
    epoch = store.read().epoch
    cluster.run_until(lambda: store.read().epoch > epoch, SECOND_US)
    for node in others_of(cluster, first):
        node.kill_both()
    first.set_unheard("")
    assert cluster.run_until(partial(_has_ended, first), 10 * SECOND_US), "the primary did not stop"
    return _put_copy_back(cluster, kept, power=True)


def directory_put_back_with_its_lock(safeguards: Safeguards) -> list[Violation]:
    """The lock went back with the log: the pages of the machine, which was not switched off, know."""
    return _put_back(safeguards, fence="seal", how="kill")


def killed_again_and_again(safeguards: Safeguards) -> list[Violation]:
    """Nothing was put back: kills and power cuts of all, in turn, never make a witness refuse a log that is whole."""
    cluster = make(safeguards, fence="etcd")
    for round_number in range(4):
        cluster.run_for(300_000)
        for node in cluster.replicas.values():
            if round_number % 2:
                node.lose_power()
            else:
                node.kill_both()
        cluster.run_for(50_000)
        for node in cluster.replicas.values():
            node.start()
        assert cluster.run_until(lambda: cluster.maybe_primary() is not None, 20 * SECOND_US), "a false refusal"
    return end(cluster)

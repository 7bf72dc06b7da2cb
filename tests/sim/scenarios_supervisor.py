"""Scenarios of a replica's supervisor: workers that hang, sleep, are fenced or superseded, or do not end when told."""

from __future__ import annotations

from tests.sim.stage import SECOND_US, end, leads_after, make, others_of, primary_of

from deathless.base.limits import END_S, STOP_MAX_S
from deathless.base.safeguards import Safeguards
from deathless.core.supervisor.machine import State
from deathless.core.supervisor.records import RoleIs
from deathless.simulation.checkers import Violation
from deathless.simulation.nodes.cluster import Cluster
from deathless.simulation.nodes.replica_node import ReplicaNode
from deathless.simulation.nodes.supervisor_node import SupervisorNode

STOP_US = round((STOP_MAX_S + END_S + 1) * SECOND_US)


def supervisor_of(node: ReplicaNode) -> SupervisorNode:
    """Its supervisor; there must be one."""
    assert node.supervisor_node is not None
    return node.supervisor_node


def turn_us(cluster: Cluster) -> int:
    """`turn_max_s`, and time for a heartbeat or two."""
    return round((cluster.setup.limits.turn_max_s + 1) * SECOND_US)


def still_loop(safeguards: Safeguards) -> list[Violation]:
    """The primary's loop stands still for a minute, in no message and no call of the storage: it is ended for that."""
    cluster = make(safeguards)
    node, epoch = primary_of(cluster), cluster.last_epoch
    life = node.worker.generation
    node.hang(60 * SECOND_US)
    cluster.run_for(turn_us(cluster))
    ended = node.worker.generation > life
    goes_on = cluster.run_until(leads_after(cluster, epoch), 3 * SECOND_US) if ended else False
    deaths = supervisor_of(node).report.deaths
    node.kill_worker()
    return end(
        cluster,
        *([] if ended else ["a worker in which nothing moves is never ended"]),
        *([] if goes_on or not ended else ["nobody goes on"]),
        *(["its death is counted against a message"] if deaths else []),
    )


def frozen_whole(safeguards: Safeguards) -> list[Violation]:
    """A replica is frozen whole, for longer than any turn may take; it goes on as it was."""
    cluster = make(safeguards)
    node = others_of(cluster, primary_of(cluster))[0]
    life = node.worker.generation
    node.hang(5 * SECOND_US)
    cluster.run_for(200_000)
    node.freeze(supervisor_too=True)
    cluster.run_for(2 * turn_us(cluster))
    node.thaw()
    cluster.run_for(200_000)
    gone = node.worker.generation > life
    return end(cluster, *(["a worker is ended for having slept"] if gone else []))


def stopped_at_an_ordered_stop(safeguards: Safeguards) -> list[Violation]:
    """A worker that a signal stopped can't end in order: at the deadline it is killed, and the supervisor leaves."""
    cluster = make(safeguards)
    node = others_of(cluster, primary_of(cluster))[0]
    node.freeze(supervisor_too=False)
    cluster.run_for(200_000)
    node.stop()
    cluster.run_for(STOP_US)
    left = not node.supervisor.alive
    node.thaw()
    node.kill_both()
    node.start()
    return end(cluster, *([] if left else ["an ordered stop never ends"]))


def fenced_in_a_message(safeguards: Safeguards) -> list[Violation]:
    """A fenced worker that does not end, in the middle of a message, is killed: no message is to blame for that."""
    cluster = make(safeguards)
    node = others_of(cluster, primary_of(cluster))[0]
    node.freeze(supervisor_too=False)
    cluster.run_for(200_000)
    assert node.page is not None
    node.page.running.enter(5, 8)
    node.fence(True)
    cluster.run_for(STOP_US)
    supervisor = supervisor_of(node)
    state, deaths = supervisor.machine.state, supervisor.report.deaths
    node.fence(False)
    node.thaw()
    return end(
        cluster,
        *([] if state is State.HELD else [f"the fenced replica is {state}"]),
        *(["a message is held responsible for what an operator ordered"] if deaths else []),
    )


def fence_comes_and_goes(safeguards: Safeguards) -> list[Violation]:
    """The primary is fenced: it hands over, and stays stopped until the fence is gone."""
    cluster = make(safeguards)
    node, epoch = primary_of(cluster), cluster.last_epoch
    node.fence(True)
    handed_over = cluster.run_until(leads_after(cluster, epoch), 3 * SECOND_US)
    lives = []
    for _ in range(20):
        cluster.run_for(100_000)
        lives += [node.worker.generation] if node.worker.alive else []
    supervisor = supervisor_of(node)
    state, role = supervisor.machine.state, supervisor.report.role
    node.fence(False)
    back = cluster.run_until(lambda: supervisor_of(node).report.role == "standby", 3 * SECOND_US)
    return end(
        cluster,
        *([] if handed_over else ["a fenced primary does not hand over"]),
        *([f"a fenced replica runs workers: {lives}"] if lives else []),
        *([] if (state, role) == (State.HELD, "fenced") else [f"it says that it is {state}, {role}"]),
        *([] if back else ["it does not come back without the fence"]),
    )


def superseded(safeguards: Safeguards) -> list[Violation]:
    """A later instance of the primary's replica runs: this one stops, waits for nothing, and stays stopped."""
    cluster = make(safeguards)
    node, epoch = primary_of(cluster), cluster.last_epoch
    node.be_superseded("later")
    went_on = cluster.run_until(leads_after(cluster, epoch), 3 * SECOND_US)
    report = supervisor_of(node).report
    told = (report.condition, report.role, node.worker.alive)
    node.kill_both()
    node.start()
    return end(
        cluster,
        *([] if went_on else ["nobody goes on"]),
        *([] if told == ("DL2002", "dead", False) else [f"it says {told}"]),
    )


def late_words(safeguards: Safeguards) -> list[Violation]:
    """What a former life of the worker said arrives once the next one runs: nobody listens."""
    cluster = make(safeguards)
    node = others_of(cluster, primary_of(cluster))[0]
    life = node.worker.generation
    node.kill_worker()
    assert cluster.run_until(lambda: supervisor_of(node).report.role == "standby", 3 * SECOND_US)
    supervisor_of(node).worker_said(life, RoleIs("primary", 1 << 30, "", 1 << 40))
    report = supervisor_of(node).report
    return end(
        cluster,
        *([] if (report.role, report.epoch < 1 << 30) == ("standby", True) else ["a dead worker is listened to"]),
    )

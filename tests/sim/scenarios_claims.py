"""Scenarios around what replicas say of themselves: one of them, or somebody in its name, reports what is not so."""

from __future__ import annotations

from tests.sim.stage import SECOND_US, end, epoch_of, leads_after, make, others_of, primary_of

from deathless.base.safeguards import Safeguards
from deathless.codec.wire import Hello, Type, struct_packet
from deathless.core.supervisor.detection import Report, WorkerState
from deathless.simulation.checkers import Violation
from deathless.simulation.nodes.cluster import Cluster
from deathless.simulation.workload.lab import SERVICE_NAME
from deathless.simulation.world.scheduler import Process
from deathless.simulation.world.sockets import Opened

ROUNDS = 24
PAUSE_US = 50_000
OFTEN_US = 5_000  # more often than a true report comes
FAR = 1 << 62


def _connect(cluster: Cluster, process: Process, to: str, name: str) -> Opened:
    return Opened(
        cluster.network,
        process,
        f"{to}:3",
        Hello(1, "supervisor", SERVICE_NAME, name),
        received=lambda _packets: None,
        ready=lambda: None,
        lost=lambda: None,
    )


def liar(safeguards: Safeguards) -> list[Violation]:
    """A supervisor reports a wrong lsn, epoch, role and health of its replica, and reports of the others as well.

    The primary, which is well, is not deposed. It dies while the liar speaks; once the liar is gone somebody leads.
    """
    cluster = make(safeguards)
    node = primary_of(cluster)
    before = epoch_of(cluster)
    broken, *honest = others_of(cluster, node)
    broken.kill_both()
    process = cluster.scheduler.process("liar", "liar", lambda _process, _error: None)
    process.start(lambda: None)

    running, dead = WorkerState.RUNNING, WorkerState.DEAD
    of_itself = [
        Report(broken.name, running, "standby", 1, FAR, pid=9),
        Report(broken.name, running, "standby", FAR, 1, pid=9),
        Report(broken.name, running, "taking-over", before, 1, pid=9),
        Report(broken.name, running, "primary", FAR, FAR, client="x:1", replication="x:2", pid=9),
        Report(broken.name, WorkerState.STUCK, "recovering", 0, 0, pid=9),
    ]
    of_others = [
        Report(node.name, dead, "dead", before, 1),
        Report(node.name, running, "standby", before, 1, generation=FAR),
        Report(honest[0].name, running, "primary", before + 1, 1, client="x:1", replication="x:2"),
    ]

    def lie(reports: list[Report], pause_us: int = PAUSE_US) -> None:
        links = [_connect(cluster, process, each.name, broken.name) for each in (node, *honest)]
        for number in range(ROUNDS):
            for link in links:
                link.send(struct_packet(Type.REPORT, reports[number % len(reports)]))
            cluster.run_for(pause_us)
        for link in links:
            link.close()

    lie(of_itself)
    for each in of_others:
        lie([each], OFTEN_US)
    told = [] if cluster.last_epoch == before else ["a primary that was well was deposed by what a liar reported"]
    node.kill_worker()
    lie(of_itself)
    if not cluster.run_until(leads_after(cluster, before), 15 * SECOND_US):
        told.append("nobody led once the liar was gone")
    broken.start()
    return end(cluster, *told)

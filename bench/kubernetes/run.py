"""Measures on the cluster of the tests: `python -m bench.kubernetes.run [--only NAME ...] [--rounds N] [--list]`.

Four callers go through the Service all the time; a fault happens. Two times are counted, both as users meet them: from
the last good answer before the fault to the first one after it, to anybody; and the longest that any caller waited for
one call, all its attempts together. A fault is applied from the node, and the clock of the callers is the machine's, so
nothing is compared across clocks. What a round begins with is `kubernetes_faults.make_whole`.

Each group is written into bench/results/kubernetes.json and docs/benchmarks-kubernetes.md when it ends, beside those of
earlier calls; a group that broke keeps its former figures, and the page says why. A cluster that runs is used as it is
and stays; where none runs, one is started, with our images built and in it, and ended afterwards.

Guarantees: a figure counts only when afterwards no call was lost or doubled. Does not: build images for a cluster that
runs unless told to.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from lab.cluster.machine import sole_use
from lab.cluster.provider import NoCluster, choose
from lab.kubernetes import GoMissing
from tests.cluster.front_door import Callers
from tests.cluster.installed import NAMESPACE, Lab, Ledger, build_images, install

from bench.figures import Figure, Goal, figure, median
from bench.kubernetes.faults import (
    Break,
    crash,
    delete,
    delete_with_leader,
    drain,
    freeze,
    kill,
    make_whole,
    switch,
    unplug,
)
from bench.kubernetes.look import Look
from bench.kubernetes.operator_load import How, Measured, apply_to_ready, install_to_ready, many_services
from bench.kubernetes.results import ClusterResults, Group, cluster_page, write_group, write_left_out
from bench.machine import describe
from bench.report import line

ROOT: Final = Path(__file__).resolve().parents[2]
RESULTS: Final = ROOT / "bench" / "results" / "kubernetes.json"
PAGE: Final = ROOT / "docs" / "benchmarks-kubernetes.md"
HEAD: Final = """# Benchmarks on Kubernetes

`make bench-cluster` writes this page and `bench/results/kubernetes.json`; no number is typed by hand. The figures come
from a real cluster on one machine: a control plane (whose own etcd does not sync to disk) and three workers, three
replicas of a service whose log is on a shared volume, an etcd of three members as lock store, and TLS everywhere. A
replica requests one core ([how much it needs](kubernetes/operations.md#how-much-cpu-a-replica-should-ask-for); a fifth
of one before 2026-11-24 12:00 UTC). Four callers, which pause for 50 ms between two calls and use 500 keys (20 ms and
5 keys before 2026-11-23 14:00 UTC), call through the Service with the time-outs named in
[callers](kubernetes/callers.md#what-a-caller-should-set). For each fault there are two kinds of figures: the time in
which **nobody** got a good answer, and the longest time that **one call** took, with all its attempts: a caller whose
connection went to a node that is gone also waits for its own time-outs. Before each round every replica is Ready, and
each worker has one replica and one member of the lock store. The lock store's leader is on another node than the
primary unless the line says otherwise. Then five seconds pass. kube-proxy acts on a change at once (`minSyncPeriod` 20
ms; its default of 1 s would add up to 1 s to the time of one call). The column of peers shows what the named projects
publish as budgets or defaults, or what was measured on another cluster, as the figure's name or note says; none was
measured in the same run.

"""
TAIL: Final = """
## Where the peers' figures come from

- CloudNativePG's test budgets: its repository, `tests/e2e/fastfailover_test.go` and `docs/src/e2e.md`.
- CloudNativePG's isolated primary: github.com/cloudnative-pg/cloudnative-pg/pull/11518, where a maintainer cut off a
  primary's node from the API server and from its peer on a local cluster: with the default `smartShutdownTimeout` of
  180 s, a session that was open continued to commit until about 185 s after the cut. This is not a time without
  answers, but the time for which the old primary still confirmed writes. In Deathless, a primary that is cut off
  confirms nothing once another leads.
- Patroni's ttl: its default, `docs/dynamic_configuration.rst`; a node that crashed is replaced after that time.
- kopf: version 1.45.2 with a handler that patches a status and does nothing else, on a real API server and two cores,
  measured separately from this page. It created and patched 180 objects a second at 500 objects (so 200 of them in
  1.1 s), had processed 530 again 1.1 s after a restart, and then used 132 MB of memory. Deathless is built on kopf, so
  this is a floor: what is above it is the cost of looking at the services.
"""
PAUSE_S: Final = 0.05  # of a caller between two calls: all nodes share the machine's cores with them
KEYS: Final = 500  # a key's state, and so its handler's time, grows with each call of it
RESOURCES: Final = {"requests": {"cpu": "1", "memory": "128Mi"}}  # a takeover is work: see the page
CALLS: Final = 50  # answered before a fault and after it
ROUNDS_MIN: Final = 5  # of a fault, however long they take
PEERS_KILL: Final[dict[str, float | None]] = {"CloudNativePG's test budget": 10.0, "Patroni's ttl": 30.0}
PEERS_NODE: Final[dict[str, float | None]] = {"CloudNativePG's test budget, low": 20.0, "high": 60.0}
PEERS_CUT: Final[dict[str, float | None]] = {
    **PEERS_NODE,
    "CloudNativePG's isolated primary commits for (measured elsewhere)": 185.0,
}
PEERS_SWITCH: Final[dict[str, float | None]] = {"CloudNativePG's test budget": 20.0}
LEADER: Final = "with the lock store's leader"
BUSY: Final = (
    "Two cores run all nodes, their kubelets, the API server, the operator and the start of the pod that replaces the "
    "old one, all at the moment of the takeover, besides whatever else the machine does (see load)."
)
REASONS: Final[dict[str, str]] = {
    "delete": f"{BUSY} For a moment, the kubelet also ends such a pod gracefully while its replacement starts.",
    "switchover": f"{BUSY} Attempts that failed took longer than the second that a caller allows for one.",
    "drain": f"{BUSY} Attempts that failed took longer than the second that a caller allows for one.",
    "drain-leader": f"{BUSY} Attempts that failed took longer than the second that a caller allows for one.",
}
"""Why a goal is missed, by group; told on the page where one is."""


def say(text: str) -> None:
    """Tell progress."""
    print(text, file=sys.stderr, flush=True)


class Rounds:
    """What was found, round by round."""

    def __init__(self) -> None:
        self.nobody_s: list[float] = []  # nobody got a good answer
        self.one_s: list[float] = []  # the longest call
        self.failures: list[str] = []  # what attempts ended in that were repeated, of the rounds alone
        self.between = 0  # others, while the cluster was made whole again: pods are moved for that
        self.problem = ""

    def run(self, cluster: Lab, fault: Fault, how: How) -> None:
        """Break the primary again and again."""
        end = time.monotonic() + how.within_s
        with Ledger(cluster, f"bench-{fault.name}", resources=RESOURCES) as ledger:
            ledger.wait_ready()
            look = Look(cluster, ledger.namespace, "deathless.dev/service=ledger,deathless.dev/replica")
            with Callers(ledger.door(), keys=KEYS, pause_s=PAUSE_S) as callers:
                for number in range(how.rounds):
                    if number >= ROUNDS_MIN and time.monotonic() > end:
                        break
                    seen = len(self.failures)
                    before = len(callers.failures)
                    make_whole(ledger, leader_with_primary=fault.with_leader)
                    self.between += len(callers.failures) - before
                    self._once(ledger, look, callers, fault.break_it)
                    say(
                        f"  {fault.name} {number + 1}/{how.rounds}: {self.nobody_s[-1] * 1000:.0f} ms, one call "
                        f"{self.one_s[-1] * 1000:.0f} ms, load {os.getloadavg()[0]:.1f}; {self.failures[seen:]}"
                    )
            try:
                callers.check_exactly_once()
            except AssertionError as error:
                self.problem = str(error)

    def _once(self, ledger: Ledger, look: Look, callers: Callers, break_it: Break) -> None:
        callers.wait_more(CALLS)
        old, epoch, failed = ledger.primary(), look.epoch(), len(callers.failures)
        with ExitStack() as stack:
            since = time.monotonic()
            break_it(ledger, old, stack)
            look.wait(lambda: look.epoch() > epoch, "somebody leads")
            callers.wait_more(CALLS)
            callers.wait_each()
            self.nobody_s.append(callers.longest_gap_s(since - 0.1))
            self.one_s.append(callers.longest_wait_s(since))
            self.failures += callers.failures[failed:]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One kind of fault; goals in seconds without a good answer to anybody, None: there is none."""

    name: str
    title: str
    break_it: Break
    p50: float | None = None
    worst: float | None = None
    peers: dict[str, float | None] | None = None
    no_failure: bool = False  # no attempt may fail
    with_leader: bool | None = None  # see `make_whole`


def broken(fault: Fault, cluster: Lab, how: How) -> Measured:
    """The figures of one fault: median and worst, for anybody and for one call."""
    found = Rounds()
    found.run(cluster, fault, how)
    kinds = Counter(" ".join(text.split()[:1]).strip(":,{") for text in found.failures)
    told = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    note = found.problem or f"none lost, none doubled; attempts that failed and were repeated: {told or 'none'}"
    note += f"; between rounds, while pods were moved: {found.between}" if found.between else ""
    figures, prefix = [], f"k8s_{fault.name.replace('-', '_')}"
    for kind, text, samples, goals, peers in (
        ("", "nobody was answered", found.nobody_s, (fault.p50, fault.worst), fault.peers),
        ("_one", "one call", found.one_s, (None, None), None),
    ):
        for which, value, goal in (("p50", median(samples), goals[0]), ("worst", max(samples), goals[1])):
            judged = figure(
                f"{prefix}{kind}_{which}_s", f"{fault.title}: {text}, {which}", value, "s",
                samples=len(samples), peers=peers, goal=Goal("at most", goal) if goal is not None else None, note=note,
            )  # fmt: skip
            if found.problem and judged.goal is not None:
                judged.goal_met = False
            figures.append(judged)
    if fault.no_failure:
        title = f"{fault.title}: attempts that failed"
        failed = figure(
            f"{prefix}_failed",
            title,
            len(found.failures),
            "",
            samples=len(found.nobody_s),
            goal=Goal("at most", 0),
        )
        figures.append(failed)
    return figures, {"nobody": found.nobody_s, "one call": found.one_s}


Work = Callable[[Lab, How], Measured]


FAULTS: Final = (
    Fault(name="kill", title="process kill -9", break_it=kill, p50=0.5, worst=1.5, peers=PEERS_KILL),
    Fault(name="delete", title="pod deleted with grace 0", break_it=delete, worst=1.0, peers=PEERS_NODE),
    Fault(name="switchover", title="planned switchover", break_it=switch, p50=0.3, peers=PEERS_SWITCH, no_failure=True),
    Fault(
        name="drain", title="drain of the primary's node", break_it=drain, p50=0.3, no_failure=True, with_leader=False,
    ),
    Fault(
        name="drain-leader", title=f"drain of the primary's node {LEADER}", break_it=drain, p50=0.3, no_failure=True,
        with_leader=True,
    ),
    Fault(name="crash", title="node crash", break_it=crash, worst=2.0, peers=PEERS_NODE, with_leader=False),
    Fault(name="freeze", title="node freeze", break_it=freeze, worst=2.0, peers=PEERS_NODE, with_leader=False),
    Fault(name="unplug", title="node unplugged", break_it=unplug, worst=2.0, peers=PEERS_CUT, with_leader=False),
    Fault(
        name="leader", title=f"node crash {LEADER}", break_it=crash, worst=4.0, peers=PEERS_NODE, with_leader=True,
    ),
    Fault(
        name="freeze-leader", title=f"node freeze {LEADER}", break_it=freeze, worst=4.0, peers=PEERS_NODE,
        with_leader=True,
    ),
    Fault(
        name="unplug-leader", title=f"node unplugged {LEADER}", break_it=unplug, worst=4.0, peers=PEERS_CUT,
        with_leader=True,
    ),
    Fault(
        name="delete-leader", title=f"pod deleted with grace 0 {LEADER}'s pod", break_it=delete_with_leader, worst=4.0,
        peers=PEERS_NODE, with_leader=True,
    ),
)  # fmt: skip
GROUPS: Final[dict[str, Work]] = {
    **{fault.name: partial(broken, fault) for fault in FAULTS},
    "apply": apply_to_ready,
    "install": install_to_ready,
    "many": many_services,
}
"""In the order of how much a reader wants to know them."""


def measure(cluster: Lab, name: str, how: How) -> Group:
    """Measure one group; what went wrong is told in its place."""
    machine, began = describe(ROOT, quick=False), time.monotonic()
    try:
        figures, samples = GROUPS[name](cluster, how)
    except Exception as error:  # noqa: BLE001  the other figures must not be lost with one
        reason = f"left out: {type(error).__name__}: {str(error).splitlines()[0]}"
        figures, samples = [Figure(name=name, title=name, value=None, unit="", note=reason)], {}
    return Group(
        began=machine.began,
        took_s=round(time.monotonic() - began, 1),
        commit=machine.commit,
        load_before=machine.load_before,
        load_after=round(os.getloadavg()[0], 2),
        figures=figures,
        samples={what: [round(each, 4) for each in found] for what, found in samples.items()},
    )


@contextmanager
def running(*, build: bool) -> Iterator[Lab]:
    """A cluster with ours in it; one that had to be started for this is ended afterwards.

    Args:
        build: build and load our images though the cluster runs, and have the operator of them.

    Raises:
        NoCluster, GoMissing: this machine can run none; the message says why.
    """
    cluster = choose()
    was_running = cluster.running()
    try:
        if not was_running:
            say("no cluster runs: one is started, and ended afterwards")
            cluster.up()
        if build or not was_running:
            with tempfile.TemporaryDirectory(prefix="deathless-bench-") as scratch:
                for archive in build_images(Path(scratch)):
                    cluster.load_image(archive)
            install(cluster)
            cluster.kubectl("-n", NAMESPACE, "rollout", "restart", "deployment/deathless-operator")
            cluster.wait_rolled_out(NAMESPACE, "deployment/deathless-operator")
        yield cluster
    finally:
        cluster.hang_up()
        if not was_running:
            cluster.down()


def keep(name: str, group: Group) -> None:
    """Write a group and the page; of one that broke the reason alone, beside its former figures."""
    machine, order = describe(ROOT, quick=False), list(GROUPS)
    if any(each.value is not None for each in group.figures):
        results = write_group(RESULTS, machine, name, group, order)
    else:
        results = write_left_out(RESULTS, machine, name, group, order)
    PAGE.write_text(the_page(results), encoding="utf-8")


def the_page(results: ClusterResults) -> str:
    """The whole page."""
    return cluster_page(results, HEAD, REASONS, list(GROUPS)) + TAIL


def main(given: list[str] | None = None) -> int:
    """Measure and write. Returns: 0; 1 when a figure was left out; 3 where no cluster can run, and one line why."""
    parser = argparse.ArgumentParser(prog="python -m bench.kubernetes.run", description="Measure on a real cluster.")
    parser.add_argument("--only", nargs="+", choices=list(GROUPS), metavar="NAME", help="these groups alone")
    parser.add_argument("--rounds", type=int, default=20, help="of each fault; 20 when left out")
    parser.add_argument("--within-s", type=float, default=3600.0, help="seconds after which a fault has no more rounds")
    parser.add_argument("--build", action="store_true", help="build and load the images first")
    parser.add_argument("--dry", action="store_true", help="write nothing")
    parser.add_argument("--list", action="store_true", help="print the names of all groups")
    options = parser.parse_args(given, namespace=How())
    if options.list:
        print("\n".join(GROUPS))
        return 0
    left_out = False
    try:
        with sole_use("the benchmarks"), running(build=options.build) as cluster:
            for name in options.only or GROUPS:
                say(f"{name} ...")
                group = measure(cluster, name, options)
                for each in group.figures:
                    say(f"  {line(each)}")
                left_out |= any(each.value is None for each in group.figures)
                if not options.dry:
                    keep(name, group)
    except (NoCluster, GoMissing) as none:
        print(none)
        return 3
    return 1 if left_out else 0


if __name__ == "__main__":
    sys.exit(main())

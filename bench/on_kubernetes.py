"""Measures on the cluster of the tests: `python -m bench.on_kubernetes [--only NAME ...] [--rounds N] [--list]`.

Four callers go through the Service all the time; a fault happens; the time from the last good answer before it to the
first one after it is what the figure counts, because that is what a user waits. A fault is applied from the node, and
the clock of the callers is the machine's, so nothing is compared across clocks. Between two rounds the service is
whole again: every replica Ready.

Writes bench/results/kubernetes.json and docs/benchmarks-kubernetes.md when all groups ran.
Guarantees: a figure counts only when afterwards no call was lost or doubled. Does not: start the cluster
(`make cluster-up` does) or build images.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from tests.cluster.front_door import Callers
from tests.cluster.installed import LOCK_STORE, NAMESPACE, Lab, Ledger, build_images, install
from tests.cluster.lab.cluster import Pod
from tests.cluster.lab.provider import choose

from bench.figures import Figure, Goal, Results, figure, median, write_results
from bench.machine import describe
from bench.report import line, page

ROOT: Final = Path(__file__).resolve().parents[1]
RESULTS: Final = ROOT / "bench" / "results" / "kubernetes.json"
PAGE: Final = ROOT / "docs" / "benchmarks-kubernetes.md"
HEAD: Final = """# Benchmarks on Kubernetes

`make bench-cluster` wrote this page and `bench/results/kubernetes.json`; no number is typed by hand. A real cluster on
one machine: a control plane and three workers, three replicas of a service with log on a shared volume, an etcd of
three members as lock store, TLS everywhere. Callers go through the Service; what is counted is the time without a good
answer, as they saw it. Peers are what the named projects publish as budgets or defaults, not measured here.

"""
SERVICES: Final = 200
PEERS_KILL: Final[dict[str, float | None]] = {"CloudNativePG's test budget": 10.0, "Patroni's ttl": 30.0}
PEERS_NODE: Final[dict[str, float | None]] = {"CloudNativePG's test budget, low": 20.0, "high": 60.0}
PEERS_SWITCH: Final[dict[str, float | None]] = {"CloudNativePG's test budget": 20.0}

Break = Callable[[Ledger, Pod, ExitStack], None]


def say(text: str) -> None:
    """Tell progress."""
    print(text, file=sys.stderr, flush=True)


def gaps(cluster: Lab, rounds: int, name: str, break_it: Break) -> tuple[list[float], int, str]:
    """Break the primary again and again; gives seconds without an answer, failed attempts, and a problem's text."""
    found: list[float] = []
    with Ledger(cluster, f"bench-{name}") as ledger:
        ledger.wait_ready()
        with Callers(ledger.door()) as callers:
            for number in range(rounds):
                callers.wait_more(200)
                old = ledger.primary()
                with ExitStack() as stack:
                    since = time.monotonic()
                    break_it(ledger, old, stack)
                    ledger.wait_for(partial(leads_elsewhere, ledger, old), "somebody leads")
                    callers.wait_more(200)
                    found.append(callers.longest_gap_s(since - 0.1))
                ledger.wait_ready(300)
                say(f"  {name} {number + 1}/{rounds}: {found[-1] * 1000:.0f} ms")
        try:
            callers.check_exactly_once()
        except AssertionError as error:
            return found, len(callers.failures), str(error)
        return found, len(callers.failures), ""


def leads_elsewhere(ledger: Ledger, old: Pod) -> bool:
    """Has another replica, or the same one in a later epoch, taken over?"""
    before: int = json.loads(old.annotations.get("deathless.dev/status", "{}")).get("epoch", 0)
    return ledger.epoch() > before


def kill(ledger: Ledger, pod: Pod, _: ExitStack) -> None:
    """Kill -9 of the worker."""
    ledger.cluster.kill_process(pod, "deathless.shell.worker")


def delete(ledger: Ledger, pod: Pod, _: ExitStack) -> None:
    """Delete the pod without grace."""
    ledger.cluster.delete_pod(pod, grace_s=0)


def crash(ledger: Ledger, pod: Pod, stack: ExitStack) -> None:
    """Cut its node's power."""
    stack.enter_context(ledger.cluster.crashed_node(pod.node))


def freeze(ledger: Ledger, pod: Pod, stack: ExitStack) -> None:
    """Hang its node."""
    stack.enter_context(ledger.cluster.frozen_node(pod.node))


def unplug(ledger: Ledger, pod: Pod, stack: ExitStack) -> None:
    """Cut its node's cable."""
    stack.enter_context(ledger.cluster.unplugged_node(pod.node))


def crash_with_leader(ledger: Ledger, pod: Pod, stack: ExitStack) -> None:
    """Cut the power of the primary's node, and kill the lock store's leader wherever it is."""
    leader = ledger.cluster.etcd_leader(NAMESPACE, LOCK_STORE)
    stack.enter_context(ledger.cluster.crashed_node(pod.node))
    if leader.node != pod.node:
        with contextlib.suppress(Exception):  # it may have died with the node
            ledger.cluster.kill_process(leader, "etcd")


def switch(ledger: Ledger, pod: Pod, _: ExitStack) -> None:
    """Delete the pod politely: it hands over."""
    ledger.cluster.delete_pod(pod)


def drain(ledger: Ledger, pod: Pod, stack: ExitStack) -> None:
    """Drain its node."""
    stack.enter_context(ledger.cluster.drained(pod.node))


def broken(
    cluster: Lab, rounds: int, name: str, title: str, break_it: Break, *, p50: float | None, worst: float | None,
    peers: dict[str, float | None] | None = None, no_failure: bool = False,
) -> Iterator[Figure]:  # fmt: skip
    """Two figures of one fault: median and worst."""
    found, failed, problem = gaps(cluster, rounds, name, break_it)
    note = problem or f"none lost, none doubled; {failed} attempts failed and were repeated"
    bad = bool(problem) or (no_failure and failed > 0)
    for kind, value, goal in (("p50", median(found), p50), ("worst", max(found), worst)):
        yield figure(
            f"k8s_{name}_{kind}_s", f"{title}, {kind}", None if bad else value, "s", samples=len(found),
            peers=peers, goal=Goal("at most", goal) if goal is not None else None, note=note,
        )  # fmt: skip


def apply_to_ready(cluster: Lab, rounds: int) -> Iterator[Figure]:
    """From `kubectl apply` to Ready, images present."""
    found = []
    for number in range(min(rounds, 5)):
        ledger = Ledger(cluster, f"bench-apply-{number}")
        with ledger:
            since = time.monotonic()
            ledger.wait_ready()
            found.append(time.monotonic() - since)
    yield figure(
        "k8s_apply_to_ready_s", "apply to Ready, images present, p50", median(found), "s",
        samples=len(found), goal=Goal("at most", 15.0), note=f"worst {max(found):.1f} s",
    )  # fmt: skip


def install_to_ready(cluster: Lab, _: int) -> Iterator[Figure]:
    """From `helm install` to operator and lock store Ready, both charts, from nothing."""
    cluster.helm("uninstall", "deathless", "--namespace", NAMESPACE, "--wait", "--ignore-not-found")
    cluster.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=true", timeout_s=180)
    since = time.monotonic()
    install(cluster)
    yield figure("k8s_install_to_ready_s", "helm install to operator Ready", time.monotonic() - since, "s", samples=1)


def many_services(cluster: Lab, _: int) -> Iterator[Figure]:
    """What the operator needs for 200 services, and how long it takes to look at all of them after a restart."""
    template = Ledger(cluster, "bench-many", suspend=True, logStorage={"size": "1Gi"})
    name = template.namespace
    cluster.kubectl("create", "namespace", name)
    try:
        services = []
        for number in range(SERVICES):
            one = template.resource()
            one["metadata"]["name"] = f"s{number}"
            services.append(one)
        since = time.monotonic()
        cluster.apply(*services)
        wait_observed(cluster, name)
        first = time.monotonic() - since
        for pod in cluster.pods(NAMESPACE, "app.kubernetes.io/component=operator"):
            cluster.delete_pod(pod, grace_s=0)
        since = time.monotonic()
        cluster.wait_rolled_out(NAMESPACE, "deployment/deathless-operator", 120)
        leader = wait_leader(cluster)
        restart = time.monotonic() - since
        before = cpu_s(cluster, leader)
        time.sleep(30)
        used = (cpu_s(cluster, leader) - before) / 30
        yield figure("k8s_200_first_s", f"{SERVICES} services applied: all looked at", first, "s", samples=1)
        yield figure("k8s_200_restart_s", "the same after a restart of the operator", restart, "s", samples=1)
        yield figure("k8s_200_cpu", "processor of the operator meanwhile idle", used, "cores", samples=1)
        yield figure("k8s_200_memory_mib", "its memory", memory_mib(cluster, leader), "MiB", samples=1)
    finally:
        cluster.kubectl("-n", name, "delete", "dls", "--all", "--wait=true", "--timeout=300s", timeout_s=310)
        cluster.kubectl("delete", "namespace", name, "--wait=false")


def wait_observed(cluster: Lab, namespace: str) -> None:
    """Wait until every service's status is of its generation."""
    end = time.monotonic() + 600
    while True:
        items = json.loads(cluster.kubectl("-n", namespace, "get", "dls", "-o", "json"))["items"]
        seen = [
            one for one in items if one.get("status", {}).get("observedGeneration") == one["metadata"]["generation"]
        ]
        if len(seen) >= SERVICES:
            return
        assert time.monotonic() < end, f"not all of {SERVICES} are observed"
        time.sleep(0.5)


def wait_leader(cluster: Lab) -> Pod:
    """Wait until an operator pod that lives holds the Lease and has looked at every service."""
    end = time.monotonic() + 300
    while time.monotonic() < end:
        for pod in cluster.pods(NAMESPACE, "app.kubernetes.io/component=operator"):
            log = cluster.kubectl("-n", NAMESPACE, "logs", pod.name, "--tail=-1") if pod.ready else ""
            if log.count('"kind": "DeathlessService"') >= SERVICES:
                return pod
        time.sleep(0.5)
    raise AssertionError("no operator looked at every service")


def cpu_s(cluster: Lab, pod: Pod) -> float:
    """Processor seconds of a pod's processes."""
    pids = cluster.processes(pod)
    text = cluster.node_exec(pod.node, "sh", "-c", f"cat {' '.join(f'/proc/{pid}/stat' for pid in pids)}")
    ticks = sum(sum(map(int, one.rpartition(")")[2].split()[11:13])) for one in text.splitlines())
    return ticks / os.sysconf("SC_CLK_TCK")


def memory_mib(cluster: Lab, pod: Pod) -> float:
    """Resident memory of a pod's processes."""
    pids = cluster.processes(pod)
    text = cluster.node_exec(pod.node, "sh", "-c", f"cat {' '.join(f'/proc/{pid}/status' for pid in pids)}")
    return sum(int(one.split()[1]) for one in text.splitlines() if one.startswith("VmRSS")) / 1024


Group = Callable[[Lab, int], Iterator[Figure]]


def _fault(name: str, title: str, break_it: Break, **goals: object) -> Group:
    return lambda cluster, rounds: broken(cluster, rounds, name, title, break_it, **goals)  # type: ignore[arg-type]


GROUPS: Final[dict[str, Group]] = {
    "install": install_to_ready,
    "apply": apply_to_ready,
    "kill": _fault("kill", "process kill -9", kill, p50=0.5, worst=1.5, peers=PEERS_KILL),
    "delete": _fault("delete", "pod deleted with grace 0", delete, p50=None, worst=1.0, peers=PEERS_NODE),
    "crash": _fault("crash", "node crash", crash, p50=None, worst=2.0, peers=PEERS_NODE),
    "freeze": _fault("freeze", "node freeze", freeze, p50=None, worst=2.0, peers=PEERS_NODE),
    "unplug": _fault("unplug", "node unplugged", unplug, p50=None, worst=2.0, peers=PEERS_NODE),
    "leader": _fault(
        "leader", "node crash with the lock store's leader", crash_with_leader, p50=None, worst=4.0, peers=PEERS_NODE
    ),
    "switchover": _fault(
        "switchover", "planned switchover", switch, p50=0.3, worst=None, peers=PEERS_SWITCH, no_failure=True
    ),
    "drain": _fault("drain", "drain of the primary's node", drain, p50=0.3, worst=None, no_failure=True),
    "many": many_services,
}


def main(given: list[str] | None = None) -> int:
    """Measure and write; 1 when a figure was left out."""
    parser = argparse.ArgumentParser(prog="python -m bench.on_kubernetes", description="Measure on a real cluster.")
    parser.add_argument("--only", nargs="+", choices=list(GROUPS), metavar="NAME", help="these groups alone")
    parser.add_argument("--rounds", type=int, default=20, help="of each fault; 20 when left out")
    parser.add_argument("--build", action="store_true", help="build and load the images first")
    parser.add_argument("--list", action="store_true", help="print the names of all groups")
    options = parser.parse_args(given)
    if options.list:
        print("\n".join(GROUPS))
        return 0
    cluster = choose()
    began = time.monotonic()
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="deathless-bench-") as scratch:
        machine = describe(Path(scratch), quick=False)
        if options.build:
            for archive in build_images(Path(scratch)):
                cluster.load_image(archive)
        for name in options.only or GROUPS:
            say(f"{name} ...")
            try:
                found = list(GROUPS[name](cluster, options.rounds))
            except Exception as error:  # noqa: BLE001  the other figures must not be lost with one
                reason = f"left out: {type(error).__name__}: {str(error).splitlines()[0]}"
                found = [Figure(name=name, title=name, value=None, unit="", note=reason)]
            for each in found:
                say(f"  {line(each)}")
            figures += found
    machine.took_s = round(time.monotonic() - began, 1)
    machine.load_after = round(os.getloadavg()[0], 2)
    results = Results(machine=machine, figures=figures)
    if options.only:
        print(msgspec.json.format(msgspec.json.encode(results), indent=2).decode())
    else:
        write_results(results, RESULTS)
        PAGE.write_text(page(results, HEAD, tail=""), encoding="utf-8")
    return 1 if any(each.value is None for each in figures) else 0


if __name__ == "__main__":
    sys.exit(main())

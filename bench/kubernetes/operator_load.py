"""What installing, applying and operating many services costs on the cluster, apart from faults.

Guarantees: what was made for a figure is gone afterwards, but for the installation. Does not: judge.
"""

from __future__ import annotations

import json
import os
import time
import urllib.request
from argparse import Namespace
from collections.abc import Mapping
from typing import Final

from lab.cluster.cluster import Pod
from tests.cluster.installed import NAMESPACE, Lab, Ledger, install

from bench.figures import Figure, Goal, figure, median

SERVICES: Final = 200
OPERATOR: Final = "app.kubernetes.io/component=operator"
METRICS_PORT: Final = 8080
WAIT_S: Final = 600.0
APPLIED_GOAL: Final = Goal("at most", 15.0)
KOPF: Final = "kopf 1.45.2, a handler that only patches a status, measured elsewhere"
APPLIED_MAX: Final = 20  # services applied one after the other

SUSPENDED: Final = (
    f"the {SERVICES} services are suspended: the operator looks at each and keeps its status, but no replica runs, for "
    "this machine could not hold the pods"
)
RESTARTED: Final = (
    "both operators are deleted with grace 0, so that nobody gives the Lease back: up to 15 s of it are the wait until "
    "that has run out (`--lease-seconds`), and the rest is the start and the looks; a leader that is ended politely "
    "gives it back at once"
)

Measured = tuple[list[Figure], dict[str, list[float]]]
"""Figures, and the samples behind them."""


class How(Namespace):
    """How much is measured."""

    rounds: int = 20
    within_s: float = 3600.0


def apply_to_ready(cluster: Lab, how: How) -> Measured:
    """From `kubectl apply` to Ready, images present."""
    found = []
    for number in range(min(how.rounds, APPLIED_MAX)):
        ledger = Ledger(cluster, f"bench-apply-{number}")
        with ledger:
            since = time.monotonic()
            ledger.wait_ready()
            found.append(time.monotonic() - since)
    return applied_figures(found), {"apply to Ready": found}


def applied_figures(found: list[float]) -> list[Figure]:
    """Median and worst under one goal, which is met by neither where the worst is above it."""
    figures = [
        figure(
            name, f"apply to Ready, images present, {which}", value, "s", samples=len(found), goal=APPLIED_GOAL,
        )
        for name, which, value in (
            ("k8s_apply_to_ready_s", "p50", median(found)),
            ("k8s_apply_to_ready_worst_s", "worst", max(found)),
        )
    ]  # fmt: skip
    for each in figures:
        each.goal_met = APPLIED_GOAL.met(max(found), None)
    return figures


def install_to_ready(cluster: Lab, _: How) -> Measured:
    """From `helm install` to operator and lock store Ready, both charts, from nothing."""
    cluster.helm("uninstall", "deathless", "--namespace", NAMESPACE, "--wait", "--ignore-not-found")
    cluster.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=true", timeout_s=180)
    since = time.monotonic()
    install(cluster)
    took = time.monotonic() - since
    return [figure("k8s_install_to_ready_s", "helm install to operator Ready", took, "s", samples=1)], {}


def many_services(cluster: Lab, _: How) -> Measured:
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
        for pod in cluster.pods(NAMESPACE, OPERATOR):
            cluster.delete_pod(pod, grace_s=0)
        since = time.monotonic()
        cluster.wait_rolled_out(NAMESPACE, "deployment/deathless-operator", 120)
        leader = wait_leader(cluster)
        restart = time.monotonic() - since
        before = cpu_s(cluster, leader)
        time.sleep(30)
        used = (cpu_s(cluster, leader) - before) / 30
        told = f"{SERVICES} suspended services"
        memory = memory_mib(cluster, leader)
        return [
            figure(
                "k8s_200_first_s", f"{told} applied: all looked at", first, "s", samples=1,
                peers={f"{KOPF}, at 180 objects a second": SERVICES / 180}, note=SUSPENDED,
            ),
            figure(
                "k8s_200_restart_s", f"{told}: all looked at after a restart of the operator", restart, "s", samples=1,
                peers={f"{KOPF}, 530 objects": 1.1}, note=RESTARTED,
            ),
            figure(
                "k8s_200_cpu", f"{told}: processor of the operator when nothing changes", used, "cores", samples=1,
            ),
            figure(
                "k8s_200_memory_mib", f"{told}: memory of the operator", memory, "MiB", samples=1,
                peers={f"{KOPF}, 530 objects, MB": 132.0},
            ),
        ], {}  # fmt: skip
    finally:
        cluster.kubectl("-n", name, "delete", "dls", "--all", "--wait=true", "--timeout=300s", timeout_s=310)
        cluster.kubectl("delete", "namespace", name, "--wait=false")


def wait_observed(cluster: Lab, namespace: str) -> None:
    """Wait until every service's status is of its generation."""
    end = time.monotonic() + WAIT_S
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
    """Wait until an operator pod leads and has looked at every service since it started."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        for pod in cluster.pods(NAMESPACE, OPERATOR):
            told = metrics(pod) if pod.ready else {}
            if told.get("deathless_operator_leader") == 1.0 and looked_at_all(told):
                return pod
        time.sleep(0.2)
    raise AssertionError("no operator looked at every service")


def looked_at_all(told: Mapping[str, float]) -> bool:
    """Has an operator that tells this looked at each service since it started?

    Looks alone would not do: a second look at one service counts like the first at another. A service is known, in the
    other number, once its first look has ended.
    """
    looks = told.get('deathless_operator_reconciles_total{kind="DeathlessService"}', 0.0)
    return looks >= SERVICES and told.get("deathless_operator_services") == SERVICES


def metrics(pod: Pod) -> dict[str, float]:
    """What an operator pod tells, by name with labels; empty: it does not answer."""
    try:
        with urllib.request.urlopen(f"http://{pod.address}:{METRICS_PORT}/metrics", timeout=2) as answer:
            lines = answer.read().decode().splitlines()
    except OSError:
        return {}
    pairs = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs}


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

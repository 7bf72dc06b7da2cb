"""What installing, applying and operating many services costs on the cluster, apart from faults.

Guarantees: what was made for a figure is gone afterwards, but for the installation. Does not: judge.
"""

from __future__ import annotations

import json
import os
import time
import urllib.request
from argparse import Namespace
from typing import Final

from tests.cluster.installed import NAMESPACE, Lab, Ledger, install
from tests.cluster.lab.cluster import Pod

from bench.figures import Figure, Goal, figure, median

SERVICES: Final = 200
OPERATOR: Final = "app.kubernetes.io/component=operator"
METRICS_PORT: Final = 8080
WAIT_S: Final = 600.0
APPLIED_MAX: Final = 5  # services applied one after the other

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
    one = figure(
        "k8s_apply_to_ready_s", "apply to Ready, images present, p50", median(found), "s",
        samples=len(found), goal=Goal("at most", 15.0), note=f"worst {max(found):.1f} s",
    )  # fmt: skip
    return [one], {"apply to Ready": found}


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
        told = f"{SERVICES} services"
        memory = memory_mib(cluster, leader)
        return [
            figure("k8s_200_first_s", f"{told} applied: all looked at", first, "s", samples=1),
            figure("k8s_200_restart_s", f"{told}: all looked at after a restart of the operator", restart, "s"),
            figure("k8s_200_cpu", f"{told}: processor of the operator when nothing changes", used, "cores"),
            figure("k8s_200_memory_mib", f"{told}: memory of the operator", memory, "MiB"),
        ], {}
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
            looks = told.get('deathless_operator_reconciles_total{kind="DeathlessService"}', 0.0)
            if told.get("deathless_operator_leader") == 1.0 and looks >= SERVICES:
                return pod
        time.sleep(0.2)
    raise AssertionError("no operator looked at every service")


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

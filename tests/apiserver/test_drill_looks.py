"""A drill on a real API server, looked at again and again as the queue would; nobody runs its pods."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from real_api_server import RealApiServer

from deathless_operator.cluster.api import Api
from deathless_operator.cluster.carry_out import Performer
from deathless_operator.cluster.events import Recorder
from deathless_operator.cluster.kinds import DRILL, POD, SERVICE
from deathless_operator.cluster.observe import Observer
from deathless_operator.cluster.observe_drill import DrillObserver
from deathless_operator.cluster.trust import Trust
from deathless_operator.handlers.metrics import Metrics
from deathless_operator.handlers.reconcile_drill import DrillReconciler
from deathless_operator.handlers.work_queue import Key
from deathless_operator.model import names
from deathless_operator.model.settings import OperatorSettings

pytestmark = [pytest.mark.apiserver, pytest.mark.asyncio]


@asynccontextmanager
async def looking(
    server: RealApiServer, namespace: str, metrics: Metrics | None = None
) -> AsyncIterator[tuple[DrillReconciler, DrillObserver, Api]]:
    settings = OperatorSettings(namespace=namespace, drill_node_drain=True)
    async with Api(server.connection()) as api:
        trust = Trust(api, namespace=namespace, life_s=1e7, certificate_life_s=1e6)
        observer = DrillObserver(api, Observer(api, trust, settings), settings)
        recorder = Recorder(api, instance="test", wall=lambda: 1e9)
        yield (
            DrillReconciler(
                observer=observer,
                performer=Performer(api, trust),
                recorder=recorder,
                settings=settings,
                metrics=metrics or Metrics(),
            ),
            observer,
            api,
        )


def make(server: RealApiServer, namespace: str, *, replicas_ready: bool) -> None:
    spec = {"module": "bank:bank", "image": "bank:1", "logStorage": {"size": "1Gi"}, "tls": {"issuer": "Off"}}
    body = {"apiVersion": SERVICE.api_version, "kind": SERVICE.kind, "metadata": {"name": "bank"}, "spec": spec}
    server.request("POST", SERVICE.path(namespace), body)
    drill = {"serviceRef": {"name": "bank"}, "fault": {"type": "PodDelete"}}
    body = {"apiVersion": DRILL.api_version, "kind": DRILL.kind, "metadata": {"name": "once"}, "spec": drill}
    server.request("POST", DRILL.path(namespace), body)
    for ordinal in range(3):
        make_pod(server, namespace, ordinal, ready=replicas_ready)


def make_pod(server: RealApiServer, namespace: str, ordinal: int, *, ready: bool) -> None:
    role = "primary" if ordinal == 0 else "standby"
    said = {"replica": f"r{ordinal}", "role": role, "epoch": 3, "fingerprint": "f"}
    labels = names.labels("bank") | {names.LABEL_ROLE: role, names.LABEL_REPLICA: f"r{ordinal}"}
    meta = {
        "name": f"bank-{ordinal}",
        "labels": labels,
        "annotations": {names.STATUS_ANNOTATION: json.dumps(said)},
    }
    spec = {"containers": [{"name": "replica", "image": "bank:1"}]}
    server.request("POST", POD.path(namespace), {"metadata": meta, "spec": spec})
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    status = {"status": {"phase": "Running", "conditions": [condition]}}
    path = POD.path(namespace, f"bank-{ordinal}", "status")
    server.request("PATCH", path, status, content="application/merge-patch+json")


async def look(reconciler: DrillReconciler, namespace: str, times: int = 4) -> None:
    for _ in range(times):
        outcome = await reconciler.reconcile(Key(DRILL.kind, namespace, "once"))
        assert not outcome.failure


async def test_drill_of_a_service_in_trouble_breaks_nothing_and_says_why(
    api_server: RealApiServer, namespace: str
) -> None:
    make(api_server, namespace, replicas_ready=False)
    async with looking(api_server, namespace) as (reconciler, _, api):
        await look(reconciler, namespace)
        found = await api.get(DRILL, namespace, "once")
        assert found["status"]["conditions"], "it is told"
        pods = {each["metadata"]["name"]: each["metadata"] for each in await api.list(POD, namespace)}
        assert {f"bank-{ordinal}" for ordinal in range(3)} <= set(pods)
        assert not any("deletionTimestamp" in each for each in pods.values())


async def test_when_the_last_run_failed_is_told_until_one_passes_or_the_drill_is_gone(
    api_server: RealApiServer, namespace: str
) -> None:
    make(api_server, namespace, replicas_ready=False)
    status, metrics = DRILL.path(namespace, "once", "status"), Metrics()

    def ended(verdict: str) -> None:
        last = {"id": "one", "verdict": verdict, "completionTime": "2027-01-15T08:00:00Z"}
        body = {"status": {"last": last}}
        api_server.request("PATCH", status, body, content="application/merge-patch+json")

    def told() -> list[float]:
        found = metrics.text().decode().splitlines()
        start = f'deathless_operator_drill_failed_timestamp_seconds{{drill="once",namespace="{namespace}"}}'
        return [float(line.rpartition(" ")[2]) for line in found if line.startswith(start)]

    async with looking(api_server, namespace, metrics) as (reconciler, _, _api):
        for verdict in ("Passed", "Failed", "Passed", "Failed"):
            ended(verdict)
            await look(reconciler, namespace)
            assert told() == ([1800000000.0] if verdict == "Failed" else [])
        path, free = DRILL.path(namespace, "once"), {"metadata": {"finalizers": None}}
        api_server.request("PATCH", path, free, content="application/merge-patch+json")
        api_server.request("DELETE", path)
        await look(reconciler, namespace)
        assert told() == []


async def test_snapshot_holds_target_runner_and_other_drills(api_server: RealApiServer, namespace: str) -> None:
    make(api_server, namespace, replicas_ready=True)
    runner: dict[str, Any] = {
        "metadata": {"name": names.runner_pod("bank")},
        "spec": {"containers": [{"name": "runner", "image": "deathless:1"}]},
    }
    api_server.request("POST", POD.path(namespace), runner)
    other = {"serviceRef": {"name": "bank"}, "fault": {"type": "Freeze"}, "suspend": True}
    body = {"apiVersion": DRILL.api_version, "kind": DRILL.kind, "metadata": {"name": "other"}, "spec": other}
    api_server.request("POST", DRILL.path(namespace), body)
    async with looking(api_server, namespace) as (_, observer, _api):
        seen = await observer.observe(namespace, "once")
        assert seen is not None and seen.snapshot.target is not None and seen.version
        assert len(seen.snapshot.target.pods) == 3
        assert seen.snapshot.runner is not None and seen.snapshot.agent is None
        assert [each.name for each in seen.snapshot.others] == ["other"]
        assert await observer.observe(namespace, "none") is None

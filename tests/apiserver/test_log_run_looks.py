"""Runs of a service's log on a real API server, looked at as the queue would; the test plays the kubelet."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from real_api_server import RealApiServer
from tests.unit.deathless_operator.plan.plan_world import World

from deathless_operator.cluster.api import Api
from deathless_operator.cluster.carry_out import Performer
from deathless_operator.cluster.events import Recorder
from deathless_operator.cluster.kinds import POD, REHEARSAL, REPLAY, SERVICE, STATEFUL_SET
from deathless_operator.cluster.observe import Observer
from deathless_operator.cluster.observe_log_run import LogRunKind, LogRunObserver
from deathless_operator.cluster.trust import Trust
from deathless_operator.handlers.metrics import Metrics
from deathless_operator.handlers.reconcile_log_run import LogRunReconciler
from deathless_operator.handlers.work_queue import Key
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.plan.log_runs.reading import read_rehearsal, read_replay
from deathless_operator.plan.log_runs.rehearsals import REHEARSAL as REHEARSAL_TOOL
from deathless_operator.plan.log_runs.replays import REPLAY as REPLAY_TOOL

pytestmark = [pytest.mark.apiserver, pytest.mark.asyncio]
REPLAYS = LogRunKind(kind=REPLAY, tool=REPLAY_TOOL, read=read_replay)
REHEARSALS = LogRunKind(kind=REHEARSAL, tool=REHEARSAL_TOOL, read=read_rehearsal)


@asynccontextmanager
async def looking(
    server: RealApiServer, namespace: str, run_kind: LogRunKind
) -> AsyncIterator[tuple[LogRunReconciler, Api]]:
    """Who looks at runs of a kind."""
    settings = OperatorSettings(namespace=namespace)
    async with Api(server.connection()) as api:
        trust = Trust(api, namespace=namespace, life_s=1e7, certificate_life_s=1e6)
        observer = LogRunObserver(api, Observer(api, trust, settings), run_kind)
        reconciler = LogRunReconciler(
            observer=observer,
            performer=Performer(api, trust),
            recorder=Recorder(api, instance="test", wall=lambda: 1e9),
            run_kind=run_kind,
            settings=settings,
            metrics=Metrics(),
        )
        yield reconciler, api


def make_service(server: RealApiServer, namespace: str) -> None:
    """A service with the StatefulSet that an operator makes for it."""
    spec = {"module": "bank:bank", "image": "bank:1", "logStorage": {"claimName": "shared"}, "tls": {"issuer": "Off"}}
    body = {"apiVersion": SERVICE.api_version, "kind": SERVICE.kind, "metadata": {"name": "bank"}, "spec": spec}
    server.request("POST", SERVICE.path(namespace), body)
    world = World()
    world.settle()
    found = world.stateful_set()
    assert found is not None
    metadata = {key: found["metadata"][key] for key in ("name", "labels", "annotations")}
    body = {"apiVersion": STATEFUL_SET.api_version, "kind": STATEFUL_SET.kind, "metadata": metadata}
    server.request("POST", STATEFUL_SET.path(namespace), body | {"spec": found["spec"]})


def make_run(server: RealApiServer, namespace: str, run_kind: LogRunKind, **spec: object) -> None:
    """A run of its log."""
    kind = run_kind.kind
    whole = {"serviceRef": {"name": "bank"}, "ttlSecondsAfterFinished": 0, **spec}
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "again"}, "spec": whole}
    server.request("POST", kind.path(namespace), body)


def end_pod(server: RealApiServer, namespace: str, purpose: str, code: int, message: str) -> None:
    """Its container ends."""
    state = {"terminated": {"exitCode": code, "message": message, "reason": "Completed"}}
    container = {"name": purpose, "state": state, "image": "x", "imageID": "x", "ready": False, "restartCount": 0}
    status = {"status": {"phase": "Succeeded" if code == 0 else "Failed", "containerStatuses": [container]}}
    path = POD.path(namespace, f"again-{purpose}", "status")
    server.request("PATCH", path, status, content="application/merge-patch+json")


async def look(reconciler: LogRunReconciler, kind: str, namespace: str) -> None:
    """One look, after which nothing is refused."""
    outcome = await reconciler.reconcile(Key(kind, namespace, "again"))
    assert not outcome.failure and not outcome.refused


async def told(api: Api, run_kind: LogRunKind, namespace: str) -> dict[str, Any]:
    """What the status says."""
    found: dict[str, Any] = (await api.get(run_kind.kind, namespace, "again"))["status"]
    return found


async def test_replay_is_run_told_and_deleted(api_server: RealApiServer, namespace: str) -> None:
    make_service(api_server, namespace)
    make_run(api_server, namespace, REPLAYS, fromLsn=1, toLsn=(1 << 53) - 1)
    async with looking(api_server, namespace, REPLAYS) as (reconciler, api):
        await look(reconciler, REPLAY.kind, namespace)
        assert (await told(api, REPLAYS, namespace))["phase"] == "Pending"
        pod = await api.get(POD, namespace, "again-replay")
        assert pod["metadata"]["ownerReferences"][0]["kind"] == "Replay"
        word = '{"messages":6,"lsn":9,"difference":{"lsn":7,"handler":"deposit","key":"a","text":"x"}}'
        end_pod(api_server, namespace, "replay", 65, word)
        await look(reconciler, REPLAY.kind, namespace)
        status = await told(api, REPLAYS, namespace)
        assert (status["phase"], status["reason"]) == ("Failed", "LogDiffers")
        assert status["result"]["firstDifference"]["handler"] == "deposit"
        await look(reconciler, REPLAY.kind, namespace)
        assert await api.find(REPLAY, namespace, "again") is None, "its time is over"


async def test_rehearsal_runs_two_images_and_tells_its_verdict(api_server: RealApiServer, namespace: str) -> None:
    make_service(api_server, namespace)
    make_run(api_server, namespace, REHEARSALS, image="bank:2", followSeconds=300)
    async with looking(api_server, namespace, REHEARSALS) as (reconciler, api):
        await look(reconciler, REHEARSAL.kind, namespace)
        pod = await api.get(POD, namespace, "again-rehearsal")
        assert [each["image"] for each in pod["spec"]["initContainers"]] == ["bank:1"]
        assert [each["image"] for each in pod["spec"]["containers"]] == ["bank:2"]
        assert pod["spec"]["containers"][0]["command"][-2:] == ["--follow", "300"]
        differs = '"differences":[{"kind":"ReplyDiffers","handler":"deposit","count":3}]'
        word = f'{{"passed":false,"messages":6,{differs},"followed":{{"seconds":300,"messages":4,"compared":4}}}}'
        end_pod(api_server, namespace, "rehearsal", 78, word)
        await look(reconciler, REHEARSAL.kind, namespace)
        status = await told(api, REHEARSALS, namespace)
        assert (status["phase"], status["verdict"], status["reason"]) == ("Failed", "Failed", "CodeDiffers")
        assert status["result"]["differences"][0]["count"] == 3
        assert status["result"]["followed"]["compared"] == 4

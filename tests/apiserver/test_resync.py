"""The resync on a real API server: every object again and again, whatever watches miss, through refusals, too."""

from __future__ import annotations

import asyncio

import pytest
from real_api_server import RealApiServer

from deathless_operator.cluster.api import Api
from deathless_operator.cluster.kinds import CONFIG_MAP, DRILL, SERVICE
from deathless_operator.handlers import workers as workers_module
from deathless_operator.handlers.metrics import Metrics
from deathless_operator.handlers.work_queue import Key, WorkQueue
from deathless_operator.handlers.workers import Workers
from deathless_operator.model import names

pytestmark = [pytest.mark.apiserver, pytest.mark.asyncio]


def make(server: RealApiServer, namespace: str) -> None:
    spec = {"module": "bank:bank", "image": "bank:1", "logStorage": {"size": "1Gi"}}
    body = {"apiVersion": SERVICE.api_version, "kind": SERVICE.kind, "metadata": {"name": "bank"}, "spec": spec}
    server.request("POST", SERVICE.path(namespace), body)
    drill = {"serviceRef": {"name": "bank"}, "fault": {"type": "PodDelete"}}
    body = {"apiVersion": DRILL.api_version, "kind": DRILL.kind, "metadata": {"name": "weekly"}, "spec": drill}
    server.request("POST", DRILL.path(namespace), body)


async def test_each_object_comes_again_without_any_event(api_server: RealApiServer, namespace: str) -> None:
    make(api_server, namespace)
    expected = {Key(SERVICE.kind, namespace, "bank"), Key(DRILL.kind, namespace, "weekly")}
    async with Api(api_server.connection()) as api:
        queue = WorkQueue()
        workers = Workers(queue, {}, Metrics(), resync_s=0.05)
        resync = asyncio.create_task(workers.resync(api, (SERVICE, DRILL), (namespace,)))
        for _ in range(3):
            found = set()
            for _ in expected:
                key = await queue.get()
                assert key is not None
                found.add(key)
            assert found == expected
            for key in found:
                queue.done(key)
        resync.cancel()


async def test_services_that_are_gone_are_found_by_their_records(api_server: RealApiServer, namespace: str) -> None:
    labels = {names.LABEL_PURPOSE: names.PURPOSE_ERASE}
    for place in (namespace, "nobody-looks-here"):
        meta = {"name": names.erase_record(place, "gone"), "labels": labels}
        meta |= {"annotations": {names.ERASE_ANNOTATION: f"{place}/gone"}}
        api_server.request("POST", CONFIG_MAP.path(namespace), {"metadata": meta})
    async with Api(api_server.connection()) as api:
        queue = WorkQueue()
        workers = Workers(queue, {}, Metrics(), resync_s=0.05)
        resync = asyncio.create_task(workers.resync(api, (SERVICE,), (namespace,), namespace))
        for _ in range(3):
            key = await queue.get()
            assert key == Key(SERVICE.kind, namespace, "gone")
            queue.done(key)
        resync.cancel()


async def test_refused_list_is_tried_again(
    api_server: RealApiServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers_module, "RESYNC_RETRY_S", 0.01)
    make(api_server, namespace)
    queue = WorkQueue()
    workers = Workers(queue, {}, Metrics(), resync_s=60.0)
    async with Api(api_server.connection("nobody")) as api:
        resync = asyncio.create_task(workers.resync(api, (SERVICE,), (namespace,)))
        reading = asyncio.ensure_future(queue.get())
        done, _ = await asyncio.wait([resync, reading], timeout=0.5)
        assert not done, "it goes on asking"
        api.connection = api_server.connection()
        assert await reading == Key(SERVICE.kind, namespace, "bank")
        resync.cancel()

"""Workers go on whatever a look ends by."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, cast

import pytest

from deathless_operator.cluster.api import Api
from deathless_operator.cluster.errors import ApiUnreachable
from deathless_operator.cluster.kinds import SERVICE, Kind
from deathless_operator.handlers.metrics import Metrics
from deathless_operator.handlers.reconcile import Outcome
from deathless_operator.handlers.work_queue import Key, WorkQueue
from deathless_operator.handlers.workers import WORKERS, Workers

pytestmark = pytest.mark.asyncio


class Looks:
    """Ends each look as the test says, by the name of the object."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.now_busy: set[Key] = set()
        self.gate = asyncio.Event()

    async def reconcile(self, key: Key) -> Outcome:
        assert key not in self.now_busy, "two workers look at one object"
        self.now_busy.add(key)
        try:
            self.seen.append(key.name)
            await asyncio.sleep(0)
            match key.name:
                case "bug":
                    raise KeyError("nobody thought of this")
                case "away":
                    raise ApiUnreachable("the API server is away")
                case "refused":
                    return Outcome(sentence="tried", again_in_s=None, failure="quota exceeded")
                case "stuck":
                    await self.gate.wait()
            return Outcome(sentence="done", again_in_s=None)
        finally:
            self.now_busy.discard(key)


def value(metrics: Metrics, name: str) -> float:
    lines = [line for line in metrics.text().decode().splitlines() if line.startswith(f"deathless_operator_{name}")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


async def until(holds: Callable[[], bool]) -> None:
    """Give way until `holds`."""
    for _ in range(100_000):
        if holds():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came to it")


async def test_no_error_ends_a_worker_and_each_is_counted_by_its_code(caplog: pytest.LogCaptureFixture) -> None:
    queue, looks, metrics = WorkQueue(), Looks(), Metrics()
    workers = Workers(queue, {"Thing": looks}, metrics, resync_s=300.0)
    with caplog.at_level(logging.WARNING):
        for name in ("bug", "away", "refused", "fine"):
            queue.add(Key("Thing", "shop", name))
        task = asyncio.create_task(workers.work())
        await until(lambda: len(set(looks.seen)) == 4 and not queue.busy)
        queue.close()
        await task
    count = looks.seen.count  # of a slow look some are tried again by now
    assert value(metrics, 'reconcile_errors_total{code="Bug"') == count("bug")
    assert value(metrics, 'reconcile_errors_total{code="DL6001"') == count("away")
    assert value(metrics, 'reconcile_errors_total{code="Refused"') == count("refused")
    assert value(metrics, "reconciles_total") == len(looks.seen)
    assert [record.levelname for record in caplog.records].count("ERROR") == count("bug")


async def test_object_that_hangs_holds_up_no_other_and_no_second_worker_enters_it() -> None:
    queue, looks = WorkQueue(), Looks()
    workers = Workers(queue, {"Thing": looks}, Metrics(), resync_s=300.0)
    tasks = [asyncio.create_task(workers.work()) for _ in range(WORKERS)]
    queue.add(Key("Thing", "shop", "stuck"))
    await asyncio.sleep(0)
    for index in range(50):
        queue.add(Key("Thing", "shop", f"n{index}"))
        queue.add(Key("Thing", "shop", "stuck"))
    await until(lambda: len(looks.seen) == 51)
    assert looks.seen.count("stuck") == 1
    looks.gate.set()
    await until(lambda: looks.seen.count("stuck") == 2 and not queue.busy)
    queue.close()
    await asyncio.gather(*tasks)


async def test_cancelled_worker_leaves_its_key_and_ends() -> None:
    queue, looks = WorkQueue(), Looks()
    task = asyncio.create_task(Workers(queue, {"Thing": looks}, Metrics(), resync_s=300.0).work())
    queue.add(Key("Thing", "shop", "stuck"))
    await until(lambda: bool(looks.seen))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert queue.busy == 0


async def test_every_object_is_looked_at_now_where_what_all_depend_on_has_changed() -> None:
    class Listing:
        """Lists one object each time."""

        async def list(self, kind: Kind, namespace: str | None, labels: str = "") -> list[dict[str, Any]]:
            return [{"metadata": {"namespace": "shop", "name": "bank"}}] if kind is SERVICE else []

    queue = WorkQueue()
    workers = Workers(queue, {}, Metrics(), resync_s=1e9)
    task = asyncio.create_task(workers.resync(cast("Api", Listing()), (SERVICE,), ()))
    for _ in range(3):
        key = await queue.get()
        assert key == Key(SERVICE.kind, "shop", "bank")
        queue.done(key)
        workers.look_at_all()
    task.cancel()

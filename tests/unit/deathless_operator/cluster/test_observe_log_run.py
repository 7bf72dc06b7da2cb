"""What is read for a look at a run of a log; tests/apiserver reads a real API server."""

from __future__ import annotations

import asyncio
from typing import Any

from deathless_operator.cluster.kinds import POD, REPLAY, Kind
from deathless_operator.cluster.observe_log_run import LogRunKind, LogRunObserver
from deathless_operator.plan.log_runs.reading import read_replay
from deathless_operator.plan.log_runs.replays import REPLAY as TOOL

RUNS = LogRunKind(kind=REPLAY, tool=TOOL, read=read_replay)


class Held:
    """An API server that holds these objects, and no service."""

    def __init__(self, *objects: dict[str, Any]) -> None:
        self.objects = objects
        self.asked: list[tuple[str, str]] = []

    async def find(self, kind: Kind, namespace: str, name: str) -> dict[str, Any] | None:
        del namespace
        self.asked.append((kind.kind, name))
        found = (each for each in self.objects if (each["kind"], each["metadata"]["name"]) == (kind.kind, name))
        return next(found, None)

    def now(self) -> float:
        return 7.0

    async def observe(self, namespace: str, name: str) -> None:
        del namespace
        self.asked.append(("DeathlessService", name))


def look(held: Held) -> Any:
    observer = LogRunObserver(held, held, RUNS)  # type: ignore[arg-type]  # as far as it is asked
    return asyncio.run(observer.observe("prod", "again"))


def test_run_is_seen_with_its_service_and_the_pod_of_its_name() -> None:
    meta = {"name": "again", "namespace": "prod", "uid": "u", "resourceVersion": "5"}
    run = {"kind": REPLAY.kind, "metadata": meta, "spec": {"serviceRef": {"name": "bank"}}}
    held = Held(run, {"kind": POD.kind, "metadata": {"name": "again-replay", "uid": "p"}})
    seen = look(held)
    assert (seen.now, seen.resource.version, seen.target, seen.pod.uid) == (7.0, "5", None, "p")
    assert ("DeathlessService", "bank") in held.asked


def test_service_that_can_not_be_read_is_not_asked_for() -> None:
    held = Held({"kind": REPLAY.kind, "metadata": {"name": "again"}, "spec": {"serviceRef": 7}})
    assert look(held).target is None
    assert all(kind != "DeathlessService" for kind, _ in held.asked)


def test_run_that_is_gone_is_nothing() -> None:
    assert look(Held()) is None

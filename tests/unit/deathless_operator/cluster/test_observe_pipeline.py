"""What is read for a look at a pipeline; tests/apiserver reads a real API server."""

from __future__ import annotations

import asyncio
from typing import Any

from deathless_operator.cluster.kinds import PIPELINE, Kind
from deathless_operator.cluster.observe_pipeline import PipelineObserver


class Held:
    """An API server that holds these objects."""

    def __init__(self, *objects: dict[str, Any]) -> None:
        self.objects = objects
        self.selector = ""

    async def find(self, kind: Kind, namespace: str, name: str) -> dict[str, Any] | None:
        del namespace
        found = (each for each in self.objects if (each["kind"], each["metadata"]["name"]) == (kind.kind, name))
        return next(found, None)

    async def list(self, kind: Kind, namespace: str, *, labels: str) -> list[dict[str, Any]]:
        del namespace
        self.selector = labels
        return [each for each in self.objects if each["kind"] == kind.kind]

    def now(self) -> float:
        return 7.0


def look(held: Held) -> Any:
    observer = PipelineObserver(held, held)  # type: ignore[arg-type]  # as far as it is asked
    return asyncio.run(observer.observe("shop", "delays"))


def named(kind: str, name: str) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": name, "uid": name}}


def test_a_pipeline_is_seen_with_its_service_what_its_drivers_have_and_their_pods() -> None:
    pipeline = {"kind": PIPELINE.kind, "metadata": {"name": "delays", "uid": "u", "resourceVersion": "5"}, "spec": {}}
    pods = [named("Pod", "delays-drivers-1"), named("Pod", "delays-drivers-0")]
    others = [named("StatefulSet", "delays-drivers"), named("Service", "delays-ui"), named("Role", "delays")]
    held = Held(pipeline, named("DeathlessService", "delays"), *others, *pods)
    seen = look(held)
    assert (seen.now, seen.resource.version, seen.service.kind) == (7.0, "5", "DeathlessService")
    assert {(each.kind, each.name) for each in seen.children} == {
        ("StatefulSet", "delays-drivers"),
        ("Service", "delays-ui"),
    }
    assert [each.name for each in seen.pods] == ["delays-drivers-0", "delays-drivers-1"]
    assert held.selector == "deathless.dev/pipeline=delays,deathless.dev/purpose=pipeline-driver"


def test_a_pipeline_that_is_gone_is_nothing() -> None:
    assert look(Held()) is None

"""What is read for a look at a pipeline; tests/apiserver reads a real API server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from deathless_operator.cluster.kinds import PIPELINE, Kind
from deathless_operator.cluster.observe_pipeline import PipelineObserver
from deathless_operator.plan.snapshot import Warned


class Held:
    """An API server that holds these objects."""

    def __init__(self, *objects: dict[str, Any]) -> None:
        self.objects = objects
        self.selector = ""
        self.asked = 0  # for warnings

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

    async def warnings(self, namespace: str, wanted: Callable[[Warned], bool]) -> tuple[Warned, ...]:
        assert namespace == "shop"
        self.asked += 1
        about = [
            ("Pod", "delays-drivers-0"),
            ("Pod", "delays-0"),
            ("StatefulSet", "delays-drivers"),
            ("Pod", "x-drivers-0"),
        ]
        every = [Warned(kind=kind, name=name, reason="r", message="m", at=1.0) for kind, name in about]
        return tuple(filter(wanted, every))


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


def test_what_kubernetes_warns_of_is_read_while_a_pod_is_not_ready() -> None:
    pipeline = {"kind": PIPELINE.kind, "metadata": {"name": "delays", "uid": "u", "resourceVersion": "5"}, "spec": {}}
    pod = named("Pod", "delays-drivers-0")
    held = Held(pipeline, pod)
    assert [(each.kind, each.name) for each in look(held).warnings] == [
        ("Pod", "delays-drivers-0"),
        ("StatefulSet", "delays-drivers"),
    ]
    pod["status"] = {"conditions": [{"type": "Ready", "status": "True"}]}
    assert (look(held).warnings, held.asked) == ((), 1)


def test_services_of_the_spec_that_are_not_in_its_namespace_are_seen() -> None:
    """Those that say where they are may be anywhere."""
    services = [{"name": "airports"}, {"name": "gone"}, {"name": "far", "urls": ["https://far:8443"]}]
    spec = {"module": "m:b", "image": "i:1", "logStorage": {"size": "5Gi"}, "services": services}
    meta = {"name": "delays", "namespace": "shop", "uid": "u", "resourceVersion": "5"}
    pipeline = {"kind": PIPELINE.kind, "metadata": meta, "spec": spec}
    assert look(Held(pipeline, named("DeathlessService", "airports"))).missing == ("gone",)


def test_a_pipeline_that_is_gone_is_nothing() -> None:
    assert look(Held()) is None

"""A pipeline as the API server would show it, for tests of its plan."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from deathless_operator.model import names
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.model.spark_pipeline import PipelineResource, PipelineStatus, read_pipeline
from deathless_operator.plan.actions import Apply
from deathless_operator.plan.pipelines.plan import make_pipeline_plan
from deathless_operator.plan.pipelines.snapshot import PipelinePlan, PipelineSnapshot
from deathless_operator.plan.service.reading import read_child, read_pod
from deathless_operator.plan.snapshot import Warned

SETTINGS = OperatorSettings(namespace="deathless-system")
SPEC: dict[str, Any] = {
    "module": "delays.py:build",
    "image": "delays:1",
    "logStorage": {"size": "5Gi"},
    "services": [{"name": "airports"}],
}


def resource(meta: dict[str, Any] | None = None, **spec: object) -> PipelineResource:
    """A SparkPipeline with these fields of spec."""
    metadata: dict[str, Any] = {
        "name": "delays",
        "namespace": "shop",
        "uid": "u",
        "resourceVersion": "7",
        "generation": 3,
    }
    raw: dict[str, Any] = {"metadata": metadata | (meta or {}), "spec": SPEC | spec}
    return read_pipeline(raw)


class World:
    """What the API server holds; a look carries the plan out."""

    def __init__(self, **spec: object) -> None:
        self.spec = spec
        self.meta: dict[str, Any] = {}
        self.status = PipelineStatus(installation=SETTINGS.namespace)
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.pods: list[dict[str, Any]] = []
        self.now = 1000.0
        self.warnings: list[Warned] = []
        self.missing: tuple[str, ...] = ()

    def snapshot(self) -> PipelineSnapshot:
        """What is there."""
        service = self.objects.get((names.SERVICE_KIND, "delays"))
        others = [each for key, each in self.objects.items() if key[0] != names.SERVICE_KIND]
        return PipelineSnapshot(
            now=self.now,
            resource=msgspec.structs.replace(resource(meta=self.meta, **self.spec), status=self.status),
            service=read_child(service) if service is not None else None,
            children=tuple(map(read_child, others)),
            pods=tuple(map(read_pod, self.pods)),
            warnings=tuple(self.warnings),
            missing=self.missing,
        )

    def look(self) -> PipelinePlan:
        """Plan, and carry it out."""
        plan = make_pipeline_plan(self.snapshot(), SETTINGS)
        for action in plan.actions:
            assert isinstance(action, Apply)
            made: Any = json.loads(json.dumps(action.manifest))
            self.objects[made["kind"], made["metadata"]["name"]] = made
        if plan.status is not None:
            self.status = plan.status
        return plan

    def add_pod(self, ordinal: int, role: str, number: int = 0, *, ready: bool = True) -> None:
        """A pod whose agent has told this."""
        told = json.dumps({"pid": 1, "agent": "a", "role": role, "number": number})
        self.pods.append(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"delays-drivers-{ordinal}", "annotations": {names.STATUS_ANNOTATION: told}},
                "status": {"conditions": [{"type": "Ready", "status": "True" if ready else "False"}]},
            }
        )

    def serve(self) -> None:
        """The service is ready."""
        condition = {"type": "Ready", "status": "True", "reason": "Serving", "message": "it serves"}
        self.objects[names.SERVICE_KIND, "delays"]["status"] = {"conditions": [condition]}

    def ready(self) -> tuple[str, str]:
        """Status and reason of condition Ready."""
        found = next(each for each in self.status.conditions if each.type == "Ready")
        return found.status, found.reason

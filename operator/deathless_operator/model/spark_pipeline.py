"""A SparkPipeline as the API server has it, and what the operator tells about it.

Its spec is the one that laptops have (`base.pipelines.manifest`).

Guarantees: a resource that this version can't read gives problems with place and remedy, never an error. Does not: know
other objects. Imports base and model.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from deathless.base.manifest import Metadata
from deathless.base.manifest_fields import told
from deathless.base.pipelines.manifest import SparkPipeline, SparkPipelineSpec, pipeline_problems, service_manifest
from deathless.base.schema_check import Problem, show_path
from deathless_operator.model.names import INSTALLATION_ANNOTATION
from deathless_operator.model.resource_parts import PROBLEMS_MAX, spec_in, status_in
from deathless_operator.model.service import cluster_problems
from deathless_operator.model.status import Condition, StatusPart
from deathless_operator.model.values import JsonObject, number, part, text


class PipelineStatus(StatusPart, frozen=True):
    """The status of a SparkPipeline."""

    observed_generation: Annotated[int, Meta(ge=0), told("The generation of the spec this status was made for.")] = 0
    installation: Annotated[str, Meta(max_length=63), told("Namespace of the operator that manages it.")] = ""
    ready: Annotated[str, Meta(max_length=16), told("Drivers that drive or are warm, of wanted drivers, as text.")] = ""
    driver: Annotated[str, Meta(max_length=253), told("The pod whose driver drives; empty: none does.")] = ""
    number: Annotated[int, Meta(ge=0), told("The number under which it drives; it grows with each assignment.")] = 0
    warm: Annotated[int, Meta(ge=0), told("Drivers that are warm and wait.")] = 0
    conditions: Annotated[tuple[Condition, ...], Meta(max_length=16), told("The conditions, with their reasons.")] = ()


class PipelineResource(msgspec.Struct, frozen=True, kw_only=True):
    """A SparkPipeline as the API server has it."""

    namespace: str
    name: str
    uid: str
    version: str  # at which it was read: a status is written to that one alone
    generation: int
    installation: str = ""  # the namespace of the operator that a person named to manage it
    deleted: bool = False
    pipeline: SparkPipeline | None  # None: it has problems
    problems: tuple[str, ...] = ()
    status: PipelineStatus = PipelineStatus()


def read_pipeline(raw: JsonObject) -> PipelineResource:
    """Read a SparkPipeline."""
    name = text(raw, "metadata", "name")
    spec, problems = spec_in(raw, SparkPipelineSpec, lambda spec: _problems(_whole(name, spec)))
    return PipelineResource(
        namespace=text(raw, "metadata", "namespace"),
        name=name,
        uid=text(raw, "metadata", "uid"),
        version=text(raw, "metadata", "resourceVersion"),
        generation=number(raw, "metadata", "generation"),
        installation=text(raw, "metadata", "annotations", INSTALLATION_ANNOTATION),
        deleted=bool(part(raw, "metadata", "deletionTimestamp")),
        pipeline=None if spec is None else _whole(name, spec),
        problems=problems,
        status=status_in(raw, PipelineStatus),
    )


def _whole(name: str, spec: SparkPipelineSpec) -> SparkPipeline:
    return SparkPipeline(
        api_version="deathless.dev/v1alpha1", kind="SparkPipeline", metadata=Metadata(name=name), spec=spec
    )


def _problems(pipeline: SparkPipeline) -> list[str]:
    """Find what contradicts itself, and what a laptop takes and a cluster can't."""
    found = pipeline_problems(pipeline) + cluster_problems(service_manifest(pipeline).spec)
    return [_shown(problem) for problem in found[:PROBLEMS_MAX]]


def _shown(problem: Problem) -> str:
    return f"{show_path(problem.path)}: {problem.what}; {problem.remedy}"

"""The manifest of a pipeline: kind SparkPipeline, the same on a laptop and in a cluster.

    apiVersion: deathless.dev/v1alpha1
    kind: SparkPipeline
    metadata: {name: delays}
    spec: {module: delays.py:build}

A pipeline is a service, whose code comes with us, and drivers, which run its author's code in Spark. One document
describes both: `service_manifest` gives the document of its service, which everything that works with services works
with, and `agent_configs` what its drivers are started with on one machine.

Guarantees: a document that converts and has no `pipeline_problems` gives a manifest and configurations. Does not: read
files, look whether paths exist (shell.operate.manifest_file does both), know Spark. Imports base only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from deathless.base.manifest import API_VERSION, KIND, Manifest, Metadata, ServiceSpec, relation_problems
from deathless.base.manifest_fields import Endpoint, FilePath, Module, Part, SecretRef, Text, Texts, told
from deathless.base.manifest_parts import (
    PEERS_MAX,
    REPLICAS_MAX,
    LogStorage,
    Peer,
    PeerService,
    Resources,
    SecretKeyRef,
    TlsSpec,
)
from deathless.base.pipelines.agents import AgentConfig
from deathless.base.pipelines.conf import refused
from deathless.base.schema_check import Path, Problem

PIPELINE_KIND: Final = "SparkPipeline"
SERVICE_MODULE: Final = "deathless.pipelines.service:pipeline"
DRIVER_REPLICAS_MAX: Final = 7
CORES_MAX: Final = 256
URLS_MAX: Final = 7  # HTTP ports of one service
REPLICA_RESOURCES: Final = Resources(requests={"cpu": "200m", "memory": "128Mi"})
"""Of a replica of the pipeline's service: without a request it gets no processor time beside a driver that starts."""
_UNITS: Final = {"ms": "milliseconds", "s": "seconds", "m": "minutes"}
_TRIGGER: Final = re.compile(r"([1-9][0-9]{0,5})(ms|s|m)")


class PipelineDrivers(Part, frozen=True):
    """The Spark drivers: one drives, the others are warmed up and wait."""

    replicas: Annotated[
        int,
        Meta(ge=1, le=DRIVER_REPLICAS_MAX),
        told("Number of drivers. One drives; with 1, none waits for its death."),
    ] = 2
    cores: Annotated[
        int, Meta(ge=1, le=CORES_MAX), told("Tasks that run at the same time in a driver: Spark's local[cores].")
    ] = 2
    memory: Annotated[
        Annotated[
            str,
            Meta(pattern=r"^[1-9][0-9]*[mg]$", max_length=16, description="an amount as Spark writes it: 1g, 512m"),
        ],
        told("Memory of Java in a driver; Python takes what it needs beside it."),
    ] = "1g"
    resources: Annotated[Resources, told("Resource requests and limits of a driver, in a cluster.")] = Resources()
    secret_ref: Annotated[
        SecretRef | None,
        told("Secret whose keys are files in /etc/deathless-secret of a driver, in a cluster: for a database, say."),
    ] = None
    allow_to: Annotated[
        tuple[Peer, ...],
        Meta(max_length=32),
        told("What a driver may reach beside services, DNS and the API server: a database, in a cluster."),
    ] = ()


class PipelineService(PeerService, frozen=True):
    """A service that the pipeline reads from, or sends rows to."""

    urls: Annotated[
        tuple[Endpoint, ...],
        Meta(max_length=URLS_MAX),
        told("HTTP ports of its replicas, through which its topics are read instead of from the log's folder."),
    ] = ()


class SparkPipelineSpec(Part, frozen=True):
    """What to run."""

    module: Annotated[
        Module, told("The function that gives the queries: package.module:function, or path/to/file.py:function.")
    ]
    image: Annotated[
        Text,
        told(
            "Image that holds the module, deathless, PySpark and Java. Needed in a cluster, without effect on a laptop."
        ),
    ] = ""
    image_pull_policy: Annotated[
        Literal["", "Always", "IfNotPresent", "Never"],
        told("When the image is pulled; if empty, the operator's default."),
    ] = ""
    replicas: Annotated[
        int,
        Meta(ge=1, le=REPLICAS_MAX),
        told("Replicas of the pipeline's service, which decides its batches. They need no Spark."),
    ] = 3
    resources: Annotated[
        Resources,
        told(
            "Resource requests and limits of each replica of the pipeline's service, in a cluster. When absent, 200m "
            "of cpu and 128Mi of memory are requested."
        ),
    ] = REPLICA_RESOURCES
    drivers: Annotated[PipelineDrivers, told("The Spark drivers.")] = PipelineDrivers()
    services: Annotated[
        tuple[PipelineService, ...],
        Meta(max_length=PEERS_MAX),
        told("Services that it reads from or sends rows to. Without any: on a laptop all that stand beside it."),
    ] = ()
    trigger: Annotated[
        Annotated[
            str,
            Meta(pattern=rf"^{_TRIGGER.pattern}$", max_length=8, description="a time with its unit: 100ms, 5s, 1m"),
        ],
        told("Pause between two batches of a query."),
    ] = "100ms"
    conf: Annotated[Texts, told('Configuration of Spark, for example spark.sql.shuffle.partitions: "8".')] = (
        msgspec.field(default_factory=dict)
    )
    log_storage: Annotated[LogStorage, told("Where the log of the pipeline's service is stored.")] = LogStorage()
    suspend: Annotated[
        bool,
        told("Stop the drivers and every replica; where the queries stand is kept. On a laptop nothing is started."),
    ] = False
    tls: Annotated[
        TlsSpec | None, told("Certificates. When absent: none on a laptop, the operator's in a cluster.")
    ] = None
    token_file: Annotated[
        FilePath,
        told(
            "File with the token that callers of the pipeline's service must present, on a laptop. It is shown as well "
            "where topics are read over HTTP."
        ),
    ] = ""
    token_secret_ref: Annotated[SecretKeyRef | None, told("Secret with that token, in a cluster.")] = None
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], told("How much replicas of the pipeline's service log.")
    ] = "info"


class SparkPipeline(Part, frozen=True):
    """The whole document."""

    api_version: Literal["deathless.dev/v1alpha1"]
    kind: Literal["SparkPipeline"]
    metadata: Metadata
    spec: SparkPipelineSpec


def service_manifest(pipeline: SparkPipeline) -> Manifest:
    """Give the document of the pipeline's service, which has its name.

    A service without an address, a folder or several shards is found beside it by its name, as any peer is. Resources
    are a cluster's matter, which adds them.
    """
    spec = pipeline.spec
    return Manifest(
        api_version=API_VERSION,
        kind=KIND,
        metadata=pipeline.metadata,
        spec=ServiceSpec(
            module=SERVICE_MODULE,
            image=spec.image,
            image_pull_policy=spec.image_pull_policy,
            replicas=spec.replicas,
            log_storage=spec.log_storage,
            peers=tuple(_peer(each) for each in spec.services if each.path or each.addresses or each.shards > 1),
            tls=spec.tls,
            token_file=spec.token_file,
            token_secret_ref=spec.token_secret_ref,
            suspend=spec.suspend,
            log_level=spec.log_level,
        ),
    )


def _peer(service: PipelineService) -> PeerService:
    return PeerService(**{name: getattr(service, name) for name in PeerService.__struct_fields__})


def pipeline_problems(pipeline: SparkPipeline) -> list[Problem]:
    """Find what each field alone can't show: fields that contradict each other, and what may not be set of Spark."""
    spec = pipeline.spec
    found = [Problem(("spec", "conf", each.name), each.value, each.what, each.remedy) for each in refused(spec.conf)]
    names: set[str] = set()
    for index, service in enumerate(spec.services):
        at: Path = ("spec", "services", index, "name")
        if service.name == pipeline.metadata.name:
            found.append(Problem(at, service.name, "is this pipeline itself", "leave the entry out"))
        elif service.name in names:
            found.append(Problem(at, service.name, "is given twice", "keep one of them"))
        names.add(service.name)
    # What is wrong with its peers was told above, at the places where this document has them.
    of_service = relation_problems(service_manifest(pipeline))
    return found + [each for each in of_service if each.path[:2] != ("spec", "peers")]


def ignored_of_pipelines(pipeline: SparkPipeline) -> list[str]:
    """Give the fields that were set and mean nothing to processes on one machine, beside those of the service."""
    drivers = pipeline.spec.drivers
    found = {
        "spec.resources": pipeline.spec.resources != REPLICA_RESOURCES,
        "spec.drivers.resources": drivers.resources != Resources(),
        "spec.drivers.secretRef": drivers.secret_ref is not None,
        "spec.drivers.allowTo": bool(drivers.allow_to),
    }
    return [name for name, is_set in found.items() if is_set]


def trigger_text(trigger: str) -> str:
    """Give a pause as Spark writes it: 100ms is `100 milliseconds`. It is in order."""
    found = _TRIGGER.fullmatch(trigger)
    assert found is not None, "the schema allows no other"
    return f"{found[1]} {_UNITS[found[2]]}"


def spark_conf(spec: SparkPipelineSpec) -> dict[str, str]:
    """Give Spark's configuration for the drivers of a pipeline: what the fields say, and what `conf` says."""
    return {
        "spark.master": f"local[{spec.drivers.cores}]",
        "spark.driver.memory": spec.drivers.memory,
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",  # a free one, which is shown
        "spark.ui.killEnabled": "false",  # who looks at the pages ends nothing
        **spec.conf,
    }


def agent_configs(
    pipeline: SparkPipeline,
    *,
    module: str,
    directory: str,
    beside: str,
    folder: str,
    folders: Mapping[str, str],
    token_file: str = "",
) -> list[AgentConfig]:
    """Give what each driver's agent is started with on this machine: d0, d1, ...

    Args:
        pipeline: in order.
        module: as `spec.module`, its path made absolute.
        directory: of the pipeline's service, absolute.
        beside: the folder in which that stands.
        folder: of the manifest, absolute: where drivers work.
        folders: of each service that `spec.services` names, absolute.
        token_file: `spec.tokenFile`, absolute; empty: there is none.
    """
    spec = pipeline.spec
    return [
        AgentConfig(
            pipeline=pipeline.metadata.name,
            name=f"d{index}",
            module=module,
            directory=directory,
            folder=folder,
            beside="" if spec.services else beside,
            services={each.name: ",".join(each.urls) or folders[each.name] for each in spec.services},
            token_file=token_file,
            trigger=trigger_text(spec.trigger),
            conf=spark_conf(spec),
        )
        for index in range(spec.drivers.replicas)
    ]

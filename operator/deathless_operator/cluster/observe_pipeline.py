"""Seeing one SparkPipeline with all that its plan may know; see `observe` for how and why by reads.

Guarantees: its service is found by its name, whoever's it is, and so is a StatefulSet of the drivers' name; all else
that belongs to the drivers by its label; what Kubernetes warned of, and which services are missing, is read while not
all pods are ready. Does not: interpret.
"""

from __future__ import annotations

import asyncio
from typing import Final

from deathless_operator.cluster.api import Api, Object
from deathless_operator.cluster.kinds import (
    BUDGET,
    KUBE_SERVICE,
    NETWORK_POLICY,
    PIPELINE,
    POD,
    ROLE,
    ROLE_BINDING,
    SERVICE,
    SERVICE_ACCOUNT,
    STATEFUL_SET,
    Kind,
)
from deathless_operator.cluster.observe import Observer, is_about
from deathless_operator.model import names
from deathless_operator.model.spark_pipeline import PipelineResource, read_pipeline
from deathless_operator.plan.pipelines.snapshot import PipelineSnapshot
from deathless_operator.plan.service import reading
from deathless_operator.plan.snapshot import ChildView, Warned

OF_DRIVERS: Final = (SERVICE_ACCOUNT, ROLE, ROLE_BINDING, BUDGET, NETWORK_POLICY, STATEFUL_SET)
"""What is made under the drivers' name."""


class PipelineObserver:
    """Reads snapshots of pipelines.

    Args:
        api: the API server.
        observer: has the clock that plans go by.
    """

    def __init__(self, api: Api, observer: Observer) -> None:
        self._api = api
        self._observer = observer

    async def observe(self, namespace: str, name: str) -> PipelineSnapshot | None:
        """Return what is there, None when the pipeline is gone; raises as `Observer.observe`."""
        raw = await self._api.find(PIPELINE, namespace, name)
        if raw is None:
            return None
        chosen = ",".join(f"{key}={value}" for key, value in names.driver_selector(name).items())
        asked = [(kind, names.drivers(name)) for kind in OF_DRIVERS] + [(KUBE_SERVICE, names.ui_service(name))]
        pods, children = await asyncio.gather(
            self._api.list(POD, namespace, labels=chosen),
            asyncio.gather(*(self._child(kind, namespace, each) for kind, each in [(SERVICE, name), *asked])),
        )
        read = tuple(sorted(map(reading.read_pod, pods), key=lambda pod: pod.name))
        resource = read_pipeline(raw)
        warnings: tuple[Warned, ...] = ()
        missing: tuple[str, ...] = ()
        if not read or not all(each.ready for each in read):
            warnings = await self._observer.warnings(namespace, lambda each: is_about(each, names.drivers(name)))
            missing = await self._missing(resource)
        return PipelineSnapshot(
            now=self._observer.now(),
            resource=resource,
            service=children[0],
            children=tuple(each for each in children[1:] if each is not None),
            pods=read,
            warnings=warnings,
            missing=missing,
        )

    async def _missing(self, resource: PipelineResource) -> tuple[str, ...]:
        """Give the services that are looked for in the namespace, and are not there."""
        services = resource.pipeline.spec.services if resource.pipeline is not None else ()
        here = [each.name for each in services if not (each.urls or each.addresses)]
        found = await asyncio.gather(*(self._api.find(SERVICE, resource.namespace, each) for each in here))
        return tuple(name for name, raw in zip(here, found, strict=True) if raw is None)

    async def _child(self, kind: Kind, namespace: str, name: str) -> ChildView | None:
        found: Object | None = await self._api.find(kind, namespace, name)
        if found is None:
            return None
        return reading.read_child({"apiVersion": kind.api_version, "kind": kind.kind, **found})

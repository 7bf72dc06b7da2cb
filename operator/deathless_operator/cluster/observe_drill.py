"""Seeing one FailoverDrill with all that its plan may know; see `observe` for how and why by reads.

Guarantees: nodes are listed only for a drill that drains one (or is going, and may have left one cordoned), since a
cluster may have thousands. Does not: interpret.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from deathless_operator.cluster.api import Api, Object
from deathless_operator.cluster.errors import Forbidden
from deathless_operator.cluster.kinds import DRILL, NODE, POD
from deathless_operator.cluster.observe import Observer
from deathless_operator.model import names
from deathless_operator.model.drill import DrillResource
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.plan.drill.reading import read_drill
from deathless_operator.plan.drill.snapshot import DrillNodeView, DrillSnapshot, read_node
from deathless_operator.plan.service import reading
from deathless_operator.plan.snapshot import PodView, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenDrill:
    """A drill's snapshot, and the version it was read at."""

    snapshot: DrillSnapshot
    version: str


class DrillObserver:
    """Reads snapshots of drills.

    Args:
        api: the API server.
        observer: sees the services that drills are about.
        settings: the installation.
        wall: wall seconds.
    """

    def __init__(
        self, api: Api, observer: Observer, settings: OperatorSettings, *, wall: Callable[[], float] = time.time
    ) -> None:
        self._api = api
        self._observer = observer
        self._settings = settings
        self._wall = wall

    async def observe(self, namespace: str, name: str) -> SeenDrill | None:
        """Return what is there, None when the drill is gone; raises as `Observer.observe`."""
        raw = await self._api.find(DRILL, namespace, name)
        if raw is None:
            return None
        resource = read_drill(raw)
        service = drilled_service(raw)
        others, target, runner, agent = await asyncio.gather(
            self._api.list(DRILL, namespace),
            self._target(namespace, service),
            self._pod(namespace, names.runner_pod(service)),
            self._pod(self._settings.namespace, names.agent_pod(namespace, service)),
        )
        snapshot = DrillSnapshot(
            now=self._wall(),
            resource=resource,
            target=target,
            runner=runner,
            agent=agent,
            nodes=await self._nodes(resource, target),
            others=tuple(read_drill(each) for each in others if each["metadata"]["name"] != name),
        )
        return SeenDrill(snapshot=snapshot, version=str(raw["metadata"]["resourceVersion"]))

    async def _target(self, namespace: str, service: str) -> Snapshot | None:
        seen = await self._observer.observe(namespace, service) if service else None
        return seen.snapshot if seen is not None else None

    async def _pod(self, namespace: str, name: str) -> PodView | None:
        try:
            found = await self._api.find(POD, namespace, name)
        except Forbidden:
            if namespace != self._settings.namespace:
                raise
            return None  # no agents are allowed here, so there is none
        return reading.read_pod(found) if found is not None else None

    async def _nodes(self, resource: DrillResource, target: Snapshot | None) -> tuple[DrillNodeView, ...]:
        """Return the nodes of the target's pods, and for a drill that drains those with a mark."""
        wanted = {pod.node for pod in target.pods if pod.node} if target is not None else set()
        active = resource.status.active
        faults = {resource.spec.fault.type if resource.spec is not None else "", active.fault if active else ""}
        drains = "NodeDrain" in faults or resource.spec is None
        try:
            if drains and self._settings.drill_node_drain:
                every = [read_node(each) for each in await self._api.list(NODE, None)]
                return tuple(each for each in every if each.mark or each.name in wanted)
            found = await asyncio.gather(*(self._api.find(NODE, None, each) for each in sorted(wanted)))
        except Forbidden:
            return ()
        return tuple(read_node(each) for each in found if each is not None)


def drilled_service(raw: Object) -> str:
    """Return the name of the service that a drill names, empty where it names none."""
    reference = (raw.get("spec") or {}).get("serviceRef")
    name = reference.get("name") if isinstance(reference, dict) else None
    return name if isinstance(name, str) else ""

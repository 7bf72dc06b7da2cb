"""Seeing one run of a log with all that its plan may know; see `observe` for how and why by reads.

Guarantees: the pod is found by its name alone, whoever's it is. Does not: interpret.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from deathless_operator.cluster.api import Api, Object
from deathless_operator.cluster.kinds import POD, Kind
from deathless_operator.cluster.observe import Observer
from deathless_operator.model.log_run import LogRunResource
from deathless_operator.plan.log_runs.run import pod_name
from deathless_operator.plan.log_runs.snapshot import LogRunSnapshot
from deathless_operator.plan.log_runs.tool import Tool
from deathless_operator.plan.service import reading
from deathless_operator.plan.snapshot import PodView, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRunKind:
    """One kind of run, as the API server and as plans have it."""

    kind: Kind
    tool: Tool
    read: Callable[[Object], LogRunResource]


class LogRunObserver:
    """Reads snapshots of runs of one kind.

    Args:
        api: the API server.
        observer: sees the services whose logs are run.
        run_kind: which kind.
    """

    def __init__(self, api: Api, observer: Observer, run_kind: LogRunKind) -> None:
        self._api = api
        self._observer = observer
        self._run_kind = run_kind

    async def observe(self, namespace: str, name: str) -> LogRunSnapshot | None:
        """Return what is there, None when the run is gone; raises as `Observer.observe`."""
        raw = await self._api.find(self._run_kind.kind, namespace, name)
        if raw is None:
            return None
        resource = self._run_kind.read(raw)
        target, pod = await asyncio.gather(
            self._target(namespace, resource.service), self._pod(namespace, pod_name(name, self._run_kind.tool))
        )
        return LogRunSnapshot(now=self._observer.now(), resource=resource, target=target, pod=pod)

    async def _target(self, namespace: str, service: str) -> Snapshot | None:
        seen = await self._observer.observe(namespace, service) if service else None
        return seen.snapshot if seen is not None else None

    async def _pod(self, namespace: str, name: str) -> PodView | None:
        found = await self._api.find(POD, namespace, name)
        return reading.read_pod(found) if found is not None else None

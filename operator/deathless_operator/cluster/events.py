"""Events about our objects, told once: events.k8s.io/v1.

An event that repeats (same object, type, reason and words) is told again at most every `REPEAT_S`, as a count on
the event that is there. Its name is made from what it says, so an operator that starts anew, or another one that
takes over, counts on instead of telling it a second time.

Guarantees: a failing API server costs an event, never a reconcile: nothing here raises for a refusal. At most
`REMEMBERED_MAX` events are remembered. Does not: log; the reconcile's sentence does.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from deathless_operator.cluster.api import Api, Object
from deathless_operator.cluster.errors import ApiRefused, ApiUnreachable, Conflict
from deathless_operator.cluster.kinds import EVENT, Kind
from deathless_operator.plan.actions import Event

REPEAT_S = 600.0
REMEMBERED_MAX = 4096
NOTE_MAX = 1024  # validated by the API server
CONTROLLER = "deathless.dev/operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The object that events are about."""

    kind: Kind
    namespace: str
    name: str
    uid: str


class Recorder:
    """Tells events.

    Args:
        api: the API server.
        instance: this process, for `reportingInstance`.
        wall: wall seconds, which stand in the event.
        steady: seconds of a clock that nobody sets, by which repeats are held back.
    """

    def __init__(
        self, api: Api, *, instance: str, wall: Callable[[], float], steady: Callable[[], float] = time.monotonic
    ) -> None:
        self._api = api
        self._instance = instance[:128]
        self._wall = wall
        self._steady = steady
        self._told: OrderedDict[str, float] = OrderedDict()  # name of the event -> when it was told last, by `steady`

    async def tell(self, subject: Subject, event: Event) -> bool:
        """Tell one event; False when it was told lately or could not be told."""
        name, at, now = event_name(subject, event), self._steady(), self._wall()
        if at - self._told.get(name, float("-inf")) < REPEAT_S:
            return False
        manifest = self._manifest(name, subject, event, now)
        try:
            try:
                await self._api.create(manifest)
            except Conflict:
                await self._count(subject.namespace, name, now)
        except (ApiRefused, ApiUnreachable):
            return False
        self._told[name] = at
        self._told.move_to_end(name)
        while len(self._told) > REMEMBERED_MAX:
            self._told.popitem(last=False)
        return True

    async def _count(self, namespace: str, name: str, now: float) -> None:
        """Count one more on the event that is there."""
        found = await self._api.get(EVENT, namespace, name)
        count = int((found.get("series") or {}).get("count") or 1) + 1
        await self._api.patch(EVENT, namespace, name, {"series": {"count": count, "lastObservedTime": moment(now)}})

    def _manifest(self, name: str, subject: Subject, event: Event, now: float) -> Object:
        regarding: dict[str, Any] = {
            "apiVersion": subject.kind.api_version,
            "kind": subject.kind.kind,
            "namespace": subject.namespace,
            "name": subject.name,
            "uid": subject.uid,
        }
        return {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.kind,
            "metadata": {"namespace": subject.namespace, "name": name},
            "eventTime": moment(now),
            "reportingController": CONTROLLER,
            "reportingInstance": self._instance,
            "action": "Reconcile",
            "reason": event.reason,
            "type": event.type,
            "note": event.message if len(event.message) <= NOTE_MAX else event.message[: NOTE_MAX - 3] + "...",
            "regarding": regarding,
        }


def event_name(subject: Subject, event: Event) -> str:
    """Return the one name for an event about this object with these words."""
    said = f"{subject.uid}\0{event.type}\0{event.reason}\0{event.message}"
    return f"{subject.name[:200]}.{hashlib.sha256(said.encode()).hexdigest()[:16]}"


def moment(seconds: float) -> str:
    """Return wall seconds as the API's MicroTime."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

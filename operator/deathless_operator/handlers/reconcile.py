"""Looking at one service: observe, plan, carry out, tell. Level-triggered: what happened is never asked.

Guarantees: an operator killed between any two requests leaves nothing that the next look does not find; refusals of
one look are part of what the next one sees, so that the plan can tell them as conditions; a sentence is logged when
something was done or when it differs from the last one. Does not: decide anything (the plan does), or retry (the
queue does).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from deathless_operator.cluster.carry_out import Performer, Scene, scene_of
from deathless_operator.cluster.events import Recorder, Subject
from deathless_operator.cluster.kinds import LIVE_UPGRADE, SERVICE
from deathless_operator.cluster.observe import Observer, Seen
from deathless_operator.handlers.look_log import LookLog
from deathless_operator.handlers.metrics import Metrics
from deathless_operator.handlers.refusals import Refusals
from deathless_operator.handlers.watches import NodeTable
from deathless_operator.handlers.work_queue import Key
from deathless_operator.model.live_upgrade import ENDED
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.plan.service.erasure import plan_erasure, read_record
from deathless_operator.plan.service.plan import Plan, make_plan
from deathless_operator.plan.service.upgrading.progress import UpgradeTold, tell_missing
from deathless_operator.plan.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one look at an object ended."""

    sentence: str  # what was done, in words
    again_in_s: float | None  # look again after this; None: at the resync or when something happens
    failure: str = ""  # the look could not go on; looked at again with growing pauses
    refused: tuple[str, ...] = ()  # what the API server refused while the rest went on, for the log


class Reconciler(Protocol):
    """Looks at objects of one kind; one per kind is entered in the process's table."""

    async def reconcile(self, key: Key) -> Outcome:
        """Look at one object.

        Raises:
            DeathlessError: it could not be done now; it is tried again with growing pauses.
        """
        ...


class ServiceReconciler:
    """Looks at DeathlessServices.

    Args:
        observer: sees.
        performer: does.
        recorder: tells.
        settings: of the installation.
        metrics: counted here.
        nodes: learns where pods are.
    """

    def __init__(
        self,
        *,
        observer: Observer,
        performer: Performer,
        recorder: Recorder,
        settings: OperatorSettings,
        metrics: Metrics,
        nodes: NodeTable,
    ) -> None:
        self._observer = observer
        self._performer = performer
        self._recorder = recorder
        self._settings = settings
        self._metrics = metrics
        self._nodes = nodes
        self._refusals = Refusals()
        self._log = LookLog(metrics)

    async def reconcile(self, key: Key) -> Outcome:
        """See `Reconciler`."""
        seen = await self._observer.observe(key.namespace, key.name, self._refusals.failures(key))
        if seen is None:
            return await self._bury(key)
        plan = make_plan(seen.snapshot, self._settings)
        resting = self._refusals.resting(key, plan.actions)
        try:
            failures = await self._performer.carry_out(scene_of(seen.snapshot), plan.actions, resting)
        finally:
            if plan.actions:
                self._observer.forget(key.namespace, key.name)
        self._refusals.note(key, plan.actions, failures)
        if failures != seen.snapshot.failures:
            # A status that was made before it was known what is refused would call a spec Ready that is not in force.
            told = make_plan(replace(seen.snapshot, failures=failures), self._settings)
            plan = replace(plan, status=told.status, events=told.events, upgrades=told.upgrades)
        written = await self._tell(key, seen, plan) and await self._tell_upgrades(key, plan.upgrades)
        # A status that could not be written was made for a version that is gone.
        waits = [each for each in (plan.requeue_s, self._refusals.again_in_s(key)) if each is not None]
        return Outcome(
            sentence=plan.sentence,
            again_in_s=min(waits, default=None) if written else 0.0,
            refused=tuple(f"{each.kind} {each.name} was refused: {each.message}" for each in failures),
        )

    async def _tell_upgrades(self, key: Key, told: Sequence[UpgradeTold]) -> bool:
        """Write how LiveUpgrades stand, and count those that have ended; False when one was changed meanwhile."""
        whole = True
        for each in told:
            resource = each.resource
            subject = Subject(kind=LIVE_UPGRADE, namespace=key.namespace, name=resource.name, uid=resource.uid)
            written = await self._performer.write_status(subject, resource.version, resource.status, each.status)
            whole = whole and written
            if each.status != resource.status:
                self._observer.forget(key.namespace, key.name)
            if written and each.status.phase != resource.status.phase and each.status.phase in ENDED:
                self._metrics.upgrades.labels(key.namespace, key.name, each.status.phase).inc()
            for event in each.events if written else ():
                await self._recorder.tell(subject, event)
        return whole

    async def _bury(self, key: Key) -> Outcome:
        """Look after what a service that is gone has left in the lock store."""
        asking = await self._observer.live_upgrades(key.namespace, key.name)
        await self._tell_upgrades(key, tell_missing(asking, key.name, self._observer.now()))
        remains = await self._observer.observe_remains(key.namespace, key.name)
        record = read_record(remains.record) if remains is not None else None
        if remains is None or record is None:
            self._forget(key)
            return Outcome(sentence="the service is gone", again_in_s=None)
        self._clear(key)
        found = plan_erasure(remains, self._settings)
        scene = Scene(namespace=key.namespace, now=remains.now, is_ours=lambda _: True)
        failure = await self._performer.perform(scene, found.actions)
        subject = Subject(kind=SERVICE, namespace=record.namespace, name=record.service, uid=record.uid)
        for event in found.events if failure is None else ():
            await self._recorder.tell(subject, event)
        self._log.note(key, found.sentence, found.actions)
        if failure is not None:
            said = f"{failure.kind} {failure.name} was refused: {failure.message}"
            return Outcome(sentence=found.sentence, again_in_s=None, failure=said)
        return Outcome(sentence=found.sentence, again_in_s=found.requeue_s)

    async def _tell(self, key: Key, seen: Seen, plan: Plan) -> bool:
        """Write status and events, count, log; False when the status was for a version that is gone."""
        resource, written = seen.snapshot.resource, True
        subject = Subject(kind=SERVICE, namespace=resource.namespace, name=resource.name, uid=resource.uid)
        self._metrics.set_wanted(key.namespace, key.name, shards=seen.snapshot.shards, replicas=plan.wanted)
        if plan.status is None:
            # It goes: how it stood before is nobody's trouble any more.
            self._metrics.set_conditions(key.namespace, key.name, ())
        else:
            self._count(key, seen.snapshot, plan)
            written = await self._performer.write_status(subject, seen.version, resource.status, plan.status)
        for event in plan.events if written else ():
            await self._recorder.tell(subject, event)
        self._log.note(key, plan.sentence, plan.actions)
        return written

    def _count(self, key: Key, snapshot: Snapshot, plan: Plan) -> None:
        assert plan.status is not None, "only a status is counted"
        self._nodes.place(key, {pod.node for pod in snapshot.pods if pod.node})
        told = [(each.type, each.status) for each in plan.status.conditions]
        self._metrics.set_conditions(key.namespace, key.name, told)
        moved = snapshot.resource.status.last_takeover_time != plan.status.last_takeover_time
        if moved and snapshot.resource.status.primary:
            self._metrics.takeovers.labels(key.namespace, key.name).inc()

    def _forget(self, key: Key) -> None:
        self._log.forget(key)
        self._clear(key)

    def _clear(self, key: Key) -> None:
        """Forget what was known of a service."""
        self._observer.forget(key.namespace, key.name)
        self._refusals.forget(key)
        self._nodes.place(key, ())
        self._metrics.forget(key.namespace, key.name)

"""Looking at one resource whose plan is everything: observe, plan, carry out, tell. For runs of a log, and pipelines.

Guarantees and limits: as `reconcile`. What the API server refuses is told in the status, and asked for again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

import msgspec

from deathless_operator.cluster.carry_out import Performer, Scene
from deathless_operator.cluster.events import Recorder, Subject
from deathless_operator.cluster.kinds import Kind
from deathless_operator.handlers.look_log import LookLog
from deathless_operator.handlers.metrics import Metrics
from deathless_operator.handlers.reconcile import Outcome
from deathless_operator.handlers.work_queue import Key
from deathless_operator.plan.actions import Action, Event
from deathless_operator.plan.snapshot import Failure


class Resource(Protocol):
    """What every resource has."""

    @property
    def uid(self) -> str:
        """It tells it from others of its name."""
        ...

    @property
    def version(self) -> str:
        """At which it was read."""
        ...

    @property
    def status(self) -> msgspec.Struct:
        """As it was read."""
        ...


class Seen(Protocol):
    """What was observed: a resource at a moment, in wall seconds."""

    @property
    def now(self) -> float:
        """Wall seconds."""
        ...

    @property
    def resource(self) -> Resource:
        """As it was read."""
        ...


class Plan(Protocol):
    """What is to be done and told."""

    @property
    def actions(self) -> tuple[Action, ...]:
        """In order, before the status."""
        ...

    @property
    def status(self) -> msgspec.Struct | None:
        """None: write nothing."""
        ...

    @property
    def events(self) -> tuple[Event, ...]:
        """To tell."""
        ...

    @property
    def requeue_s(self) -> float | None:
        """To look again after this at the latest."""
        ...

    @property
    def sentence(self) -> str:
        """For the log."""
        ...


S = TypeVar("S", bound=Seen)
P = TypeVar("P", bound=Plan)


class WholeReconciler(ABC, Generic[S, P]):
    """Looks at resources of one kind.

    Args:
        kind: which kind.
        performer: does.
        recorder: tells.
        metrics: counted here.
    """

    def __init__(self, *, kind: Kind, performer: Performer, recorder: Recorder, metrics: Metrics) -> None:
        self._kind = kind
        self._performer = performer
        self._recorder = recorder
        self._log = LookLog(metrics)

    async def reconcile(self, key: Key) -> Outcome:
        """See `Reconciler`."""
        seen = await self._observe(key)
        if seen is None:
            self._log.forget(key)
            return Outcome(sentence="it is gone", again_in_s=None)
        plan = self._plan(seen)
        # What a plan has applied is ours: it leaves alone what stands under one of its names and is another's.
        scene = Scene(namespace=key.namespace, now=seen.now, is_ours=lambda _: True)
        failures = await self._carry_out(scene, plan)
        if failures:
            plan = self._refused(seen, failures[0])
        written = await self._tell(key, seen, plan)
        return Outcome(
            sentence=plan.sentence,
            again_in_s=plan.requeue_s if written else 0.0,
            refused=tuple(f"{each.kind} {each.name} was refused: {each.message}" for each in failures),
        )

    async def _carry_out(self, scene: Scene, plan: P) -> Sequence[Failure]:
        """Do what a plan says, up to what is refused: each step needs those before it. Gives what was refused."""
        failure = await self._performer.perform(scene, plan.actions)
        return () if failure is None else (failure,)

    async def _tell(self, key: Key, seen: S, plan: P) -> bool:
        """Write status and events, log; False when the status was for a version that is gone."""
        resource, written = seen.resource, True
        subject = Subject(kind=self._kind, namespace=key.namespace, name=key.name, uid=resource.uid)
        if plan.status is not None:
            written = await self._performer.write_status(subject, resource.version, resource.status, plan.status)
            if written:
                self._written(key, seen, plan)
        for event in plan.events if written else ():
            await self._recorder.tell(subject, event)
        self._log.note(key, plan.sentence, plan.actions)
        return written

    @abstractmethod
    async def _observe(self, key: Key) -> S | None:
        """See one; None: it is gone."""

    @abstractmethod
    def _plan(self, seen: S) -> P:
        """Say what is to be done."""

    @abstractmethod
    def _refused(self, seen: S, failure: Failure) -> P:
        """Say what is to be told once the API server has refused an object."""

    def _written(self, key: Key, seen: S, plan: P) -> None:
        """Take in that the plan's status stands there."""

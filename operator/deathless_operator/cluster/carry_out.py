"""Carrying out a plan: its actions in their order, then its status.

Guarantees:
- An action that the API server refuses, or does not decide, becomes a `Failure`, which the next snapshot holds, so the
  plan can tell it as a condition. It holds back the actions that need it and no others (`carry_out`); `perform` ends
  there instead, for plans whose steps follow from each other. An API server that cannot be reached raises: nothing can
  be told then.
- Fields are taken over by force only in objects that bear our label (or are not there yet); in others a field
  that somebody else manages is a refusal with its owner's name.
- A pod is made and never changed: one by its name that is there already counts as made, whoever's it is, and the
  next snapshot shows that.
- Deletes and patches name the uid that was seen: the successor of an object is never hit.
- A status is written through the status subresource, to the version that was read, and only when it differs.

Does not: decide, or repeat beyond what `Api` does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

import msgspec

from deathless_operator.cluster.api import Api, Object
from deathless_operator.cluster.errors import ApiFailed, ApiRefused, ApiUnreachable, Conflict, NotFound, Unacceptable
from deathless_operator.cluster.events import Subject
from deathless_operator.cluster.kinds import NODE, POD, kind_of
from deathless_operator.cluster.trust import Trust
from deathless_operator.model import names
from deathless_operator.model.values import JsonObject
from deathless_operator.plan import actions as plan_actions
from deathless_operator.plan.actions import (
    Action,
    Apply,
    CopySecret,
    DeleteObject,
    DeletePod,
    IssueCertificate,
    MakeToken,
    PatchMetadata,
    Target,
    TrustAuthorities,
)
from deathless_operator.plan.drill.snapshot import DrillAction, EvictPod, SetCordon
from deathless_operator.plan.snapshot import Failure, Snapshot

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Where actions take place."""

    namespace: str  # of the resource that the plan is for
    now: float  # wall seconds
    is_ours: Callable[[JsonObject], bool]  # whether an object's fields may be taken over


class Performer:
    """Carries out what plans ask for.

    Args:
        api: the API server.
        trust: signs certificates and copies Secrets.
    """

    def __init__(self, api: Api, trust: Trust) -> None:
        self._api = api
        self._trust = trust

    async def carry_out(
        self, scene: Scene, actions: Sequence[Action], resting: Mapping[Target, Failure]
    ) -> tuple[Failure, ...]:
        """Carry out actions but for those that are refused and those that need one of these; gives the refusals.

        Args:
            scene: where.
            actions: in their order.
            resting: refused lately, and not asked for again yet: they count as refused.

        Raises:
            ApiUnreachable: nobody knows how far it came; the next snapshot shows it.
        """
        failures: dict[Target, Failure] = {}
        undone: set[Target] = set()
        for action in actions:
            about = plan_actions.target(action)
            if needed := plan_actions.lacking(action, undone):
                undone.add(about)
                for each in needed.intersection(failures):
                    failures[each] = replace(failures[each], holds=(*failures[each].holds, str(about)))
                continue
            failure = resting.get(about) or await self._try(scene, action)
            if failure is not None:
                undone.add(about)
                failures[about] = replace(failure, holds=())
        return tuple(failures.values())

    async def _try(self, scene: Scene, action: Action) -> Failure | None:
        try:
            await self.act(scene, action)
        except (ApiRefused, ApiFailed) as error:
            return _failure(plan_actions.target(action), error.status, error.reason, error.message)
        except ApiUnreachable:
            raise
        except Exception as error:  # a bug of ours, or of what reads what a person wrote: one action's, too
            logger.exception("%s could not be carried out", type(action).__name__)
            said = f"{type(error).__name__}: {error}"
            return _failure(plan_actions.target(action), 0, type(error).__name__, said)
        return None

    async def perform(self, scene: Scene, actions: Sequence[DrillAction]) -> Failure | None:
        """Carry out actions until one is refused; gives that refusal.

        Raises:
            ApiUnreachable: nobody knows how far it came; the next snapshot shows it.
        """
        for action in actions:
            try:
                await self.act(scene, action)
            except ApiRefused as error:
                return _failure(target(action), error.status, error.reason, error.message)
        return None

    async def act(self, scene: Scene, action: DrillAction) -> None:
        """Carry out one action."""
        match action:
            case Apply():
                await self._apply(scene, action.manifest)
            case DeletePod():
                grace = 0 if action.force else action.grace_s
                where = action.namespace or scene.namespace
                await self._api.delete(POD, where, action.name, uid=action.uid, grace_s=grace)
            case DeleteObject():
                kind = kind_of({"apiVersion": action.api_version, "kind": action.kind})
                where = action.namespace or scene.namespace
                await self._api.delete(kind, where, action.name, uid=action.uid)
            case PatchMetadata():
                await self._patch_metadata(scene.namespace, action)
            case IssueCertificate():
                await self._trust.issue(action, scene.now)
            case TrustAuthorities():
                await self._trust.trust(scene.namespace, action)
            case CopySecret():
                await self._trust.copy(action)
            case MakeToken():
                await self._trust.make_token(action)
            case EvictPod():
                await self._api.evict(scene.namespace, action.name, uid=action.uid)
            case SetCordon():
                await self._cordon(action)
            case _:
                assert_never(action)

    async def _apply(self, scene: Scene, manifest: JsonObject) -> None:
        if manifest["kind"] != POD.kind:
            await self._api.apply(manifest, force=scene.is_ours(manifest))
            return
        try:
            await self._api.create(manifest)
        except Conflict as error:
            if error.reason != "AlreadyExists":
                raise

    async def _cordon(self, action: SetCordon) -> None:
        meta: Object = {"annotations": {names.DRILL_ANNOTATION: action.mark}}
        body: Object = {"metadata": meta, "spec": {"unschedulable": True if action.cordon else None}}
        try:
            await self._api.patch(NODE, None, action.node, body)
        except NotFound:
            return

    async def _patch_metadata(self, namespace: str, action: PatchMetadata) -> None:
        kind = kind_of({"apiVersion": action.api_version, "kind": action.kind})
        # A uid in a patch is a precondition: the API server refuses it for another object of that name.
        meta: Object = {"uid": action.uid}
        if action.labels is not None:
            meta["labels"] = action.labels
        if action.annotations is not None:
            meta["annotations"] = action.annotations
        if action.finalizers is not None:
            meta["finalizers"] = list(action.finalizers)
        if action.owner_references is not None:
            meta["ownerReferences"] = list(action.owner_references)
        try:
            await self._api.patch(kind, namespace, action.name, {"metadata": meta})
        except NotFound:
            return
        except (Conflict, Unacceptable):
            # The one that was meant is gone when another bears its name, or none does by now; else it is told.
            found = await self._api.find(kind, namespace, action.name)
            if found is not None and found["metadata"].get("uid") == action.uid:
                raise

    async def write_status(self, subject: Subject, version: str, before: msgspec.Struct, after: msgspec.Struct) -> bool:
        """Write a status where it differs from the one seen.

        Args:
            subject: whose.
            version: the resource's version as read.
            before: the status in it.
            after: what it has to be.

        Returns:
            False when the resource has changed meanwhile or is gone, so that nothing was written: look again.
        """
        if after == before:
            return True
        manifest: Object = {
            "apiVersion": subject.kind.api_version,
            "kind": subject.kind.kind,
            "metadata": {"namespace": subject.namespace, "name": subject.name, "resourceVersion": version},
            "status": msgspec.to_builtins(after),
        }
        try:
            await self._api.apply_status(manifest)
        except (NotFound, Conflict):
            return False
        return True


def _failure(about: Target, status: int, reason: str, message: str) -> Failure:
    return Failure(kind=about.kind, name=about.name, status=status, reason=reason or "Refused", message=message)


def scene_of(snapshot: Snapshot) -> Scene:
    """Return where the actions of a service's plan take place."""
    return Scene(
        namespace=snapshot.resource.namespace,
        now=snapshot.now,
        is_ours=lambda manifest: is_ours(snapshot, manifest),
    )


def target(action: DrillAction) -> Target:
    """Return kind and name of what an action is about."""
    match action:
        case EvictPod():
            return Target(POD.kind, action.name)
        case SetCordon():
            return Target(NODE.kind, action.node)
        case _:
            return plan_actions.target(action)


def is_ours(snapshot: Snapshot, manifest: JsonObject) -> bool:
    """Tell whether an object is ours to take fields over in: not there yet, or with our label."""
    meta = manifest["metadata"]
    assert isinstance(meta, dict), "a manifest has metadata"
    found = snapshot.child(str(manifest["kind"]), str(meta["name"]))
    return found is None or found.labels.get(names.LABEL_MANAGED_BY) == names.FIELD_MANAGER

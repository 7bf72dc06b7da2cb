"""One shard of a service in a plan: its StatefulSet as it is, and as it is to be for now.

Guarantees: answers from the snapshot alone. Does not: decide how many replicas there are, or which one is replaced
(`rollout`). Imports model and base only.
"""

from __future__ import annotations

from dataclasses import dataclass

from deathless_operator.model import names
from deathless_operator.model.values import JsonObject, number
from deathless_operator.plan.service import rollout
from deathless_operator.plan.service.covering import body_difference, is_applied, was_repeated
from deathless_operator.plan.service.pods import held, is_outdated, replicas, serves
from deathless_operator.plan.snapshot import ChildView, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One shard's StatefulSet: as it is, and as it is to be for now."""

    part: Snapshot  # seen for this shard
    child: ChildView | None
    size: rollout.Size
    manifest: JsonObject
    template: str  # hash of the manifest's
    config: str  # name of the ConfigMap that its template mounts

    @property
    def is_applied(self) -> bool:
        """It is as the manifest has it, as far as the API server keeps that."""
        return self.child is not None and is_applied(self.child, self.manifest)

    @property
    def changed_again(self) -> str:
        """Path of what somebody has changed again after the manifest was applied twice; empty: nothing."""
        if self.child is None or not was_repeated(self.child, self.manifest) or self.is_applied:
            return ""
        return body_difference(self.child, self.manifest) or ""

    @property
    def is_settled(self) -> bool:
        """It has as many replicas as wanted, and its controller has read it: a roll may go on."""
        sized = self.size.replicas == self.size.wanted + self.size.upgraders > 0 and not self.size.adopting
        return sized and self.child is not None and is_seen(self.child)

    @property
    def unready(self) -> list[str]:
        """Pods that are to serve and don't."""
        return [
            pod.name
            for ordinal, pod in replicas(self.part).items()
            if ordinal < self.size.wanted and not serves(pod) and not held(self.part, ordinal, pod)
        ]

    @property
    def missing(self) -> list[str]:
        """Pods that are to be and are not."""
        pods = replicas(self.part)
        return [names.pod(self.part.set_name, ordinal) for ordinal in range(self.size.wanted) if ordinal not in pods]

    @property
    def is_moving(self) -> bool:
        """It has another number of replicas than wanted."""
        size = self.size
        whole = size.wanted + size.upgraders
        surplus = any(ordinal >= whole for ordinal in replicas(self.part))
        return bool(size.waits) or size.replicas != whole or surplus

    @property
    def outdated(self) -> list[str]:
        """Pods that are to stay and are of another template."""
        return [
            pod.name
            for ordinal, pod in replicas(self.part).items()
            if ordinal < self.size.wanted and is_outdated(self.part, pod, self.template)
        ]


def is_seen(child: ChildView) -> bool:
    """Tell whether the StatefulSet's controller has read it as it stands: else it would make pods of before."""
    return number(child.raw, "status", "observedGeneration") >= number(child.raw, "metadata", "generation")

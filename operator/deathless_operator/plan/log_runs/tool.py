"""What one kind of run is made of: its containers, and what its termination message means.

Guarantees: data and functions, no state. Does not: decide when a pod is made (`run`). Imports model and plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from msgspec import Meta

from deathless_operator.model.log_run import EXACT_MAX, LogRunSpec, Phase
from deathless_operator.model.values import JsonObject

Told = Annotated[int, Meta(ge=0, le=EXACT_MAX)]
Seconds = Annotated[float, Meta(ge=0, le=1e9)]
"""Numbers of a pod, whose image is the author's: a status holds no others, and one that lies has said nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What came of a run."""

    phase: Phase  # Succeeded or Failed
    reason: str
    message: str
    fields: Mapping[str, object] = field(default_factory=dict)  # of the status, beside those of every run


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One kind of run."""

    kind: str
    purpose: str  # names the container, and the pod behind the run's own name
    pod_spec: Callable[[JsonObject, LogRunSpec], JsonObject]  # from the template of the replicas
    judge: Callable[[str, int], Judged]  # termination message and exit code
    without_word: Callable[[Judged], Judged] = lambda judged: judged
    """Completes what is told of a run that ended without a word of its program."""

"""What a pod has to end in, and how much of that a primary may wait for activities that must run at most once.

    pod is deleted -> preStop, DRAIN_S -> SIGTERM -> limits.handoverWaitS -> an orderly stop, STOP_MAX_S
                   -> its successor settles, LEAVE_MAX_S -> ended; SIGKILL terminationGracePeriodSeconds after the first

Guarantees: what is given in the spec fits, or is a problem; what is not given is made to fit, down to no wait at all
where the grace is too short even for the rest. Does not: change the grace. Imports base.
"""

from __future__ import annotations

from typing import Final

from deathless.base.limits import LEAVE_MAX_S, STOP_MAX_S, Limits
from deathless.base.manifest import ServiceSpec
from deathless.base.schema_check import Problem

DRAIN_S: Final = 3
"""A pod that goes serves on for so long: nodes take its address out of Services first, also busy ones."""

END_S: Final = DRAIN_S + STOP_MAX_S + LEAVE_MAX_S
"""What a pod's end may take, without the wait."""


def handover_wait_s(spec: ServiceSpec) -> float:
    """Give how long a primary of the service waits at most: as the spec says, or what fits."""
    given = spec.limits.handover_wait_s
    if given is not None:
        return given
    return min(Limits().handover_wait_s, max(0.0, spec.pod_template.termination_grace_period_seconds - END_S))


def grace_problems(spec: ServiceSpec) -> list[Problem]:
    """Find a wait that SIGKILL would end: what it is there for would be given up all the same."""
    wait_s, grace_s = handover_wait_s(spec), spec.pod_template.termination_grace_period_seconds
    if not wait_s or wait_s + END_S <= grace_s:
        return []
    return [
        Problem(
            ("spec", "limits", "handoverWaitS"),
            wait_s,
            f"and {END_S:g} s on top are longer than podTemplate.terminationGracePeriodSeconds, {grace_s}",
            f"wait shorter, or give pods {wait_s + END_S:g} s",
        )
    ]

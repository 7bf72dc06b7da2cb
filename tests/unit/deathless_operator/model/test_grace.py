"""A pod's end fits its grace, with the wait for activities: what is given must fit, what is not is made to."""

from __future__ import annotations

import msgspec
import pytest

from deathless.base.limits import HANDOVER_WAIT_MAX_S, LEAVE_MAX_S, STOP_MAX_S, Limits
from deathless.base.manifest import ServiceSpec
from deathless.base.manifest_parts import LimitsSpec
from deathless.base.manifest_pod import PodTemplate
from deathless_operator.cli.plugin_cluster import SWITCH_S
from deathless_operator.model.grace import DRAIN_S, END_S, grace_problems, handover_wait_s

DEFAULT_S = Limits().handover_wait_s


def spec_of(*, grace_s: int | None = None, wait_s: float | None = None) -> ServiceSpec:
    pods = PodTemplate() if grace_s is None else PodTemplate(termination_grace_period_seconds=grace_s)
    return ServiceSpec(module="m:s", limits=LimitsSpec(handover_wait_s=wait_s), pod_template=pods)


def test_an_end_is_the_drain_the_stop_and_the_successors_settling() -> None:
    assert END_S == DRAIN_S + STOP_MAX_S + LEAVE_MAX_S
    assert END_S < SWITCH_S, "`kubectl deathless switchover`; the wait comes on top of both"


def test_the_defaults_fit_each_other() -> None:
    grace_s = PodTemplate().termination_grace_period_seconds
    assert grace_s >= DEFAULT_S + END_S
    assert handover_wait_s(spec_of()) == DEFAULT_S


@pytest.mark.parametrize(("grace_s", "wait_s"), [(5, 0), (21, 0), (25, 4), (28, 7), (29, DEFAULT_S), (600, DEFAULT_S)])
def test_what_is_not_given_is_what_the_grace_leaves(grace_s: int, wait_s: float) -> None:
    spec = spec_of(grace_s=grace_s)
    assert handover_wait_s(spec) == wait_s
    assert grace_problems(spec) == []


@pytest.mark.parametrize(
    ("grace_s", "wait_s", "fits"),
    [(30, 9.0, True), (30, 9.5, False), (None, 9.0, True), (None, 60.0, False), (81, 60.0, True), (5, 0.0, True)],
)
def test_what_is_given_must_fit(grace_s: int | None, wait_s: float, fits: bool) -> None:
    spec = spec_of(grace_s=grace_s, wait_s=wait_s)
    assert handover_wait_s(spec) == wait_s
    assert [problem.path for problem in grace_problems(spec)] == ([] if fits else [("spec", "limits", "handoverWaitS")])


@pytest.mark.parametrize(
    ("field", "kind"), [("handoverWaitS", LimitsSpec), ("terminationGracePeriodSeconds", PodTemplate)]
)
def test_a_wait_and_a_grace_have_one_maximum(field: str, kind: type[LimitsSpec | PodTemplate]) -> None:
    msgspec.convert({field: int(HANDOVER_WAIT_MAX_S)}, kind)
    with pytest.raises(msgspec.ValidationError, match="600"):
        msgspec.convert({field: int(HANDOVER_WAIT_MAX_S) + 1}, kind)

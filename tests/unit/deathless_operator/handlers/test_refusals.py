"""What is asked for again, and when; that looks go on meanwhile is shown in plan/test_refused.py."""

from __future__ import annotations

from deathless_operator.cluster.kinds import SERVICE
from deathless_operator.handlers.refusals import Refusals
from deathless_operator.handlers.work_queue import BACKOFF_MAX_S, Key
from deathless_operator.plan.actions import Apply, Target
from deathless_operator.plan.snapshot import Failure

KEY = Key(SERVICE.kind, "prod", "bank")
POLICY = Target("NetworkPolicy", "bank")


def apply(text: str = "a") -> Apply:
    manifest = {"kind": "NetworkPolicy", "metadata": {"name": "bank"}, "spec": text}
    return Apply(manifest=manifest, why="it differs")  # type: ignore[arg-type]


def failure() -> Failure:
    return Failure(kind="NetworkPolicy", name="bank", status=403, reason="Forbidden", message="no")


class Clock:
    """A clock that a test moves."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_refused_action_rests_for_pauses_that_double_up_to_a_minute() -> None:
    clock = Clock()
    refusals = Refusals(clock)
    pauses = []
    for _ in range(12):
        assert refusals.resting(KEY, [apply()]) == {}
        refusals.note(KEY, [apply()], [failure()])
        assert refusals.resting(KEY, [apply()]) == {POLICY: failure()}
        refusals.note(KEY, [apply()], [failure()])  # a look meanwhile, which did not ask: the pause is not begun anew
        pauses.append(refusals.again_in_s(KEY))
        clock.now += pauses[-1] or 0
    assert pauses[:4] == [0.25, 0.5, 1.0, 2.0]
    assert pauses[-1] == BACKOFF_MAX_S


def test_action_that_has_changed_is_asked_for_at_once() -> None:
    refusals = Refusals(Clock())
    refusals.note(KEY, [apply()], [failure()])
    assert refusals.resting(KEY, [apply("b")]) == {}


def test_what_was_done_or_is_gone_is_forgotten() -> None:
    refusals = Refusals(Clock())
    refusals.note(KEY, [apply()], [failure()])
    assert refusals.failures(KEY) == (failure(),)
    refusals.note(KEY, [apply()], [])
    assert (refusals.failures(KEY), refusals.again_in_s(KEY)) == ((), None)
    refusals.note(KEY, [apply()], [failure()])
    refusals.forget(KEY)
    assert refusals.failures(KEY) == ()

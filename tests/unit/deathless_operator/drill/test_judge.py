"""The judge sees what was lost, doubled and waited for in made-up histories, and is not fooled by any of them."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless_operator.drill.judge import Call, Held, History, judge


def history(*answered: bool, held: Held | str | None = "all", **other: object) -> History:
    """A call a second, answered after 10 ms or never; `held` "all": what was answered, once."""
    calls = [
        Call(number=index, sent=float(index), answered=index + 0.01 if good else None)
        for index, good in enumerate(answered)
    ]
    found = Held([(i, i) for i, good in enumerate(answered) if good]) if held == "all" else held
    fields: dict[str, object] = {"warm_at": 0.0, "ended": float(len(answered))} | other
    return History(calls=calls, held=found, **fields)  # type: ignore[arg-type]


def test_clean_history_passes() -> None:
    found = judge(history(True, True, True, held=Held([(0, 2)])), 1.0)
    assert (found.verdict, found.reason) == ("Passed", "NothingLost")
    assert (found.calls, found.answered, found.lost, found.doubled) == (3, 3, 0, 0)
    assert found.unavailable_seconds == 0.01


def test_lost_call_fails_the_drill() -> None:
    found = judge(history(True, True, True, held=Held([(0, 0), (2, 2)])), 1.0)
    assert (found.verdict, found.reason, found.lost, found.doubled) == ("Failed", "Lost", 1, 0)


def test_doubled_call_fails_the_drill() -> None:
    found = judge(history(True, True, True, held=Held([(0, 2)], 1)), 1.0)
    assert (found.verdict, found.reason, found.lost, found.doubled) == ("Failed", "Doubled", 0, 1)


def test_loss_and_doubling_do_not_cancel_each_other_out() -> None:
    found = judge(history(True, True, True, held=Held([(0, 1)], 1)), 1.0)
    assert (found.verdict, found.reason, found.lost, found.doubled) == ("Failed", "LostAndDoubled", 1, 1)


def test_answers_of_a_primary_that_was_replaced_are_lost() -> None:
    """With its fence off a thawed primary answers what its successor never saw."""
    sabotaged = history(*[True] * 10, held=Held([(0, 3), (7, 9)]))
    found = judge(sabotaged, 1.0)
    assert (found.verdict, found.lost) == ("Failed", 3)


@pytest.mark.parametrize("held", [Held([(0, 1)]), Held([(0, 2)])])
def test_call_without_an_answer_may_be_applied_or_not(held: Held) -> None:
    found = judge(history(True, True, False, held=held), 10.0)
    assert (found.lost, found.doubled, found.reason) == (0, 0, "NotRecovered")


def test_service_that_forgot_everything_lost_everything() -> None:
    assert judge(history(True, True, held=Held()), 1.0).lost == 2


@pytest.mark.parametrize(("gave_up", "waited"), [(None, 8.0), (3.0, 4.0), (5.0, 4.0), (6.0, 8.0)])
def test_call_that_was_given_up_waits_until_somebody_is_answered_again(gave_up: float | None, waited: float) -> None:
    calls = [
        Call(number=0, sent=2.0, gave_up=gave_up),
        Call(number=1, sent=5.5, answered=6.0),
    ]
    found = judge(History(calls=calls, held=Held([(1, 1)]), warm_at=0.0, ended=10.0), 60.0)
    assert (found.reason, found.unavailable_seconds, found.unavailable_from) == ("NotRecovered", waited, 2.0)


def test_longest_wait_counts_from_the_first_attempt() -> None:
    slow = Call(number=0, sent=2.0, answered=4.5, attempts=9)
    found = judge(History(calls=[slow], held=Held([(0, 0)]), warm_at=0.0, ended=5.0), 2.0)
    assert (found.verdict, found.reason, found.unavailable_seconds) == ("Failed", "Unavailable", 2.5)
    assert (found.unavailable_from, found.attempts) == (2.0, 9)


def test_one_client_that_waits_is_not_hidden_by_others_that_are_served() -> None:
    base = history(*[True] * 4)
    waiting = Call(number=4, sent=0.5, answered=3.5)
    found = judge(replace(base, calls=[*base.calls, waiting], held=Held([(0, 4)])), 2.0)
    assert found.unavailable_seconds == 3.0


def test_wait_of_a_witness_says_nothing_and_what_it_was_answered_must_be_held() -> None:
    patient = Call(number=4, sent=0.5, answered=3.5, witness=True)
    calm = history(True, True, True, True)
    assert judge(replace(calm, calls=[*calm.calls, patient]), 1.0).reason == "Lost"
    held = Held([(0, 4)])
    assert judge(replace(calm, calls=[*calm.calls, patient], held=held), 1.0).reason == "NothingLost"


def test_waits_before_the_service_was_warm_do_not_count() -> None:
    slow, good = Call(number=0, sent=0.0, answered=5.0), Call(number=1, sent=7.0, answered=7.01)
    found = judge(History(calls=[slow, good], held=Held([(0, 1)]), warm_at=6.0, ended=8.0), 1.0)
    assert found.verdict == "Passed"
    assert found.unavailable_seconds == 0.01


def test_wait_of_a_stalled_runner_is_not_held_against_the_service() -> None:
    slow = Call(number=0, sent=0.0, answered=5.0)
    stalled = History(calls=[slow], held=Held([(0, 0)]), warm_at=0.0, stalled_s=4.9, ended=5.0)
    assert (judge(stalled, 1.0).verdict, judge(stalled, 1.0).reason) == ("Inconclusive", "RunnerStalled")
    assert judge(replace(stalled, held=Held()), 1.0).reason == "Lost"


@pytest.mark.parametrize(
    ("change", "verdict", "reason"),
    [
        ({"warm_at": None}, "Aborted", "NotWarm"),
        ({"warm_at": None, "refused": "401"}, "Aborted", "NotWarm"),
        ({"refused": "DL3007 key reused"}, "Failed", "Refused"),
        ({"terminated": True}, "Aborted", "Terminated"),
        ({"held": None}, "Inconclusive", "NotRead"),
    ],
)
def test_what_else_ends_a_drill(change: dict[str, object], verdict: str, reason: str) -> None:
    found = judge(history(True, True, **change), 1.0)  # type: ignore[arg-type]
    assert (found.verdict, found.reason) == (verdict, reason)


def test_lost_calls_fail_a_drill_that_was_ended_or_never_warm() -> None:
    assert judge(history(True, held=Held(), terminated=True), 1.0).verdict == "Failed"
    assert judge(history(True, held=Held(), warm_at=None), 1.0).verdict == "Failed"


def test_answer_before_its_question_is_no_history() -> None:
    wrong = Call(number=0, sent=5.0, answered=4.0)
    assert judge(History(calls=[wrong], held=Held([(0, 0)]), warm_at=0.0, ended=6.0), 1.0).reason == "BadHistory"


def test_no_calls_at_all_pass_nothing() -> None:
    assert judge(History(calls=[], held=Held(), warm_at=0.0, ended=1.0), 1.0).verdict == "Inconclusive"


@given(st.lists(st.sampled_from(["applied", "lost", "doubled", "unanswered", "unanswered_applied"]), max_size=40))
def test_every_call_that_went_wrong_is_counted(fates: list[str]) -> None:
    ranges = [(i, i) for i, fate in enumerate(fates) if fate in ("applied", "doubled", "unanswered_applied")]
    held = Held(ranges, fates.count("doubled"))
    found = judge(history(*(not fate.startswith("unanswered") for fate in fates), held=held), 100.0)
    assert (found.lost, found.doubled) == (fates.count("lost"), fates.count("doubled"))
    assert (found.verdict == "Failed") == bool(set(fates) - {"applied"})


def test_what_the_service_says_beyond_that_is_passed_over() -> None:
    said = b'{"count": 3, "ranges": [[0, 2]], "doubled_count": 0, "doubled": []}'
    held = msgspec.json.decode(said, type=Held)
    assert [held.has(number) for number in (-1, 0, 2, 3)] == [False, True, True, False]

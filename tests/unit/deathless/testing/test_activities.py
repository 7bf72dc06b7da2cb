"""Fakes of activities: attempts, failures, unknown outcomes, time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from tests.unit.deathless.testing.services import post, posted, shelf, weigh

from deathless import current_activity
from deathless.base.errors import InvalidUse, NotRetryable, OutcomeUnknown
from deathless.testing import Environment


def test_a_fake_gets_the_arguments_and_gives_the_result() -> None:
    with Environment(shelf) as env:
        fake = env.activity(weigh, lambda grams: 2 * grams)
        assert env.service(shelf)["a"].weighed(4) == "weighs 8"
        [call] = fake.calls
        assert (call.service, call.name, call.arguments, call.attempt) == ("shelf", "weigh", {"grams": 4}, 1)
        assert env.history.activities == [call]


def test_a_failure_is_tried_again_after_its_delay() -> None:
    attempts = []

    def weigh_badly(grams: int) -> int:
        attempts.append(current_activity().attempt)
        if len(attempts) < 3:
            raise ConnectionError("no scale")
        return grams

    with Environment(shelf) as env:
        fake = env.activity("weigh", weigh_badly)
        assert env.service(shelf)["a"].weighed(4) == "weighs 4"
        assert attempts == [1, 2, 3]
        assert len(fake.keys) == 1
        assert env.now == datetime(2030, 1, 1, 0, 0, 30, tzinfo=UTC), "10 s, then 20 s"


def test_the_last_attempt_and_one_that_is_not_retryable_fail_the_handler() -> None:
    def refuse(grams: int) -> int:
        raise NotRetryable("too heavy")

    def fail(grams: int) -> int:
        raise ConnectionError("no scale")

    with Environment(shelf) as env:
        env.activity(weigh, refuse)
        assert env.service(shelf)["a"].weighed(4).endswith("activity weigh, attempt 1: too heavy")
        fake = env.activity(weigh, fail)
        assert env.service(shelf)["a"].weighed(4).endswith("activity weigh, attempt 3: no scale")
        assert len(fake.calls) == 3


def test_an_attempt_that_takes_too_long_is_ended() -> None:
    with Environment(shelf) as env:
        env.activity(weigh, lambda grams: grams, takes=timedelta(seconds=61))
        assert "it took longer than 60 s" in env.service(shelf)["a"].weighed(4)


def test_an_outcome_that_nobody_knows_is_told() -> None:
    def lost(text: str) -> str:
        raise OutcomeUnknown("the line went dead")

    with Environment(shelf) as env:
        env.activity(post, lost)
        assert env.service(shelf)["a"].posted("hello") == "unknown"


@pytest.mark.parametrize("moment", ["activity", "outcome"])
def test_a_kill_while_it_runs_begins_it_again(moment: str) -> None:
    with Environment(shelf) as env:
        fake = env.activity(weigh, lambda grams: grams)
        env.kill(shelf, at=moment)  # type: ignore[arg-type]
        assert env.service(shelf)["a"].weighed(4) == "weighs 4"
        assert len(fake.calls) == (2 if moment == "outcome" else 1)
        assert len(fake.keys) == 1


def test_a_kill_while_it_runs_at_most_once_leaves_it_unknown() -> None:
    with Environment(shelf) as env:
        fake = env.activity(post, lambda text: text, takes=timedelta(seconds=5))
        pending = env.service(shelf)["a"].start(posted, "hello")
        env.advance(seconds=1)
        env.kill(shelf)
        assert pending.result() == "unknown"
        assert len(fake.calls) == 1


def test_one_without_a_function_fails_the_test() -> None:
    with Environment(shelf, check=False) as env, pytest.raises(InvalidUse, match="activity 'weigh'"):
        env.service(shelf)["a"].weighed(4)


def test_what_is_no_activity_or_does_not_fit_is_refused() -> None:
    with Environment(shelf) as env:
        with pytest.raises(InvalidUse, match="no service of this environment has an activity 'nope'"):
            env.activity("nope", lambda: None)
        with pytest.raises(InvalidUse, match="does not take its arguments"):
            env.activity(weigh, lambda pounds: pounds)

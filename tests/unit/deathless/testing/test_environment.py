"""Services in one process: time, kills, takeovers, and the replay behind every test."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, get_args

import pytest
from tests.unit.deathless.testing.services import put, rest, shelf, unsteady

from deathless import Context, Service, Struct
from deathless.base.errors import Diverged, Internal, InvalidUse, OutcomeUnknown
from deathless.testing import Environment, Moment

LOGGED: Final[tuple[Moment, ...]] = ("turn", "written", "synced", "reply", "replied")


def test_a_reply_is_the_state_behind_it() -> None:
    with Environment(shelf) as env:
        a = env.service(shelf)["a"]
        assert a.put(5) == 5
        assert a.put(count=2) == 7
        assert a.count() == 7
        assert a.state.count == 7
        assert env.now == datetime(2030, 1, 1, tzinfo=UTC)


def test_an_hour_of_schedules_runs_each_tick_at_its_time() -> None:
    with Environment(shelf) as env:
        env.advance(hours=1)
        clock = env.service(shelf)["clock"].state
        assert clock.count == 60
        assert clock.ticks == ["2030-01-01T01:00:00+00:00"]


def test_time_is_skipped_to_what_a_caller_waits_for() -> None:
    with Environment(shelf) as env:
        assert env.service(shelf)["a"].rest(3) == "2030-01-01T03:00:00+00:00"
        assert env.now == datetime(2030, 1, 1, 3, tzinfo=UTC)


def test_a_month_without_schedules_is_skipped_in_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    class Nothing(Struct):
        pass

    quiet = Service("quiet", state=Nothing)

    @quiet.handler
    async def wait(state: Nothing, ctx: Context) -> str:
        await ctx.timer(after=timedelta(days=30))
        return ctx.now.isoformat()

    with Environment(quiet) as env:
        moves: list[int] = []
        move_to = env.loop.move_to

        def moved(us: int) -> None:
            moves.append(us)
            move_to(us)

        monkeypatch.setattr(env.loop, "move_to", moved)
        assert env.service(quiet)["a"].wait() == "2030-01-31T00:00:00+00:00"
        assert len(moves) < 20


def test_a_kill_keeps_what_was_answered() -> None:
    with Environment(shelf) as env:
        a = env.service(shelf)["a"]
        a.put(5)
        env.kill(shelf)
        assert a.count() == 5


@pytest.mark.parametrize("moment", LOGGED)
def test_a_call_is_applied_once_wherever_the_kill_comes(moment: Moment) -> None:
    with Environment(shelf) as env:
        a = env.service(shelf)["a"]
        a.put(5)
        env.kill(shelf, at=moment)
        assert a.put(2) == 7
        assert [point.moment for point in env.killed] == [moment]
        assert a.count() == 7


def test_the_nth_point_of_a_name_kills() -> None:
    with Environment(shelf) as env:
        a = env.service(shelf)["a"]
        env.kill(shelf, at="synced", number=3)
        assert [a.put(1), a.put(1), a.count()] == [1, 2, 2]
        assert not env.killed
        assert a.put(1) == 3
        assert len(env.killed) == 1


def test_an_ordered_kill_that_never_comes_fails_the_test() -> None:
    env = Environment(shelf)
    with pytest.raises(InvalidUse, match="killed at 'outcome'"), env:
        env.kill(shelf, at="outcome")


def test_a_handler_that_waits_goes_on_after_a_kill() -> None:
    with Environment(shelf) as env:
        pending = env.service(shelf)["a"].start(rest, 3)
        env.advance(hours=1)
        env.kill(shelf)
        assert not pending.done()
        assert pending.result() == "2030-01-01T03:00:00+00:00"


def test_a_successor_begins_with_a_checkpoint() -> None:
    with Environment(shelf) as env:
        a = env.service(shelf)["a"]
        a.put(5)
        a.label("five")
        pending = a.start(rest, 1)
        env.checkpoint(shelf)
        env.kill(shelf, at="checkpoint")
        env.checkpoint(shelf)
        env.kill(shelf)
        assert a.count() == 5
        assert dict(a.state.items.items()) == {"five": 5}
        assert pending.result() == "2030-01-01T01:00:00+00:00"


def test_a_takeover_names_a_handler_that_is_not_deterministic() -> None:
    with Environment(shelf, check=False) as env:
        env.service(shelf)["a"].wobble()
        with pytest.raises(Diverged, match="'wobble' for key 'a'") as caught:
            env.kill(shelf)
        assert caught.value.lsn > 0


def test_the_end_of_a_test_names_it_too() -> None:
    env = Environment(shelf)
    with pytest.raises(Diverged, match="'wobble' for key 'a'"), env:
        env.service(shelf)["a"].wobble()
    next(unsteady)


def test_a_test_that_failed_keeps_its_own_error() -> None:
    def fail(env: Environment) -> None:
        with env:
            env.service(shelf)["a"].wobble()
            raise KeyError

    with pytest.raises(KeyError):
        fail(Environment(shelf))


def test_a_stopped_service_is_waited_for_and_started_again() -> None:
    with Environment(shelf) as env:
        a = env.service(shelf)["a"]
        a.put(1)
        env.stop(shelf)
        pending = a.start(put, 1)
        with pytest.raises(OutcomeUnknown, match="shelf is stopped"):
            pending.result()
        env.start(shelf)
        assert pending.result() == 2


def test_time_passes_between_a_kill_and_the_takeover_if_a_test_says_so() -> None:
    with Environment(shelf, takeover=timedelta(seconds=3)) as env:
        a = env.service(shelf)["a"]
        a.put(1)
        env.kill(shelf)
        assert a.put(1) == 2
        assert env.now >= datetime(2030, 1, 1, 0, 0, 3, tzinfo=UTC)


def test_the_patience_of_an_environment_ends() -> None:
    with Environment(shelf, patience=timedelta(hours=1)) as env:
        pending = env.service(shelf)["a"].start(rest, 3)
        with pytest.raises(OutcomeUnknown, match="no result within 1:00:00 of logical time"):
            pending.result()
        assert env.now == datetime(2030, 1, 1, 1, tzinfo=UTC)


def test_the_same_test_does_the_same_each_time() -> None:
    def points(seed: int) -> tuple[int, bytes]:
        with Environment(shelf, seed=seed) as env:
            env.service(shelf)["a"].put(5)
            env.advance(minutes=3)
            primary = env.service(shelf).served.leader()
            return env.points.count, primary.engine.place.digest

    assert points(1) == points(1)


def test_misuse_is_named() -> None:
    with pytest.raises(InvalidUse, match="at least one service"):
        Environment()
    env = Environment(shelf)
    with pytest.raises(InvalidUse, match="the environment is new"):
        env.service(shelf)
    with env:
        with pytest.raises(InvalidUse, match="not under test"):
            env.service("other")
        with pytest.raises(InvalidUse, match="time does not go back"):
            env.advance(hours=-1)


def test_a_circle_in_one_moment_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deathless.testing.environment.STEPS_MAX", 100)
    env = Environment(shelf)
    env.open()

    def again() -> None:
        env.loop.post(again)

    again()
    with pytest.raises(Internal, match="in a circle"):
        env.settle()


def test_every_moment_has_a_name() -> None:
    assert set(LOGGED) < set(get_args(Moment))

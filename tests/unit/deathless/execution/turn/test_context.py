"""A context shows what the log says, and nothing once its turn has ended."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from deathless.base.errors import Closed
from deathless.execution.turn.context import Context, QueryContext, Turn

SEED = bytes(range(32))


def turn_of(key: str = "zoë", now_us: int = 1_900_000_000_123_456, lsn: int = 12) -> Turn:
    turn = Turn(SEED, now_us)
    turn.key = key.encode()
    turn.lsn = lsn
    return turn


def test_context_shows_key_time_and_lsn_of_its_turn() -> None:
    context = Context(turn_of())
    assert context.key == "zoë"
    assert context.lsn == 12
    assert context.now_us == 1_900_000_000_123_456
    assert context.now == datetime(2030, 3, 17, 17, 46, 40, 123456, tzinfo=UTC)


def test_time_is_exact_to_the_microsecond_far_from_the_epoch() -> None:
    now_us = 250_000_000_000_000_001
    assert Context(turn_of(now_us=now_us)).now.microsecond == 1


def test_chance_depends_on_lsn_and_goes_on_within_a_turn() -> None:
    context = Context(turn_of())
    assert context.random is context.random
    assert context.random.random() != context.random.random()
    assert context.uuid() != context.uuid()
    assert Context(turn_of(lsn=1)).uuid() != Context(turn_of(lsn=2)).uuid()
    assert Context(turn_of(lsn=1)).uuid() == Context(turn_of(lsn=1)).uuid()


@pytest.mark.parametrize(
    "use",
    [
        lambda context: context.key,
        lambda context: context.now,
        lambda context: context.now_us,
        lambda context: context.lsn,
        lambda context: context.random,
        lambda context: context.uuid(),
    ],
)
def test_dead_context_refuses_everything(use: Callable[[Context], object]) -> None:
    turn = turn_of()
    context = Context(turn)
    use(context)
    turn.alive = False
    with pytest.raises(Closed, match="ended"):
        use(context)


def test_context_tells_nothing_that_a_replay_would_not() -> None:
    shown = {name for name in dir(Context) if not name.startswith("_")}
    sends = {"call", "complete", "continue_with", "emit", "fork", "gather", "promise", "race", "reply_later", "run"}
    assert shown == {"begun_in", "key", "lsn", "now", "now_us", "random", "timer", "uuid"} | sends


def test_query_sees_neither_chance_nor_lsn() -> None:
    shown = {name for name in dir(QueryContext) if not name.startswith("_")}
    assert shown == {"key", "now", "now_us"}


def test_generator_ends_with_its_turn() -> None:
    turn = turn_of()
    assert turn.end() is None
    chance = Context(turn).random
    assert turn.end() is None
    with pytest.raises(Closed):
        chance.random()
    assert Context(turn).random is not chance

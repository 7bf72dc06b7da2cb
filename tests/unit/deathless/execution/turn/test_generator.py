"""Chance from the log: the same stream for the same seed and lsn, in every process and for ever (golden values)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless.base.errors import Closed
from deathless.execution.turn.generator import Random

SEED = bytes(range(32))


def test_stream_is_the_documented_one() -> None:
    chance = Random(SEED, 5)
    assert chance.randbytes(4).hex() == "5091c842"
    assert chance.random() == 0.3887997346453006
    assert [chance.randint(1, 6) for _ in range(8)] == [2, 2, 5, 5, 5, 3, 5, 5]
    assert chance.randint(-(10**20), 10**20) == 3154554764094812258
    assert chance.choice(["a", "b", "c"]) == "c"
    items = list(range(8))
    chance.shuffle(items)
    assert items == [2, 4, 7, 1, 3, 6, 5, 0]
    assert chance.uuid() == "60a0a1ae-886d-4b3f-8305-9a910a1c6030"


def test_other_lsn_or_seed_gives_another_stream() -> None:
    streams = {Random(SEED, 1).randbytes(16), Random(SEED, 2).randbytes(16), Random(bytes(32), 1).randbytes(16)}
    assert len(streams) == 3


@given(st.lists(st.integers(0, 200), max_size=6))
def test_stream_does_not_depend_on_the_pieces_it_is_taken_in(sizes: list[int]) -> None:
    chance = Random(SEED, 9)
    taken = b"".join(chance.randbytes(size) for size in sizes)
    assert taken == Random(SEED, 9).randbytes(sum(sizes))


@given(st.integers(-(2**70), 2**70), st.integers(0, 2**70), st.integers(0, 2**63))
def test_randint_stays_within_its_bounds(low: int, span: int, lsn: int) -> None:
    assert low <= Random(SEED, lsn).randint(low, low + span) <= low + span


def test_randint_of_one_value_draws_nothing() -> None:
    chance = Random(SEED, 1)
    assert chance.randint(4, 4) == 4
    assert chance.randbytes(8) == Random(SEED, 1).randbytes(8)


def test_randint_reaches_every_value_about_equally() -> None:
    chance = Random(SEED, 2)
    counts = [0] * 5
    for _ in range(5000):
        counts[chance.randint(0, 4)] += 1
    assert min(counts) > 850


@given(st.lists(st.integers()), st.integers(0, 1000))
def test_shuffle_keeps_the_items(items: list[int], lsn: int) -> None:
    shuffled = list(items)
    Random(SEED, lsn).shuffle(shuffled)
    assert sorted(shuffled) == sorted(items)


def test_random_lies_between_0_and_1() -> None:
    chance = Random(SEED, 3)
    drawn = [chance.random() for _ in range(1000)]
    assert 0 <= min(drawn) < 0.01
    assert 0.99 < max(drawn) < 1


def test_what_cannot_be_drawn_is_refused() -> None:
    chance = Random(SEED, 1)
    with pytest.raises(ValueError, match="negative"):
        chance.randbytes(-1)
    with pytest.raises(ValueError, match=r"no integer lies in \[3, 2\]"):
        chance.randint(3, 2)
    with pytest.raises(IndexError):
        chance.choice([])


def test_generator_of_an_ended_turn_refuses_everything() -> None:
    chance = Random(SEED, 1)
    chance.close()
    for use in (chance.random, chance.uuid, lambda: chance.randbytes(0), lambda: chance.randint(1, 6)):
        with pytest.raises(Closed, match="ended"):
            use()

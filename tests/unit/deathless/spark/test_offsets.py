"""How what comes next is cut: by the rows that a batch may have, by shards, and into partitions."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from deathless.base.errors import PeerReplaced
from deathless.spark import offsets
from deathless.spark.offsets import RANGE_ROWS, Offset, cut, share, spans


def offset(**shards: int) -> Offset:
    """Where shards are, all of one source each."""
    return {"topic": "t", "service": "", "shards": {shard[1:]: [f"source{shard}", at] for shard, at in shards.items()}}


@given(some.dictionaries(some.sampled_from("abcdef"), some.integers(0, 1000)), some.integers(1, 2000))
def test_a_batch_has_all_the_rows_it_may(wanted: dict[str, int], most: int) -> None:
    """None gets more than it wants, and no room is left while one wants more."""
    taken = share(wanted, most)
    assert sum(taken.values()) == min(most, sum(wanted.values()))
    assert all(0 <= taken[shard] <= wanted[shard] for shard in wanted)


def test_shards_have_the_same_share() -> None:
    """What one has no use for, the others get."""
    assert share({"0": 100, "1": 4, "2": 100}, 60) == {"0": 28, "1": 4, "2": 28}


def test_a_batch_ends_within_what_there_is() -> None:
    """A shard that is new begins with its first row, and one that is gone from the listing stays where it is."""
    start, until = offset(s0=5, s2=9), offset(s0=7, s1=100)
    assert cut(start, until, 10) == offset(s2=9, s0=7, s1=9)
    assert cut(until, until, 10) == until
    assert cut(until, offset(s0=3, s1=100), 10) == offset(s0=7, s1=100)


def test_partitions_are_a_function_of_the_range_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are cut at fixed multiples, and cover each position once."""
    monkeypatch.setattr(offsets, "RANGE_ROWS", 10)
    found = spans(offset(s0=5), offset(s0=31, s1=1, s2=3))
    assert [(span.shard, span.start, span.end) for span in found] == [
        (0, 5, 10),
        (0, 10, 20),
        (0, 20, 30),
        (0, 30, 31),
        (2, 1, 3),
    ]
    assert RANGE_ROWS == 1 << 20


def test_rows_of_another_source_are_not_taken_for_those_before() -> None:
    """A service that was restored has positions of its own."""
    other = {**offset(s0=9), "shards": {"0": ["another", 9]}}
    for ask in (lambda: spans(offset(s0=5), other), lambda: cut(offset(s0=5), other, 10)):
        with pytest.raises(PeerReplaced, match="restored"):
            ask()

"""How columns of a checkpoint's sections are cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless.codec.sections import Section, spans, split


@given(sizes=st.lists(st.integers(0, 30), max_size=30), bytes_max=st.integers(1, 40))
def test_spans_cover_every_item_once_and_hold_as_many_as_fit(sizes: list[int], bytes_max: int) -> None:
    cut = list(spans(sizes, bytes_max))
    assert [at for start, stop in cut for at in range(start, stop)] == list(range(len(sizes)))
    for start, stop in cut:
        assert stop == start + 1 or sum(sizes[start:stop]) <= bytes_max
        assert stop == len(sizes) or sum(sizes[start : stop + 1]) > bytes_max, "one more would have fit"


@given(items=st.lists(st.binary(max_size=9), max_size=9), before=st.binary(max_size=9))
def test_blobs_are_cut_as_they_were_joined(items: list[bytes], before: bytes) -> None:
    assert split(before + b"".join(items), len(before), [len(item) for item in items]) == items


@pytest.mark.parametrize("sizes", [[], [2], [1, 1], [4], [3, 1]])
def test_blobs_that_end_elsewhere_are_refused(sizes: list[int]) -> None:
    with pytest.raises(ValueError, match="disagree"):
        split(b"xabc", 1, sizes)


def test_types_of_messaging_stand_between_the_others_and_the_end() -> None:
    assert [*Section] == sorted(Section)
    assert Section.PARKED < Section.INVOCATIONS < Section.RESULTS < Section.END

"""What a server answers, and what something in its place does."""

from __future__ import annotations

import msgspec
import pytest

from deathless.base.errors import SinkUnavailable
from deathless.sinks.clickhouse.answers import numbers_of, rows_of, words_of


class Row(msgspec.Struct):
    n: int


def test_answer_is_taken_apart() -> None:
    assert rows_of(b'{"n":1}\n{"n":2}\n', Row) == [Row(1), Row(2)]
    assert rows_of(b"", Row) == []
    assert numbers_of(b"1\n2\n") == [1, 2]
    assert words_of(b"a\tb\nc\n") == ["a", "b", "c"]
    assert words_of(b"\thost\t\n", 3) == ["", "host", ""]


@pytest.mark.parametrize("answer", [b"<html>", b'{"n":"1"}\n', b"\xff\xfe"])
def test_answer_that_is_none_means_nothing(answer: bytes) -> None:
    with pytest.raises(SinkUnavailable):
        rows_of(answer, Row)
    with pytest.raises(SinkUnavailable):
        numbers_of(answer)
    with pytest.raises(SinkUnavailable):
        words_of(answer, 3)

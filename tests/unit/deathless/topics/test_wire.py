"""An Arrow stream of rows counts when it says that it covers all that was asked for."""

from __future__ import annotations

import io

import msgspec
import pyarrow as pa
import pytest

from deathless.base.safeguards import Safeguards
from deathless.base.topics.state import NEXT, ROWS
from deathless.topics.arrow import Row, arrow_schema, record_batch
from deathless.topics.wire import AnswerTorn, arrow_pieces, json_pieces, received, schema_text

SCHEMA = "flight:utf8,late:int64?"
TYPES = (
    "a:int64,b:float64?,c:bool,d:utf8,e:binary?,f:timestamp,g:decimal<2>,h:list<int64?>?,i:map<utf8>,"
    "j:struct<k:list<struct<l:utf8?>>,m:decimal<0>?>"
)


def batch(*positions: int) -> pa.RecordBatch:
    return record_batch(SCHEMA, 0, [Row(at, "k", at, ["LH", None]) for at in positions])


def pieces(end: int = 20) -> list[bytes]:
    return list(arrow_pieces([(4, batch(1, 3)), (9, batch(4))], arrow_schema(SCHEMA), end))


def read(data: bytes, start: int = 1, end: int = 20) -> list[tuple[int, int]]:
    return [(behind, found.num_rows) for behind, found in received(io.BytesIO(data), start, end)]


def test_each_batch_says_what_it_covers_and_the_last_one_that_it_is_all() -> None:
    assert len(pieces()) == 3
    assert read(b"".join(pieces())) == [(4, 2), (9, 1), (20, 0)]
    assert read(b"".join(arrow_pieces([], arrow_schema(SCHEMA), 5)), end=5) == [(5, 0)]


def test_what_is_cut_anywhere_is_torn() -> None:
    whole = b"".join(pieces())
    for size in range(0, len(whole) - 8, 7):
        with pytest.raises(AnswerTorn):
            read(whole[:size])


def test_what_is_cut_between_two_batches_is_taken_for_whole_without_the_safeguard() -> None:
    cut = b"".join(pieces()[:2])
    careless = received(io.BytesIO(cut), 1, 20, Safeguards(rows_to_their_end=False))
    assert sum(found.num_rows for _, found in careless) == 3
    with pytest.raises(AnswerTorn, match="ends behind position 8, before 20"):
        read(cut)


@pytest.mark.parametrize(
    ("start", "end", "why"),
    [(1, 21, "3 rows up to 20"), (1, 19, "3 rows up to 20"), (2, 20, "does not cover 2 to 3"), (5, 20, "cover 5 to 3")],
)
def test_rows_of_other_positions_are_no_answer(start: int, end: int, why: str) -> None:
    with pytest.raises(AnswerTorn, match=why):
        read(b"".join(pieces()), start, end)


def written(batches: list[tuple[pa.RecordBatch, dict[bytes, bytes] | None]]) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, arrow_schema(SCHEMA)) as writer:
        for each, told in batches:
            writer.write_batch(each, custom_metadata=told)
    return sink.getvalue()


@pytest.mark.parametrize(
    "batches",
    [
        [(batch(1), None)],
        [(batch(1), {b"a": b"1"})],
        [(batch(1), {NEXT: b"x"})],
        [(batch(1), {NEXT: b"20", ROWS: b"1"})],
        [(batch(1), {NEXT: b"2"}), (batch(), {NEXT: b"20", ROWS: b"2"})],
        [(batch(), {NEXT: b"20"})],
        [(batch(2, 1), {NEXT: b"3"}), (batch(), {NEXT: b"20", ROWS: b"2"})],
        [(batch(1, 1), {NEXT: b"3"}), (batch(), {NEXT: b"20", ROWS: b"2"})],
    ],
    ids=["nothing told", "something else", "no number", "rows at the end", "count", "no rows", "order", "twice"],
)
def test_what_says_something_else_is_no_answer(batches: list[tuple[pa.RecordBatch, dict[bytes, bytes] | None]]) -> None:
    with pytest.raises(AnswerTorn):
        read(written(batches))


def test_lines_of_json_have_each_row() -> None:
    (one, two) = json_pieces([(4, batch(1, 3)), (5, batch(4))])
    assert [msgspec.json.decode(line)["_position"] for line in (one + two).splitlines()] == [1, 3, 4]
    assert msgspec.json.decode(two) == {
        "_shard": 0, "_position": 4, "_key": "k", "_time": "1970-01-01T00:00:00.000004Z", "flight": "LH", "late": None
    }  # fmt: skip


def test_the_text_of_a_schema_is_found_again() -> None:
    assert schema_text(arrow_schema(TYPES)) == TYPES
    assert arrow_schema(schema_text(arrow_schema(TYPES))) == arrow_schema(TYPES)
    assert schema_text(arrow_schema("")) == ""
    with pytest.raises(ValueError, match="'x' is int8"):
        schema_text(pa.schema([pa.field("x", pa.int8())]))

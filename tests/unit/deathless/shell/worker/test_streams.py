"""What operators are told of streams and refused inputs: bounded, and with what is kept of a row."""

from __future__ import annotations

import msgspec
import pytest

from deathless.codec.snapshot import RefusedRecord
from deathless.codec.streams.records import END_SEQ, OnRefusal, StreamKey, StreamOpened
from deathless.codec.streams.rows import encode_row
from deathless.core.tables.stream_table import StreamTable
from deathless.shell.worker import streams
from deathless.shell.worker.streams import CHARS_MAX, REFUSED_SHOWN_MAX, list_streams


def opened(table: StreamTable, source: str, lsn: int, on_refusal: OnRefusal = OnRefusal.DEAD_LETTER) -> int:
    stream = table.open(StreamOpened(*StreamKey(source, 0), bytes(16), on_refusal), lsn)
    assert stream is not None
    return stream.session


def refuse(table: StreamTable, session: int, lsn: int, seq: int, row: bytes = b"{}") -> None:
    stream = table.get(session)
    assert stream is not None
    message = encode_row("flights", b"JFK", row)
    table.refuse(stream, RefusedRecord(lsn, session, seq, 5, "DL3084", "why" * 1000, message))


def test_refused_rows_of_one_source_are_listed_with_what_is_kept_of_them() -> None:
    table = StreamTable()
    session, other = opened(table, "flights", 1), opened(table, "trains", 2)
    refuse(table, session, 10, 5, b'{"a": 1}')
    refuse(table, other, 11, 5)
    refuse(table, session, 12, 0)
    refuse(table, session, 13, END_SEQ + 7)
    told = list_streams(table, "flights", 0)
    first, late, end = msgspec.to_builtins(told["refused"])
    assert (first["lsn"], first["id"], first["key"], first["row"]) == (10, 4, "JFK", '{"a": 1}')
    assert (late["id"], end["id"]) == (-1, -1)
    assert len(first["why"]) == CHARS_MAX
    assert (told["count"], told["more"], told["standing"]) == (3, False, [])
    (stream,) = msgspec.to_builtins(told["streams"])
    assert (stream["stream"], stream["session"], stream["refused"], stream["stands"]) == (0, 1, 3, False)
    assert [each["lsn"] for each in msgspec.to_builtins(list_streams(table, "flights", 12)["refused"])] == [12, 13]


def test_streams_are_told_answer_by_answer_and_one_of_them_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "STREAMS_SHOWN_MAX", 2)
    table = StreamTable()
    for number in range(3):
        stream = table.open(StreamOpened(*StreamKey("flights", number), bytes(16), OnRefusal.STOP), number + 1)
        assert stream is not None
        refuse(table, stream.session, 10 + number, 5)

    def told(name: str, above: int = 0, stream: int | None = None) -> list[int]:
        answer = list_streams(table, "flights", 0, above=above, stream=stream)
        return [each["session"] for each in msgspec.to_builtins(answer[name])]

    assert (told("streams"), told("streams", above=2), told("streams", above=3)) == ([1, 2], [3], [])
    assert (told("streams", stream=2), told("standing", stream=2), told("standing", above=2)) == ([3], [3], [1, 2, 3])


def test_a_stream_that_stands_says_at_what() -> None:
    table = StreamTable()
    session = opened(table, "flights", 1, OnRefusal.STOP)
    refuse(table, session, 10, 5)
    told = list_streams(table, "flights", 100)
    (standing,) = msgspec.to_builtins(told["standing"])
    assert (standing["lsn"], standing["seq"], standing["stands"], standing["row"]) == (10, 5, True, "")
    assert told["refused"] == []


def test_streams_that_stand_are_told_by_when_they_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """So one that was tried again and stands anew is behind those that were not."""
    monkeypatch.setattr(streams, "STANDING_SHOWN_MAX", 2)
    table = StreamTable()
    for number in range(3):
        stream = table.open(StreamOpened(*StreamKey("flights", number), bytes(16), OnRefusal.STOP), number + 1)
        assert stream is not None
        refuse(table, stream.session, 10 + number, 5)
    table.go_on(1, None)
    refuse(table, 1, 20, 5)
    assert [each["session"] for each in msgspec.to_builtins(list_streams(table, "flights", 0)["standing"])] == [2, 3]


def test_an_answer_is_bounded() -> None:
    table = StreamTable()
    session = opened(table, "flights", 1)
    for lsn in range(10, 20 + REFUSED_SHOWN_MAX):
        refuse(table, session, lsn, lsn, b"x" * 10_000)
    told = list_streams(table, "flights", 0)
    assert (len(msgspec.to_builtins(told["refused"])), told["more"]) == (REFUSED_SHOWN_MAX, True)
    assert len(msgspec.json.encode(told)) < 1 << 20

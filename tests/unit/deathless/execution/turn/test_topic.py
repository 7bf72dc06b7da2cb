"""The message that carries a row, as its topic makes it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from deathless.base.errors import InvalidArgument, InvalidService, InvalidUse
from deathless.base.topics.emitted import Emitted
from deathless.execution.turn.topic import Topic, decode_emitted


class Departed(msgspec.Struct):
    flight: str
    minutes: int = 0
    seats: dict[str, int] = {}


TOPIC = Topic("departures", Departed, "here")


def test_a_row_travels_with_its_schema_and_its_time() -> None:
    data = TOPIC.encode(Departed("UA1", 5, {"b": 2, "a": 1}), 123)
    row: dict[str, Any] = {
        "schema": "flight:utf8,minutes:int64,seats:map<int64>",
        "time_us": 123,
        "row": ["UA1", 5, {"a": 1, "b": 2}],
    }
    assert msgspec.msgpack.decode(data) == row
    assert decode_emitted(data) == Emitted(**row)
    assert repr(TOPIC) == "Topic('departures', Departed)"


def test_the_order_of_a_dict_makes_no_difference() -> None:
    one, other = ({"b": 2, "a": 1}, {"a": 1, "b": 2})
    assert TOPIC.encode(Departed("", seats=one), 1) == TOPIC.encode(Departed("", seats=other), 1)


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(
        InvalidArgument, match=r"^DL\d+ topic departures: Departed\.minutes: 'x' is not an int"
    ) as found:
        TOPIC.encode(Departed("UA1", "x"), 1)  # type: ignore[arg-type]  # pyrefly: ignore
    assert type(found.value) is InvalidArgument
    with pytest.raises(InvalidArgument, match="half of a surrogate pair"):
        TOPIC.encode(Departed("\ud800"), 1)
    with pytest.raises(InvalidUse, match="topic departures has rows of Departed, not of str"):
        TOPIC.encode("UA1", 1)  # type: ignore[arg-type]  # pyrefly: ignore


def test_where_a_topic_is_declared_stands_in_what_is_said_of_it() -> None:
    with pytest.raises(InvalidService, match="here: its rows must be of a Struct"):
        Topic("departures", int, "here")  # type: ignore[type-var]  # pyrefly: ignore

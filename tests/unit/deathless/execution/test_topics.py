"""Handlers publish rows: each is a fork to the topic, in the order of turns, and the same when it is run again."""

from __future__ import annotations

from datetime import timedelta
from typing import assert_type

import msgspec
import pytest
from tests.unit.deathless.execution.executor_bench import error
from tests.unit.deathless.execution.messaging_bench import Hub, Target, replay, value

from deathless.base.errors import InvalidService
from deathless.codec.messages import Kind, decode
from deathless.execution.author.service import Service
from deathless.execution.turn.context import Context
from deathless.execution.turn.topic import Topic, decode_emitted


class Airport(msgspec.Struct):
    count: int = 0


class Departed(msgspec.Struct):
    flight: str
    number: int = 0


airports = Service("airports", state=Airport)
departures = airports.topic("departures", Departed)
others = Service("others", state=Airport).topic("departures", Departed)
SCHEMA = "flight:utf8,number:int64"


@airports.handler
def depart(airport: Airport, ctx: Context, flight: str) -> int:
    airport.count += 1
    row = Departed(flight, airport.count)
    ctx.emit(departures, row)
    row.number = 99  # what was published stays as it was
    return airport.count


@airports.handler
async def depart_slowly(airport: Airport, ctx: Context, flights: list[str]) -> int:
    for flight in flights:
        ctx.emit(departures, Departed(flight, airport.count))
        airport.count += 1
        await ctx.timer(after=timedelta(seconds=1))
    return airport.count


@airports.handler
def wrong(airport: Airport, ctx: Context, how: str) -> None:
    airport.count += 1
    ctx.emit(departures, Departed("before"))
    match how:
        case "value":
            ctx.emit(departures, Departed("x", 2**70))
        case "class":
            ctx.emit(departures, Airport())  # type: ignore[misc]  # pyrefly: ignore
        case "topic":
            ctx.emit(others, Departed("x"))
        case "fork":
            ctx.fork("departures", ctx.key, "emit", {"row": []})
        case "large":
            ctx.emit(departures, Departed("x" * 2_000_000))


@airports.handler
async def asks(airport: Airport, ctx: Context) -> None:
    await ctx.call("departures", ctx.key, "emit")


@airports.query
def peek(airport: Airport, ctx: Context) -> None:
    """A query that says it has a handler's context has a query's."""
    ctx.emit(departures, Departed("x"))


def rows(hub: Hub) -> list[tuple[str, list[object]]]:
    found = []
    for target, message in hub.sent:
        assert target == Target("departures", 0)
        kind, method, key, _, arguments = decode(message)
        assert (kind, method) == (Kind.FORK, b"emit")
        emitted = decode_emitted(arguments)
        assert emitted.schema == SCHEMA
        found.append((key.decode(), [emitted.time_us, *emitted.row]))
    return found


def test_a_row_is_sent_with_the_key_and_the_time_of_its_turn() -> None:
    hub = Hub(airports)
    assert value(hub.send("depart", "JFK", flight="UA1")) == 1
    hub.now_us = 2_000
    hub.send("depart", "SFO", flight="UA2")
    hub.send("depart", "JFK", flight="UA3")
    assert rows(hub) == [("JFK", [1_000, "UA1", 1]), ("SFO", [2_000, "UA2", 1]), ("JFK", [2_000, "UA3", 2])]


@pytest.mark.parametrize(
    ("how", "code", "text"),
    [
        ("value", "DL3003", "topic departures: Departed.number: the integer has more than 64 bits"),
        ("class", "DL3049", "topic departures has rows of Departed, not of Airport"),
        ("topic", "DL3049", "Topic('departures', Departed) is no topic of airports"),
        ("fork", "DL3049", "'departures' is a topic: publish rows with ctx.emit"),
        ("large", "DL3006", "the message to departures/a/emit would have"),
    ],
)
def test_what_can_not_be_published_fails_its_turn_whole(how: str, code: str, text: str) -> None:
    hub = Hub(airports)
    failed = error(hub.send("wrong", "a", how=how))
    assert (failed.code, failed.text[: len(text)]) == (code, text)
    assert hub.sent == []
    assert hub.executor.state() == {}


def test_a_topic_answers_no_call() -> None:
    hub = Hub(airports)
    assert error(hub.send("asks")).text == "'departures' is a topic: publish rows with ctx.emit"
    assert hub.sent == []


def test_a_query_publishes_nothing() -> None:
    hub = Hub(airports)
    failed = error(hub.ask("peek", "a"))
    assert "emit" in failed.text
    assert hub.executor.take_outputs() is None


def test_a_handler_that_waits_publishes_once_however_often_it_is_run_again() -> None:
    hub = Hub(airports)
    begun = hub.begin("depart_slowly", "JFK", flights=["UA1", "UA2", "UA3"])
    for _ in range(3):
        hub.restart()
        hub.tick()
    assert hub.result(begun) == 3
    at = [int(str(emitted[0])) for _, emitted in rows(hub)]
    assert [emitted[1:] for _, emitted in rows(hub)] == [["UA1", 0], ["UA2", 1], ["UA3", 2]]
    assert sorted(set(at)) == at
    replay(airports, hub.log)


def test_names_of_topics_are_checked_where_they_are_declared() -> None:
    service = Service("airports", state=Airport)
    made = service.topic("departures", Departed)
    assert_type(made, Topic[Departed])
    assert dict(service.topics) == {"departures": made}
    for name, why in (
        ("departures", "is declared twice"),
        ("airports", "has the name of the service"),
        ("Departures", "must be named by lower-case letters"),
        ("a" * 41, "must be named by"),
    ):
        with pytest.raises(InvalidService, match=f"service airports: topic {name!r} {why}"):
            service.topic(name, Departed)
    with pytest.raises(InvalidService, match="topic 'x': its rows must be of a Struct"):
        service.topic("x", int)  # type: ignore[type-var]  # pyrefly: ignore

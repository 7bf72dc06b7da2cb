"""Rows for inputs in tests: each once, also where processes are killed; refusals as `on_refusal` says."""

from __future__ import annotations

from datetime import timedelta

import pytest

from deathless import Context, Service, Struct
from deathless.base.errors import InputRefused, InvalidArgument, InvalidUse
from deathless.testing import Environment, RefusedRow, kill_everywhere


class Airport(Struct):
    minutes: list[int] = []  # noqa: RUF012  a Struct copies its defaults


class Departed(Struct):
    origin: str
    minutes: int


airports = Service("airports", state=Airport)


@airports.input("flights")
def record(airport: Airport, ctx: Context, row: Departed) -> None:
    """Note a departure; none leaves early."""
    if row.minutes < 0:
        raise ValueError("early")
    airport.minutes.append(row.minutes)


@airports.input("late")
async def record_later(airport: Airport, ctx: Context, row: Departed) -> None:
    """Note a departure a minute later."""
    await ctx.timer(after=timedelta(minutes=1))
    airport.minutes.append(row.minutes)


def minutes(env: Environment, key: str = "JFK") -> list[int]:
    found: list[int] = env.service(airports)[key].state.minutes
    return found


def test_rows_of_every_form_are_taken_in_in_order() -> None:
    with Environment(airports) as env:
        service = env.service(airports)
        service.feed("flights", [Departed("JFK", 1), {"origin": "LGA", "minutes": 2}], key="origin")
        service.feed("flights", ['{"origin": "JFK", "minutes": 3}'], key="origin")
        assert (minutes(env), minutes(env, "LGA")) == ([1, 3], [2])


def test_an_input_may_wait() -> None:
    with Environment(airports) as env:
        env.service(airports).feed("late", [Departed("JFK", 1), Departed("JFK", 2)], key=lambda _row: "JFK")
        assert minutes(env) == []
        env.advance(minutes=3)
        assert minutes(env) == [1, 2]


def test_a_row_that_is_refused_stops_until_it_may_be_taken_or_is_passed_over() -> None:
    with Environment(airports) as env:
        service = env.service(airports)
        with pytest.raises(InputRefused, match="early"):
            service.feed("flights", [Departed("JFK", 1), Departed("JFK", -1), Departed("JFK", 3)], key="origin")
        assert minutes(env) == [1]
        with pytest.raises(InputRefused, match="early"):
            service.go_on("flights")
        service.go_on("flights", skip=True)
        assert minutes(env) == [1, 3]
        assert [each.why for each in service.refused("flights")] == ["ValueError: early"]
        with pytest.raises(InvalidUse, match="does not stand"):
            service.go_on("flights")


def test_rows_that_were_refused_are_run_again_and_stay_if_they_are_refused_again() -> None:
    with Environment(airports) as env:
        service = env.service(airports)
        with pytest.raises(InvalidUse, match="never fed"):
            service.replay("flights")
        service.feed("flights", [Departed("JFK", -1), Departed("JFK", 3)], key="origin", on_refusal="deadLetter")
        assert [each.why for each in service.replay("flights")] == ["ValueError: early"]
        assert minutes(env) == [3]


def test_dead_letters_hold_what_could_not_be_read() -> None:
    with Environment(airports) as env:
        service = env.service(airports)
        given = [b"{no json", b'{"minutes": 3}', b'{"origin": "JFK", "minutes": 4}', Departed("", 5)]
        service.feed("flights", given, key="origin", on_refusal="deadLetter")
        assert minutes(env) == [4]
        found = service.refused("flights")
        assert [each.row for each in found] == [given[0], given[1], b'{"origin":"","minutes":5}']
        assert found[1] == RefusedRow("DL3084", "InputUnreadable: the row has no key", b'{"minutes": 3}')


def test_what_can_not_be_fed_is_told() -> None:
    with Environment(airports) as env:
        service = env.service(airports)
        with pytest.raises(InvalidUse, match="has no input 'trains'"):
            service.feed("trains", [])
        with pytest.raises(InvalidArgument, match="key= must say"):
            service.feed("flights", [])
        service.feed("flights", [], key="origin")
        with pytest.raises(InvalidUse, match="was fed with on_refusal='stop'"):
            service.feed("flights", [], key="origin", on_refusal="skip")


def test_rows_are_taken_in_once_wherever_the_process_is_killed() -> None:
    def scenario(env: Environment) -> list[int]:
        service = env.service(airports)
        service.feed("flights", [Departed("JFK", 1), Departed("JFK", 2)], key="origin")
        service.feed("flights", [Departed("JFK", 3)], key="origin")
        return minutes(env)

    report = kill_everywhere(scenario, airports)
    assert len(report.points) > 5

"""Schedules as a module registers them: what can't work is refused at import, with the place in the code."""

import datetime as dt
from collections.abc import Callable

import msgspec
import pytest

from deathless.base.errors import InvalidService
from deathless.execution.author.schedule import Missed
from deathless.execution.author.service import Service
from deathless.execution.turn.context import Context


class State(msgspec.Struct):
    seen: list[str] = []


Nightly = Callable[[State, Context], None]


def nightly(state: State, ctx: Context) -> None:
    state.seen.append("night")


def make(*, single: bool = False) -> Service:
    return Service("svc", state=State, single=single)


def test_function_becomes_a_handler_with_a_schedule() -> None:
    service = make()
    assert service.schedule("0 3 * * *", key="a", zone="Europe/Berlin", missed="all")(nightly) is nightly
    assert list(service.specs) == ["nightly"]
    [schedule] = service.schedules.values()
    assert (schedule.name, schedule.method, schedule.key, schedule.zone) == (
        "nightly/a", "nightly", "a", "Europe/Berlin",
    )  # fmt: skip
    assert (schedule.missed, schedule.cron.expression, schedule.takes_tick) == ("all", "0 3 * * *", False)
    assert schedule.arguments(5) == msgspec.msgpack.encode({})


def test_handler_of_several_schedules_stays_one_handler_of_its_own_name() -> None:
    service = make()
    handler = service.handler(name="run", shared=True)(nightly)
    service.schedule("0 3 * * *", key="a")(handler)
    service.schedule("0 4 * * *", key="b")(handler)
    service.schedule("0 5 * * *", key="b", name="late")(handler)
    assert list(service.schedules) == ["run/a", "run/b", "late"]
    assert list(service.specs) == ["run"]
    assert service.specs["run"].shared


def test_schedule_of_one_object_names_no_key() -> None:
    service = make(single=True)
    service.schedule("0 3 * * *")(nightly)
    assert list(service.schedules) == ["nightly"]


def test_handler_may_take_the_time_it_runs_for() -> None:
    service = make()

    @service.schedule("0 3 * * *", key="a")
    async def hourly(state: State, ctx: Context, tick: dt.datetime, more: int = 3) -> None: ...

    [schedule] = service.schedules.values()
    assert schedule.takes_tick
    told = msgspec.msgpack.decode(schedule.arguments(3_000_000), type=dict[str, dt.datetime])
    assert told == {"tick": dt.datetime(1970, 1, 1, 0, 0, 3, tzinfo=dt.UTC)}


def test_argument_named_tick_of_another_type_is_none_of_ours() -> None:
    service = make()

    @service.schedule("0 3 * * *", key="a")
    def hourly(state: State, ctx: Context, tick: int = 3) -> None: ...

    assert not service.schedules["hourly/a"].takes_tick


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"expression": "nonsense"}, "five fields"),
        ({"expression": "99 * * * *"}, "no cron expression"),
        ({"zone": "Mars/Olympus"}, "time zone 'Mars/Olympus' is not known"),
        ({"zone": "localtime"}, "time zone 'localtime' differs between machines"),
        ({"missed": "some"}, "missed must be"),
        ({"key": ""}, "needs the key"),
        ({"key": "\0probe"}, "needs the key"),
        ({"key": "\ud800"}, "can't be encoded"),
        ({"key": "k" * 70_000}, "at most"),
    ],
)
def test_what_can_not_work_is_refused_by_function_and_line(given: dict[str, str], text: str) -> None:
    asked = {"expression": "0 3 * * *", "key": "a", "zone": "UTC", "missed": "one"} | given
    missed: Missed = asked["missed"]  # type: ignore[assignment]  # one is none
    register = make().schedule(asked["expression"], key=asked["key"], zone=asked["zone"], missed=missed)
    with pytest.raises(InvalidService, match=rf"test_schedule\.py.*{text}") as caught:
        register(nightly)
    assert caught.value.code == "DL3013"


def test_key_of_one_object_is_refused() -> None:
    with pytest.raises(InvalidService, match="no keys"):
        make(single=True).schedule("0 3 * * *", key="a")(nightly)


def test_two_schedules_of_one_name_are_refused() -> None:
    service = make()
    service.schedule("0 3 * * *", key="a")(nightly)
    with pytest.raises(InvalidService, match="has a schedule 'nightly/a'; give one a name="):
        service.schedule("0 4 * * *", key="a")(nightly)


def test_argument_that_nobody_gives_is_refused() -> None:
    service = make()

    def needs(state: State, ctx: Context, count: int) -> None: ...

    with pytest.raises(InvalidService, match="`count` needs a default"):
        service.schedule("0 3 * * *", key="a")(needs)


def test_only_a_handler_of_one_key_has_schedules() -> None:
    service = make()

    @service.query
    def look(state: State) -> int:
        return 3

    @service.handler(keys=("one",))
    def several(states: dict[str, State], ctx: Context, one: str = "a") -> None: ...

    for function in (look, several):
        with pytest.raises(InvalidService, match="only a handler of one key"):
            service.schedule("0 3 * * *", key="a")(function)

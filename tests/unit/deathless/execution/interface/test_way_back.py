"""What types and names say of a way back to an older version, and what is missing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from deathless import Context, Migration, Service, Struct
from deathless.base.errors import InvalidService
from deathless.base.limits import Limits
from deathless.execution.interface.comparison import UnderWay, Use
from deathless.execution.interface.interface import interface_of
from deathless.execution.interface.way_back import WayBack, way_back


class Account1(Struct):
    balance: int = 0


class Account2(Struct):
    cents: int = 0


class Lean1(Struct, omit_defaults=True):
    balance: int = 0


class Other1(Struct, omit_defaults=True):
    balance: int = 1


def first(state: type = Account1, **more: Any) -> Service:
    return Service("bank", state=state, version=1, **more)


def second(*, back: bool = True, up: bool = True, to: type = Account1, **more: Any) -> Service:
    made = Service("bank", state=Account2, version=2, **more)
    if up:

        @made.migrate(from_=1)
        def rise(old: Account1, m: Migration) -> Account2:
            return Account2(100 * old.balance)

    if back:

        def lower(new: Account2, m: Migration) -> Any: ...

        lower.__annotations__["return"] = to
        made.migrate(from_=2, to=1)(lower)
    return made


def found(now: Service, former: Service, under_way: UnderWay | None = None, **limits: int) -> WayBack:
    held, then = interface_of(now, Limits()), interface_of(former, Limits(**limits))
    return way_back(held, then, now.declared, under_way)


def texts(result: WayBack) -> list[str]:
    return [each.text for each in result.misfits]


def test_functions_that_lead_down_are_the_way() -> None:
    result = found(second(), first())
    assert (result.exists, result.runs, [(hop.from_, hop.to) for hop in result.hops]) == (True, True, [(2, 1)])


def test_where_types_stand_nothing_has_to_run() -> None:
    result = found(Service("bank", state=Account1, version=2), first())
    assert (result.exists, result.runs) == (True, False)


def test_without_one_it_is_said_what_to_write() -> None:
    expected = "NoDownMigration: Account1 has no way back to version 1; @bank.migrate(from_=2, to=1) makes one"
    assert texts(found(second(back=False), first())) == [expected]


def test_a_gap_is_named() -> None:
    third = Service("bank", state=Account2, version=3)

    @third.migrate(from_=3, to=2)
    def lower(new: Account2, m: Migration) -> Account1:
        return Account1()

    @third.migrate(from_=1)
    def rise(old: Other1, m: Migration) -> Account1:
        return Account1()

    assert [each.word for each in found(third, first(Other1)).misfits] == ["NoDownMigration"]


def test_a_default_that_was_another_one_is_seen_in_the_types() -> None:
    (text,) = texts(found(second(to=Lean1, up=False), first(Other1)))
    assert text.startswith("DefaultChanged: the default of Lean1.balance is another one in version 1")
    assert text.endswith("give it in @bank.migrate(from_=2, to=1)")


def test_keys_that_would_be_renamed_and_one_object_are_refused() -> None:
    made = second()
    made.migrate_key(from_=2, to=1)(_as_it_is)
    assert [each.word for each in found(made, first()).misfits] == ["KeysRenamed"]
    assert [each.word for each in found(second(), first(single=True)).misfits] == ["KeyingChanged"]


def _as_it_is(old: str) -> str:
    return old


def handled(made: Service, *, waits: bool, once: bool = False) -> Service:
    if waits:

        async def later(account: Any, ctx: Context) -> int:
            return 1

        later.__annotations__["account"] = made.state
        made.handler(name="pay")(later)
    else:
        made.handler(name="pay")(_pay(made.state))

    @made.activity(name="charge", at_most_once=once)
    def charge() -> int:
        return 1

    return made


def _pay(state: type) -> Any:
    def pay(account: Any, ctx: Context) -> int:
        return 1

    pay.__annotations__["account"] = state
    return pay


def test_what_waits_for_a_handler_of_another_kind_can_not_go_back() -> None:
    now, then = handled(second(), waits=True), handled(first(), waits=False)
    assert found(now, then).exists, "nothing waits"
    under_way = UnderWay(handlers={"pay": Use(3, "lsn 7")}, activities={})
    (text,) = texts(found(now, then, under_way))
    assert text == (
        "KindChanged: pay is a handler (async def) and was a handler (def), 3 messages wait (the first is lsn 7); "
        "let what waits for it end"
    )


def test_activities_that_are_pending_go_on_as_often() -> None:
    now, then = handled(second(), waits=False, once=True), handled(first(), waits=False)
    assert found(now, then).exists
    assert [each.subject for each in found(now, then, UnderWay(activities=None)).misfits] == ["charge"]


def test_schedules_are_as_they_were_and_a_limit_must_not_fall() -> None:
    now, then = second(), first()
    for made, name, when in ((now, "pay", "0 1 * * *"), (now, "more", "0 1 * * *"), (then, "pay", "0 2 * * *")):
        pay = _pay(made.state)
        pay.__name__ = name
        made.schedule(when, key="all")(pay)
    result = found(now, then)
    assert [(each.word, each.subject) for each in result.notes] == [
        ("ScheduleGone", "more/all"),
        ("ScheduleChanged", "pay/all"),
    ]
    assert [each.word for each in found(now, then, results_max=1).misfits] == ["LimitLowered"]


class Args2(Struct):
    cents: int


def test_arguments_lead_down_from_a_version_that_there_is() -> None:
    made = handled(second(), waits=False)

    def back(new: Args2) -> dict[str, int]:
        return {"amount": new.cents}

    for from_, to in ((2, 2), (3, 1), (1, 2)):
        with pytest.raises(InvalidService, match="accepts with to= is the way back"):
            made.accepts("pay", from_=from_, to=to, args=Args2)(back)
    with pytest.raises(InvalidService, match="leave result= out"):
        made.accepts("pay", from_=2, to=1, args=Args2, result=int)(back)
    made.accepts("pay", from_=2, to=1, args=Args2)(back)
    with pytest.raises(InvalidService, match="have a way back from version 2 already"):
        made.accepts("pay", from_=2, to=1, args=Args2)(back)


def with_topic(made: Service, *columns: tuple[str, type] | tuple[str, Any, Any]) -> Service:
    made.topic("deposits", msgspec.defstruct("Deposited", columns))
    return made


def test_rows_of_topics_keep_their_columns_on_the_way_back() -> None:
    one, two = ("cents", int), ("note", str | None, None)
    assert texts(found(with_topic(second(), one), with_topic(first(), one))) == []
    fewer = found(with_topic(second(), one, two), with_topic(first(), one))
    assert fewer.exists
    assert [each.text for each in fewer.notes] == ["ColumnGone: rows of topic deposits get no more values in note"]
    refused = texts(found(with_topic(second(), one, ("rate", int)), with_topic(first(), one)))
    assert len(refused) == 1
    assert "rows of topic deposits in version 1: column 'rate' is gone, and may not be null" in refused[0]
    gone = found(with_topic(second(), one), first())
    assert gone.exists
    assert [each.text for each in gone.notes] == ["TopicGone: topic deposits of version 2 gets no more rows"]

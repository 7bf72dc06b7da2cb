"""What is said where two interfaces differ, and what a declaration or the absence of waiting work takes away.

The kinds of misfits stand in tests/samples/upgrades, with their opposites; this is about what decides between the two.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from deathless import Context, Continue, Migration, Service, Struct, Suspended
from deathless.base.limits import Limits
from deathless.execution.interface.comparison import Comparison, UnderWay, Use, compare
from deathless.execution.interface.interface import interface_of


class Account(Struct):
    balance: float = 0.0


def bank(version: int = 1, *, close: bool = False, waits: bool = False, single: bool = False) -> Service:
    made = Service("bank", state=Account, version=version, single=single)
    if waits:

        @made.handler
        async def deposit(account: Account, ctx: Context, amount: float) -> float:
            return amount

    else:

        @made.handler(name="deposit")
        def plain(account: Account, ctx: Context, amount: float) -> float:
            return amount

    if close:

        @made.handler(name="close")
        def close_(account: Account, ctx: Context) -> None: ...

    return made


def compared(old: Service, new: Service, *, under_way: UnderWay | None = None, **limits: int) -> Comparison:
    ours, theirs = interface_of(new, Limits(**limits)), interface_of(old, Limits())
    return compare(theirs, ours, new.declared, under_way=under_way, callers={"close": Use(12_300, "shop")})


def words(found: Comparison) -> list[str]:
    return [each.word for each in found.misfits]


def removing(pending: str) -> Service:
    made = bank(2)
    made.changes(from_=1, removed={"close": pending})  # type: ignore[dict-item]  # either word
    return made


def test_a_handler_that_is_gone_is_told_with_who_called_it() -> None:
    found = compared(bank(close=True), bank())
    assert [each.text for each in found.misfits] == [
        (
            "HandlerGone: handler close of version 1 is not in the new code, 12,300 calls (the first is shop); "
            "write version=2 in Service(...), and say renamed={'close': ...} or removed={'close': ...} in changes()"
        )
    ]


def test_a_removed_handler_is_refused_while_something_waits_for_it_unless_that_may_fail() -> None:
    waiting = UnderWay(handlers={"close": Use(1, "lsn 14")})
    assert words(compared(bank(close=True), removing("refuse"), under_way=waiting)) == ["HandlerGone"]
    assert words(compared(bank(close=True), removing("refuse"), under_way=UnderWay())) == []
    found = compared(bank(close=True), removing("fail"), under_way=waiting)
    assert (words(found), [each.text for each in found.notes]) == (
        [], ["Removed: close of version 1 is removed, and 1 that wait for it fail"],
    )  # fmt: skip


def test_a_handler_that_is_carried_is_refused_only_while_messages_wait_for_it() -> None:
    new = bank(2)

    @new.carry("close", from_=1)
    def carry(old: Suspended, account: Account) -> Continue:
        return Continue("deposit")

    waiting = UnderWay(handlers={"close": Use(1, "lsn 14")})
    assert words(compared(bank(close=True), new, under_way=waiting)) == ["HandlerGone"]
    found = compared(bank(close=True), new, under_way=UnderWay())
    assert (words(found), [each.word for each in found.notes], found.compatible) == ([], ["Removed"], False)


def test_another_kind_is_refused_while_something_waits_or_could() -> None:
    old, new = bank(waits=True), bank()
    waiting = UnderWay(handlers={"deposit": Use(3, "lsn 7")})
    assert words(compared(old, new)) == ["KindChanged"]
    assert words(compared(old, new, under_way=waiting)) == ["KindChanged"]
    found = compared(old, new, under_way=UnderWay())
    assert (words(found), found.compatible) == ([], False)


def test_a_lower_limit_has_to_be_said() -> None:
    assert words(compared(bank(), bank(), idempotency_keys_max=10)) == ["LimitLowered"]
    assert words(compared(bank(), bank(), results_max=200_000)) == []
    new = bank(2)
    new.changes(from_=1, drops=["limits.idempotency_keys_max"])
    assert words(compared(bank(), new, idempotency_keys_max=10)) == []


def shop(result: type, *, ask: bool = False) -> Service:
    """Give code that answers with this type."""
    made = Service("shop", state=Account)

    def price(account: Account) -> None: ...

    def pay(account: Account, ctx: Context) -> None: ...

    price.__annotations__["return"] = pay.__annotations__["return"] = result
    made.query(price) if ask else made.handler(pay)
    return made


@pytest.mark.parametrize("ask", [False, True])
def test_a_result_that_tells_less_is_noted_and_is_not_compatible(*, ask: bool) -> None:
    long = msgspec.defstruct("Price", [("cents", int), ("note", str, "")])
    short = msgspec.defstruct("Price", [("cents", int)])
    found = compared(shop(long, ask=ask), shop(short, ask=ask))
    assert (words(found), found.compatible) == ([], False)
    [note] = found.notes
    assert note.text == (
        f"ResultFieldGone: result of {'price' if ask else 'pay'}: Price.note (str) of version 1 is not in the new "
        "code; who reads it gets the default"
    )
    assert compared(shop(short, ask=ask), shop(long, ask=ask)).compatible
    needed = msgspec.defstruct("Price", [("cents", int), ("note", str)])
    found = compared(shop(needed, ask=ask), shop(short, ask=ask))
    assert (words(found), found.notes) == (["ResultTypeChanged"], [])


def test_one_object_does_not_become_keys() -> None:
    found = compared(bank(single=True), bank())
    assert [each.word for each in found.misfits] == ["KeyingChanged"]
    assert "had one object in version 1 and has keys in the new code" in found.misfits[0].what


def with_names(declare: Callable[[Service], None]) -> list[str]:
    new = bank(2)
    declare(new)
    return [each.text.partition(";")[0] for each in compared(bank(), new).misfits]


def test_names_that_nothing_has_are_told() -> None:
    def renames(new: Service) -> None:
        new.changes(from_=1, renamed={"put": "pay"})

    def changes(new: Service) -> None:
        new.changes(from_=1, changed={"pay": {"reply": "x"}})

    def accepts(new: Service) -> None:
        @new.accepts("pay", from_=1, args=Account)
        def pay(old: Account) -> dict[str, object]:
            return {}

    def carries(new: Service) -> None:
        @new.carry("pay", from_=1)
        def pay(old: Suspended, account: Account) -> Continue:
            return Continue("deposit")

    def items(new: Service) -> None:
        @new.migrate_map("orders", from_=1)
        def order(key: str, item: str, old: int) -> int:
            return old

    assert with_names(renames) == [
        "UnknownName: changes(from_=1) renames 'put' to 'pay', which the new code does not have"
    ]
    assert with_names(changes) == [
        "UnknownName: changes(from_=1) says that 'pay' changed, which the new code does not have"
    ]
    assert with_names(accepts) == [
        "UnknownName: accepts('pay', from_=1) is for a handler that the new code does not have"
    ]
    assert with_names(carries) == ["UnknownName: carry('pay', from_=1) is for a handler that version 1 does not have"]
    assert with_names(items) == ["UnknownName: migrate_map('orders') is for a map that no state has"]


def test_the_old_type_of_a_migration_has_every_field() -> None:
    class Old(Struct):
        amount: float = 0.0

    new = bank(2)

    @new.migrate(from_=1)
    def up(old: Old, m: Migration) -> Account:
        return Account(old.amount)

    found = compared(bank(), new)
    assert words(found) == ["FieldDropped"]
    assert "the old type Old of the migration must have it" in found.misfits[0].remedy


def test_what_has_a_way_back_is_not_noted() -> None:
    new = bank(2)
    assert compared(bank(), new).notes == []

    @new.migrate(from_=1)
    def up(old: Account, m: Migration) -> Account:
        return old

    assert [each.word for each in compared(bank(), new).notes] == ["NoDownMigration"]

    @new.migrate(from_=2, to=1)
    def down(old: Account, m: Migration) -> Account:
        return old

    assert compared(bank(), new).notes == []


def test_another_column_is_told_with_what_to_do() -> None:
    old, new = bank(), bank()
    old.topic("deposits", Account)
    new.topic("deposits", msgspec.defstruct("Deposited", [("balance", int)]))
    assert [each.text for each in compared(old, new).misfits] == [
        (
            "TopicChanged: rows of topic deposits: column 'balance' was of type float64, and is of type int64; "
            "publish these rows in a topic of another name"
        )
    ]
    assert compared(bank(), new).compatible
    assert [each.word for each in compared(old, bank()).notes] == ["TopicGone"]

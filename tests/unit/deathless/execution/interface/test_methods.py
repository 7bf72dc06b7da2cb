"""Methods that are called by numbers are part of an interface: one that goes, or takes other bytes, does not fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from deathless import Context, Service, Struct
from deathless.base.errors import InvalidService
from deathless.base.limits import Limits
from deathless.execution.interface.comparison import Comparison, compare
from deathless.execution.interface.interface import interface_as_json, interface_from_json, interface_of


class Account(Struct):
    balance: int = 0


class Order(Struct):
    cents: int


class LargerOrder(Struct):
    cents: int
    currency: str


def raw(account: Account, ctx: Context, args: bytes) -> bytes: ...  # type: ignore[empty-body]
def of_order(account: Account, ctx: Context, args: Order) -> int: ...  # type: ignore[empty-body]
def of_larger(account: Account, ctx: Context, args: LargerOrder) -> int: ...  # type: ignore[empty-body]
def to_text(account: Account, ctx: Context, args: Order) -> str: ...  # type: ignore[empty-body]
async def waiting(account: Account, ctx: Context, args: bytes) -> bytes: ...  # type: ignore[empty-body]


def bank(seven: Callable[..., object] | None, codec: str = "", version: int = 1) -> Service:
    """A service with a method 1, and a method 7 of this function."""
    made = Service("bank", state=Account, version=version)
    made.foreign(method=1)(raw)
    if seven is not None:
        made.foreign(method=7, codec=codec)(seven)  # type: ignore[call-overload]  # one of those that there are
    return made


def compared(old: Service, new: Service) -> Comparison:
    return compare(interface_of(old, Limits()), interface_of(new, Limits()), new.declared)


def test_methods_stand_in_the_record_of_an_interface() -> None:
    found = interface_of(bank(of_order, "json"), Limits())
    assert [(each.name, each.kind) for each in found.handlers] == [
        ("call", "handler"), ("foreign:1", "foreign"), ("foreign:7", "foreign json"), ("send", "handler"),
    ]  # fmt: skip
    assert interface_from_json(interface_as_json(found)) == found


def test_another_method_more_is_no_misfit() -> None:
    assert compared(bank(None), bank(raw)).compatible


@pytest.mark.parametrize(
    ("old", "new", "word", "what"),
    [
        ((raw,), (None,), "HandlerGone", "foreign foreign:7 of version 1 is not in the new code"),
        ((of_order, "json"), (of_order, "msgpack"), "KindChanged", "was a foreign json (def) and is a foreign msgpack"),
        ((of_order, "json"), (of_larger, "json"), "ArgumentTypeChanged", "argument 'args' of foreign:7"),
        ((of_order, "json"), (to_text, "json"), "ResultTypeChanged", "result of foreign:7"),
        ((raw,), (waiting,), "KindChanged", "was a foreign (def) and is a foreign (async def)"),
    ],
)
def test_what_callers_of_a_number_would_miss_does_not_fit(
    old: tuple[Any, ...], new: tuple[Any, ...], word: str, what: str
) -> None:
    found = [each for each in compared(bank(*old), bank(*new)).misfits if each.subject.startswith("foreign:7")]
    assert [each.word for each in found] == [word]
    assert what in found[0].text
    assert "renamed=" not in found[0].text
    assert "accepts(" not in found[0].text


def test_a_method_is_taken_away_where_its_author_says_so() -> None:
    new = bank(None, version=2)
    new.changes(from_=1, removed={"foreign:7": "fail"})
    assert compared(bank(raw), new).misfits == []


def test_a_method_has_no_other_name_and_no_former_arguments() -> None:
    new = bank(None, version=2)
    with pytest.raises(InvalidService, match="'foreign:7' is called by its number"):
        new.changes(from_=1, renamed={"foreign:7": "foreign:1"})
    with pytest.raises(InvalidService, match="'foreign:1' is called by its number"):
        new.accepts("foreign:1", from_=1, args=Order)(lambda old: {"args": b""})

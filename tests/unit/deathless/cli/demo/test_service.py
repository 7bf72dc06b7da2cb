"""The demo's accounts remember exactly which calls they have seen."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from deathless.cli.demo.load import applied_numbers
from deathless.cli.demo.service import AGAIN_MAX, Account, bank, deposit, note, transfer


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 12)), max_size=60))
def test_numbers_seen_are_the_numbers_noted(calls: list[tuple[str, int]]) -> None:
    account = Account()
    for sender, number in calls:
        note(account, sender, number)
    for sender in "ab":
        assert applied_numbers(account, sender) == {number for who, number in calls if who == sender}
    assert len(account.again) == min(len(calls) - len(set(calls)), AGAIN_MAX)


def test_calls_in_order_take_one_range() -> None:
    account = Account()
    for number in range(1, 1000):
        note(account, "a", number)
    assert account.seen == {"a": [1, 999]}


def test_money_moves_and_is_never_made() -> None:
    accounts = {"x": Account(), "y": Account()}
    assert deposit(accounts["x"], None, 10, "a", 1) == 1  # type: ignore[arg-type]  # the context is not used
    assert transfer(accounts, None, "x", "y", 25, "a", 2) == 2  # type: ignore[arg-type]  # as above
    assert (accounts["x"].balance, accounts["y"].balance) == (0, 10)
    assert accounts["x"].seen == {"a": [1, 2]}
    assert accounts["y"].seen == {}


def test_service_has_what_the_load_calls() -> None:
    assert {name: spec.kind for name, spec in bank.specs.items()} == {
        "deposit": "handler",
        "transfer": "handler",
        "account": "query",
    }

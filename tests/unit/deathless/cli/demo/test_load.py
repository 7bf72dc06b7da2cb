"""The demo's judge: every way of being wrong is found."""

from __future__ import annotations

from collections import Counter

import pytest

from deathless.cli.demo.load import Ledger, Verdict, account_names, judge
from deathless.cli.demo.service import Account

HERE = account_names()[0]


def accounts(account: Account) -> dict[str, Account]:
    """All accounts, the first one as given."""
    return {**{name: Account() for name in account_names()}, HERE: account}


def ledger(*, sent: int, answered: set[int], deposited: int = 0, still_open: dict[int, int] | None = None) -> Ledger:
    """What one session knows of the first account."""
    amounts = {(HERE, number): amount for number, amount in (still_open or {}).items()}
    return Ledger("a", Counter({HERE: sent}), {HERE: answered}, deposited, amounts)


GOOD = Account(balance=10, seen={"a": [1, 3]})


def verdict(mine: Ledger, account: Account) -> Verdict:
    """Judge the one against the other."""
    return judge([mine], accounts(account))


def test_everything_as_it_should_be_is_good() -> None:
    found = verdict(ledger(sent=3, answered={1, 2, 3}, deposited=10), GOOD)
    assert found.good
    assert found.words == "lost 0, doubled 0, total conserved"
    assert (found.sent, found.answered, found.applied) == (3, 3, 3)


@pytest.mark.parametrize(
    ("mine", "account", "words"),
    [
        (ledger(sent=3, answered={1, 2, 3}, deposited=10), Account(balance=10, seen={"a": [1, 2]}), "lost 1"),
        (ledger(sent=3, answered={1, 2, 3}, deposited=10), Account(balance=10, seen={}), "lost 3"),
        (ledger(sent=3, answered={1, 2, 3}, deposited=10), Account(10, {"a": [1, 3]}, ["a/2"]), "doubled 1"),
        (ledger(sent=3, answered={1, 2, 3}, deposited=10), Account(11, {"a": [1, 3]}), "NOT conserved"),
        (ledger(sent=4, answered={1, 2, 3}, deposited=10), GOOD, "1 never answered"),
    ],
)
def test_each_fault_is_found(mine: Ledger, account: Account, words: str) -> None:
    found = verdict(mine, account)
    assert not found.good
    assert words in found.words


def test_answer_of_another_call_is_wrong() -> None:
    mine = ledger(sent=3, answered={1, 2, 3}, deposited=10)
    mine.wrong.append("a/1 was answered 7")
    assert "1 wrong answers" in verdict(mine, GOOD).words


def test_unanswered_deposit_counts_if_it_was_applied() -> None:
    applied = verdict(ledger(sent=3, answered={1, 2}, deposited=4, still_open={3: 6}), GOOD)
    assert (applied.conserved, applied.unanswered) == (True, 1)
    unapplied = verdict(ledger(sent=3, answered={1, 2}, deposited=4, still_open={3: 6}), Account(4, {"a": [1, 2]}))
    assert unapplied.conserved


def test_faults_are_named_by_example() -> None:
    found = verdict(ledger(sent=3, answered={1, 2, 3}), Account(0, {"a": [1, 2]}, ["a/1"]))
    assert found.examples == [f"lost: a/3 on {HERE}", f"doubled: a/1 on {HERE}"]

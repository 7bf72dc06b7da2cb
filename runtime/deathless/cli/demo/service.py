"""The bank of `deathless demo`: accounts that also remember which calls they have seen.

A call carries who sent it and its number for this account, counted from 1. The account keeps the numbers as ranges, so
that afterwards anybody can tell which calls were applied, which never were, and which were applied twice.
"""

from __future__ import annotations

from msgspec import field

from deathless import Context, Service, Struct

AGAIN_MAX = 100  # calls applied twice that are kept for display


class Account(Struct):
    """State of one account."""

    balance: int = 0
    # Sender -> first, last, first, last, ... of the numbers applied.
    seen: dict[str, list[int]] = field(default_factory=dict)
    again: list[str] = field(default_factory=list)  # calls that were applied although they had been before


bank = Service("demo-bank", state=Account)


def note(account: Account, sender: str, number: int) -> None:
    """Remember a call."""
    ranges = account.seen.setdefault(sender, [])
    if any(first <= number <= last for first, last in zip(ranges[::2], ranges[1::2], strict=True)):
        account.again = [*account.again, f"{sender}/{number}"][-AGAIN_MAX:]
    elif ranges and number == ranges[-1] + 1:
        ranges[-1] = number
    else:
        ranges += [number, number]


@bank.handler
def deposit(
    account: Account,
    ctx: Context,  # noqa: ARG001 - every handler gets a context
    amount: int,
    sender: str,
    number: int,
) -> int:
    """Put money in; gives the call's number back."""
    note(account, sender, number)
    account.balance += amount
    return number


@bank.handler(keys=("source", "target"))
def transfer(
    accounts: dict[str, Account],
    ctx: Context,  # noqa: ARG001 - every handler gets a context
    source: str,
    target: str,
    amount: int,
    sender: str,
    number: int,
) -> int:
    """Move money in one turn, as much as is there; gives the call's number back. The source remembers the call."""
    note(accounts[source], sender, number)
    moved = min(amount, accounts[source].balance)
    accounts[source].balance -= moved
    accounts[target].balance += moved
    return number


@bank.query
def account(account: Account) -> Account:
    """Give all of an account."""
    return account

"""The demo's bank, version 2: it counts in hundredths, so that a state which was not migrated shows in every balance.

Like version 1, it stands in a file of its own that imports nothing of the demo: the demo copies it into its folder.
"""

from __future__ import annotations

from msgspec import field

from deathless import Context, Migration, Service, Struct

AGAIN_MAX = 100  # calls applied twice that are kept for display
HUNDREDTHS = 100


class AccountV1(Struct):
    """State of one account, as version 1 has it."""

    balance: int = 0
    seen: dict[str, list[int]] = field(default_factory=dict)
    again: list[str] = field(default_factory=list)


class Account(Struct):
    """State of one account."""

    cents: int = 0
    seen: dict[str, list[int]] = field(default_factory=dict)
    again: list[str] = field(default_factory=list)


bank = Service("demo-bank", state=Account, version=2)


@bank.migrate(from_=1)
def up(
    old: AccountV1,
    m: Migration,  # noqa: ARG001 - every migration gets one
) -> Account:
    """Make hundredths of the balance."""
    return Account(old.balance * HUNDREDTHS, old.seen, old.again)


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
    memo: str = "",  # noqa: ARG001 - an argument that version 1 does not have
) -> int:
    """Put money in; gives the call's number back."""
    note(account, sender, number)
    account.cents += amount * HUNDREDTHS
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
    moved = min(amount * HUNDREDTHS, accounts[source].cents)
    accounts[source].cents -= moved
    accounts[target].cents += moved
    return number


@bank.query
def account(account: Account) -> AccountV1:
    """Give all of an account, as callers of version 1 know it."""
    return AccountV1(account.cents // HUNDREDTHS, account.seen, account.again)

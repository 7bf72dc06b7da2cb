"""Accounts that are to be upgraded: version 2, which counts in `cents`."""

from __future__ import annotations

from deathless import Context, Migration, Service, Struct


class AccountOf1(Struct):
    """State of one key in version 1."""

    balance: int = 0


class Account(Struct):
    """State of one key."""

    cents: int = 0


bench = Service("bench", state=Account, version=2)


@bench.migrate(from_=1)
def _up(old: AccountOf1, m: Migration) -> Account:
    return Account(old.balance * 100)


@bench.migrate(from_=2, to=1)
def _down(new: Account, m: Migration) -> AccountOf1:
    return AccountOf1(new.cents // 100)


@bench.handler
def add(account: Account, ctx: Context, amount: int, note: str) -> int:
    """Count; the note only fills the arguments up."""
    account.cents += amount * 100
    return account.cents // 100


@bench.query
def read(account: Account) -> int:
    """Say how far the count is."""
    return account.cents // 100


@bench.handler
def suspend(account: Account, ctx: Context, first: int, count: int) -> None:
    """Have so many keys wait."""
    for number in range(first, first + count):
        ctx.fork("bench", f"waits{number}", "wait")


@bench.handler
async def wait(account: Account, ctx: Context) -> None:
    """Wait for what nobody gives."""
    await ctx.promise(bool)

"""Accounts that are to be upgraded: version 1, which counts in `balance`."""

from __future__ import annotations

from deathless import Context, Service, Struct


class Account(Struct):
    """State of one key."""

    balance: int = 0


bench = Service("bench", state=Account)


@bench.handler
def add(account: Account, ctx: Context, amount: int, note: str) -> int:
    """Count; the note only fills the arguments up."""
    account.balance += amount
    return account.balance


@bench.query
def read(account: Account) -> int:
    """Say how far the count is."""
    return account.balance


@bench.handler
def suspend(account: Account, ctx: Context, first: int, count: int) -> None:
    """Have so many keys wait."""
    for number in range(first, first + count):
        ctx.fork("bench", f"waits{number}", "wait")


@bench.handler
async def wait(account: Account, ctx: Context) -> None:
    """Wait for what nobody gives."""
    await ctx.promise(bool)

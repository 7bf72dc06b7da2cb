"""Keys without a prefix."""

from __future__ import annotations

from deathless import Context, Service, Struct


class Account(Struct):
    balance: float = 0.0


bank = Service("bank", state=Account, version=2)


@bank.handler
def deposit(account: Account, ctx: Context, amount: float) -> float:
    account.balance += amount
    return account.balance


@bank.migrate_key(from_=1)
def key(old: str) -> str:
    return old.removeprefix("acct-")

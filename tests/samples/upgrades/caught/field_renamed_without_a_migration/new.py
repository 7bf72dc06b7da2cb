"""The balance has another name, and nothing leads there."""

from __future__ import annotations

from deathless import Context, Service, Struct


class Account(Struct):
    cents: float = 0.0


bank = Service("bank", state=Account)


@bank.handler
def deposit(account: Account, ctx: Context, amount: float) -> float:
    account.cents += amount
    return account.cents

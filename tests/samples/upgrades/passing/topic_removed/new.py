"""A bank that publishes nothing."""

from __future__ import annotations

from deathless import Context, Service, Struct


class Account(Struct):
    balance: float = 0.0


bank = Service("bank", state=Account)


@bank.handler
def deposit(account: Account, ctx: Context, amount: float) -> float:
    account.balance += amount
    return account.balance

"""Accounts that said nothing would be closed."""

from __future__ import annotations

from deathless import Context, Service, Struct


class Account(Struct, omit_defaults=True):
    balance: float = 0.0
    standing: str = "closed"


bank = Service("bank", state=Account)


@bank.handler
def deposit(account: Account, ctx: Context, amount: float) -> float:
    account.balance += amount
    return account.balance

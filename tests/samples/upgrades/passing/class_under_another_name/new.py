"""A bank with customers."""

from __future__ import annotations

from deathless import Context, Service, Struct


class Customer(Struct):
    balance: float = 0.0


bank = Service("bank", state=Customer)


@bank.handler
def deposit(account: Customer, ctx: Context, amount: float) -> float:
    account.balance += amount
    return account.balance

"""Deposits are published."""

from __future__ import annotations

from deathless import Context, Service, Struct


class Account(Struct):
    balance: float = 0.0


class Deposited(Struct):
    amount: float


bank = Service("bank", state=Account)
deposits = bank.topic("deposits", Deposited)


@bank.handler
def deposit(account: Account, ctx: Context, amount: float) -> float:
    account.balance += amount
    ctx.emit(deposits, Deposited(amount))
    return account.balance

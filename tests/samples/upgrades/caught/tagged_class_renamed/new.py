"""The class has another name, which bytes hold."""

from __future__ import annotations

from deathless import Context, Service, Struct


class Cash(Struct, tag=True):
    notes: int = 0


class Plastic(Struct, tag=True):
    number: str = ""


class Account(Struct):
    balance: float = 0.0
    means: Cash | Plastic | None = None


bank = Service("bank", state=Account)


@bank.handler
def deposit(account: Account, ctx: Context, amount: float) -> float:
    account.balance += amount
    return account.balance

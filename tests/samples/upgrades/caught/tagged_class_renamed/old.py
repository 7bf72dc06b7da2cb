"""A means, by the name of its class."""

from __future__ import annotations

from deathless import Context, Service, Struct


class Cash(Struct, tag=True):
    notes: int = 0


class Card(Struct, tag=True):
    number: str = ""


class Account(Struct):
    balance: float = 0.0
    means: Cash | Card | None = None


bank = Service("bank", state=Account)


@bank.handler
def deposit(account: Account, ctx: Context, amount: float) -> float:
    account.balance += amount
    return account.balance

"""Two kinds."""

from __future__ import annotations

from enum import StrEnum

from deathless import Context, Service, Struct


class Kind(StrEnum):
    PRIVATE = "private"
    FIRM = "firm"


class Account(Struct):
    balance: float = 0.0
    kind: Kind = Kind.PRIVATE


bank = Service("bank", state=Account)


@bank.handler
def deposit(account: Account, ctx: Context, amount: float) -> float:
    account.balance += amount
    return account.balance

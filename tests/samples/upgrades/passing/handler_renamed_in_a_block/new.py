"""The bonus has another name, as it says."""

from __future__ import annotations

from deathless import Context, Service, Struct


class Account(Struct):
    balance: float = 0.0


bank = Service("bank", state=Account, version=2)


@bank.handler
def deposit(account: Account, ctx: Context, amount: float) -> float:
    account.balance += amount
    return account.balance


@bank.handler
def gift(account: Account, ctx: Context) -> None:
    account.balance += 1


bank.changes(from_=1, renamed={"bonus": "gift"}, changed={"deposit": {"reply": "fees are rounded half up"}})

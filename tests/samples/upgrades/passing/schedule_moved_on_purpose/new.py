"""Interest at two, as it says."""

from __future__ import annotations

from deathless import Context, Service, Struct


class Account(Struct):
    balance: float = 0.0


bank = Service("bank", state=Account, version=2)


@bank.handler
def deposit(account: Account, ctx: Context, amount: float) -> float:
    account.balance += amount
    return account.balance


@bank.schedule("0 2 * * *", key="alice", name="nightly")
@bank.handler
def interest(account: Account, ctx: Context) -> None:
    account.balance *= 1.01


bank.changes(from_=1, changed={"nightly": {"times": "an hour earlier, before the books are closed"}})

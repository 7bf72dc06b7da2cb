"""Notes are texts: a migration takes what the old type says it has, which one key does not."""

from __future__ import annotations

from deathless import Context, Migration, Service, Struct


class AccountV1(Struct):
    balance: float = 0.0
    note: str = ""


class Account(Struct):
    balance: float = 0.0
    note: str = ""


bank = Service("bank", state=Account, version=2)


@bank.handler
def deposit(account: Account, ctx: Context, amount: float) -> float:
    account.balance += amount
    return account.balance


@bank.migrate(from_=1)
def up(old: AccountV1, m: Migration) -> Account:
    return Account(balance=old.balance, note=old.note)

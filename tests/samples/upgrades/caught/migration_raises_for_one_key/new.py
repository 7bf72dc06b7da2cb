"""One balance can't be migrated."""

from __future__ import annotations

from deathless import Context, Migration, Service, Struct


class AccountV1(Struct):
    balance: float = 0.0


class Account(Struct):
    cents: int = 0


bank = Service("bank", state=Account, version=2)


@bank.handler
def deposit(account: Account, ctx: Context, amount: float) -> float:
    account.cents += round(100 * amount)
    return account.cents / 100


@bank.migrate(from_=1)
def up(old: AccountV1, m: Migration) -> Account:
    if old.balance < 0:
        raise ValueError(f"{m.key} owes {-old.balance}")
    return Account(cents=round(100 * old.balance))

"""From 1 to 2 and no further."""

from __future__ import annotations

from deathless import Context, Migration, Service, Struct


class AccountV1(Struct):
    balance: float = 0.0


class AccountV2(Struct):
    balance: int = 0


class Account(Struct):
    cents: int = 0


bank = Service("bank", state=Account, version=3)


@bank.handler
def deposit(account: Account, ctx: Context, amount: float) -> float:
    account.cents += round(100 * amount)
    return account.cents / 100


@bank.migrate(from_=1)
def up(old: AccountV1, m: Migration) -> AccountV2:
    return AccountV2(balance=round(old.balance))

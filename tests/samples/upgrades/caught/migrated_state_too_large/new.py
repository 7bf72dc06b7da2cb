"""Each account has a large note."""

from __future__ import annotations

from deathless import Context, Migration, Service, Struct


class AccountV1(Struct):
    balance: float = 0.0


class Account(Struct):
    cents: int = 0
    note: str = ""


bank = Service("bank", state=Account, version=2)


@bank.handler
def deposit(account: Account, ctx: Context, amount: float) -> float:
    account.cents += round(100 * amount)
    return account.cents / 100


@bank.migrate(from_=1)
def up(old: AccountV1, m: Migration) -> Account:
    return Account(cents=1, note="x" * (5 << 20))

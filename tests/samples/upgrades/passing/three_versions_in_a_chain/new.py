"""From units to cents to texts."""

from __future__ import annotations

from deathless import Context, Migration, Service, Struct


class AccountV1(Struct):
    balance: float = 0.0


class AccountV2(Struct):
    cents: int = 0


class Account(Struct):
    amount: str = "0.00"


bank = Service("bank", state=Account, version=3)


@bank.handler
def deposit(account: Account, ctx: Context, amount: float) -> float:
    account.amount = f"{float(account.amount) + amount:.2f}"
    return float(account.amount)


@bank.migrate(from_=2)
def texts(old: AccountV2, m: Migration) -> Account:
    return Account(amount=f"{old.cents / 100:.2f}")


@bank.migrate(from_=1)
def cents(old: AccountV1, m: Migration) -> AccountV2:
    return AccountV2(cents=round(100 * old.balance))

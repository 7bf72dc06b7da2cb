"""Accounts are numbered by a global."""

from __future__ import annotations

from deathless import Context, Migration, Service, Struct


class AccountV1(Struct):
    balance: float = 0.0


class Account(Struct):
    cents: int = 0
    number: int = 0


bank = Service("bank", state=Account, version=2)


@bank.handler
def deposit(account: Account, ctx: Context, amount: float) -> float:
    account.cents += round(100 * amount)
    return account.cents / 100


seen: list[str] = []


@bank.migrate(from_=1)
def up(old: AccountV1, m: Migration) -> Account:
    seen.append(m.key)
    return Account(cents=round(100 * old.balance), number=len(seen))

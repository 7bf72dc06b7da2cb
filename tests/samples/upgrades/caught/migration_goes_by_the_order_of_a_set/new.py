"""Tags become a list, in the order of a set."""

from __future__ import annotations

from deathless import Context, Migration, Service, Struct, field


class AccountV1(Struct):
    balance: float = 0.0
    tags: str = ""


class Account(Struct):
    balance: float = 0.0
    tags: list[str] = field(default_factory=list)


bank = Service("bank", state=Account, version=2)


@bank.handler
def deposit(account: Account, ctx: Context, amount: float) -> float:
    account.balance += amount
    return account.balance


@bank.migrate(from_=1)
def up(old: AccountV1, m: Migration) -> Account:
    return Account(balance=old.balance, tags=list(set(old.tags.split())))

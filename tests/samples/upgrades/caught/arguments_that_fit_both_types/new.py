"""One JSON text fits the old and the new type."""

from __future__ import annotations

from deathless import Context, Service, Struct


class Account(Struct):
    balance: float = 0.0


bank = Service("bank", state=Account, version=2)


@bank.handler
def deposit(account: Account, ctx: Context, amount: int) -> float:
    account.balance += amount
    return account.balance


class DepositV1(Struct):
    amount: float


@bank.accepts("deposit", from_=1, args=DepositV1)
def deposit_v1(old: DepositV1) -> dict[str, int]:
    return {"amount": round(old.amount)}

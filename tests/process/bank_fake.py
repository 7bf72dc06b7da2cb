"""The bank service with its real executor behind a fake replica: real types, real errors, no log."""

from __future__ import annotations

import time
from datetime import datetime

import msgspec
from replica_fake import FakeShard

from deathless.base.errors import CallRefused, Invalid
from deathless.base.limits import Limits
from deathless.base.times import Times
from deathless.core.tables.keys import KeyTable
from deathless.execution.author.service import Service
from deathless.execution.executor import HandlerExecutor
from deathless.execution.turn.context import Context
from deathless.execution.turn.running import PAGE_BYTES, Cells


class Account(msgspec.Struct):
    balance: int = 0
    notes: list[str] = []


class TooPoor(CallRefused):
    """The account has less."""


bank = Service("bank", state=Account)


@bank.handler
def deposit(account: Account, ctx: Context, amount: int, note: str = "") -> int:
    account.balance += amount
    account.notes.append(note)
    return account.balance


@bank.handler
def withdraw(account: Account, ctx: Context, amount: int) -> int:
    if account.balance < amount:
        raise TooPoor(f"balance is {account.balance}")
    account.balance -= amount
    return account.balance


@bank.handler
def refuse(account: Account, ctx: Context) -> None:
    raise Invalid("not today")


@bank.handler(keys=("source", "target"))
def transfer(accounts: dict[str, Account], ctx: Context, source: str, target: str, amount: int) -> dict[str, int]:
    accounts[source].balance -= amount
    accounts[target].balance += amount
    return {source: accounts[source].balance, target: accounts[target].balance}


@bank.query
def balance(account: Account) -> int:
    return account.balance


@bank.query
def history(
    account: Account,
    first: int = 0,
    only: list[str] = [],  # noqa: B006  the runtime copies defaults for each turn
    exact: bool = False,
    since: datetime | None = None,
) -> dict[str, object]:
    return {"first": first, "only": only, "exact": exact, "since": since}


@bank.query(keys=("a", "b"))
def sum_of(accounts: dict[str, Account], a: str, b: str) -> int:
    return accounts[a].balance + accounts[b].balance


def bank_shard(limits: Limits | None = None) -> FakeShard:
    """A shard that runs the bank."""
    limits = limits or Limits()
    keys = KeyTable(limits)
    executor = HandlerExecutor(bank, limits, bytes(32), keys, Cells(memoryview(bytearray(PAGE_BYTES))))
    shard = FakeShard(message_bytes_max=limits.message_bytes_max)

    def run(message: bytes) -> bytes:
        at = len(shard.applied)
        keys.moved(Times.at(time.time_ns() // 1000))
        return executor.execute(100, at, at, time.time_ns() // 1000, [message])[0][0]

    shard.run = run
    shard.ask = lambda message: executor.query(message, time.time_ns() // 1000)
    return shard

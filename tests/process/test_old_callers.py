"""Callers that still have the old code are served behind an upgrade, whoever dies, and as they were answered before."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

from replica_set import send_signal, wait_for
from upgraded_bank import UpgradedBank, version_1, version_2

BEFORE = """

@bank.handler
def credit(account: Account, ctx: Context, units: float, why: str = "") -> float:
    account.balance += round(units)
    return account.balance
"""
BEHIND = """

@bank.handler
def credit(account: Account, ctx: Context, cents: int) -> float:
    account.cents += cents
    return account.cents


class CreditV1(Struct):
    units: float
    why: str = ""


@bank.accepts("credit", from_=1, args=CreditV1, result=float)
def credit_v1(old: CreditV1) -> dict[str, int]:
    return {"cents": round(100 * old.units)}
"""


def credit(bank: UpgradedBank, key: str, **arguments: float) -> object:
    """Call under an idempotency key."""

    async def call() -> object:
        async with bank.client() as client:
            named: dict[str, Any] = dict(arguments)
            return await client.call("credit", "a", idempotency_key=key, timeout=60.0, **named)

    return asyncio.run(call())


def test_old_arguments_are_taken_behind_the_upgrade_and_answered_once(tmp_path: Path) -> None:
    with UpgradedBank(tmp_path, replicas=2, source=version_1(BEFORE)) as bank:
        assert credit(bank, "one", units=3) == 3
        bank.upgrade(bank.code("v2", version_2(BEHIND)))
        bank.wait_whole("r0", "r1")
        assert credit(bank, "one", units=3) == 3, "as version 1 answered it"
        assert credit(bank, "two", units=1.5) == 450
        assert credit(bank, "three", cents=50) == 500
        before = bank.lock_epoch()
        assert send_signal(bank.worker(bank.view().primary), signal.SIGKILL)
        wait_for(lambda: bank.lock_epoch() > before, "somebody takes over", bank.told)
        assert credit(bank, "two", units=1.5) == 450
        assert credit(bank, "four", units=1) == 600
        assert bank.json("log", "verify")["problems"] == [], "a replay by the code of the log gives the same"

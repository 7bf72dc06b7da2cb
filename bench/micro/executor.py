"""How long a turn takes in the executor alone: no log, no sessions, no network. Prints JSON.

Each figure is the median of several batches, in microseconds per message, with the collector off as in the engine.
Run it as `python bench/micro/executor.py [--profile]`.
"""

from __future__ import annotations

import cProfile
import gc
import json
import statistics
import sys
import time
from collections.abc import Collection

import msgspec

from deathless.base.limits import Limits
from deathless.codec.messages import Kind, encode
from deathless.execution.author.service import Service
from deathless.execution.executor import HandlerExecutor
from deathless.execution.turn.context import Context
from deathless.execution.turn.running import PAGE_BYTES, Cells

BATCH = 8192
BATCHES = 31
GOAL_US = 1.3


class Account(msgspec.Struct):
    """State of one key."""

    balance: int = 0


bank = Service("bank", state=Account)


@bank.handler
def deposit(account: Account, ctx: Context, amount: int, note: str = "") -> int:
    """Change the state, give an integer."""
    account.balance += amount
    return account.balance


@bank.handler
def draw(account: Account, ctx: Context) -> float:
    """Use chance."""
    return ctx.random.random()


@bank.handler
def fail(account: Account, ctx: Context) -> None:
    """Raise."""
    raise ValueError("no")


@bank.handler(keys=("source", "target"))
def transfer(accounts: dict[str, Account], ctx: Context, source: str, target: str, amount: int) -> None:
    """Change two keys."""
    accounts[source].balance -= amount
    accounts[target].balance += amount


class Keys:
    """A key table that remembers nothing."""

    def __contains__(self, key: bytes) -> bool:
        """See KeyTable: none is."""
        return False

    def check(self, key: bytes, request_hashes: Collection[bytes]) -> None:
        """Let every call run."""

    def remember(self, key: bytes, request_hash: bytes, reply: bytes) -> None:
        """Forget it."""


def batch(method: str, arguments: dict[str, object], idempotency_key: bytes = b"") -> list[bytes]:
    """Give BATCH calls over a thousand keys."""
    encoded = msgspec.msgpack.encode(arguments)
    return [
        encode(
            Kind.CALL,
            method=method.encode(),
            key=b"acct-%d" % (n % 1000),
            args=encoded,
            idempotency_key=idempotency_key,
        )
        for n in range(BATCH)
    ]


def measure(messages: list[bytes], size: int = BATCH) -> float:
    """Give the microseconds one message takes in batches of `size`."""
    executor = HandlerExecutor(bank, Limits(), bytes(32), Keys(), Cells(bytearray(PAGE_BYTES)))
    took = []
    for _ in range(BATCHES):
        begun = time.perf_counter()
        for start in range(0, len(messages), size):
            executor.execute(1, 1, 1, 1, messages[start : start + size])
            executor.rolling_update()
        took.append((time.perf_counter() - begun) / len(messages) * 1e6)
    return round(statistics.median(took), 3)


def main() -> None:
    """Print the figures, or a profile."""
    gc.disable()
    trivial = batch("deposit", {"amount": 5, "note": "x" * 46})
    if "--profile" in sys.argv:
        cProfile.runctx("measure(trivial)", globals(), {"trivial": trivial}, sort="tottime")
        return
    figures = {
        "trivial_64_byte_arguments": measure(trivial),
        "trivial_one_integer": measure(batch("deposit", {"amount": 5})),
        "trivial_batches_of_one": measure(trivial, 1),
        "trivial_batches_of_64": measure(trivial, 64),
        "idempotency_key": measure(batch("deposit", {"amount": 5}, b"k" * 16)),
        "random": measure(batch("draw", {})),
        "failing": measure(batch("fail", {})),
        "two_keys": measure(batch("transfer", {"source": "a", "target": "b", "amount": 1})),
    }
    print(
        json.dumps(
            {"unit": "us per message", "goal": {"trivial_64_byte_arguments": GOAL_US}, "figures": figures}, indent=2
        )
    )


if __name__ == "__main__":
    main()

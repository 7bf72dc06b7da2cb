"""Judges a chaos run: what customers were told against what stands in the services, at the bank and in PostgreSQL.

Every order is to be known, every order that was sent is to stand in the ledger exactly once and in the sum once, and no
other; each article is on the shelf, held by an order that was sent, or was never delivered.

Guarantees: each difference is one line. Does not: wait (the caller lets the services come to rest first).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from examples.shop.customers import ARTICLES, NAMES, History, Order

from deathless import Client

ALLOWED: Final = {
    "small": ("sent", "refused: "),
    "approved": ("sent", "refused: "),
    "rejected": ("rejected", "refused: "),
    "declined": ("failed: ", "refused: "),
    "too-many": ("refused: ",),
}
"""What may come of an order of each kind; articles may have run out for any."""
R = TypeVar("R", bound=Hashable)


class Entry(msgspec.Struct, frozen=True):
    """One row of the ledger."""

    entry: int
    customer: str
    order: str
    cents: int


@dataclass(frozen=True, kw_only=True)
class Books:
    """What stands in PostgreSQL."""

    ledger: Sequence[Entry]
    turnover: dict[str, tuple[int, int]]  # by customer: payments, cents


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """What the services hold."""

    free: dict[str, int]  # by article
    held: dict[str, dict[str, int]]  # by article: order, count
    paid: dict[str, dict[str, int]]  # by customer: order, cents
    receipts: dict[str, str]  # by order that was sent


async def take_inventory(folder: Path, orders: Iterable[Order]) -> Inventory:
    """Ask the services, linearizably."""
    async with (
        Client("stock", [f"dir:{folder / 'stock'}"]) as stock,
        Client("payments", [f"dir:{folder / 'payments'}"]) as payments,
        Client("shop", [f"dir:{folder / 'shop'}"]) as shop,
    ):
        sent = [order.number for order in orders if order.outcome == "sent"]
        return Inventory(
            free={each: msgspec.convert(await stock.query("free", each), int) for each in ARTICLES},
            held={each: msgspec.convert(await stock.query("held", each), dict[str, int]) for each in ARTICLES},
            paid={each: msgspec.convert(await payments.query("paid", each), dict[str, int]) for each in NAMES},
            receipts={each: str(await shop.query("receipt", each)) for each in sent},
        )


def judge(history: History, books: Books, found: Inventory, bank: Sequence[str]) -> list[str]:
    """Give every difference; none: exactly once.

    Args:
        history: of the customers.
        books: of PostgreSQL.
        found: what the services hold.
        bank: its lines: key, customer, cents.
    """
    sent = [order for order in history.orders if order.outcome == "sent"]
    wrong = [
        f"order {each.number} ({each.kind}): {each.outcome or 'nothing is known of it'}"
        for each in history.orders
        if not each.outcome.startswith(ALLOWED[each.kind])
    ]
    wrong += _differences(
        "ledger",
        Counter((each.order, each.customer, each.cents) for each in books.ledger),
        Counter((each.number, each.customer, each.cents) for each in sent),
    )
    entries = {each.order: each.entry for each in books.ledger}
    for number, receipt in found.receipts.items():
        if not receipt.endswith(f" entry {entries.get(number)}"):
            wrong.append(f"order {number} was told {receipt!r}, its entry is {entries.get(number)}")
    sums = {
        name: (len(cents), sum(cents))
        for name in NAMES
        if (cents := [each.cents for each in sent if each.customer == name])
    }
    wrong += _differences("turnover", Counter(books.turnover.items()), Counter(sums.items()))
    paid = Counter((order, name, cents) for name, orders in found.paid.items() for order, cents in orders.items())
    wrong += _differences("payments", paid, Counter((each.number, each.customer, each.cents) for each in sent))
    held = Counter((order, article, count) for article, orders in found.held.items() for order, count in orders.items())
    wrong += _differences("stock", held, Counter((each.number, each.article, each.count) for each in sent))
    for article in ARTICLES:
        there = found.free[article] + sum(found.held[article].values())
        if there != history.filled[article]:
            wrong.append(f"stock: {there} {article} are there, {history.filled[article]} were delivered")
    keys = Counter(line.split()[0] for line in bank)
    wrong += [f"bank: {key} stands there {count} times" for key, count in keys.items() if count > 1]
    taken = Counter((line.split()[1], int(line.split()[2])) for line in bank)
    wrong += _differences("bank", taken, Counter((each.customer, each.cents) for each in sent))
    return wrong


def _differences(where: str, found: Counter[R], wanted: Counter[R]) -> list[str]:
    lost = [f"{where}: {each} is missing" for each in (wanted - found).elements()]
    return lost + [f"{where}: {each} is too much" for each in (found - wanted).elements()]

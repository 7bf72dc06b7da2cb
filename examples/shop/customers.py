"""Customers of the shop, for the chaos run: they place orders and remember what they were told.

Half of them call through the Python client, half over HTTP, where they send an order again, under the same key, until
they are told what came of it. A person approves or rejects large orders. A supplier fills the shelves.

Guarantees: what a customer will want is drawn from the seed. Does not: judge (verdict.py does).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from deathless import Client, DeathlessError
from deathless.shell.directory.members import read_members

ARTICLES: Final = ("apples", "pears", "plums")
NAMES: Final = ("alice", "bob", "carol", "dave", "erin")
REFILL: Final = 200  # articles at a time
REFILL_EVERY: Final = 25  # orders
PAUSE_S: Final = 0.2  # before a customer asks again over HTTP
ASK_S: Final = 10.0  # how long an answer may take there


@dataclass(kw_only=True, eq=False)
class Order:
    """What one customer wanted, and was told."""

    number: str
    article: str
    count: int
    customer: str
    cents: int
    kind: str  # small | approved | rejected | declined (the bank says no) | too-many
    outcome: str = ""  # what `place` gave; empty: not known yet
    waited_s: float = 0.0


@dataclass
class History:
    """What happened at the shop's door."""

    orders: list[Order] = field(default_factory=list)
    filled: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ARTICLES, 0))  # articles, as was acknowledged
    under_way: set[str] = field(default_factory=set)  # orders
    asked_again: int = 0  # times that somebody sent an order again over HTTP


KINDS: Final[dict[str, tuple[int, tuple[int, int]]]] = {  # share of 100; cents
    "small": (82, (1, 5_000)),
    "approved": (7, (50_000, 90_000)),
    "rejected": (4, (50_000, 90_000)),
    "declined": (3, (100_001, 200_000)),
    "too-many": (4, (1, 5_000)),
}


def draw(chance: random.Random, number: str) -> Order:
    """Draw an order."""
    (kind,) = chance.choices(list(KINDS), [share for share, _ in KINDS.values()])
    return Order(
        number=number,
        article=chance.choice(ARTICLES),
        count=10_000_000 if kind == "too-many" else chance.randint(1, 3),
        customer=chance.choice(NAMES),
        cents=chance.randint(*KINDS[kind][1]),
        kind=kind,
    )


class Customers:
    """All of them.

    Args:
        folder: of the service's logs, `.deathless`.
        count: how many order at a time.
        seed: what they want follows from it.
    """

    def __init__(self, folder: Path, *, count: int, seed: int) -> None:
        self.history = History()
        self._folder = folder
        self._count = count
        self._seed = seed
        self._stop = asyncio.Event()
        self._refilled = 0  # times

    def stop(self) -> None:
        """Have nobody place a further order; those under way go on."""
        self._stop.set()

    async def run(self) -> None:
        """Order until `stop`; ends when everybody knows what became of every order."""
        async with self._client("stock") as stock, self._client("shop") as person, asyncio.TaskGroup() as group:
            for article in ARTICLES:
                await self._refill(stock, article)
            for number in range(self._count):
                group.create_task(self._customer(number, stock, person))

    def _client(self, service: str) -> Client:
        return Client(service, [f"dir:{self._folder / service}"])

    async def _customer(self, number: int, stock: Client, person: Client) -> None:
        chance = random.Random(f"{self._seed}/{number}")
        async with self._client("shop") as shop:
            count = 0
            while not self._stop.is_set():
                order = draw(chance, f"{number}.{count}")
                await self._order(order, shop if number % 2 == 0 else None, person)
                count += 1
                if len(self.history.orders) // REFILL_EVERY > self._refilled:
                    self._refilled += 1
                    await self._refill(stock, ARTICLES[self._refilled % len(ARTICLES)])

    async def _refill(self, stock: Client, article: str) -> None:
        await stock.call("refill", article, count=REFILL, timeout=None)
        self.history.filled[article] += REFILL

    async def _order(self, order: Order, shop: Client | None, person: Client) -> None:
        """Place one; without a client of their own they do it over HTTP."""
        began = time.monotonic()
        self.history.orders.append(order)
        self.history.under_way.add(order.number)
        named = {"article": order.article, "count": order.count, "customer": order.customer, "cents": order.cents}
        deciding = None
        if order.kind in {"approved", "rejected", "declined"}:
            deciding = asyncio.create_task(self._decide(order, person))
        if shop is not None:
            try:
                order.outcome = str(await shop.request("place", order.number, named, timeout=None))
            except DeathlessError as error:
                order.outcome = str(error)
        else:
            order.outcome = await self._over_http(order.number, named)
        if deciding is not None:
            deciding.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await deciding
        order.waited_s = time.monotonic() - began
        self.history.under_way.discard(order.number)

    async def _decide(self, order: Order, person: Client) -> None:
        """Approve or reject, once the order waits for it."""
        yes = order.kind != "rejected"
        named = {"yes": yes}
        while await person.request("decide", order.number, named, timeout=None) != "decided":  # noqa: ASYNC110 - it asks
            await asyncio.sleep(PAUSE_S)

    # ---- over HTTP -------------------------------------------------------------------------------------------

    async def _over_http(self, number: str, named: dict[str, object]) -> str:
        """Send an order until its result is known; the key makes the second time the same as the first."""
        tries = 0
        while True:
            for address in self._addresses():
                self.history.asked_again += tries > 0
                tries += 1
                with contextlib.suppress(OSError, ValueError):
                    found = await asyncio.to_thread(ask, address, number, named)
                    if found is not None:
                        return found
                await asyncio.sleep(PAUSE_S)
            await asyncio.sleep(PAUSE_S)

    def _addresses(self) -> list[str]:
        members = read_members(str(self._folder / "shop")).values()
        return [each.ingress for each in members if each.ingress and not each.ingress.endswith(":0")]


def ask(address: str, number: str, named: dict[str, object]) -> str | None:
    """Place an order over HTTP and wait for its result; None: not known yet, ask again."""
    headers = {"Content-Type": "application/json", "Idempotency-Key": f"order-{number}", "Prefer": f"wait={ASK_S:g}"}
    request = urllib.request.Request(
        f"http://{address}/shop/{number}/place", json.dumps(named).encode(), headers, method="POST"
    )
    while True:
        try:
            with urllib.request.urlopen(request, timeout=3 * ASK_S) as answer:
                if answer.status == 200:
                    return str(json.loads(answer.read()))
                where = answer.headers["Location"]
        except urllib.error.HTTPError as error:
            with error:
                told = error.read().decode(errors="replace")
            if error.code in {429, 503, 504, 507}:
                return None
            return f"HTTP {error.code}: {told[:200]}"
        request = urllib.request.Request(f"http://{address}{where}", headers={"Prefer": f"wait={ASK_S:g}"})

"""The verdict of the shop's chaos run finds what is planted, and finds nothing where nothing is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
from examples.shop.customers import History, Order
from examples.shop.verdict import Books, Entry, Inventory, judge


class World:
    """A run of two orders, in order: one was sent, one was rejected."""

    def __init__(self) -> None:
        sent = Order(number="0.0", article="apples", count=2, customer="alice", cents=700, kind="small", outcome="sent")
        rejected = Order(
            number="1.0", article="pears", count=1, customer="bob", cents=60_000, kind="rejected", outcome="rejected"
        )
        self.history = History([sent, rejected])
        self.history.filled |= {"apples": 10, "pears": 5}
        self.ledger = [Entry(1, "alice", "0.0", 700)]
        self.turnover = {"alice": (1, 700)}
        self.free = {"apples": 8, "pears": 5, "plums": 0}
        self.held: dict[str, dict[str, int]] = {"apples": {"0.0": 2}, "pears": {}, "plums": {}}
        self.paid = {"alice": {"0.0": 700}}
        self.receipts = {"0.0": "payments/0/5 entry 1"}
        self.bank = ["payments/0/5 alice 700"]

    def wrong(self) -> list[str]:
        found = Inventory(free=self.free, held=self.held, paid=self.paid, receipts=self.receipts)
        return judge(self.history, Books(ledger=self.ledger, turnover=self.turnover), found, self.bank)


def order_again(world: World) -> Order:
    return dataclasses.replace(world.history.orders[0], number="2.0")


FAULTS: dict[str, Callable[[World], object]] = {
    "nothing is known": lambda world: setattr(world.history.orders[0], "outcome", ""),
    "is missing": lambda world: world.ledger.clear(),
    "ledger": lambda world: world.ledger.append(Entry(2, "alice", "0.0", 700)),
    "cents": lambda world: world.ledger.__setitem__(0, Entry(1, "alice", "0.0", 701)),
    "turnover": lambda world: world.turnover.update(alice=(2, 1400)),
    "was told": lambda world: world.receipts.update({"0.0": "payments/0/5 entry 2"}),
    "payments": lambda world: world.paid["alice"].clear(),
    "stock": lambda world: world.held["pears"].update({"1.0": 1}),
    "apples are there": lambda world: world.free.update(apples=9),
    "2 times": lambda world: world.bank.append(world.bank[0]),
    "bank": lambda world: world.bank.append("payments/0/9 bob 60000"),
    "rejected": lambda world: setattr(world.history.orders[1], "outcome", "sent"),
    "2.0": lambda world: world.history.orders.append(order_again(world)),
}


def test_run_in_which_all_agrees_has_nothing_wrong() -> None:
    assert World().wrong() == []


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_difference_is_found(fault: str) -> None:
    world = World()
    FAULTS[fault](world)
    assert any(fault in line or fault == "cents" for line in world.wrong())

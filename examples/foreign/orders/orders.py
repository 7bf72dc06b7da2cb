"""Orders: what orders.go is, in Python, for machines without Go. Its docstring is that file's first comment."""

from __future__ import annotations

from typing import Final

import msgspec

from deathless.ambrosia import Answer, Binding, Call, CallType, Outcome, connect

PLACE, COUNTED, RECEIPT, REFUND, BOOK = 1, 2, 3, 4, 5
LINES_MAX: Final = 2000


class Order(msgspec.Struct):
    """One of the book. It counts everything, so that what comes twice or never shows."""

    number: int
    customer: str = "-"
    cents: str = "0"
    placed: int = 0
    counted: int = 0
    paid: int = 0
    failed: int = 0
    receipts: int = 0
    refunds: int = 0
    caller: str = ""  # who waits for the answer
    sequence: int = 0

    def line(self) -> str:
        """Give it as the verdict reads it."""
        counts = (self.placed, self.counted, self.paid, self.failed, self.receipts, self.refunds)
        return " ".join(map(str, (self.number, self.customer, self.cents, *counts)))


class Orders(Binding):
    """The program."""

    def __init__(self) -> None:
        self.book: dict[int, Order] = {}

    def order(self, number: int) -> Order:
        """Give an order's entry; it need not be there."""
        return self.book.setdefault(number, Order(number))

    def handle(self, call: Call) -> None:
        """A call came."""
        words = call.arguments.decode().split()
        if call.method == BOOK:
            lines = [each.line() for each in [*self.book.values()][int(words[0]) :][:LINES_MAX]]
            self.answer(call, "\n".join(lines).encode())
            return
        order = self.order(int(words[0]))
        if call.method == PLACE:
            _, order.customer, order.cents = words
            order.placed += 1
            order.caller, order.sequence = call.answer_to, call.number
            self.fork(COUNTED, call.arguments)
            self.call(PLACE, call.arguments, to=f"till/{order.customer}", number=order.number)
        elif call.method == COUNTED:
            order.counted += 1
        elif call.method == RECEIPT:
            order.receipts += 1
        elif call.method == REFUND:
            order.refunds += 1
            self.answer(call, order.cents.encode())

    def answered(self, answer: Answer) -> None:
        """The till's answer came: whoever placed the order gets it."""
        order = self.order(answer.number)
        if answer.outcome is Outcome.VALUE:
            order.paid += 1
        else:
            order.failed += 1
        self.answer(Call(PLACE, CallType.AWAITED, b"", order.caller, order.sequence), answer.payload)

    def save(self) -> bytes:
        """All there is."""
        return msgspec.json.encode([*self.book.values()])

    def load(self, state: bytes) -> None:
        """Go on from there."""
        self.book = {each.number: each for each in msgspec.json.decode(state, type=list[Order])}


if __name__ == "__main__":
    connect(Orders()).run()

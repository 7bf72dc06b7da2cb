"""The till: a Python service that the program `orders` calls, and that calls it. See demo.py."""

from __future__ import annotations

from deathless import Context, Service, Struct, field, peer_bytes

PLACE, RECEIPT, REFUND = 1, 3, 4
orders = peer_bytes("orders")


class Payment(Struct):
    """One of the till's book."""

    order: int
    cents: int  # below 0: it was given back


class Customer(Struct):
    """State of one customer."""

    book: list[Payment] = field(default_factory=list)
    total: int = 0


till = Service("till", state=Customer)


@till.foreign(method=PLACE)
def take(customer: Customer, ctx: Context, args: bytes) -> bytes:
    """Take the money for an order; gives what the customer has paid in all. Called by the program."""
    order, _, cents = args.decode().split()
    customer.book.append(Payment(int(order), int(cents)))
    customer.total += int(cents)
    ctx.fork(orders[RECEIPT], order.encode())
    return b"%d" % customer.total


@till.handler
async def give_back(customer: Customer, ctx: Context, order: int) -> int:
    """Give the money for an order back, as much as the program says; gives what the customer has paid in all."""
    cents = int(await ctx.call(orders[REFUND], b"%d" % order) or b"0")
    customer.book.append(Payment(order, -cents))
    customer.total -= cents
    return customer.total


@till.query
def book(customer: Customer) -> list[Payment]:
    """Give all there is of a customer."""
    return customer.book

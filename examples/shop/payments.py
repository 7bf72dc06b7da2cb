"""Payments: asks a bank, which is outside of Deathless, and keeps what it said."""

import fcntl
from pathlib import Path

from deathless import ActivityFailed, Context, Invalid, Service, Struct, current_activity

BANK = Path(__file__).with_name("bank.txt")
LIMIT = 100_000  # cents; the bank refuses more


class Customer(Struct):
    """State of one customer."""

    paid: dict[str, int] = {}  # noqa: RUF012  a Struct copies its defaults. By order, cents


class Declined(Invalid):
    """The bank does not pay; nothing was taken."""

    code = "SHOP02"
    http_status = 402


payments = Service("payments", state=Customer)


@payments.activity(timeout=10, attempts_max=3, first_delay=0.1)
def ask_bank(customer: str, cents: int) -> str:
    """Stands for a call of the bank's interface: one line for each key that it has not seen.

    It may run twice, when a primary dies in the middle; the key makes the second time change nothing, as the
    interface of every bank does.
    """
    if cents > LIMIT:
        raise ValueError(f"{cents} is above the limit")
    key = current_activity().key
    with BANK.open("a+") as bank:
        fcntl.flock(bank, fcntl.LOCK_EX)  # one whose primary has just died may still be at it
        bank.seek(0)
        if key not in bank.read():
            bank.write(f"{key} {customer} {cents}\n")
    return key


@payments.handler
async def charge(customer: Customer, ctx: Context, order: str, cents: int) -> str:
    """Have the bank pay for an order; gives its receipt."""
    try:
        receipt = await ctx.run(ask_bank, ctx.key, cents)
    except ActivityFailed as error:
        raise Declined(error.message) from error
    customer.paid[order] = cents
    return receipt


@payments.query
def paid(customer: Customer) -> dict[str, int]:
    """Give what was paid, by order."""
    return customer.paid

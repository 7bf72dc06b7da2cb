"""Payments with a ledger in PostgreSQL: the same service, which also enters what was paid, each payment exactly once.

`payments-ledger.yaml` says where the database is and what is done there; `ledger.sql` makes its tables.
"""

from payments import Customer, Declined, ask_bank, paid  # type: ignore[import-not-found]  # it lies beside this file

from deathless import ActivityFailed, Context, Service, Struct

payments = Service("payments", state=Customer)
payments.activity(timeout=10, attempts_max=10, first_delay=0.1, factor=1)(ask_bank)  # its processes are killed, too
payments.query(paid)


class Entry(Struct):
    """The first row that the driver's statement gave back."""

    entry: int


@payments.handler
async def charge(customer: Customer, ctx: Context, order: str, cents: int) -> str:
    """Have the bank pay for an order and enter it; gives its receipt and the number of the entry.

    Neither the table nor the sum would notice an order that comes twice: the driver alone keeps them right.
    """
    try:
        receipt = await ctx.run(ask_bank, ctx.key, cents)
    except ActivityFailed as error:
        raise Declined(error.message) from error
    named = {"order": order, "cents": cents}
    made = await ctx.call("ledger", ctx.key, "enter", named, result=Entry)
    ctx.fork("ledger", ctx.key, "add", named)
    customer.paid[order] = cents
    return f"{receipt} entry {made.entry}"

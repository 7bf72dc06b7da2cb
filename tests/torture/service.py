"""What torture runs call: registers to read, write and swap, and a bank between whose accounts money moves."""

from __future__ import annotations

from deathless import Context, Service, Struct

ACCOUNTS = 8
BEGINS_WITH = 100


class Thing(Struct):
    """A register, or a bank: which one it is its callers know."""

    value: int = 0
    balances: list[int] = []  # noqa: RUF012 - a Struct copies its defaults


torture = Service("torture", state=Thing)


@torture.handler
def write(thing: Thing, ctx: Context, tag: str, value: int) -> None:
    """Set a register; `tag` is this call's alone."""
    thing.value = value


@torture.handler
def cas(thing: Thing, ctx: Context, tag: str, old: int, new: int) -> bool:
    """Set a register to `new` if it holds `old`."""
    if thing.value != old:
        return False
    thing.value = new
    return True


@torture.handler
def transfer(thing: Thing, ctx: Context, tag: str, source: int, target: int, amount: int) -> bool:
    """Move money, if there is as much."""
    thing.balances = thing.balances or [BEGINS_WITH] * ACCOUNTS
    if thing.balances[source] < amount:
        return False
    thing.balances[source] -= amount
    thing.balances[target] += amount
    return True


@torture.query
def read(thing: Thing) -> int:
    """Value of a register."""
    return thing.value


@torture.query
def total(thing: Thing) -> list[int]:
    """All balances."""
    return thing.balances or [BEGINS_WITH] * ACCOUNTS

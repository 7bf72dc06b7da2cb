"""Methods and calls by numbers, as an author writes them: good lines, and wrong ones, which a checker refuses.

Checked three times over by tests/test_typed_peers.py, as typed_peers.py is. Nothing of this is run.
"""

from datetime import timedelta
from typing import assert_type

from deathless import BytesPeer, Context, MethodAddress, Service, Struct, peer_bytes


class Account(Struct):
    """State of one key."""

    balance: int = 0


class Order(Struct):
    """What a method with a codec takes."""

    cents: int


bank = Service("bank", state=Account)
counter = peer_bytes("counter")


@bank.foreign(method=1)
def add(account: Account, ctx: Context, args: bytes) -> bytes | None:
    """Bytes in, bytes or nothing out."""
    return args or None


@bank.foreign(method=2)
async def ask(account: Account, ctx: Context, args: bytes) -> bytes:
    """One that waits."""
    return await ctx.call(counter[7], args) or b""


@bank.foreign(method=3, shared=True)
def told(account: Account, ctx: Context, args: bytes) -> None:
    """One that returns nothing."""


@bank.foreign(method=4, codec="json")
def place(account: Account, ctx: Context, args: Order) -> Order:
    """A typed one."""
    return args


@bank.foreign(method=5, codec="msgpack")
async def count(account: Account, ctx: Context, args: int) -> str:
    """A typed one that waits."""
    return str(args)


@bank.handler
async def good(account: Account, ctx: Context) -> None:
    """What comes back has the type that it has."""
    assert_type(counter, BytesPeer)
    assert_type(counter[7], MethodAddress)
    assert_type(await ctx.call(counter[7], b"5"), bytes | None)
    assert_type(await ctx.call(counter.at("alice")[7], deadline=timedelta(seconds=5)), bytes | None)
    ctx.fork(counter[7], b"5")
    ctx.fork(counter.at("alice")[7])
    assert_type(await ctx.call("bank", "alice", "call", {"method": 7}, result=bytes), bytes)
    assert_type(place(account, ctx, Order(5)), Order)
    assert_type(await count(account, ctx, 5), str)
    assert_type(add(account, ctx, b"5"), bytes | None)


@bank.handler
async def wrong(account: Account, ctx: Context) -> None:
    """One mistake in each statement."""
    ctx.call(counter[7], "5")  # type: ignore[call-overload]  # pyrefly: ignore
    ctx.call(counter[7], b"5", result=bytes)  # type: ignore[call-overload]  # pyrefly: ignore
    ctx.call(counter, b"5")  # type: ignore[call-overload]  # pyrefly: ignore
    ctx.fork(counter[7], {"a": 1})  # type: ignore[call-overload]  # pyrefly: ignore
    ctx.fork("counter", b"5")  # type: ignore[call-overload]  # pyrefly: ignore
    ctx.fork("counter")  # type: ignore[call-overload]  # pyrefly: ignore
    counter["seven"]  # type: ignore[index]  # pyrefly: ignore
    counter.at(7)  # type: ignore[arg-type]  # pyrefly: ignore
    account.balance = await ctx.call(counter[7], b"5")  # type: ignore[assignment]  # pyrefly: ignore
    place(account, ctx, b"5")  # type: ignore[arg-type]  # pyrefly: ignore
    bank.foreign(method="7")  # type: ignore[call-overload]  # pyrefly: ignore
    bank.foreign(method=7, codec="xml")  # type: ignore[call-overload]  # pyrefly: ignore
    bank.foreign(method=7)(place)  # type: ignore[type-var, arg-type]  # pyrefly: ignore
    bank.foreign(method=7)(count)  # type: ignore[type-var, arg-type]  # pyrefly: ignore

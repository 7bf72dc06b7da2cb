"""One service in several versions, whose handlers wait for all that there is: what suspended ones are met with.

`make()` is the version that wrote the checkpoints; each argument makes another of it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
from tests.unit.deathless.execution.messaging_bench import Hub, ok

from deathless.codec.messages import Kind, encode
from deathless.codec.peer_messages import Reference, Target, encode_body
from deathless.execution.author.service import Service
from deathless.execution.maps.map import Map
from deathless.execution.turn.context import Context

SECOND = timedelta(seconds=1)


class Parcel(msgspec.Struct):
    """An argument within an argument."""

    name: str
    grams: int = 5


class ParcelOfTwo(msgspec.Struct):
    """The same with a field more."""

    name: str
    grams: int = 5
    note: str = ""


class Shelf(msgspec.Struct):
    """State."""

    seen: list[str] = []
    items: Map[str, int] = msgspec.field(default_factory=Map)


class ShelfOfTwo(msgspec.Struct):
    """The same with a field more, and in another order."""

    items: Map[str, int] = msgspec.field(default_factory=Map)
    seen: list[str] = []
    note: str = ""


def make(
    *,
    version: int = 1,
    second: str = "reserve",
    shelf: type = Shelf,
    parcel: type = Parcel,
    without: tuple[str, ...] = (),
    activity: str = "charge",
    timeout: float = 0,
    at_most_once: bool = False,
    deadline: float = 0,
    result: Any = int,
    item: str = "a",
    mark: str = "began",
    looks: int = 1,
    shared: bool = False,
    plain: bool = False,
    ends: bool = False,
    saga: str = "saga",
    take: str = "take",
    schedules: tuple[tuple[str, str], ...] = (("*/10 * * * *", "tick"),),
) -> Service:
    """Give a version.

    Args:
        version: its number.
        second: handler of `stock` that the saga calls in its second turn.
        shelf: type of the state.
        parcel: type of the argument of `take`.
        without: names of handlers that are gone.
        activity: name of what is paid with; empty: there is none.
        timeout: of that activity, seconds.
        at_most_once: that activity is begun once.
        deadline: of the call, seconds; 0: none.
        result: type that the first call is to give.
        item: of the map that it looks at.
        mark: that it leaves in its state.
        looks: how often it looks.
        shared: the saga shares its key.
        plain: the saga is no coroutine.
        ends: it ends where it had waited.
        saga: name of it.
        take: name of the handler that it calls.
        schedules: expression and handler of each.
    """
    service = Service("shop", state=shelf, version=version)

    def charge(cents: int) -> str:
        return str(cents)

    if activity:
        service.activity(name=activity, timeout=timeout, at_most_once=at_most_once)(charge)

    async def run(shelf: Any, ctx: Context, parcel: Any) -> str:
        for _ in range(looks):
            shelf.items.get(item)
        shelf.items.get("b")
        shelf.seen.append(mark)
        ctx.fork("log", "x", "note", {"text": "began"})
        until = timedelta(seconds=deadline) if deadline else None
        left = await ctx.call(
            "stock", "apples", "take", {"parcel": {"name": parcel.name}}, result=result, deadline=until
        )
        if ends:
            return "done"
        own = ctx.call("shop", "other", take, {"parcel": parcel}, result=int)
        paid = ctx.run(charge, 5) if activity else ctx.promise(str)
        reserved = ctx.call("stock", "apples", second, {"left": left}, result=int, deadline=until)
        timer = ctx.timer(after=SECOND * 100)
        promise = ctx.promise(int)
        await ctx.gather(own, paid, reserved, promise)
        timer.cancel()
        shelf.seen.append("ended")
        return "done"

    def quick(shelf: Any, ctx: Context, text: str = "") -> int:
        shelf.seen.append(text)
        return len(shelf.seen)

    def takes(shelf: Any, ctx: Context, parcel: Any) -> int:
        shelf.seen.append(parcel.name)
        return 7

    def beside(shelf: Any, ctx: Context) -> None:
        shelf.seen.append("beside")

    def put(shelf: Any, ctx: Context, name: str) -> None:
        shelf.items[name] = len(name)

    def later(shelf: Any, ctx: Context) -> int:
        shelf.seen.append(ctx.reply_later())
        return 0

    def complete(shelf: Any, ctx: Context, promise: str, value: int) -> None:
        ctx.complete(promise, value)

    def tick(shelf: Any, ctx: Context) -> None:
        shelf.seen.append("tick")

    def run_at_once(shelf: Any, ctx: Context, parcel: Any) -> str:
        return "done"

    for function in (run, quick, takes, beside, put, later, complete, tick, run_at_once):
        function.__annotations__["shelf"] = shelf
    run.__annotations__["parcel"] = takes.__annotations__["parcel"] = run_at_once.__annotations__["parcel"] = parcel
    handlers: dict[str, Any] = {
        saga: run_at_once if plain else run, "quick": quick, take: takes, "later": later, "complete": complete,
        "put": put,
    }  # fmt: skip
    for name, handler in handlers.items():
        if name not in without:
            handler.__name__ = name
            service.handler(shared=shared and name == saga)(handler)
    service.handler(shared=True)(beside)
    for expression, name in schedules:
        tick.__name__ = name
        service.schedule(expression, key="ticks")(tick)
    return service


STOCK = Target("stock", 0)


def response(invocation: int, operation: int, value: object) -> bytes:
    """Give a reply of a peer."""
    reference = encode_body(Reference(invocation, operation))
    return encode(Kind.RESPONSE, idempotency_key=reference, args=ok(value))


def begun(service: Service | None = None) -> Hub:
    """Give a hub where a saga holds key a and waits in its second turn, a message waits for it, a reply is owed."""
    hub = Hub(service or make())
    hub.tick()
    hub.call("put", "a", name="a")
    hub.begin("saga", "a", parcel={"name": "box"})
    hub.receive(response(3, 2, 7), peer=STOCK)
    hub.send("quick", "a", text="behind")
    hub.send("later", "b")
    hub.own.clear()
    return hub

"""A stock of boxes, without those that are empty, by names in lower case."""

from __future__ import annotations

from deathless import Context, Map, Service, Struct, field


class Box(Struct):
    count: int = 0


class Stock(Struct):
    items: Map[str, Box] = field(default_factory=Map)


stock = Service("stock", state=Stock, version=2)


@stock.handler
def put(stock: Stock, ctx: Context, article: str, count: int) -> None:
    stock.items[article] = Box(count)


@stock.migrate_map("items", from_=1)
def box(key: str, item: str, old: int) -> tuple[str, Box] | None:
    return (item.lower(), Box(old)) if old else None

"""A stock."""

from __future__ import annotations

from deathless import Context, Map, Service, Struct, field


class Stock(Struct):
    items: Map[str, int] = field(default_factory=Map)


stock = Service("stock", state=Stock)


@stock.handler
def put(stock: Stock, ctx: Context, article: str, count: int) -> None:
    stock.items[article] = count

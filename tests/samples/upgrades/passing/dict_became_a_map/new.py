"""A stock in a map."""

from __future__ import annotations

from deathless import Context, Map, Migration, Service, Struct, field


class StockV1(Struct):
    items: dict[str, int] = field(default_factory=dict)


class Stock(Struct):
    items: Map[str, int] = field(default_factory=Map)


stock = Service("stock", state=Stock, version=2)


@stock.handler
def put(stock: Stock, ctx: Context, article: str, count: int) -> None:
    stock.items[article] = count


@stock.migrate(from_=1)
def up(old: StockV1, m: Migration) -> Stock:
    new = Stock()
    new.items.update(old.items)
    return new

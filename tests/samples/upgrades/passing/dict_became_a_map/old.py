"""A stock in a dict."""

from __future__ import annotations

from deathless import Context, Service, Struct, field


class Stock(Struct):
    items: dict[str, int] = field(default_factory=dict)


stock = Service("stock", state=Stock)


@stock.handler
def put(stock: Stock, ctx: Context, article: str, count: int) -> None:
    stock.items[article] = count

"""It is gone, with all its items."""

from __future__ import annotations

from deathless import Context, Service, Struct


class Stock(Struct):
    name: str = ""


stock = Service("stock", state=Stock)


@stock.handler
def put(stock: Stock, ctx: Context, article: str, count: int) -> None:
    stock.name = article * count

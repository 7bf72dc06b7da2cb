"""A test sees the rows that services under test published, as they were emitted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, assert_type

import msgspec
import pytest

from deathless import Context, Service, Struct
from deathless.base.errors import InvalidArgument, InvalidUse, OutcomeDiffers
from deathless.testing import Environment, Published, kill_everywhere


class Shop(Struct):
    sold: int = 0


class Means(Enum):
    CARD = "card"


class Line(Struct, array_like=True):
    article: str
    count: int = 1


class Sold(Struct, rename="camel"):
    number: int
    lines: list[Line]
    total: Annotated[Decimal, msgspec.Meta(extra={"scale": 2})]
    at: datetime
    means: Means | None = None
    tags: dict[str, tuple[bytes, ...]] = msgspec.field(default_factory=dict)
    rate: float = 0.5


START = datetime(2030, 1, 1, tzinfo=UTC)
shop = Service("shop", state=Shop)
sales = shop.topic("sales", Sold)
other = Service("stall", state=Shop)
other_sales = other.topic("sales", Line)


@shop.handler
def sell(state: Shop, ctx: Context, article: str) -> int:
    state.sold += 1
    row = Sold(state.sold, [Line(article, 2), Line("bag")], Decimal("9.5"), ctx.now, Means.CARD, {"a": (b"x",)})
    ctx.emit(sales, row)
    return state.sold


@shop.handler
async def sell_slowly(state: Shop, ctx: Context, count: int) -> None:
    for number in range(count):
        ctx.emit(sales, Sold(number, [], Decimal(0), START))
        await ctx.timer(after=timedelta(hours=1))


@shop.handler
def fail(state: Shop, ctx: Context) -> None:
    ctx.emit(sales, Sold(1, [], Decimal("0.001"), ctx.now))


@other.handler(name="sell")
def sell_here(state: Shop, ctx: Context, article: str) -> None:
    ctx.emit(other_sales, Line(article))


def test_rows_come_back_as_they_were_emitted_across_takeovers() -> None:
    with Environment(shop) as env:
        env.service(shop)["a"].sell("pen")
        env.kill(shop)
        env.advance(hours=1)
        env.service(shop)["b"].sell("ink")
        first, second = env.rows(sales)
        assert_type(first, Published[Sold])
        lines = [Line("pen", 2), Line("bag")]
        assert first.row == Sold(1, lines, Decimal("9.50"), first.time, Means.CARD, {"a": (b"x",)})
        assert (first.key, first.position, first.time) == ("a", 1, START)
        assert (second.key, second.position, second.row.number) == ("b", 2, 1)
        assert second.time - START >= timedelta(hours=1)


def test_a_handler_that_waits_publishes_each_row_once() -> None:
    with Environment(shop) as env:
        pending = env.service(shop)["a"].start(sell_slowly, 3)
        for _ in range(3):
            env.checkpoint(shop)
            env.kill(shop)
            env.advance(hours=1)
        pending.result()
        assert [(row.position, row.row.number) for row in env.rows(sales)] == [(1, 0), (2, 1), (3, 2)]


def test_topics_of_two_services_with_one_name_are_told_apart() -> None:
    with Environment(shop, other) as env:
        env.service(shop)["a"].sell("pen")
        env.service(other)["a"].sell("ink")
        assert [row.row.lines[0].article for row in env.rows(sales)] == ["pen"]
        assert [row.row for row in env.rows(other_sales)] == [Line("ink")]


def test_what_does_not_fit_publishes_nothing_and_is_told() -> None:
    with Environment(shop) as env:
        with pytest.raises(InvalidArgument, match=r"topic sales: Sold\.total: the Decimal has more than 2 digits"):
            env.service(shop)["a"].fail()
        assert env.rows(sales) == []
        with pytest.raises(InvalidUse, match="is of no service that is under test"):
            env.rows(other_sales)
        with pytest.raises(InvalidUse, match="'sales' is in this environment already"):
            env.peer("sales")


def test_a_topic_and_a_service_can_not_have_one_name() -> None:
    clashing = Service("sales", state=Shop)
    with pytest.raises(InvalidUse, match="'sales' is the name of a service and of a topic"):
        Environment(shop, clashing)


def test_rows_are_part_of_an_outcome() -> None:
    def scenario(env: Environment) -> None:
        env.service(shop)["a"].sell_slowly(2)

    report = kill_everywhere(scenario, shop, every=5)
    told = report.outcome.messages["sales"]
    assert [(source, key, [*arguments], arguments["row"][0]) for source, _, key, arguments in told] == [
        ("shop", "a", ["row"], 0),  # without its time, which a takeover may move
        ("shop", "a", ["row"], 1),
    ]
    runs: list[None] = []

    def differs(env: Environment) -> None:
        env.service(shop)["a"].sell("ink" if runs else "pen")
        runs.append(None)

    with pytest.raises(OutcomeDiffers, match="messages: 'sales'"):
        kill_everywhere(differs, shop)

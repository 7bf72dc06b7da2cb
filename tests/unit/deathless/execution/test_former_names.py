"""A handler or query that was renamed is reached by its former names as well, by whoever knows an older version."""

from __future__ import annotations

import msgspec
from tests.unit.deathless.execution.executor_bench import Bench, error, value

from deathless.execution.author.service import Service
from deathless.execution.turn.context import Context


class Account(msgspec.Struct):
    cents: int = 0


def bank() -> Service:
    service = Service("bank", state=Account, version=3)

    @service.handler
    def pay_out(account: Account, _ctx: Context, cents: int) -> int:
        account.cents -= cents
        return account.cents

    @service.query
    def cents(account: Account) -> int:
        return account.cents

    service.changes(from_=1, renamed={"take": "withdraw", "balance": "cents"}, removed={"close": "fail"})
    service.changes(from_=2, renamed={"withdraw": "pay_out"})
    return service


def test_each_former_name_reaches_the_handler() -> None:
    bench = Bench(bank())
    for method, left in (("take", -1), ("withdraw", -2), ("pay_out", -3)):
        assert bench.call(method, cents=1) == left
    assert value(bench.ask("balance")) == value(bench.ask("cents")) == -3


def test_a_name_that_was_removed_reaches_nothing() -> None:
    assert Bench(bank()).fail("close").type == "UnknownHandler"
    assert error(Bench(bank()).ask("close")).type == "UnknownHandler"


def test_a_repeated_request_by_its_former_name_has_the_recorded_reply() -> None:
    bench = Bench(bank())
    first = bench.send("take", "a", b"order-17", cents=1)
    assert bench.send("take", "a", b"order-17", cents=1) == first
    assert value(bench.ask("cents")) == -1


def test_a_name_that_another_handler_has_now_means_that_one() -> None:
    service = bank()

    @service.handler
    def take(account: Account, _ctx: Context) -> str:
        return "another"

    assert service.declared.former_names() == {"withdraw": "pay_out", "balance": "cents"}
    assert Bench(service).call("take") == "another"

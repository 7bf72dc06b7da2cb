"""A test is run once for each point at which a process can be killed."""

from __future__ import annotations

from collections import Counter

import pytest
from examples.shop.payments import ask_bank, payments
from examples.shop.shop import shop
from examples.shop.stock import stock
from tests.unit.deathless.testing.services import shelf, weigh

from deathless.base.errors import InvalidArgument, OutcomeDiffers
from deathless.testing import Environment, Outcome, kill_everywhere


def an_order(env: Environment) -> object:
    env.activity(ask_bank, lambda customer, cents: "receipt")
    env.service(stock)["apple"].refill(10)
    sent = env.service(shop)["o1"].place("apple", 2, "ann", 500)
    return sent, env.service(stock)["apple"].free(), env.service(payments)["ann"].paid()


def test_an_order_of_the_shop_survives_a_kill_anywhere() -> None:
    report = kill_everywhere(an_order, shop, stock, payments)
    assert isinstance(report.outcome, Outcome)
    assert report.outcome.result == ("sent", 8, {"o1": 500})
    assert report.outcome.done == {"ask_bank": ["[('cents', 500), ('customer', 'ann')]"]}
    assert {point.service for point in report.points} == {"shop", "stock", "payments"}
    moments = Counter(point.moment for point in report.points)
    assert moments["activity"] == moments["outcome"] == 1
    assert moments["turn"] == moments["synced"] > 10
    assert len(report.points) > 40
    assert [point.number for point in report.points] == list(range(1, len(report.points) + 1))


def test_what_is_done_twice_is_found() -> None:
    letters: list[str] = []

    def careless(env: Environment) -> int:
        letters.clear()

        def send(grams: int) -> int:  # it keeps no key, so each attempt sends a letter
            letters.append("sent")
            return grams

        env.activity(weigh, send)
        env.service(shelf)["a"].weighed(4)
        return len(letters)

    with pytest.raises(OutcomeDiffers, match=r"shelf, outcome \(weigh\): result: 1 without a kill, 2 with it"):
        kill_everywhere(careless, shelf)


def test_a_difference_in_a_state_is_named() -> None:
    runs = []

    def unsteady(env: Environment) -> None:
        runs.append(1)
        env.service(shelf)["a"].put(len(runs))

    with pytest.raises(OutcomeDiffers, match="states: 'shelf': b'a'"):
        kill_everywhere(unsteady, shelf)


def test_what_counts_is_the_tests_to_say() -> None:
    runs = []

    def unsteady(env: Environment) -> str:
        runs.append(1)
        env.service(shelf)["a"].put(len(runs))
        return "done"

    report = kill_everywhere(unsteady, shelf, outcome=lambda _, result: result, every=4)
    assert report.outcome == "done"
    assert [point.number for point in report.points] == list(range(1, 4 * len(report.points), 4))
    with pytest.raises(InvalidArgument, match="every=0"):
        kill_everywhere(unsteady, shelf, every=0)


def test_a_scenario_that_fails_says_where_the_process_was_killed() -> None:
    runs = []

    def strict(env: Environment) -> None:
        runs.append(1)
        env.service(shelf)["a"].put(1)
        assert len(runs) < 3

    with pytest.raises(AssertionError) as caught:
        kill_everywhere(strict, shelf)
    assert caught.value.__notes__ == ["the process was killed at point 2: shelf, written"]


def test_a_scenario_that_does_less_the_second_time_is_refused() -> None:
    runs = []

    def shorter(env: Environment) -> None:
        runs.append(1)
        if len(runs) == 1:
            env.service(shelf)["a"].put(0)

    with pytest.raises(OutcomeDiffers, match="no process came to point 1"):
        kill_everywhere(shorter, shelf)


def test_an_environment_gives_its_own_functions_on() -> None:
    with Environment(shelf) as env:
        env.activity(weigh, lambda grams: grams)
        env.peer("mail", send="sent")
        env.peer("ledger")

        def scenario(other: Environment) -> object:
            a = other.service(shelf)["a"]
            return a.weighed(4), a.told("hello")

        report = env.kill_everywhere(scenario)
        assert report.outcome.result == ("weighs 4", "sent")
        assert report.outcome.messages["ledger"] == [("shelf", "line", "a", {"text": "hello"})]

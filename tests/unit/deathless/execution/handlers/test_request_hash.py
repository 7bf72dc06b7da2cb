"""The same request is known again whatever bytes its arguments come in; another one never is (KeyReused)."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.deathless.execution.executor_bench import Bench, value

from deathless.codec.messages import HEADER_BYTES, Kind, encode
from deathless.execution.author.service import Service
from deathless.execution.handlers.plan import Plan
from deathless.execution.handlers.request_hash import hash_by_bytes, hashes
from deathless.execution.turn.context import Context


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Pair:
    left: int
    right: dict[str, int]


class Line(msgspec.Struct):
    item: str
    count: int = 1


class State(msgspec.Struct):
    calls: int = 0


shop = Service("shop", state=State)


@shop.handler
def order(
    state: State,
    ctx: Context,
    tags: set[str] = set(),  # noqa: B006  a default of an argument, decoded anew each time
    prices: dict[str, int] | None = None,
    by_number: dict[int, frozenset[int]] | None = None,
    lines: list[Line] | None = None,
    pair: Pair | None = None,
    weight: float = 0.0,
    colour: Colour = Colour.RED,
    at: datetime | None = None,
    number: UUID | None = None,
    amount: Decimal | None = None,
    anything: Any = None,
) -> int:
    state.calls += 1
    return state.calls


@shop.handler
async def later(state: State, ctx: Context, tags: set[str]) -> int:
    state.calls += 1
    return state.calls


@shop.handler
def careful(state: State, ctx: Context, rows: list[list[int]]) -> int:
    rows.append([1])  # what a handler does to its arguments comes too late to matter
    state.calls += 1
    return state.calls


SAME: dict[str, tuple[object, object]] = {
    "order of a set": ({"tags": ["a", "b", "c"]}, {"tags": ["c", "a", "b"]}),
    "twice in a set": ({"tags": ["a", "b"]}, {"tags": ["a", "b", "a"]}),
    "order of a map": ({"prices": {"x": 1, "y": 2}}, {"prices": {"y": 2, "x": 1}}),
    "keys that are numbers": ({"by_number": {1: [1, 2], 2: []}}, {"by_number": {2: [], 1: [2, 1]}}),
    "order of the arguments": ({"weight": 1.5, "colour": "blue"}, {"colour": "blue", "weight": 1.5}),
    "a default written out": ({}, {"tags": [], "weight": 0.0, "colour": "red", "lines": None}),
    "a default inside": ({"lines": [{"item": "tea"}]}, {"lines": [{"count": 1, "item": "tea"}]}),
    "a whole number for a float": ({"weight": 2}, {"weight": 2.0}),
    "a map in a dataclass": (
        {"pair": {"left": 1, "right": {"a": 1, "b": 2}}},
        {"pair": {"right": {"b": 2, "a": 1}, "left": 1}},
    ),
    "one moment": ({"at": "2026-01-02T03:04:05Z"}, {"at": "2026-01-02T03:04:05+00:00"}),
    "spellings of a UUID": (
        {"number": "6ba7b810-9dad-11d1-80b4-00c04fd430c8"},
        {"number": "6BA7B810-9DAD-11D1-80B4-00C04FD430C8"},
    ),
    "a map of no stated type": ({"anything": {"a": {"x": 1, "y": 2}}}, {"anything": {"a": {"y": 2, "x": 1}}}),
}
OTHERS: dict[str, tuple[object, object]] = {
    "another item": ({"tags": ["a"]}, {"tags": ["b"]}),
    "another value": ({"prices": {"x": 1}}, {"prices": {"x": 2}}),
    "values swapped": ({"prices": {"x": 1, "y": 2}}, {"prices": {"x": 2, "y": 1}}),
    "order of a list": ({"lines": [{"item": "a"}, {"item": "b"}]}, {"lines": [{"item": "b"}, {"item": "a"}]}),
    "nothing for the default": ({"prices": None}, {"prices": {}}),
    "number and text": ({"anything": 1}, {"anything": "1"}),
    "false and 0": ({"anything": False}, {"anything": 0}),
}


def call(arguments: object, key: str = "a", method: str = "order", idempotency_key: bytes = b"i") -> bytes:
    return encode(
        Kind.CALL,
        method=method.encode(),
        key=key.encode(),
        idempotency_key=idempotency_key,
        args=arguments if isinstance(arguments, bytes) else msgspec.msgpack.encode(arguments),
    )


@pytest.mark.parametrize("name", SAME)
def test_the_same_request_in_other_bytes_gets_the_first_answer(name: str) -> None:
    one, other = SAME[name]
    assert call(one) != call(other)
    bench = Bench(shop)
    assert [value(reply) for reply in bench.run([call(one), call(other), call(one)])] == [1, 1, 1]


@pytest.mark.parametrize("name", OTHERS)
def test_another_request_under_the_same_key_is_refused(name: str) -> None:
    one, other = OTHERS[name]
    first, second = Bench(shop).run([call(one), call(other)])
    assert value(first) == 1
    assert second == b"\x01refused"


def test_another_key_or_handler_is_another_request() -> None:
    bench = Bench(shop)
    assert bench.run([call({}), call({}, key="b"), call({"tags": []}, method="later")])[1:] == [b"\x01refused"] * 2


def test_a_handler_that_may_wait_and_one_that_changes_its_arguments_know_their_requests() -> None:
    bench = Bench(shop)
    replies = bench.run(
        [
            call({"tags": ["a", "b"]}, method="later", idempotency_key=b"1"),
            call({"tags": ["b", "a"]}, method="later", idempotency_key=b"1"),
            call({"rows": [[0]]}, method="careful", idempotency_key=b"2"),
            call({"rows": [[0]]}, method="careful", idempotency_key=b"2"),
        ]
    )
    assert replies[0] == replies[1]
    assert replies[2] == replies[3]


@pytest.mark.parametrize("method", ["order", "nobody"])
def test_what_has_no_meaning_is_compared_by_its_bytes(method: str) -> None:
    bench = Bench(shop)
    first, again, other = bench.run([call(b"\x81", method=method), call(b"\x81", method=method), call(b"\x82")])
    assert first == again != other == b"\x01refused"


def test_a_call_that_was_remembered_by_its_bytes_is_known_again() -> None:
    bench = Bench(shop)
    message = call({"prices": {"y": 2, "x": 1}})
    idem_at = HEADER_BYTES + len("order") + len("a")
    bench.keys.remember(b"i", hash_by_bytes(message, idem_at, idem_at + 1), b"\x00recorded")
    assert bench.run([message]) == [b"\x00recorded"]


@given(
    st.dictionaries(st.text(max_size=4), st.integers(0, 9), max_size=6),
    st.sets(st.text(max_size=3), max_size=6),
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.text(max_size=3)),
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
        max_leaves=8,
    ),
    st.randoms(use_true_random=False),
)
def test_no_order_of_maps_and_sets_makes_another_request(
    prices: dict[str, int], tags: set[str], anything: object, chance: random.Random
) -> None:
    def shuffled(given_: object) -> object:
        if isinstance(given_, dict):
            pairs = [(key, shuffled(item)) for key, item in given_.items()]
            chance.shuffle(pairs)
            return dict(pairs)
        return [shuffled(item) for item in given_] if isinstance(given_, list) else given_

    plans = {b"order": Plan(shop.specs["order"])}
    found = set()
    for _ in range(3):
        items = sorted(tags)
        chance.shuffle(items)
        message = call(shuffled({"prices": prices, "tags": items, "anything": anything}))
        idem_at = HEADER_BYTES + len("order") + len("a")
        found.add(hashes(plans, message, idem_at, idem_at + 1)[0])
    assert len(found) == 1


IN_ANOTHER_PROCESS = """
from tests.unit.deathless.execution.handlers.test_request_hash import meaning
print(meaning())
"""


def meaning() -> str:
    """Hash all requests above, by meaning."""
    plans = {b"order": Plan(shop.specs["order"])}
    idem_at = HEADER_BYTES + len("order") + len("a")
    requests = [call(one) for pair in (*SAME.values(), *OTHERS.values()) for one in pair]
    all_ = [hashes(plans, request, idem_at, idem_at + 1)[0] for request in requests]
    return hashlib.sha256(b"".join(all_)).hexdigest()


@pytest.mark.parametrize("seed", ["0", "1", "77"])
def test_every_process_gives_the_same_hashes(seed: str) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    told = subprocess.run(
        [sys.executable, "-c", IN_ANOTHER_PROCESS], env=environment, capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == meaning()

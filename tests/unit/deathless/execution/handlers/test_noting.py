"""What changed since a moment is known without looking at what did not."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.deathless.execution.executor_bench import Bench

from deathless import Context, Map, Service, Struct
from deathless.base.limits import Limits
from deathless.codec.checkpoint_ahead import changes_between
from deathless.engine.shard.assembly import open_shard
from deathless.execution.handlers.noting import NotedStates, Noting
from deathless.execution.handlers.probe import KEY
from deathless.execution.rehearsal.recorder import Recorder


class Purse(Struct):
    """State."""

    total: int = 0


class Shelf(Struct):
    """State with a map."""

    things: Map[str, int] = msgspec.field(default_factory=Map)


def shop() -> Service:
    made = Service("shop", state=Purse)

    @made.handler
    def add(purse: Purse, ctx: Context, amount: int) -> None:
        purse.total += amount

    @made.handler(keys=("here", "there"))
    def move(purses: dict[str, Purse], ctx: Context, here: str, there: str) -> None:
        purses[here].total -= 1
        purses[there].total += 1

    @made.handler
    async def waits(purse: Purse, ctx: Context) -> None:
        purse.total = 1000
        await ctx.promise(bool)

    return made


def test_of_each_state_what_stood_at_the_beginning_is_kept_once_it_changes() -> None:
    states = NotedStates({b"a": b"1", b"b": b"2", b"c": b"3"})
    states[b"a"] = b"9"
    states[b"a"] = b"8"
    states.update({b"b": b"7", b"new": b"1"})
    states[b"b"] = b"2"
    assert states.was == {b"a": b"1", b"b": b"2", b"new": None}
    assert states == {b"a": b"8", b"b": b"2", b"c": b"3", b"new": b"1"}


@pytest.mark.parametrize("kind", ["plain", "several keys", "suspended"])
def test_whatever_kind_of_turn_changes_a_state_it_is_noted(kind: str) -> None:
    bench = Bench(shop())
    for key in ("a", "b", "c"):
        bench.call("add", key, amount=5)
    before = dict(bench.executor.state())
    noting = Noting(bench.executor.entities)
    assert noting.changes() == ({}, [])
    if kind == "plain":
        bench.call("add", "a", amount=1)
        bench.call("add", "new", amount=1)
    elif kind == "several keys":
        bench.call("move", "", here="a", there="b")
    else:
        bench.send("waits", "a")
    found = noting.changes()
    assert found == changes_between(before, bench.executor.state())
    assert found[0]
    assert noting.base() == before


def test_a_state_that_is_as_it_was_again_has_not_changed() -> None:
    bench = Bench(shop())
    bench.call("add", amount=5)
    noting = Noting(bench.executor.entities)
    bench.call("add", amount=1)
    bench.call("add", amount=-1)
    assert noting.changes() == ({}, [])


def test_series_of_probes_come_and_go() -> None:
    bench = Bench(shop())
    held = bench.executor.entities.probes.held
    held |= {KEY + b"a": b"1", KEY + b"b": b"2"}
    before = dict(bench.executor.state())
    noting = Noting(bench.executor.entities)
    del held[KEY + b"a"]
    held[KEY + b"b"] = b"3"
    assert noting.changes() == ({KEY + b"b": b"3"}, [KEY + b"a"])
    assert noting.base() == before


def test_states_that_somebody_looks_at_are_not_noted() -> None:
    """A rehearsal would see nothing of what the former code does from then on."""
    looked_at = open_shard(shop(), Limits(), bytes(32), make=Recorder).executor
    assert isinstance(looked_at, Recorder)
    assert not Noting.can_be(looked_at.entities)
    bench = Bench(shop())
    Noting(bench.executor.entities)
    assert Noting.can_be(bench.executor.entities)


def test_items_of_maps_can_not_be_noted() -> None:
    assert not Noting.can_be(Bench(Service("shop", state=Shelf)).executor.entities)
    assert Noting.can_be(Bench(shop()).executor.entities)

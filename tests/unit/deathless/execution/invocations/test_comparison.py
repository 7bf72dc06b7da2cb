"""What is the same for a handler that is run again: of the same code the same bytes, of other code the same value."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.deathless.execution.executor_bench import SEED
from tests.unit.deathless.execution.saga_versions import make

from deathless.base.limits import Limits
from deathless.execution.handlers.entities import Entities
from deathless.execution.handlers.plan import Plan
from deathless.execution.invocations.comparison import Comparison
from deathless.execution.turn.asked_operation import (
    AskedCall,
    AskedComplete,
    AskedContinue,
    AskedFork,
    AskedOperation,
    AskedPromise,
    AskedRun,
    AskedTimer,
    encode_asked,
)
from deathless.execution.turn.topic import Topic
from deathless.execution.turn.turn import Settings

pack = msgspec.msgpack.encode
SERVICE = make()
TURNED = b"\x82\xa1b\x01\xa1a\x02"  # {"b": 1, "a": 2}
WIDE = b"\x82\xa1a\xcd\x00\x02\xa1b\x01"  # the same, the other way round, and with a wider integer
BOX, FULL_BOX = pack({"parcel": {"name": "box"}}), pack({"parcel": {"name": "box", "grams": 5}})


TOPIC = Topic("sales", msgspec.defstruct("Sold", [("article", str), ("cents", int | None, None)]), "here")


def row(schema: str, *values: object, time_us: int = 5) -> AskedFork:
    return AskedFork("sales", 0, "a", "emit", pack({"schema": schema, "time_us": time_us, "row": values}))


def comparison(*, strict: bool = False) -> Comparison:
    plans = {name.encode(): Plan(spec, maps=True) for name, spec in SERVICE.specs.items()}
    settings = Settings(service="shop", seed=SEED, activities={s.function: s for s in SERVICE.activities.values()},
                        topics={"sales": TOPIC})  # fmt: skip
    return Comparison(plans, Entities(SERVICE, Limits()), settings, strict=strict)


SAME: list[tuple[AskedOperation, AskedOperation]] = [
    (AskedCall("stock", 0, "a", "take", TURNED), AskedCall("stock", 0, "a", "take", WIDE)),
    (AskedCall("stock", 0, "a", "take", WIDE, 5), AskedCall("stock", 0, "a", "take", WIDE, 0, 9)),
    (AskedFork("stock", 0, "a", "take", TURNED), AskedFork("stock", 0, "a", "take", WIDE)),
    (AskedCall("shop", 0, "a", "take", BOX), AskedCall("shop", 0, "a", "take", FULL_BOX)),
    (AskedContinue("take", BOX), AskedContinue("take", FULL_BOX)),
    (AskedRun("charge", b"\x81\xa5cents\x05"), AskedRun("charge", b"\x81\xa5cents\xcd\x00\x05", 1, 2, True)),
    (AskedRun("gone", TURNED), AskedRun("gone", WIDE)),
    (AskedComplete("4.1", b"\x00" + TURNED), AskedComplete("4.1", b"\x00" + WIDE)),
    (row("article:utf8", "x"), row("article:utf8,cents:int64?", "x", None)),
]
OTHER: list[tuple[AskedOperation, AskedOperation]] = [
    (AskedCall("stock", 0, "a", "take", TURNED), AskedFork("stock", 0, "a", "take", TURNED)),
    (AskedCall("stock", 0, "a", "take", TURNED), AskedCall("stock", 1, "a", "take", TURNED)),
    (AskedCall("stock", 0, "a", "take", TURNED), AskedCall("stock", 0, "b", "take", TURNED)),
    (AskedCall("stock", 0, "a", "take", TURNED), AskedCall("stock", 0, "a", "take", b"\x80")),
    (AskedCall("stock", 0, "a", "take", BOX), AskedCall("stock", 0, "a", "take", FULL_BOX)),  # of others: no type
    (AskedCall("shop", 0, "a", "take", BOX), AskedCall("shop", 0, "a", "take", b"\xc1")),
    (AskedTimer(1, 0), AskedTimer(2, 0)),
    (AskedTimer(1, 0), AskedTimer(0, 1)),
    (AskedComplete("4.1", b"\x00\x01"), AskedComplete("4.2", b"\x00\x01")),
    (AskedRun("charge", b"\x81\xa5cents\x05"), AskedRun("charge", b"\x81\xa5cents\x06")),
    (AskedPromise(), AskedTimer(1, 0)),
    (row("article:utf8", "x"), row("article:utf8,cents:int64?", "y", None)),
    (row("article:utf8", "x"), row("article:utf8", "x", time_us=6)),
    (row("article:binary", "x"), row("article:utf8,cents:int64?", "x", None)),
    (row("article", "x"), row("article:utf8,cents:int64?", "x", None)),
    (AskedFork("sales", 0, "a", "emit", b"\xc1"), row("article:utf8,cents:int64?", "x", None)),
]


@pytest.mark.parametrize(("before", "now"), SAME, ids=str)
def test_same_value_is_the_same_of_other_code_and_not_of_the_same(before: AskedOperation, now: AskedOperation) -> None:
    one, other = encode_asked(before), encode_asked(now)
    assert comparison().same_operation(one, other)
    assert comparison().same_operation(other, one)
    assert not comparison(strict=True).same_operation(one, other)
    assert comparison(strict=True).same_operation(one, one)


@pytest.mark.parametrize(("before", "now"), OTHER, ids=str)
def test_another_operation_differs(before: AskedOperation, now: AskedOperation) -> None:
    assert not comparison().same_operation(encode_asked(before), encode_asked(now))


def test_a_column_that_came_since_may_be_filled() -> None:
    before, now = encode_asked(row("article:utf8", "x")), encode_asked(row("article:utf8,cents:int64?", "x", 5))
    assert comparison().same_operation(before, now)
    assert not comparison(strict=True).same_operation(before, now)
    assert not comparison().same_operation(now, before), "one that was filled is not left empty"


def test_states_are_compared_by_value_without_the_chain_of_their_maps() -> None:
    state = {"seen": ["x"], "items": (2, b"c" * 16)}
    same = {"items": (2, b"d" * 16), "seen": ["x"]}
    assert comparison().same_state(pack(state), pack(same))
    assert not comparison(strict=True).same_state(pack(state), pack(same))
    for other in ({**state, "seen": []}, {**state, "items": (3, b"c" * 16)}, {"seen": 1}):
        assert not comparison().same_state(pack(other), pack(state))
    assert not comparison().same_state(None, pack(state))


def test_names_of_activities_are_known() -> None:
    assert comparison().has_activity("charge")
    assert not comparison().has_activity("gone")

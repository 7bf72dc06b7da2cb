"""Whatever a program sends, its service takes it in: behind a row that was refused no other one would be."""

from __future__ import annotations

import pytest
from tests.unit.deathless.foreign.test_service import begin, feed, given, items, lane

from deathless.base.errors import HandlerFailed, TooLarge
from deathless.base.foreign.binding import LIMITS, message_bytes
from deathless.base.limits import Limits
from deathless.foreign.rows import CALLERS, Emitted, Given, What, encode_items
from deathless.foreign.service import Application, _begin, application, call
from deathless.protocols.ambrosia.items import OTHERS
from deathless.protocols.ambrosia.messages import (
    SELF,
    Kind,
    Oversized,
    Rpc,
    make_call,
    make_return,
    nobody_of,
    unreadable_of,
)
from deathless.sdk import Context, Service, Struct
from deathless.testing import Environment

DEFAULT = Limits(**LIMITS)
LONGEST = message_bytes(DEFAULT)


class Nothing(Struct):
    """Of a service that keeps nothing."""


store = Service("store", state=Nothing)


@store.handler(name="call")
def long_answer(state: Nothing, ctx: Context, method: int, args: bytes) -> bytes:
    """Give more than a program's row can hold, and less than a reply may have."""
    return bytes(method)


@pytest.mark.parametrize(
    ("kind", "payload", "limits"),
    [
        (Kind.EXCEPTION, b"\xff" * LONGEST, DEFAULT),
        (Kind.EXCEPTION, b"\0" * LONGEST, DEFAULT),
        (Kind.VALUE, b"\0" * LONGEST, DEFAULT),
        (Kind.VALUE, b"\0" * LONGEST, Limits(**LIMITS, reply_bytes_max=64 << 10)),
    ],
    ids=["no-text", "text", "value", "short-reply"],
)
def test_longest_return_is_answered_and_the_next_one_is_taken_in(kind: Kind, payload: bytes, limits: Limits) -> None:
    """An exception's bytes that are no text are three times as long as one."""
    with Environment(application, limits=limits) as env:
        begin(env)
        first, second = (env.service(application)[""].start(call, 5, b"x") for _ in range(2))
        returned = make_return(CALLERS, kind, payload, name="", sequence=1)
        feed(
            env, lane(CALLERS, 1, returned), lane(CALLERS, 2, make_return(CALLERS, Kind.VOID, b"", name="", sequence=2))
        )
        assert second.result() is None
        if kind is Kind.VALUE and limits is DEFAULT:
            assert first.result() == payload
        else:
            with pytest.raises(HandlerFailed):
                first.result()


def test_answer_of_another_service_that_has_no_room_is_an_error_to_the_program() -> None:
    """The program would wait for it for ever otherwise."""
    with Environment(application, store, limits=DEFAULT) as env:
        begin(env)
        asked = [make_call("store/a", size, Kind.ASYNC, b"", name="", sequence=size) for size in (5, (2 << 20) - 60)]
        feed(env, lane("store/a", 2, *asked))
        env.advance(seconds=1)
        short, long = sorted(items(env), key=lambda each: each.sequence)
        assert (short.kind, short.arguments) == (Kind.VALUE, bytes(5))
        assert (long.kind, b"too long for a row" in long.arguments) == (Kind.EXCEPTION, True)


class Narrow:
    """A turn in which no row above 100 bytes has room."""

    def __init__(self) -> None:
        self.rows: list[Given] = []
        self.told: list[str] = []

    def emit(self, _topic: object, row: Given) -> None:
        """Publish."""
        if len(row.items) > 100:
            raise TooLarge("no room")
        self.rows.append(row)

    def complete(self, promise: str, _value: object) -> None:
        """Answer."""
        self.told.append(promise)


def test_early_call_that_has_no_room_in_a_row_does_not_refuse_the_first_message() -> None:
    """Whoever waits for it is told."""
    held, turn = Application(), Narrow()
    for sequence, size in ((1, 10), (2, 1000)):
        item = make_call(SELF, 5, Kind.ASYNC, bytes(size), name=CALLERS, sequence=sequence)
        held.early.append(encode_items([item]))
        held.waiting[sequence] = f"p{sequence}"
    _begin(held, turn, b"first")  # type: ignore[arg-type]
    assert [row.what for row in turn.rows] == [What.INITIAL, What.ITEMS]
    assert (turn.told, held.begun, held.too_long) == (["p2"], True, 1)


@pytest.mark.parametrize(
    "target",
    [
        "BANK!",
        "bank/\0",
        "inputs",
        "$callers",
        "/",
        "",
        "a" * 512,
        "\n",
        "store/\ud7ff",
        "store/" + "k" * 506,
        nobody_of(513),
        unreadable_of(3),
    ],
)
def test_names_that_are_none_or_odd_cost_their_call_alone(target: str) -> None:
    """An awaited call gets an error, if not an answer; what comes behind it is taken in."""
    with Environment(application, store, limits=DEFAULT) as env:
        begin(env)
        called = make_call(target, 9, Kind.ASYNC, b"", name="", sequence=7)
        last = make_call(SELF, 1, Kind.FORK, b"last")
        feed(env, lane(target, 2, make_call(target, 9, Kind.FORK, b""), called), lane(SELF, 1, last))
        env.advance(seconds=1)
        assert any(each.arguments == b"last" for each in items(env))
        assert any(each.sequence == 7 for each in items(env))
        assert given(env)[-1].what == What.ITEMS


@pytest.mark.parametrize("sequence", [-(2**63), -1, 0, 2**63 - 1])
def test_return_that_nobody_waits_for_is_counted_whatever_its_sequence(sequence: int) -> None:
    """It answers nobody's call."""
    with Environment(application, limits=DEFAULT) as env:
        begin(env)
        env.service(application)[""].start(call, 5, b"x")
        feed(env, lane(CALLERS, 1, make_return(CALLERS, Kind.VALUE, b"1", name="", sequence=sequence)))
        shown = env.service(application)[""].show()
        assert (shown.waiting, shown.strangers) == (1, 1)


def test_items_of_the_lane_that_targets_share_go_where_each_of_them_says() -> None:
    """Calls, returns, and those that were too long."""
    with Environment(application, store, limits=DEFAULT) as env:
        begin(env)
        asked = env.service(application)[""].start(call, 5, b"x")
        shared: list[Rpc | Oversized] = [
            make_call("store/b", 7, Kind.ASYNC, b"", name="", sequence=70),
            make_return(CALLERS, Kind.VALUE, b"told", name="", sequence=1),
            Oversized(destination="store/c", kind=Kind.ASYNC, method=1, name="", sequence=80, size=1 << 30),
        ]
        feed(env, Emitted(What.ITEMS, encode_items(shared, with_destination=True), OTHERS, 3, b"12345678", b"87654321"))
        env.advance(seconds=1)
        assert asked.result() == b"told"
        back = {each.sequence: (each.kind, each.name) for each in items(env)[1:]}
        assert back == {70: (Kind.VALUE, "store/b"), 80: (Kind.EXCEPTION, "store/c")}
        assert [row.upto for row in given(env) if row.target == OTHERS] == [3]

"""What is the same to those who see it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.unit.deathless.execution.executor_bench import SEED

from deathless import Context, Map, Service, Struct
from deathless.base.limits import Limits
from deathless.codec.wire import error_reply, ok_reply
from deathless.execution.interface.interface import interface_of
from deathless.execution.invocations.translation import IDENTITY, Translation, Translator
from deathless.execution.rehearsal.recorder import Recorder
from deathless.execution.rehearsal.sameness import Sameness, same_item, shown_reply, shown_state, told_apart
from deathless.execution.turn.asked_operation import AskedFork, AskedRun, AskedTimer, encode_asked
from deathless.execution.turn.running import PAGE_BYTES, Cells
from deathless.execution.values.key_table import NoKeys

pack = msgspec.msgpack.encode


class Shelf(Struct):
    """State."""

    count: int = 0
    note: str = ""
    items: Map[str, int] = msgspec.field(default_factory=Map)


class Receipt(Struct):
    """Result."""

    total: int
    currency: str = "EUR"


class Given(Struct):
    """Arguments of version 1."""

    text: str


class Renaming(Translation):
    """One activity has another name."""

    def activity(self, name: str) -> str:
        if name == "broken":
            raise ValueError(name)
        return {"charge": "pay"}.get(name, name)


def sameness(translation: Translation = IDENTITY) -> Sameness:
    service = Service("shop", state=Shelf, version=2)

    @service.handler
    def take(shelf: Shelf, ctx: Context, name: str, count: int = 1) -> Receipt:
        return Receipt(count)

    @service.handler
    def price(shelf: Shelf, ctx: Context, cents: int) -> int:
        return cents

    @service.accepts("price", from_=1, args=Given, result=float)
    def price_v1(old: Given) -> dict[str, int]:
        return {"cents": len(old.text)}

    executor = Recorder(service, Limits(), SEED, NoKeys(), Cells(bytearray(PAGE_BYTES)))
    before = interface_of(Service("shop", state=Shelf), Limits())
    return Sameness(service, before, executor.comparison(), Translator(translation, "shop"))


REFUSED = error_reply("DL3048", "CallRefused", "no")
BUG = error_reply("DL3014", "ValueError", "no")


@pytest.mark.parametrize(
    ("handler", "expected", "found", "kind"),
    [
        ("take", ok_reply(pack({"total": 1})), ok_reply(pack({"total": 1, "currency": "EUR"})), ""),
        ("take", ok_reply(pack({"total": 1})), ok_reply(pack({"total": 1, "currency": "USD"})), "ReplyDiffers"),
        ("take", ok_reply(pack({"total": "1"})), ok_reply(pack({"total": 1})), "ReplyDiffers"),
        (
            "take",
            ok_reply(pack({"total": 1, "fee": 2})),
            ok_reply(pack({"total": 1, "currency": "EUR"})),
            "ReplyDiffers",
        ),
        ("price", ok_reply(pack(2.0)), ok_reply(pack(2)), ""),
        ("price", ok_reply(pack(2.5)), ok_reply(pack(2)), "ReplyDiffers"),
        ("price", ok_reply(pack("2")), ok_reply(pack(2)), "ReplyDiffers"),
        ("gone", ok_reply(pack({"a": 1, "b": 2})), ok_reply(pack({"b": 2, "a": 1})), ""),
        ("take", ok_reply(pack({"total": 1})), REFUSED, "Raised"),
        ("take", REFUSED, ok_reply(pack({"total": 1})), "ReplyDiffers"),
        ("take", REFUSED, BUG, "Raised"),
        ("take", BUG, REFUSED, "ReplyDiffers"),
        ("take", REFUSED, b"\x01broken", "ReplyDiffers"),
        ("take", REFUSED, REFUSED, ""),
    ],
)
def test_replies_are_compared_as_callers_read_them(handler: str, expected: bytes, found: bytes, kind: str) -> None:
    assert sameness().reply(handler, expected, found) == kind


def fork(method: str = "take", **arguments: Any) -> bytes:
    return encode_asked(AskedFork("shop", 0, "x", method, pack(arguments)))


def test_what_is_asked_for_is_compared_in_order_and_without_policy() -> None:
    same = sameness()
    assert same.asked([fork(name="a")], [fork(name="a", count=1)]) is None
    assert same.asked([fork(name="a")], [fork(name="b")]) is not None
    assert same.asked([fork(name="a")], []) == ("a fork to shop.take", "nothing more")
    assert same.asked([], [encode_asked(AskedTimer(5_000_000, 0))]) == ("nothing more", "a timer of 0:00:05")
    run = [encode_asked(AskedRun("charge", pack({}), timeout_us=us)) for us in (1, 2)]
    assert same.asked(run[:1], run[1:]) is None


def test_what_was_asked_for_is_brought_into_the_new_words() -> None:
    same = sameness(Renaming())
    charge, pay, broken = (encode_asked(AskedRun(name, pack({}))) for name in ("charge", "pay", "broken"))
    assert same.asked([charge], [pay]) is None
    assert same.asked([charge], [charge]) == ("activity pay", "activity charge")
    assert same.asked([broken], [broken]) is None, "what can't be translated is compared as it is"


def test_states_are_compared_as_values_without_the_history_of_their_maps() -> None:
    same = sameness()
    one = pack({"count": 1, "items": [2, b"a" * 16]})
    other = pack({"count": 1, "note": "", "items": [2, b"b" * 16]})
    assert same.state(one, other) is None
    assert same.state(one, pack({"count": 2, "items": [2, b"a" * 16]})) == ("count = 1", "count = 2")
    assert same.state(None, pack({"count": 2})) == ("no state", '{"count":2}')
    assert same.state(None, None) is None


def test_items_are_the_same_by_value() -> None:
    assert same_item(pack({"a": 1, "b": 2}), pack({"b": 2, "a": 1}))
    assert not same_item(pack(1), pack(2))
    assert not same_item(None, pack(2))


def test_values_are_shown_to_people() -> None:
    assert told_apart(pack({"a": 1, "b": 2}), pack({"a": 1, "b": 3})) == ("b = 2", "b = 3")
    assert told_apart(pack(1), pack(2)) == ("1", "2")
    assert shown_state(None) == "no state"
    assert [shown_reply(each) for each in (b"", REFUSED, ok_reply(pack("x")), b"\x01\xc1")] == [
        "no reply yet",
        "DL3048 CallRefused: no",
        '"x"',
        "2 bytes that can't be read",
    ]

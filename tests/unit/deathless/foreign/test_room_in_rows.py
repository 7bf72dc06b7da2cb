"""Whatever a program sends at once, each row of it has room in its service's log, and so has what the row leads to."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from tests.unit.deathless.foreign.test_floods import leading, until
from tests.unit.deathless.foreign.test_service import begin, feed, items, lane

from deathless.base.foreign.binding import LIMITS, message_bytes
from deathless.base.limits import Limits
from deathless.codec.streams.rows import encode_row
from deathless.foreign import streams
from deathless.foreign.coordinator import GROUP_BYTES, Tell
from deathless.foreign.rows import CALLERS
from deathless.foreign.service import application
from deathless.foreign.waiting import group_behind
from deathless.protocols.ambrosia import events as on
from deathless.protocols.ambrosia.bounds import Bounds
from deathless.protocols.ambrosia.messages import Kind, Oversized
from deathless.protocols.ambrosia_binding.encoding import (
    Answer,
    Call,
    CallType,
    Outcome,
    outgoing_answer,
    outgoing_call,
)
from deathless.testing import Environment

NARROW = Limits(message_bytes_max=128 << 10, item_bytes_max=128 << 10)
DEFAULT = Limits(**LIMITS)
LONG_NAME = "bank/" + "k" * 507
SENT: dict[str, Callable[[int], bytes]] = {
    "answers": lambda at: outgoing_answer(CALLERS, Answer(Outcome.VALUE, "counter", at, bytes(10_000))),
    "impulses": lambda at: outgoing_call(LONG_NAME, Call(at, CallType.IMPULSE, b"")),
    "awaited": lambda at: outgoing_call(LONG_NAME, Call(at, CallType.AWAITED, b"", "n" * 512, at)),
}


@pytest.mark.parametrize("limits", [NARROW, DEFAULT], ids=["narrow", "default"])
@pytest.mark.parametrize("sent", SENT)
def test_no_row_is_longer_than_a_message_of_its_service(
    sent: str, limits: Limits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service refuses one that is, each time, and takes nothing in that comes behind it."""
    most = message_bytes(limits)
    monkeypatch.setattr("tests.unit.deathless.foreign.world.Bounds", partial(Bounds, message_bytes_max=most))
    sizes: list[int] = []

    def encoded(name: str, key: bytes, row: bytes, note: bytes) -> bytes:
        encoded = encode_row(name, key, row, note)
        sizes.append(len(encoded))
        return encoded

    monkeypatch.setattr(streams, "encode_row", encoded)
    world, node = leading(1)
    before = len(sizes)
    node.do([Tell(on.BytesReceived(data=b"".join(SENT[sent](at) for at in range(400))))])
    until(world, lambda: node.coordinator.unlogged_bytes == node.coordinator.unlogged_impulses == 0)
    assert len(sizes) - before < 400
    assert max(sizes) <= limits.message_bytes_max


def test_errors_that_stand_for_calls_of_one_row_have_room_in_one() -> None:
    """Calls that were too long count for little by themselves, and the program is told of each."""
    target, number = LONG_NAME, 0
    called = [
        Oversized(destination=target, kind=Kind.ASYNC, method=1, name="", sequence=at, size=1 << 30)
        for at in range(3000)
    ]
    with Environment(application, limits=DEFAULT) as env:
        begin(env)
        while number < len(called):
            end = group_behind(called, number, GROUP_BYTES, message_bytes(DEFAULT))
            feed(env, lane(target, end, *called[number:end]))
            number = end
        assert [each.sequence for each in items(env)] == list(range(3000))

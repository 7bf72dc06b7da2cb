"""What comes for an invocation that is held is kept once, in order, and within bounds."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.unit.deathless.execution.saga_versions import STOCK, begun

from deathless.base.errors import CorruptCheckpoint
from deathless.codec.peer_messages import Target
from deathless.execution.invocations.held_invocation import HeldInvocation
from deathless.execution.invocations.journal import (
    CAME_CANCEL,
    CAME_OUTCOME,
    CAME_REPLACED,
    CAME_RESPONSE,
    CAME_VALUE,
    FORK,
    Came,
    SuspendedHeld,
    SuspendedInvocation,
    decode_record,
    encode_record,
)
from deathless.execution.invocations.misfits import UnfitInvocation

OWN = Target("shop", 0)
[RECORD] = [
    record for record in map(decode_record, begun().executor.suspended()) if isinstance(record, SuspendedInvocation)
]
MISFIT = UnfitInvocation("HandlerGone", "saga", 3, "a", "waits")


def held(record: SuspendedInvocation = RECORD) -> HeldInvocation:
    return HeldInvocation(SuspendedHeld(3, encode_record(record), MISFIT, holds=True, state=b"s" * 100))


@pytest.mark.parametrize(
    ("came", "kept"),
    [
        (Came(CAME_RESPONSE, 5, b"\x00\x01", 0, "stock", 0), True),
        (Came(CAME_RESPONSE, 5, b"\x00\x01", 0, "stock", 1), False),  # another was asked
        (Came(CAME_RESPONSE, 3, b"\x00\x01", 0, "", 0), True),  # of ourselves
        (Came(CAME_RESPONSE, 2, b"\x00\x01", 0, "stock", 0), False),  # it was answered
        (Came(CAME_RESPONSE, 99, b"\x00\x01", 0, "stock", 0), False),
        (Came(CAME_OUTCOME, 4, b"\x00\x01", 1), True),
        (Came(CAME_VALUE, 7, b"\x00\x01"), True),
        (Came(CAME_VALUE, 0, b"\x00\x01"), True),  # an operator names none: the first promise
        (Came(CAME_CANCEL), True),
        (Came(CAME_REPLACED, service="stock"), True),
    ],
    ids=str,
)
def test_what_may_be_for_it_is_kept_once(came: Came, kept: bool) -> None:
    one = held()
    size = one.size
    for _ in range(3):
        one.take(came, OWN, 10_000)
    assert list(one.came.values()) == [came] * kept
    assert (one.size > size) == kept
    again = HeldInvocation(one.suspend())
    assert (again.size, list(again.came.values())) == (one.size, list(one.came.values()))


def test_i10_reply_beyond_the_maximum_is_kept_as_an_error() -> None:
    one = held()
    one.take(Came(CAME_VALUE, 7, b"\x00" * 5000), OWN, 1000)
    [came] = one.came.values()
    assert b"TooLarge" in came.reply
    assert len(came.reply) < 256


def test_of_version_1_everything_it_may_have_asked_for_is_kept() -> None:
    one = held(replace(RECORD, asked=None, prints=[1] * 7))
    assert one.waits_for_peer(Target("any", 3), OWN)
    assert list(one.calls(OWN)) == []
    assert one.activities() == [4]
    one.take(Came(CAME_RESPONSE, 7, b"\x00", 0, "any", 3), OWN, 1000)
    one.take(Came(CAME_RESPONSE, 8, b"\x00", 0, "any", 3), OWN, 1000)
    assert [came.operation for came in one.came.values()] == [7]


def test_what_is_under_way_is_known() -> None:
    one = held()
    assert list(one.calls(OWN)) == [(3, Target("", 0)), (5, STOCK)]
    assert one.activities() == [4]
    assert one.waits_for_peer(STOCK, OWN)
    assert one.waits_for_peer(Target("", 0), OWN)
    assert not one.waits_for_peer(Target("stock", 1), OWN)


def test_nobody_is_told_once_its_caller_was_created_anew() -> None:
    one = held()
    one.disown()
    assert one.received.origin.kind == FORK
    assert HeldInvocation(one.suspend()).received.origin.kind == FORK
    assert one.suspend().record == encode_record(RECORD)


def test_view_says_why_it_is_held() -> None:
    view = held().view()
    assert view.misfit == "HandlerGone: saga (lsn 3, key a) waits"
    assert view.waits_for[0] == "code that fits it"


def test_what_is_no_invocation_is_refused() -> None:
    with pytest.raises(CorruptCheckpoint):
        HeldInvocation(SuspendedHeld(3, b"\xc1", None, holds=True))

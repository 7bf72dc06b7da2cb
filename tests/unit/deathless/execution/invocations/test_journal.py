"""Records of what waits, as checkpoints keep them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless.base.errors import CorruptCheckpoint
from deathless.execution.invocations.journal import (
    CLIENT,
    FORK,
    REQUEST,
    Came,
    Event,
    Looked,
    Origin,
    PendingActivity,
    Received,
    Record,
    SuspendedHeld,
    SuspendedInvocation,
    SuspendedLooks,
    SuspendedMessage,
    SuspendedReply,
    decode_record,
    decode_suspended,
    encode_record,
    state_hash,
)
from deathless.execution.invocations.misfits import UnfitInvocation

VALUES = st.binary(max_size=20)
ORIGINS = st.builds(Origin, st.integers(0, 3), st.text(max_size=9), st.integers(0, 2**32), st.integers(0, 2**63))
RECEIVED_MESSAGES = st.builds(Received, ORIGINS, st.text(max_size=9), VALUES, VALUES)
EVENTS = st.builds(Event, st.integers(0, 99), VALUES, st.integers(0, 2**63), st.integers(0, 2**63), st.none() | VALUES)
LOOKS = st.builds(Looked, st.integers(0, 1), st.booleans(), VALUES, st.none() | VALUES)
NUMBERS = st.integers(0, 2**62)
INVOCATIONS = st.builds(
    SuspendedInvocation,
    id=NUMBERS, received=RECEIVED_MESSAGES, lsn=NUMBERS, now_us=NUMBERS, count=NUMBERS, order=NUMBERS, part=NUMBERS,
    start=st.none() | VALUES, journal=st.lists(EVENTS, max_size=3), prints=st.lists(NUMBERS, max_size=3),
    activities=st.just([]), state_hash=VALUES, since_us=NUMBERS, elapsed_us=NUMBERS,
    asked=st.none() | st.lists(VALUES, max_size=3), shared=st.booleans(), state=st.none() | VALUES,
    looked=st.none() | st.lists(LOOKS, max_size=3), fields=st.lists(st.text(max_size=9), max_size=2),
)  # fmt: skip

GOLDEN = (
    "9f0107979501a3737663010203a66d6574686f64c4036b6579c4018091a77376632f302f6109c4000809010203c40173919601c401000506c0"
    "00910a91940102c303c410000000000000000000000000000000000400"
)
WITHOUT_ELAPSED = (
    "9e0107979501a3737663010203a66d6574686f64c4036b6579c4018091a77376632f302f6109c4000809010203c40173919501c401000506c0"
    "910a91940102c303c4100000000000000000000000000000000004"
)
"""As it was when a shard had one clock."""
WITHOUT_TRACE = (
    "9e0107969501a3737663010203a66d6574686f64c4036b6579c4018091a77376632f302f61090809010203c40173919501c401000506c0910a"
    "91940102c303c4100000000000000000000000000000000004"
)
"""As it was before messages carried a trace context."""
RECEIVED = Received(Origin(REQUEST, "svc", 1, 2, 3), "method", b"key", b"\x80", ("svc/0/a",), 9)


@pytest.mark.parametrize(
    "record",
    [
        SuspendedInvocation(
            7, RECEIVED, 8, 9, 1, 2, 3, None, [Event(1, b"\x00", 5, 6), Event(0, b"\x01", 5, 6, b"state")], [1, 2],
            [PendingActivity(1, 2, True, 3)], state_hash(b"x"), 4,
        ),
        SuspendedLooks(
            SuspendedInvocation(7, RECEIVED, 8, 9, 1, 2, 3, b"s", [], [1], [], state_hash(b"x"), 4), [b"item", None]
        ),
        SuspendedInvocation(
            7, RECEIVED, 8, 9, 1, 2, 3, None, [], [], [], state_hash(b"x"), 4, 5, [b"\x91\x04"], True, b"state",
            [Looked(0, False, b"sa", None), Looked(0, True, b"", b"sb")], ["items"],
        ),
        SuspendedHeld(
            7, b"record", UnfitInvocation("HandlerGone", "method", 7, "key", "waits", 1, "a", "b"), True, b"state",
            [Came(1, 2, b"\x00", 3, "svc", 4)], True,
        ),
        SuspendedReply(7, Origin(CLIENT), "method", b"key", 4),
        SuspendedMessage(7, RECEIVED, b"held", 4),
    ],
)  # fmt: skip
def test_record_is_what_was_written(record: Record) -> None:
    assert decode_record(encode_record(record)) == record


@given(INVOCATIONS, st.none() | VALUES, st.booleans())
def test_whatever_is_kept_comes_back_and_a_held_record_keeps_its_bytes(
    record: SuspendedInvocation, state: bytes | None, holds: bool
) -> None:
    data = encode_record(record)
    assert decode_record(data) == record
    held = decode_record(encode_record(SuspendedHeld(record.id, data, None, holds, state)))
    assert isinstance(held, SuspendedHeld)
    assert held.record == data
    assert decode_suspended(held.record) == record


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x91\x09", b"\x92\x02\x07"])
def test_what_is_no_record_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        decode_record(data)


def test_origin_tells_operators_who_asked() -> None:
    assert str(Origin(CLIENT)) == "client"
    assert str(Origin(FORK, "stock", 2)) == "stock/2"
    assert str(Origin(REQUEST)) == "(self)/0"


def test_bytes_of_a_record_stay_as_they_are() -> None:
    record = SuspendedInvocation(
        7, RECEIVED, 8, 9, 1, 2, 3, b"s", [Event(1, b"\x00", 5, 6)], [10],
        [PendingActivity(1, 2, attempted=True, not_before_us=3)], bytes(16), 4,
    )  # fmt: skip
    assert decode_record(bytes.fromhex(GOLDEN)) == record
    assert decode_record(bytes.fromhex(f"9305{GOLDEN}92c40169c0")) == SuspendedLooks(record, [b"i", None])
    assert decode_record(bytes.fromhex(WITHOUT_TRACE)) == record
    assert decode_record(bytes.fromhex(WITHOUT_ELAPSED)) == record

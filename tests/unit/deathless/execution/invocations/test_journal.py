"""Records of what waits, as checkpoints keep them."""

import pytest

from deathless.base.errors import CorruptCheckpoint
from deathless.execution.invocations.journal import (
    CLIENT,
    FORK,
    REQUEST,
    Event,
    Origin,
    PendingActivity,
    Received,
    Record,
    SuspendedInvocation,
    SuspendedLooks,
    SuspendedMessage,
    SuspendedReply,
    decode_record,
    encode_record,
    state_hash,
)

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
        SuspendedReply(7, Origin(CLIENT), "method", b"key", 4),
        SuspendedMessage(7, RECEIVED, b"held", 4),
    ],
)  # fmt: skip
def test_record_is_what_was_written(record: Record) -> None:
    assert decode_record(encode_record(record)) == record


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
    assert encode_record(record).hex() == GOLDEN
    assert encode_record(SuspendedLooks(record, [b"i", None])).hex() == f"9305{GOLDEN}92c40169c0"
    assert decode_record(bytes.fromhex(WITHOUT_TRACE)) == record
    assert decode_record(bytes.fromhex(WITHOUT_ELAPSED)) == record

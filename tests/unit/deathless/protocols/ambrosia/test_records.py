"""Records: the bytes of the header, and what a binding makes of each."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from deathless.base.errors import TooLarge
from deathless.protocols.ambrosia import records
from deathless.protocols.ambrosia.check_bytes import xxhash64
from deathless.protocols.ambrosia.messages import (
    Kind,
    MessageType,
    encode_batch,
    encode_message,
    make_call,
    make_return,
)
from deathless.protocols.ambrosia.records import (
    committer_of,
    encode_checkpoint_record,
    encode_control,
    encode_record,
)

CALLS = [
    make_call("", 7, Kind.FORK, b"fork"),
    make_call("", -1, Kind.IMPULSE, b"impulse"),
    make_call("", 8, Kind.ASYNC, b"async", name="größe", sequence=2**40),
    make_return("", Kind.VALUE, b"value", name="bank", sequence=1),
    make_return("", Kind.VOID, b"", name="bank", sequence=2),
    make_return("", Kind.EXCEPTION, b"failed", name="bank", sequence=3),
]


def test_a_header_has_its_fields_where_they_belong() -> None:
    record = encode_record(-2, 5, b"\x04\x0fx")
    assert record[:4].hex() == "feffffff"
    assert record[4:8].hex() == "1b000000"
    assert record[8:16] == xxhash64(b"\x04\x0fx").to_bytes(8, "little")
    assert record[16:24].hex() == "0500000000000000"
    assert record[24:] == b"\x04\x0fx"


def test_control_records_and_checkpoints_have_sequences_of_their_own() -> None:
    assert encode_control(1, MessageType.BECOMING_PRIMARY)[16:].hex() == "ff" * 8 + "020f"
    record = encode_checkpoint_record(1, 3)
    assert record.hex() == "01000000" + "1b000000" + "00" * 8 + "feffffffffffffff" + "04" + "08" + "06"


def test_a_record_that_its_size_can_not_tell_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "RECORD_BYTES_MAX", 30)
    encode_record(1, 0, bytes(6))
    with pytest.raises(TooLarge, match="31 bytes, at most 30"):
        encode_record(1, 0, bytes(7))


def test_a_committer_is_the_low_bits_of_the_service() -> None:
    assert committer_of(bytes.fromhex("ffffffff") + bytes(12)) == 0x7FFFFFFF
    assert committer_of(bytes.fromhex("01020304") + b"\xff" * 12) == 0x04030201


def test_the_bytes_to_an_application_are_version_1(golden: Callable[[str, bytes], None]) -> None:
    one, *more = [encode_message(rpc.type, rpc.body) for rpc in CALLS]
    stream = [
        encode_checkpoint_record(0x01020304, 3) + b"abc",
        encode_control(0x01020304, MessageType.UPGRADE_SERVICE),
        encode_record(0x01020304, 0, encode_message(MessageType.INITIAL, b"hello")),
        encode_record(0x01020304, 1, one),
        encode_record(0x01020304, 2, encode_batch(more)),
        encode_control(0x01020304, MessageType.TAKE_CHECKPOINT),
        encode_control(0x01020304, MessageType.BECOMING_PRIMARY),
    ]
    golden("ambrosia_to_application", b"".join(stream))
    golden(
        "ambrosia_becoming_primary",
        encode_control(0x01020304, MessageType.TAKE_BECOMING_PRIMARY_CHECKPOINT)
        + encode_control(0x01020304, MessageType.UPGRADE_TAKE_CHECKPOINT),
    )

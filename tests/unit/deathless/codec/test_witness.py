"""The bytes of a witness: text for the lock store, a slot for pages."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from deathless.codec.witness import (
    SLOT_BYTES,
    Point,
    decode_point,
    decode_slot,
    encode_point,
    encode_slot,
    newest,
)

POINT = Point(bytes(range(16)), 77, 3, 1000, bytes(range(16, 32)), 1_700_000_000_000_000, "r1", True, 9)


def test_the_bytes_of_a_witness_are_version_1(golden: Callable[[str, bytes], None]) -> None:
    golden("witness_slot", encode_slot(POINT))
    golden("witness_key", encode_point(POINT))


def test_a_point_reads_back_as_it_was_written() -> None:
    assert decode_point(encode_point(POINT)) == POINT
    assert decode_slot(encode_slot(POINT), "r1") == POINT
    assert decode_slot(encode_slot(msgspec.structs.replace(POINT, final=False)), "r1") != POINT


def test_every_flipped_bit_of_a_slot_is_found() -> None:
    whole = encode_slot(POINT)
    for at in range(SLOT_BYTES - 4):
        for bit in range(8):
            bad = bytearray(whole)
            bad[at] ^= 1 << bit
            assert decode_slot(bytes(bad)) is None
    assert decode_slot(bytes(SLOT_BYTES)) is None
    assert decode_slot(whole[:-1]) is None


def test_what_is_no_point_is_told() -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_point(b"[1]")


def test_the_newest_of_two_slots_is_told_by_epoch_and_lsn_whatever_the_clock_said() -> None:
    later = msgspec.structs.replace(POINT, lsn=1001, at_us=5)
    assert newest([POINT, later]) == newest([later, POINT, None]) == later
    assert newest([None, None]) is None

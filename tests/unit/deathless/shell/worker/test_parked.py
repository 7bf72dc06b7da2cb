"""What operators are told of messages that were set aside."""

from __future__ import annotations

from typing import cast

import msgspec

from deathless.base.limits import Limits
from deathless.codec.messages import Kind, encode
from deathless.codec.snapshot import ParkedRecord
from deathless.shell.worker.parked import PARKED_SHOWN_MAX, describe_parked, list_parked


def test_i11_parked_message_is_told_with_its_handler_and_key() -> None:
    message = encode(Kind.CALL, method=b"die", key="Zoë".encode(), args=b"\x80")
    told = {"lsn": 7, "session": 3, "seq": 2, "handler": "die", "key": "Zoë", "bytes": len(message)}
    assert describe_parked(ParkedRecord(7, 3, 2, message)) == told


def test_i11_parked_message_that_can_not_be_read_is_told_without_them() -> None:
    told = {"lsn": 7, "session": 3, "seq": 2, "handler": "", "key": "", "bytes": 1}
    assert describe_parked(ParkedRecord(7, 3, 2, b"x")) == told


def test_list_of_ever_so_many_that_were_set_aside_fits_a_packet() -> None:
    long = encode(Kind.CALL, method=b"h" * 60_000, key=b"k" * 60_000)
    told = list_parked([ParkedRecord(lsn, 3, lsn, long) for lsn in range(1, PARKED_SHOWN_MAX + 10)])
    assert len(msgspec.json.encode(told)) < 4 * Limits().frame_bytes_max  # what a client takes
    listed = cast("list[dict[str, object]]", told["parked"])
    assert (told["count"], listed[0]["lsn"], len(listed)) == (PARKED_SHOWN_MAX + 9, 10, PARKED_SHOWN_MAX)

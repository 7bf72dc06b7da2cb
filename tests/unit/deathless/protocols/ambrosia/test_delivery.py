"""Delivery: nothing that is not confirmed, nothing twice, and records that count."""

from __future__ import annotations

import struct

import pytest

from deathless.base.errors import Internal
from deathless.protocols.ambrosia.delivery import Delivery
from deathless.protocols.ambrosia.messages import MessageType


def sequence(record: bytes) -> int:
    found: int = struct.unpack_from("<q", record, 16)[0]
    return found


def test_what_is_not_confirmed_is_not_delivered() -> None:
    delivery = Delivery(1)
    delivery.confirmed = 5
    delivery.deliver(5, b"\2\0", held=False)
    with pytest.raises(Internal, match="gets lsn 6, and 5 is confirmed"):
        delivery.deliver(6, b"\2\0", held=False)
    delivery.deliver(6, b"\2\0", held=True)


def test_nothing_is_delivered_twice() -> None:
    delivery = Delivery(1)
    delivery.confirmed = 5
    delivery.deliver(4, b"", held=False)
    with pytest.raises(Internal, match="everything up to lsn 4, and gets 4"):
        delivery.deliver(4, b"", held=False)


def test_records_count_on_over_starts_and_control_records_do_not() -> None:
    delivery = Delivery(1)
    delivery.confirmed = 9
    assert [sequence(delivery.deliver(lsn, b"", held=False)) for lsn in (1, 4)] == [0, 1]
    assert sequence(delivery.control(MessageType.BECOMING_PRIMARY)) == -1
    again = Delivery(1)
    assert sequence(again.load(7, lsn=4, records=2)) == -2
    assert not again.begun
    again.confirmed = 9
    assert sequence(again.deliver(9, b"", held=False)) == 2
    assert again.begun

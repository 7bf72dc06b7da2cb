"""The records of a checkpoint: plain values, equal when the shards they come from are."""

from __future__ import annotations

import gc

import pytest

from deathless.base.ids import ChainHash, Digest, Epoch, Fingerprint, Incarnation, Lsn
from deathless.base.times import Times
from deathless.codec.snapshot import (
    Head,
    KeyRecord,
    OutboxRecord,
    ParkedRecord,
    PeerRecord,
    ResultRecord,
    SessionRecord,
    Snapshot,
    UnknownRecord,
)


def empty() -> Snapshot:
    return Snapshot(
        service="bank",
        service_id=bytes(16),
        incarnation=Incarnation(77),
        epoch=Epoch(2),
        lsn=Lsn(41),
        chain=ChainHash(bytes(range(16))),
        digest=Digest(bytes(range(16, 32))),
        times=Times.at(5),
        fingerprint=Fingerprint(bytes(range(32, 48))),
        state={b"alice": b"\x05", b"bob": b"\x07"},
    )


def test_a_snapshot_needs_no_more_than_place_and_state() -> None:
    first, second = empty(), empty()
    assert first == second
    assert (first.sessions, first.keys, first.parked, first.keys_floor_us) == ([], [], [], -1)
    first.parked.append(ParkedRecord(1, 2, 3, b"m"))
    assert first != second, "and no two share a list"


def test_the_head_says_whose_it_is_where_it_stands_and_how_much_state_follows() -> None:
    snapshot = empty()
    assert snapshot.head() == Head(
        "bank", bytes(16), 77, 2, 41, snapshot.chain, snapshot.digest, 5, snapshot.fingerprint, -1, 2, 5, 5, 5
    )


@pytest.mark.parametrize(
    "record",
    [
        SessionRecord(1, 1, 0, 0, bytes(16), {}),
        KeyRecord(b"k", bytes(16), b"", 0),
        ParkedRecord(1, 2, 3, b""),
        OutboxRecord("shop", 0, 1, [b"m"]),
        PeerRecord("shop", 0, bytes(16), 77, 12),
        ResultRecord(1, 2, b""),
        UnknownRecord(1, 2, "place", b"a", "mail", "k", 5, 0),
    ],
)
def test_records_cost_the_garbage_collector_nothing(record: object) -> None:
    assert not gc.is_tracked(record)
    with pytest.raises(AttributeError):
        record.lsn = 5  # type: ignore[attr-defined]  # frozen: nobody may set anything

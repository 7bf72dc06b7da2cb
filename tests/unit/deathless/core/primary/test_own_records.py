"""Records that a primary logs on its own account: in order, kept through a full disk, followed up once confirmed."""

from __future__ import annotations

from deathless.codec.peer_messages import Target
from deathless.core.effects import DialPeer, Effect
from deathless.core.primary.own_records import OwnRecords


def taken(records: OwnRecords, count: int = 10, size: int = 1000) -> list[bytes]:
    runs = records.take(count, size)
    assert all(run.session == 0 and run.count == 1 for run, _ in runs)
    return [message for _, messages in runs for message in messages]


def then(name: str) -> list[Effect]:
    return [DialPeer(Target(name, 0))]


def test_records_leave_in_order_and_what_follows_waits_for_the_proof() -> None:
    records = OwnRecords()
    records.add(b"a", lambda: then("a"))
    records.add(b"b")
    assert records.waiting
    assert taken(records) == [b"a", b"b"]
    assert records.frame_confirmed(100) == []
    records.frame_synced(7)
    assert records.frame_confirmed(6) == []
    assert records.frame_confirmed(7) == then("a")
    assert records.frame_confirmed(7) == []


def test_a_frame_whose_records_are_followed_by_nothing_is_not_kept() -> None:
    records = OwnRecords()
    records.add(b"a")
    assert taken(records) == [b"a"]
    records.frame_synced(7)
    assert not records._synced


def test_a_frame_takes_what_fits_and_one_record_in_any_case() -> None:
    records = OwnRecords()
    for message in (b"large" * 10, b"b", b"c", b"d"):
        records.add(message)
    assert taken(records, 2, 10) == [b"large" * 10]
    records.frame_synced(1)
    assert taken(records, 2, 10) == [b"b", b"c"]
    records.frame_synced(3)
    assert taken(records, 2, 10) == [b"d"]


def test_what_found_no_room_waits_in_front() -> None:
    records = OwnRecords()
    records.add(b"a", lambda: then("a"))
    records.add(b"b")
    assert taken(records) == [b"a", b"b"]
    records.add(b"c")
    records.frame_refused()
    assert taken(records) == [b"a", b"b", b"c"]
    records.frame_synced(3)
    assert records.frame_confirmed(3) == then("a")

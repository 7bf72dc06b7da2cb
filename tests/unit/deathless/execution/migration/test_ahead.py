"""What was made ahead of the cut is used there only where nothing has touched it since."""

from __future__ import annotations

import msgspec

from deathless.execution.invocations.journal import (
    CLIENT,
    Origin,
    Received,
    SuspendedHeld,
    SuspendedInvocation,
    SuspendedLooks,
    SuspendedMessage,
    SuspendedSchedule,
    encode_record,
)
from deathless.execution.migration.ahead import Ahead, keys_in, known_in, together


def waits(id_: int, key: bytes, *, now_us: int = 1) -> SuspendedInvocation:
    received = Received(Origin(CLIENT), "pay", key, b"\x80")
    return SuspendedInvocation(id_, received, id_, now_us, 0, 0, 0, None, [], [], [], bytes(16), 1)


def record(id_: int, key: bytes, *, now_us: int = 1) -> bytes:
    return encode_record(waits(id_, key, now_us=now_us))


A, B, C = record(1, b"a"), record(2, b"b"), record(3, b"c")
AHEAD = Ahead({}, known_in([A, B, C], [A, B, C]))


def parted(records: list[bytes], *touched: bytes) -> tuple[list[int], list[bytes]]:
    stay, others = AHEAD.parted(records, touched)
    return [each.id for each in stay], others


def test_what_was_overlaid_before_is_as_it_was_first() -> None:
    ahead = Ahead({b"a": b"1", b"b": b"2", b"c": b"3"})
    assert ahead.overlaid({b"b": b"9", b"d": b"4"}, [b"c"]) == {b"a": b"1", b"b": b"9", b"d": b"4"}
    assert ahead.overlaid({b"a": b"7"}, []) == {b"a": b"7", b"b": b"2", b"c": b"3"}
    assert ahead.overlaid({}, []) == {b"a": b"1", b"b": b"2", b"c": b"3"}


def test_handlers_stay_whose_record_and_state_are_as_they_were() -> None:
    assert parted([A, B, C]) == ([1, 2, 3], [])
    assert parted([A, C]) == ([1, 3], []), "one has ended"
    assert parted([A, B, C], b"b", b"z") == ([1, 3], [B])
    went_on = record(2, b"b", now_us=2)
    assert parted([A, went_on, C]) == ([1, 3], [went_on])
    assert Ahead({}).parted([A, B], ()) == ([], [A, B]), "nothing is known"


def test_a_handler_is_run_again_beside_another_one_of_its_key() -> None:
    beside = record(9, b"a")
    assert parted([A, B, beside]) == ([2], [A, beside])
    held = encode_record(SuspendedHeld(9, beside, None, holds=True))
    assert parted([A, B, held]) == ([2], [A, held])
    looks = encode_record(SuspendedLooks(waits(9, b"a"), []))
    assert parted([A, B, looks]) == ([2], [A, looks])


def test_messages_and_schedules_are_looked_at_anew_and_touch_no_handler() -> None:
    message = encode_record(SuspendedMessage(9, waits(9, b"a").received, b"a", 1))
    schedule = encode_record(SuspendedSchedule(0, "nightly", "@daily", "UTC", 1, 0, ""))
    assert keys_in([message, schedule]) == set()
    assert parted([schedule, A, message]) == ([1], [schedule, message])


def test_what_is_known_of_a_handler_is_what_came_of_its_record() -> None:
    new = encode_record(msgspec.structs.replace(waits(1, b"a"), received=Received(Origin(CLIENT), "settle", b"a", b"")))
    carried = encode_record(SuspendedHeld(2, B, None, holds=True))
    known = known_in([A, B, C], [new, carried])
    assert [(each.id, each.method, each.key, each.pending, each.record) for each in known.values()] == [
        (1, "pay", b"a", False, new)
    ], "one is carried, one has ended"
    assert list(known) == [A]


def test_records_are_put_together_ascending_by_id_behind_schedules() -> None:
    schedules = [encode_record(SuspendedSchedule(0, name, "@daily", "UTC", 1, 0, "")) for name in ("z", "a")]
    stay, _ = AHEAD.parted([A, C], ())
    assert together(stay, [*schedules, B]) == [*schedules, A, B, C]
    assert together([], [B, A]) == [B, A], "as they come where there is nothing to put between them"

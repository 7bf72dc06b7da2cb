"""Messages that drivers gave up are listed once, until somebody has seen to them."""

from __future__ import annotations

from deathless.codec.peer_messages import Target
from deathless.codec.snapshot import UndeliveredRecord
from deathless.core.tables.undelivered import Undelivered

MAIL = Target("mail", 0)


def record(number: int, position: int, message: bytes = b"four") -> UndeliveredRecord:
    return UndeliveredRecord(number, "mail", 0, position, 7, "503", message)


def table(*records: UndeliveredRecord) -> Undelivered:
    made = Undelivered()
    for each in records:
        made.add(each)
    return made


def again(of: Undelivered) -> Undelivered:
    other = Undelivered()
    other.restore(of.snapshot())
    return other


def test_a_message_is_listed_with_its_bytes_and_taken_once() -> None:
    made = table(record(10, 1), record(12, 5))
    assert (len(made), made.bytes, made.holds(10), made.get(12)) == (2, 8, True, record(12, 5))
    assert made.take(10, first_kept=9) == record(10, 1)
    assert made.take(10, first_kept=9) is None
    assert (len(made), made.bytes, made.holds(10)) == (1, 4, False)


def test_a_position_that_was_seen_to_stays_known_until_the_outbox_has_trimmed_it() -> None:
    made = table(record(10, 4))
    made.take(10, first_kept=4)
    made = again(made)
    assert made.knows(MAIL, 4)
    made.trimmed(MAIL, 4)
    assert made.knows(MAIL, 4)
    made.trimmed(MAIL, 5)
    assert not made.knows(MAIL, 4)
    assert made.snapshot() == []


def test_a_position_that_is_trimmed_already_need_not_be_known() -> None:
    made = table(record(10, 4))
    made.take(10, first_kept=5)
    assert made.snapshot() == []


def test_what_is_listed_of_an_outbox_that_begins_anew_is_not_its_new_positions() -> None:
    made = table(record(10, 4), record(11, 5), record(12, 6))
    made.take(11, first_kept=1)
    made.positions_began_anew(MAIL)
    made = again(made)
    assert not made.knows(MAIL, 4)
    assert not made.knows(MAIL, 5)
    made.add(record(20, 4))
    assert [each.id for each in made.snapshot()] == [10, 12, 20]
    assert made.take(10, first_kept=1) == record(10, 0)
    made.check_invariants()


def test_a_copy_is_the_same_table() -> None:
    made = table(record(10, 4), record(11, 5))
    made.take(10, first_kept=1)
    assert again(made).snapshot() == made.snapshot()

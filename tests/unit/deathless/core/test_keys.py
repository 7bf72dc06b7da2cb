"""Idempotency keys: the same key gives the same answer, and a key that carries its time runs at most once (I5)."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from deathless.base.errors import KeyOutsideWindow, KeyReused
from deathless.base.limits import Limits
from deathless.codec.snapshot import KeyRecord
from deathless.codec.wire import ReplyError, Status, decode_struct
from deathless.core.keys import KEY_OUTSIDE_WINDOW_REPLY, KEY_REUSED_REPLY, KeyTable, time_of_key

MS, SECOND = 1_000, 1_000_000
LIMITS = Limits(idempotency_keys_max=3, idempotency_window_s=100, time_jump_max_s=10)
NOW = 1_700_000_000 * SECOND
HASH, OTHER = bytes(16), bytes(15) + b"\x01"


def v7(time_us: int, number: int = 0) -> bytes:
    """A UUIDv7 of 16 raw bytes that carries `time_us` (RFC 9562, 5.7)."""
    return (time_us // MS).to_bytes(6, "big") + b"\x7a\xbc\x80" + number.to_bytes(7, "big")


def text_of(key: bytes) -> bytes:
    return str(uuid.UUID(bytes=key)).encode()


def remembered(table: KeyTable, key: bytes, now_us: int = NOW, reply: bytes = b"\x00reply") -> None:
    assert table.check(key, HASH, now_us) is None
    table.remember(key, HASH, reply, now_us)
    table.check_invariants()


def test_i10_above_the_bytes_the_oldest_keys_go_and_a_uuidv7_is_refused_from_then_on() -> None:
    limits = Limits(idempotency_bytes_max=100, idempotency_window_s=100, time_jump_max_s=10)
    table = KeyTable(limits)
    first, second = v7(NOW), v7(NOW + SECOND)
    remembered(table, first, reply=bytes(44))
    remembered(table, second, NOW + SECOND, bytes(24))
    assert table.expire(NOW + SECOND) == 0
    remembered(table, b"third", NOW + SECOND, bytes(5))
    assert (table.expire(NOW + SECOND), len(table)) == (1, 2)
    table.check_invariants()
    assert table.check(first, HASH, NOW + SECOND) == KEY_OUTSIDE_WINDOW_REPLY
    again = KeyTable(limits)
    again.restore(table.snapshot(), table.floor_us)
    remembered(again, b"fourth", NOW + 2 * SECOND, bytes(200))
    assert (again.expire(NOW + 2 * SECOND), len(again)) == (2, 1), "the youngest stays, however large"


# ---------------------------------------------------------------- the time in a key


@given(time_us=st.integers(0, 2**48 - 1), number=st.integers(0, 2**56 - 1))
def test_a_uuid_of_version_7_carries_milliseconds_in_both_forms(time_us: int, number: int) -> None:
    key = v7(time_us * MS, number)
    assert uuid.UUID(bytes=key).version == 7
    assert time_of_key(key) == time_of_key(text_of(key)) == time_of_key(text_of(key).upper()) == time_us * MS


@given(st.uuids(version=4))
def test_a_uuid_of_another_version_is_opaque(key: uuid.UUID) -> None:
    assert time_of_key(key.bytes) is None
    assert time_of_key(str(key).encode()) is None


@given(st.binary(min_size=15, max_size=17))
def test_16_bytes_carry_a_time_exactly_when_version_and_variant_fit(key: bytes) -> None:
    fits = len(key) == 16 and uuid.UUID(bytes=key).version == 7
    assert (time_of_key(key) is not None) == fits


@given(st.text(st.characters(max_codepoint=127), min_size=16, max_size=16))
def test_no_ascii_text_of_16_letters_is_taken_for_a_uuid(key: str) -> None:
    assert time_of_key(key.encode()) is None


@pytest.mark.parametrize(
    "key",
    [
        b"order-4711",
        b"0188f5c4-7d2a-4abc-8000-000000000000",  # version 4
        b"0188f5c4-7d2a-7abc-c000-000000000000",  # another variant
        b"0188f5c4x7d2a-7abc-8000-000000000000",
        b"0188f5c4-7d2a-7abc-8000-00000000000g",
        b"0188f5c47d2a7abc8000000000000000",
        b"{0188f5c4-7d2a-7abc-8000-000000000000",
        b"0188f5c4-7d2a-7abc-8000-00000000000\n",
    ],
)
def test_a_key_that_is_no_uuid_of_version_7_is_opaque(key: bytes) -> None:
    assert time_of_key(key) is None


# ---------------------------------------------------------------- check and remember


@pytest.mark.parametrize("key", [b"order-4711", v7(NOW), text_of(v7(NOW))])
def test_the_same_key_gives_the_same_answer(key: bytes) -> None:
    table = KeyTable(LIMITS)
    remembered(table, key, reply=b"\x00first")
    assert table.check(key, HASH, NOW + SECOND) == b"\x00first"
    assert table.check(key, OTHER, NOW + SECOND) == KEY_REUSED_REPLY
    assert len(table) == 1


@pytest.mark.parametrize(
    ("reply", "code", "name"),
    [
        (KEY_REUSED_REPLY, KeyReused.code, "KeyReused"),
        (KEY_OUTSIDE_WINDOW_REPLY, KeyOutsideWindow.code, "KeyOutsideWindow"),
    ],
)
def test_a_refusal_is_a_typed_reply(reply: bytes, code: str, name: str) -> None:
    error = decode_struct(ReplyError, reply[1:])
    assert (reply[0], error.code, error.type) == (Status.ERROR, code, name)


@pytest.mark.parametrize(
    ("offset_us", "runs"),
    [(-100 * SECOND, True), (-100 * SECOND - MS, False), (0, True), (10 * SECOND, True), (10 * SECOND + MS, False)],
)
def test_a_key_that_carries_its_time_runs_only_inside_the_window(offset_us: int, runs: bool) -> None:
    answer = KeyTable(LIMITS).check(v7(NOW + offset_us), HASH, NOW)
    assert answer == (None if runs else KEY_OUTSIDE_WINDOW_REPLY)


def test_a_remembered_key_is_answered_though_its_window_has_passed() -> None:
    table = KeyTable(LIMITS)
    remembered(table, v7(NOW))
    assert table.check(v7(NOW), HASH, NOW + 999 * SECOND) == b"\x00reply"
    assert table.expire(NOW + 999 * SECOND) == 1
    assert table.check(v7(NOW), HASH, NOW + 999 * SECOND) == KEY_OUTSIDE_WINDOW_REPLY


def test_a_key_is_not_remembered_twice() -> None:
    table = KeyTable(LIMITS)
    remembered(table, b"k")
    with pytest.raises(AssertionError, match="does not run again"):
        table.remember(b"k", HASH, b"\x00", NOW)


@pytest.mark.parametrize(("key", "request_hash"), [(b"", HASH), (b"k", b""), (b"k", bytes(17))])
def test_a_check_needs_a_key_and_a_hash_of_16_bytes(key: bytes, request_hash: bytes) -> None:
    with pytest.raises(AssertionError):
        KeyTable(LIMITS).check(key, request_hash, NOW)


# ---------------------------------------------------------------- forgetting


def test_an_opaque_key_is_forgotten_after_the_window_and_not_before() -> None:
    table = KeyTable(LIMITS)
    remembered(table, b"k")
    assert table.expire(NOW + 100 * SECOND) == 0
    assert table.expire(NOW + 100 * SECOND + 1) == 1
    assert table.check(b"k", HASH, NOW + 100 * SECOND + 1) is None


def test_a_key_from_ahead_is_remembered_until_its_own_time_leaves_the_window() -> None:
    table = KeyTable(LIMITS)
    ahead = v7(NOW + 10 * SECOND)
    remembered(table, ahead)
    assert table.expire(NOW + 105 * SECOND) == 0
    assert table.expire(NOW + 110 * SECOND + 1) == 1
    assert table.check(ahead, HASH, NOW + 110 * SECOND + 1) == KEY_OUTSIDE_WINDOW_REPLY
    assert table.floor_us == -1, "no key was forgotten for lack of room"


def test_beyond_the_maximum_the_oldest_keys_go_first() -> None:
    table = KeyTable(LIMITS)
    for number, key in enumerate([b"d", b"c", b"b", b"a"]):
        remembered(table, key, NOW + number // 2)
    assert table.expire(NOW + 9) == 1
    assert [record.key for record in table.snapshot()] == [b"d", b"a", b"b"]
    assert table.floor_us == -1, "opaque keys leave no floor"


def test_a_timed_key_forgotten_for_lack_of_room_never_runs_again() -> None:
    table = KeyTable(LIMITS)
    keys = [v7(NOW + number * SECOND) for number in (3, 1, 4, 2)]
    for key in keys:
        remembered(table, key)
    assert table.expire(NOW) == 1
    assert table.check(keys[1], HASH, NOW) == KEY_OUTSIDE_WINDOW_REPLY
    assert table.check(v7(NOW), HASH, NOW) == KEY_OUTSIDE_WINDOW_REPLY, "nor does one that is older"
    assert table.check(v7(NOW + SECOND + MS), HASH, NOW) is None
    assert table.check(keys[0], HASH, NOW) == b"\x00reply"
    assert table.floor_us == NOW + SECOND


def test_a_table_restored_from_a_snapshot_goes_on_as_the_first_one_does() -> None:
    first, second = KeyTable(LIMITS), KeyTable(LIMITS)
    for number in (3, 1, 4, 2):
        remembered(first, v7(NOW + number * SECOND))
    first.expire(NOW)
    records = first.snapshot()
    remembered(second, b"left over")
    second.restore(records, first.floor_us)
    for table in (first, second):
        remembered(table, b"opaque", NOW + 2 * SECOND)
        assert table.expire(NOW + 2 * SECOND) == 1
        assert table.check(v7(NOW + SECOND), HASH, NOW) == KEY_OUTSIDE_WINDOW_REPLY
        assert table.floor_us == NOW + 2 * SECOND
    assert first.snapshot() == second.snapshot() != records


@pytest.mark.parametrize(
    ("record", "floor_us"),
    [
        (KeyRecord(b"k", b"", b"", NOW), -1),
        (KeyRecord(v7(NOW), HASH, b"", NOW + MS), -1),
        (KeyRecord(v7(NOW), HASH, b"", NOW), NOW + 1),
    ],
)
def test_a_snapshot_that_breaks_an_invariant_is_not_restored(record: KeyRecord, floor_us: int) -> None:
    with pytest.raises(AssertionError):
        KeyTable(LIMITS).restore([record], floor_us)


def test_an_entry_under_another_key_is_found() -> None:
    table = KeyTable(LIMITS)
    remembered(table, b"k")
    table._entries[b"l"] = table._entries.pop(b"k")
    with pytest.raises(AssertionError):
        table.check_invariants()


class Keys(RuleBasedStateMachine):
    """The table against a plain dict, and a list of every key that ever ran."""

    def __init__(self) -> None:
        super().__init__()
        self.table = KeyTable(LIMITS)
        self.naive: dict[bytes, tuple[int, bytes, bytes]] = {}
        self.timed_that_ran: set[bytes] = set()
        self.now = NOW
        self.answers = 0

    @rule(seconds=st.integers(0, 60))
    def time_passed(self, seconds: int) -> None:
        self.now += seconds * SECOND

    @rule(
        key=st.one_of(
            st.sampled_from([b"a", b"b", b"c", b"d", b"e"]),
            st.integers(-120, 400).map(lambda s: v7(NOW + s * SECOND)),
            st.integers(0, 3).map(lambda s: text_of(v7(NOW + s * SECOND))),
        ),
        request=st.sampled_from([HASH, OTHER]),
    )
    def called(self, key: bytes, request: bytes) -> None:
        answer = self.table.check(key, request, self.now)
        if key in self.naive:
            _, known, reply = self.naive[key]
            assert answer == (reply if known == request else KEY_REUSED_REPLY)
            return
        at = time_of_key(key)
        if answer is not None:
            assert answer == KEY_OUTSIDE_WINDOW_REPLY
            assert at is not None, "an opaque key is never outside the window"
            return
        assert key not in self.timed_that_ran, "a key that carries its time ran twice"
        if at is not None:
            assert self.now - 100 * SECOND <= at <= self.now + 10 * SECOND
            self.timed_that_ran.add(key)
        self.answers += 1
        reply = b"\x00%d" % self.answers
        self.naive[key] = (self.now if at is None else at, request, reply)
        self.table.remember(key, request, reply, self.now)

    @rule()
    def expired(self) -> None:
        order = sorted((at, key) for key, (at, _, _) in self.naive.items())
        gone = [key for at, key in order if at < self.now - 100 * SECOND]
        gone += [key for _, key in order[len(gone) : max(len(gone), len(order) - 3)]]
        for key in gone:
            del self.naive[key]
        assert self.table.expire(self.now) == len(gone)

    @rule()
    def restored(self) -> None:
        records, floor_us = self.table.snapshot(), self.table.floor_us
        self.table = KeyTable(LIMITS)
        self.table.restore(records, floor_us)

    @invariant()
    def tables_are_equal(self) -> None:
        self.table.check_invariants()
        expected = sorted((at, key, known, reply) for key, (at, known, reply) in self.naive.items())
        assert [(r.at_us, r.key, r.request_hash, r.reply) for r in self.table.snapshot()] == expected


TestKeys = Keys.TestCase

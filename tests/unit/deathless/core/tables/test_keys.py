"""Idempotency keys: the same key gives the same answer, and a key that carries its time runs at most once (I5)."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from deathless.base.errors import KeyOutsideWindow, KeyReused
from deathless.base.limits import Limits
from deathless.base.safeguards import Safeguards
from deathless.base.times import Times
from deathless.codec.snapshot import KeyRecord
from deathless.codec.wire import ReplyError, Status, decode_struct
from deathless.core.tables.keys import KEY_OUTSIDE_WINDOW_REPLY, KEY_REUSED_REPLY, KeyTable, time_of_key

MS, SECOND = 1_000, 1_000_000
LIMITS = Limits(idempotency_keys_max=3, idempotency_window_s=100, time_jump_max_s=10)
NOW = 1_700_000_000 * SECOND
HASH, OTHER = bytes(16), bytes(15) + b"\x01"


class Table(KeyTable):
    """A table whose shard's times are told in the same breath, and stand at the same."""

    def at(self, now_us: int) -> Table:
        self.moved(Times.at(now_us))
        return self


def v7(time_us: int, number: int = 0) -> bytes:
    """A UUIDv7 of 16 raw bytes that carries `time_us` (RFC 9562, 5.7)."""
    return (time_us // MS).to_bytes(6, "big") + b"\x7a\xbc\x80" + number.to_bytes(7, "big")


def text_of(key: bytes) -> bytes:
    return str(uuid.UUID(bytes=key)).encode()


def remembered(table: Table, key: bytes, now_us: int = NOW, reply: bytes = b"\x00reply") -> None:
    assert table.at(now_us).check(key, (HASH,)) is None
    table.at(now_us).remember(key, HASH, reply)
    table.check_invariants()


def test_i10_above_the_bytes_the_oldest_keys_go_and_a_uuidv7_is_refused_from_then_on() -> None:
    limits = Limits(idempotency_bytes_max=100, idempotency_window_s=100, time_jump_max_s=10)
    table = Table(limits)
    first, second = v7(NOW), v7(NOW + SECOND)
    remembered(table, first, reply=bytes(44))
    remembered(table, second, NOW + SECOND, bytes(24))
    assert table.at(NOW + SECOND).expire() == 0
    remembered(table, b"third", NOW + SECOND, bytes(5))
    assert (table.at(NOW + SECOND).expire(), len(table)) == (1, 2)
    table.check_invariants()
    assert table.at(NOW + SECOND).check(first, (HASH,)) == KEY_OUTSIDE_WINDOW_REPLY
    again = Table(limits)
    again.restore(table.snapshot(), table.floor_us)
    remembered(again, b"fourth", NOW + 2 * SECOND, bytes(200))
    assert (again.at(NOW + 2 * SECOND).expire(), len(again)) == (2, 1), "the youngest stays, however large"


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
    table = Table(LIMITS)
    remembered(table, key, reply=b"\x00first")
    assert table.at(NOW + SECOND).check(key, (HASH,)) == b"\x00first"
    assert table.at(NOW + SECOND).check(key, (OTHER,)) == KEY_REUSED_REPLY
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
    [(-(10**6) * SECOND, True), (0, True), (10 * SECOND, True), (10 * SECOND + MS, False)],
)
def test_a_key_that_carries_its_time_runs_unless_that_lies_too_far_ahead(offset_us: int, runs: bool) -> None:
    answer = Table(LIMITS).at(NOW).check(v7(NOW + offset_us), (HASH,))
    assert answer == (None if runs else KEY_OUTSIDE_WINDOW_REPLY)


def test_a_remembered_key_is_answered_though_its_window_has_passed() -> None:
    table = Table(LIMITS)
    remembered(table, v7(NOW))
    assert table.at(NOW + 999 * SECOND).check(v7(NOW), (HASH,)) == b"\x00reply"
    assert table.at(NOW + 999 * SECOND).expire() == 1
    assert table.at(NOW + 999 * SECOND).check(v7(NOW), (HASH,)) == KEY_OUTSIDE_WINDOW_REPLY


def test_a_key_is_not_remembered_twice() -> None:
    table = Table(LIMITS)
    remembered(table, b"k")
    with pytest.raises(AssertionError, match="does not run again"):
        table.at(NOW).remember(b"k", HASH, b"\x00")


def test_a_check_needs_a_key() -> None:
    with pytest.raises(AssertionError):
        Table(LIMITS).at(NOW).check(b"", (HASH,))


@pytest.mark.parametrize("request_hash", [b"", bytes(17)])
def test_what_is_remembered_has_a_hash_of_16_bytes(request_hash: bytes) -> None:
    with pytest.raises(AssertionError):
        Table(LIMITS).at(NOW).remember(b"k", request_hash, b"\x00")


def test_a_call_is_known_by_any_of_the_ways_in_which_it_may_have_been_remembered() -> None:
    table = Table(LIMITS)
    remembered(table, b"k")
    assert b"k" in table
    assert table.at(NOW).check(b"k", (OTHER, HASH)) == table.at(NOW).check(b"k", (HASH,))
    assert table.at(NOW).check(b"k", (OTHER,)) == KEY_REUSED_REPLY
    assert b"other" not in table
    assert table.at(NOW).check(b"other", ()) is None


# ---------------------------------------------------------------- forgetting


def test_an_opaque_key_is_forgotten_after_the_window_and_not_before() -> None:
    table = Table(LIMITS)
    remembered(table, b"k")
    assert table.at(NOW + 100 * SECOND).expire() == 0
    assert table.at(NOW + 100 * SECOND + 1).expire() == 1
    assert table.at(NOW + 100 * SECOND + 1).check(b"k", (HASH,)) is None


def test_a_key_from_ahead_is_remembered_until_its_own_time_leaves_the_window() -> None:
    table = Table(LIMITS)
    ahead = v7(NOW + 10 * SECOND)
    remembered(table, ahead)
    assert table.at(NOW + 105 * SECOND).expire() == 0
    assert table.at(NOW + 110 * SECOND + 1).expire() == 1
    assert table.at(NOW + 110 * SECOND + 1).check(ahead, (HASH,)) == KEY_OUTSIDE_WINDOW_REPLY
    assert table.floor_us == NOW + 10 * SECOND


def test_beyond_the_maximum_the_oldest_keys_go_first() -> None:
    table = Table(LIMITS)
    for number, key in enumerate([b"d", b"c", b"b", b"a"]):
        remembered(table, key, NOW + number // 2)
    assert table.at(NOW + 9).expire() == 1
    assert [record.key for record in table.snapshot()] == [b"d", b"a", b"b"]
    assert table.floor_us == -1, "opaque keys leave no floor"


def test_a_timed_key_forgotten_for_lack_of_room_never_runs_again() -> None:
    table = Table(LIMITS)
    keys = [v7(NOW + number * SECOND) for number in (3, 1, 4, 2)]
    for key in keys:
        remembered(table, key)
    assert table.at(NOW).expire() == 1
    assert table.at(NOW).check(keys[1], (HASH,)) == KEY_OUTSIDE_WINDOW_REPLY
    assert table.at(NOW).check(v7(NOW), (HASH,)) == KEY_OUTSIDE_WINDOW_REPLY, "nor does one that is older"
    assert table.at(NOW).check(v7(NOW + SECOND + MS), (HASH,)) is None
    assert table.at(NOW).check(keys[0], (HASH,)) == b"\x00reply"
    assert table.floor_us == NOW + SECOND


def test_a_table_restored_from_a_snapshot_goes_on_as_the_first_one_does() -> None:
    first, second = Table(LIMITS), Table(LIMITS)
    for number in (3, 1, 4, 2):
        remembered(first, v7(NOW + number * SECOND))
    first.at(NOW).expire()
    records = first.snapshot()
    remembered(second, b"left over")
    second.restore(records, first.floor_us)
    for table in (first, second):
        remembered(table, b"opaque", NOW + 2 * SECOND)
        assert table.at(NOW + 2 * SECOND).expire() == 1
        assert table.at(NOW).check(v7(NOW + SECOND), (HASH,)) == KEY_OUTSIDE_WINDOW_REPLY
        assert table.floor_us == NOW + 2 * SECOND
    assert first.snapshot() == second.snapshot() != records


@pytest.mark.parametrize(
    ("record", "floor_us"),
    [
        (KeyRecord(b"k", b"", b"", NOW), -1),
        (KeyRecord(v7(NOW), HASH, b"", NOW), NOW + 1),
    ],
)
def test_a_snapshot_that_breaks_an_invariant_is_not_restored(record: KeyRecord, floor_us: int) -> None:
    with pytest.raises(AssertionError):
        Table(LIMITS).restore([record], floor_us)


def test_an_entry_under_another_key_is_found() -> None:
    table = Table(LIMITS)
    remembered(table, b"k")
    table._entries[b"l"] = table._entries.pop(b"k")
    with pytest.raises(AssertionError):
        table.check_invariants()


def test_age_alone_forgets_an_opaque_key_whatever_the_wall_clock_says() -> None:
    table = Table(LIMITS)
    remembered(table, b"k")
    table.moved(Times(NOW + 10**6 * SECOND, NOW + 10**6 * SECOND, NOW + SECOND, NOW + 10**6 * SECOND))
    assert table.expire() == 0
    assert table.check(b"k", (HASH,)) == b"\x00reply"


@pytest.mark.parametrize("every", [True, False])
def test_a_timed_key_never_runs_again_after_its_window_was_passed_by_a_wrong_clock(every: bool) -> None:
    table = Table(LIMITS, Safeguards(floor_for_every_key=every))
    remembered(table, v7(NOW))
    wrong = NOW + 200 * SECOND
    table.moved(Times(wrong, wrong, wrong, wrong))
    assert table.expire() == 1
    table.moved(Times(wrong, wrong + SECOND, wrong + SECOND, NOW + SECOND))  # and the clock is put right
    refused = table.check(v7(NOW), (HASH,)) == KEY_OUTSIDE_WINDOW_REPLY
    assert refused == every


@pytest.mark.parametrize("times", [Times(NOW, NOW, NOW, NOW + 60 * SECOND), Times(NOW + 60 * SECOND, NOW, NOW, NOW)])
def test_a_timed_key_is_judged_by_the_later_of_time_and_the_wall_clock(times: Times) -> None:
    table = Table(LIMITS)
    table.moved(times)
    assert table.check(v7(NOW + 70 * SECOND), (HASH,)) is None
    assert table.check(v7(NOW + 70 * SECOND + MS), (HASH,)) == KEY_OUTSIDE_WINDOW_REPLY


def test_a_timed_key_outlives_its_window_while_either_clock_says_that_it_is_young() -> None:
    table = Table(LIMITS)
    remembered(table, v7(NOW))
    late = NOW + 200 * SECOND
    for times in (Times(NOW, late, late, late), Times(late, late, late, NOW), Times(late, late, NOW, late)):
        table.moved(times)
        assert table.expire() == 0


def test_room_takes_the_key_that_was_seen_first_of_either_kind() -> None:
    table = Table(LIMITS)
    remembered(table, v7(NOW + 5 * SECOND))
    remembered(table, b"opaque", NOW + SECOND)
    for number in (2, 3):
        remembered(table, b"%d" % number, NOW + number * SECOND)
    assert table.expire() == 1
    assert sorted(record.key for record in table.snapshot()) == [b"2", b"3", b"opaque"]
    assert table.floor_us == NOW + 5 * SECOND


def test_records_of_version_1_are_judged_as_that_version_did_until_the_first_of_version_2() -> None:
    table = Table(LIMITS)
    table.moved(Times.of_version_1(NOW))
    old = v7(NOW - 100 * SECOND)
    assert table.check(old, (HASH,)) is None
    table.remember(old, HASH, b"\x00old")
    table.moved(Times.of_version_1(NOW + MS))
    assert (table.expire(), table.floor_us) == (1, -1)
    assert table.check(old, (HASH,)) == KEY_OUTSIDE_WINDOW_REPLY
    table.moved(Times.at(NOW + SECOND))
    assert table.check(old, (HASH,)) == KEY_OUTSIDE_WINDOW_REPLY
    assert table.check(v7(NOW - 100 * SECOND + MS), (HASH,)) is None, "what that version would have run"


class Keys(RuleBasedStateMachine):
    """The table against a plain dict, and a list of every key that ever ran."""

    def __init__(self) -> None:
        super().__init__()
        self.table = Table(LIMITS)
        self.naive: dict[bytes, tuple[int, bytes, bytes]] = {}
        self.timed_that_ran: set[bytes] = set()
        self.floor_us = -1
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
        answer = self.table.at(self.now).check(key, (request,))
        if key in self.naive:
            _, known, reply = self.naive[key]
            assert answer == (reply if known == request else KEY_REUSED_REPLY)
            return
        at = time_of_key(key)
        if answer is not None:
            assert answer == KEY_OUTSIDE_WINDOW_REPLY
            assert at is not None, "an opaque key is never outside the window"
            assert at > self.now + 10 * SECOND or at <= self.floor_us
            return
        assert key not in self.timed_that_ran, "a key that carries its time ran twice"
        if at is not None:
            assert at <= self.now + 10 * SECOND
            self.timed_that_ran.add(key)
        self.answers += 1
        reply = b"\x00%d" % self.answers
        self.naive[key] = (self.now, request, reply)
        self.table.at(self.now).remember(key, request, reply)

    @rule()
    def expired(self) -> None:
        before = len(self.naive)
        oldest = self.now - 100 * SECOND
        opaque = sorted((seen, key) for key, (seen, _, _) in self.naive.items() if time_of_key(key) is None)
        timed = sorted((time_of_key(key) or 0, key) for key in self.naive if time_of_key(key) is not None)
        while opaque and opaque[0][0] < oldest:
            del self.naive[opaque.pop(0)[1]]
        while timed and timed[0][0] < oldest and self.naive[timed[0][1]][0] < oldest:
            self.forget_timed(timed)
        while len(self.naive) > 3:
            if timed and (not opaque or (self.naive[timed[0][1]][0], timed[0][1]) < opaque[0]):
                self.forget_timed(timed)
            else:
                del self.naive[opaque.pop(0)[1]]
        assert self.table.at(self.now).expire() == before - len(self.naive)

    def forget_timed(self, timed: list[tuple[int, bytes]]) -> None:
        at, key = timed.pop(0)
        self.floor_us = max(self.floor_us, at)
        del self.naive[key]

    @rule()
    def restored(self) -> None:
        records, floor_us = self.table.snapshot(), self.table.floor_us
        self.table = Table(LIMITS).at(self.now)
        self.table.restore(records, floor_us)

    @invariant()
    def tables_are_equal(self) -> None:
        self.table.check_invariants()
        expected = sorted((at, key, known, reply) for key, (at, known, reply) in self.naive.items())
        assert [(r.at_us, r.key, r.request_hash, r.reply) for r in self.table.snapshot()] == expected


TestKeys = Keys.TestCase

"""Calls and queries of a client: replies once, acknowledgements never ahead, nothing lost by a rewind (I3, I5)."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from deathless.core.client.window import COMPACT_AT, CallWindow, QueryWindow


def window(calls: int = 0, *, window_max: int = 100, window_bytes_max: int = 1000) -> CallWindow[int]:
    made: CallWindow[int] = CallWindow(window_max=window_max, window_bytes_max=window_bytes_max)
    made.submit([b"%d" % i for i in range(calls)], range(calls))
    return made


def test_calls_get_consecutive_seqs_from_one_when_they_are_sent() -> None:
    calls = window(5)
    assert calls.take(count_max=3, bytes_max=100) == (1, [b"0", b"1", b"2"], [1, 2, 3])
    assert calls.take(count_max=3, bytes_max=100) == (4, [b"3", b"4"], [1, 2])
    assert calls.take(count_max=3, bytes_max=100) is None
    calls.check_invariants()


def test_window_bounds_calls_without_a_reply() -> None:
    calls = window(5, window_max=2)
    assert calls.take(count_max=9, bytes_max=100) == (1, [b"0", b"1"], [1, 2])
    assert calls.take(count_max=9, bytes_max=100) is None
    assert calls.accept([1], [b"a"]) == ([0], [b"a"])
    assert calls.take(count_max=9, bytes_max=100) == (3, [b"2"], [1])


def test_window_bounds_bytes_without_a_reply_but_lets_one_large_call_go_alone() -> None:
    calls: CallWindow[str] = CallWindow(window_max=10, window_bytes_max=10)
    calls.submit([b"x" * 6, b"y" * 6, b"z" * 20], ["x", "y", "z"])
    assert calls.take(count_max=9, bytes_max=100) == (1, [b"x" * 6], [6])
    assert calls.take(count_max=9, bytes_max=100) is None
    calls.accept([1], [b""])
    assert calls.take(count_max=9, bytes_max=100) == (2, [b"y" * 6], [6])
    calls.accept([2], [b""])
    assert calls.take(count_max=9, bytes_max=100) == (3, [b"z" * 20], [20])
    assert calls.take(count_max=9, bytes_max=100) is None
    calls.check_invariants()


def test_packet_bounds_bytes_but_lets_one_large_call_go_alone() -> None:
    calls: CallWindow[str] = CallWindow(window_max=10, window_bytes_max=100)
    calls.submit([b"x" * 6, b"y" * 6, b"z" * 20], ["x", "y", "z"])
    sizes = []
    while (taken := calls.take(count_max=9, bytes_max=12)) is not None:
        sizes.append(len(taken.messages))
    assert sizes == [2, 1]
    calls.rewind(1)
    assert [
        len(t.messages) for t in (calls.take(count_max=9, bytes_max=7), calls.take(count_max=1, bytes_max=7)) if t
    ] == [1, 1]


def test_acknowledgement_stops_at_the_first_call_without_a_reply() -> None:
    calls = window(4)
    calls.take(count_max=9, bytes_max=100)
    calls.accept([2, 3], [b"b", b"c"])
    assert calls.acked == 0
    calls.accept([1], [b"a"])
    assert calls.acked == 3
    calls.check_invariants()


def test_reply_is_handed_out_once_whatever_comes_again() -> None:
    calls = window(3)
    calls.take(count_max=9, bytes_max=100)
    assert calls.accept([1, 2], [b"a", b"b"]) == ([0, 1], [b"a", b"b"])
    assert calls.accept([1, 2], [b"a", b"b"]) == ([], [])
    assert calls.accept([2, 3], [b"b", b"c"]) == ([2], [b"c"])
    assert calls.accept([3, 9, 4], [b"c", b"?", b"?"]) == ([], [])
    assert calls.accept([], []) == ([], [])


def test_rewind_sends_again_just_what_has_no_reply() -> None:
    calls = window(6)
    calls.take(count_max=4, bytes_max=100)
    calls.accept([2], [b"b"])
    calls.rewind(1)
    assert calls.take(count_max=9, bytes_max=100) == (1, [b"0"], [1])
    assert calls.take(count_max=9, bytes_max=100) == (3, [b"2", b"3"], [1, 2])
    assert calls.take(count_max=9, bytes_max=100) == (5, [b"4", b"5"], [1, 2])
    calls.check_invariants()


def test_rewound_tail_that_is_all_answered_is_skipped() -> None:
    calls = window(3)
    calls.take(count_max=9, bytes_max=100)
    calls.accept([2, 3], [b"b", b"c"])
    calls.rewind(2)
    assert calls.take(count_max=9, bytes_max=100) is None
    calls.check_invariants()


def test_call_can_be_withdrawn_until_it_is_sent() -> None:
    calls: CallWindow[str] = CallWindow(window_max=1, window_bytes_max=100)
    calls.submit([b"a", b"bb"], ["a", "b"])
    calls.take(count_max=9, bytes_max=100)
    assert not calls.withdraw("a")
    assert calls.withdraw("b")
    assert not calls.withdraw("b")
    assert calls.queued_bytes == 0
    calls.submit([b"c"], ["c"])
    assert calls.withdraw_all() == ["c"]
    assert not calls.unsent
    calls.check_invariants()


def test_many_calls_are_withdrawn_in_one_step_but_those_that_were_sent() -> None:
    calls: CallWindow[str] = CallWindow(window_max=1, window_bytes_max=100)
    calls.submit([b"a", b"bb", b"c", b"d"], ["a", "b", "c", "d"])
    calls.take(count_max=9, bytes_max=100)
    assert calls.withdraw_many(["a", "b", "d", "e"]) == ["b", "d"]
    assert calls.waiting_from(1) == ["a"]
    assert (calls.queued, calls.queued_bytes) == (1, 1)
    calls.check_invariants()


def test_longer_calls_are_taken_back_before_they_get_a_seq() -> None:
    calls: CallWindow[str] = CallWindow(window_max=9, window_bytes_max=100)
    assert calls.withdraw_longer(1) == []
    calls.submit([b"a", b"bbb", b"c"], ["a", "b", "c"])
    assert calls.withdraw_longer(3) == []
    assert calls.withdraw_longer(2) == ["b"]
    assert calls.take(count_max=9, bytes_max=100) == (1, [b"a", b"c"], [1, 2])


def test_retire_gives_up_one_call_and_queues_again_what_was_behind_it() -> None:
    calls = window(5)
    calls.take(count_max=4, bytes_max=100)
    assert calls.retire(2) == [1]
    assert calls.in_flight == 1
    assert calls.waiting_from(1) == [0]
    assert calls.queued == 3
    calls.check_invariants()
    calls.accept([1], [b""])
    assert calls.restart() == []
    assert calls.take(count_max=9, bytes_max=100) == (1, [b"2", b"3", b"4"], [1, 2, 3])


def test_retire_of_an_answered_call_fails_nobody() -> None:
    calls = window(3)
    calls.take(count_max=9, bytes_max=100)
    calls.accept([2], [b""])
    assert calls.retire(2) == []
    calls.accept([1], [b""])
    assert calls.retire(1) == []
    calls.check_invariants()


def test_restart_names_those_whose_outcome_is_unknown() -> None:
    calls = window(3)
    calls.take(count_max=2, bytes_max=100)
    calls.accept([2], [b""])
    assert calls.restart() == [0]
    assert calls.take(count_max=9, bytes_max=100) == (1, [b"2"], [1])
    calls.check_invariants()


def test_waiting_from_leaves_out_earlier_and_answered_calls() -> None:
    calls = window(4)
    calls.take(count_max=9, bytes_max=100)
    calls.accept([3], [b""])
    assert calls.waiting_from(2) == [1, 3]
    assert calls.waiting_from(0) == [0, 1, 3]


def test_columns_are_shortened_while_calls_stream_through() -> None:
    calls = window(3 * COMPACT_AT, window_max=10 * COMPACT_AT, window_bytes_max=1 << 30)
    calls.take(count_max=10 * COMPACT_AT, bytes_max=1 << 30)
    for seq in range(1, 3 * COMPACT_AT):
        calls.accept([seq], [b""])
    assert len(calls._messages) < 2 * COMPACT_AT
    assert calls.acked == 3 * COMPACT_AT - 1
    calls.check_invariants()


@given(st.integers(0, 2**32), st.integers(1, 8), st.integers(1, 40))
def test_any_order_of_replies_and_rewinds_completes_each_call_once(seed: int, window_max: int, total: int) -> None:
    chance = random.Random(seed)
    calls: CallWindow[int] = CallWindow(window_max=window_max, window_bytes_max=12)
    calls.submit([bytes(chance.randint(0, 5)) for _ in range(total)], range(total))
    logged: dict[int, bytes] = {}  # what a server that takes only the next seq has
    done: list[int] = []
    for _ in range(10_000):
        if len(done) == total:
            break
        taken = calls.take(count_max=chance.randint(1, 5), bytes_max=chance.randint(1, 9))
        if taken is not None and chance.random() < 0.8:
            for index, message in enumerate(taken.messages):
                seq = taken.first_seq + index
                if seq == len(logged) + 1:
                    logged[seq] = message
                assert logged.get(seq, message) == message
        known = sorted(chance.sample(sorted(logged), chance.randint(0, len(logged))))
        waiters, replies = calls.accept(known, [b"%d" % seq for seq in known])
        assert [int(reply) - 1 for reply in replies] == waiters
        done += waiters
        if chance.random() < 0.3:
            calls.rewind(chance.randint(0, total))
        calls.check_invariants()
    assert sorted(done) == list(range(total))


def test_queries_are_told_apart_by_lane_and_sent_again_when_in_doubt() -> None:
    queries: QueryWindow[str] = QueryWindow(10)
    queries.submit([b"a", b"b"], ["a", "b"], stale=False)
    queries.submit([b"c"], ["c"], stale=True)
    assert queries.take(False, count_max=9, bytes_max=9) == ([1, 2], [b"a", b"b"])
    assert queries.take(True, count_max=9, bytes_max=9) == ([3], [b"c"])
    assert queries.in_flight == 3
    assert queries.accept([2, 77], [b"B", b"?"]) == (["b"], [b"B"])
    assert len(queries._id_of) == 2, "who was answered is not kept"
    queries.rewind()
    assert queries.unsent(True)
    assert queries.take(False, count_max=9, bytes_max=9) == ([1], [b"a"])
    assert queries.take(False, count_max=9, bytes_max=9) is None


def test_queries_in_flight_and_in_a_packet_are_bounded() -> None:
    queries: QueryWindow[int] = QueryWindow(3)
    queries.submit([b"xx"] * 5, range(5), stale=False)
    assert queries.take(False, count_max=9, bytes_max=4) == ([1, 2], [b"xx", b"xx"])
    assert queries.take(False, count_max=9, bytes_max=1) == ([3], [b"xx"])
    assert queries.take(False, count_max=9, bytes_max=9) is None


def test_rewind_from_an_id_leaves_earlier_queries_in_flight() -> None:
    queries: QueryWindow[int] = QueryWindow(9)
    queries.submit([b"a", b"b", b"c"], range(3), stale=False)
    queries.take(False, count_max=9, bytes_max=9)
    queries.rewind(2)
    assert queries.take(False, count_max=9, bytes_max=9) == ([2, 3], [b"b", b"c"])


def test_query_can_be_withdrawn_before_and_after_it_is_sent() -> None:
    queries: QueryWindow[str] = QueryWindow(9)
    queries.submit([b"a", b"b"], ["a", "b"], stale=False)
    assert queries.withdraw("b")
    queries.take(False, count_max=9, bytes_max=9)
    assert queries.withdraw("a")
    assert not queries.withdraw("a")
    assert len(queries) == 0
    queries.submit([b"c"], ["c"], stale=True)
    assert queries.clear() == ["c"]
    assert not queries.unsent(True)

"""Keys do not wait for each other, messages of one key follow each other, and what can't be delivered is given up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless.drivers.key_queues import (
    ASKED_MAX_S,
    CIRCUIT_FAILURES,
    CIRCUIT_MAX_S,
    PAUSE_MAX_S,
    PAUSE_MIN_S,
    KeyQueues,
)
from deathless.drivers.port import Delivery


def delivery(position: int, key: str = "k") -> Delivery:
    return Delivery(position, "write", key, {}, None, 0, f"id-{position}")


def queues(*deliveries: Delivery, concurrency: int = 4, attempts_max: int = 0, age_max_s: float = 0.0) -> KeyQueues:
    """Queues with a destination for each first letter of a key."""
    made = KeyQueues(lambda each: each.key[:1], concurrency=concurrency, attempts_max=attempts_max, age_max_s=age_max_s)
    for each in deliveries:
        made.add(each, 0.0)
    return made


def positions(found: list[Delivery]) -> list[int]:
    return [each.position for each in found]


def test_one_message_of_each_key_is_attempted_at_a_time_and_so_many_in_all() -> None:
    made = queues(delivery(1, "a"), delivery(2, "a"), delivery(3, "b"), delivery(4, "c"), concurrency=2)
    first = made.ready(0.0)
    assert positions(first) == [1, 3]
    assert made.ready(0.0) == []
    made.succeeded(first[0])
    assert positions(made.ready(0.0)) == [2]
    made.check_invariants()


def test_a_key_that_fails_waits_with_growing_pauses_and_others_go_on() -> None:
    made = queues(delivery(1, "a"), delivery(2, "a"), delivery(3, "b"), delivery(4, "b"))
    one, three = made.ready(0.0)
    assert made.failed(one, 0.0, "503") is None
    made.succeeded(three)
    assert positions(made.ready(0.0)) == [4]
    assert made.deadline() == PAUSE_MIN_S
    assert positions(made.ready(PAUSE_MIN_S)) == [1]
    made.failed(one, PAUSE_MIN_S, "503")
    assert made.deadline() == pytest.approx(3 * PAUSE_MIN_S)
    assert [(each.key, each.waiting, each.attempts, each.why) for each in made.troubles()] == [("a", 2, 2, "503")]


@pytest.mark.parametrize(("asked", "pause"), [(7.0, 7.0), (1e9, ASKED_MAX_S), (0.0, PAUSE_MIN_S)])
def test_the_other_side_may_ask_for_a_longer_pause(asked: float, pause: float) -> None:
    made = queues(delivery(1))
    made.failed(made.ready(0.0)[0], 0.0, "429", asked)
    assert made.deadline() == pause


def test_pauses_have_a_maximum() -> None:
    made = queues(delivery(1))
    now = 0.0
    for _ in range(40):
        (only,) = made.ready(now)
        made.failed(only, now, "503")
        due = made.deadline()
        assert due is not None
        assert due - now <= max(PAUSE_MAX_S, CIRCUIT_MAX_S) + 0.001
        now = due


def test_a_message_is_given_up_after_so_many_attempts_and_the_next_of_its_key_begins_anew() -> None:
    made = queues(delivery(1), delivery(2), attempts_max=2)
    (one,) = made.ready(0.0)
    assert made.failed(one, 0.0, "503") is None
    (again,) = made.ready(1.0)
    gone = made.failed(again, 1.0, "503")
    assert gone is not None
    assert (gone.delivery, gone.why) == (one, "503 (given up after 2 attempts)")
    assert positions(made.ready(1.0)) == [2]
    assert made.troubles() == []


def test_what_failed_is_given_up_when_it_is_too_old_and_what_never_was_attempted_is_not() -> None:
    made = queues(delivery(1, "a"), delivery(2, "b"), concurrency=1, age_max_s=10.0)
    (one,) = made.ready(0.0)
    made.failed(one, 0.0, "503")
    assert made.give_up(9.9) == []
    gone = made.give_up(10.0)
    assert [(each.delivery.position, each.why) for each in gone] == [(1, "503 (given up after 10 s)")]
    assert len(made) == 1


def test_nothing_under_way_is_given_up() -> None:
    made = queues(delivery(1), age_max_s=1.0)
    made.failed(made.ready(0.0)[0], 0.0, "503")
    made.ready(5.0)
    assert made.give_up(5.0, pressed=True) == []


def test_without_room_the_oldest_failed_message_is_given_up_once_nothing_else_is_left_to_do() -> None:
    made = queues(delivery(1, "a"), delivery(2, "b"), delivery(3, "a"))
    one, two = made.ready(0.0)
    made.failed(one, 0.0, "503")
    assert made.give_up(0.0, pressed=True) == [], "another key is under way"
    made.succeeded(two)
    assert positions([each.delivery for each in made.give_up(0.0, pressed=True)]) == [1]
    assert positions([each.delivery for each in made.give_up(0.0, pressed=True)]) == [3], "its world is the same"
    assert made.give_up(0.0, pressed=True) == []
    assert len(made) == 0


def test_a_dead_destination_is_left_alone_for_all_its_keys_and_tried_with_one_message() -> None:
    keys = [f"x{number}" for number in range(CIRCUIT_FAILURES + 2)]
    made = queues(*(delivery(n, key) for n, key in enumerate(keys, 1)), delivery(99, "y"), concurrency=CIRCUIT_FAILURES)
    for each in made.ready(0.0):
        made.failed(each, 0.0, "no connection")
    assert positions(made.ready(0.0)) == [99], "another destination"
    (probe,) = made.ready(PAUSE_MIN_S)
    made.failed(probe, PAUSE_MIN_S, "no connection")
    assert made.ready(2 * PAUSE_MIN_S) == []
    (probe,) = made.ready(3 * PAUSE_MIN_S)
    made.succeeded(probe)
    assert len(made.ready(3 * PAUSE_MIN_S)) == CIRCUIT_FAILURES - 1, "it answers: all keys go on"


def test_one_failing_key_of_a_destination_that_answers_leaves_it_open() -> None:
    made = queues(*(delivery(n, "x1") for n in range(1, 3)))
    now = 0.0
    for number in range(3 * CIRCUIT_FAILURES):
        made.add(delivery(100 + number, "x2"), now)
        for each in made.ready(now):
            if each.key == "x1":
                made.failed(each, now, "503")
            else:
                made.succeeded(each)
        assert len(made) == 2, "the other key is never held up"
        now += 60.0


def test_a_refusal_holds_its_key_and_says_that_the_destination_answers() -> None:
    made = queues(delivery(1, "xa"), delivery(2, "xa"), delivery(3, "xb"))
    one, three = made.ready(0.0)
    assert made.refused(one, 0.0, "refused: no") is None
    made.succeeded(three)
    assert made.deadline() == PAUSE_MAX_S


def test_a_message_that_is_withdrawn_says_nothing_about_its_destination() -> None:
    made = queues(*(delivery(n, f"x{n}") for n in range(1, CIRCUIT_FAILURES + 1)), concurrency=CIRCUIT_FAILURES)
    for each in made.ready(0.0):
        made.failed(each, 0.0, "no connection")
    (probe,) = made.ready(PAUSE_MIN_S)
    made.withdrawn(probe)
    (other,) = made.ready(PAUSE_MIN_S)
    assert made.ready(PAUSE_MIN_S) == [], "still tried with one message at a time"
    assert other is not probe


def test_nothing_is_due_while_all_places_are_taken_or_a_dead_destination_is_tried() -> None:
    made = queues(delivery(1, "a"), delivery(2, "b"), concurrency=1)
    made.ready(0.0)
    assert made.deadline() is None
    dead = queues(*(delivery(n, f"x{n}") for n in range(1, CIRCUIT_FAILURES + 1)), concurrency=CIRCUIT_FAILURES)
    for each in dead.ready(0.0):
        dead.failed(each, 0.0, "no connection")
    dead.add(delivery(50, "xnew"), 0.0)
    assert dead.deadline() == PAUSE_MIN_S, "also one that was never attempted waits for its destination"
    dead.ready(PAUSE_MIN_S)
    assert dead.deadline() is None


@given(st.data())
def test_whatever_fails_each_key_keeps_its_order_and_all_is_done_or_given_up_once(data: st.DataObject) -> None:
    made = queues(concurrency=data.draw(st.integers(1, 4)), attempts_max=data.draw(st.integers(0, 3)), age_max_s=500.0)
    ended: list[Delivery] = []
    under_way: list[Delivery] = []
    now, position = 0.0, 0
    for _ in range(data.draw(st.integers(1, 60))):
        match data.draw(st.sampled_from(["add", "ready", "ok", "fail", "refuse", "wait", "give up"])):
            case "add":
                position += 1
                made.add(delivery(position, data.draw(st.sampled_from(["xa", "xb", "ya"]))), now)
            case "ready":
                under_way += made.ready(now)
            case "ok" if under_way:
                one = under_way.pop(data.draw(st.integers(0, len(under_way) - 1)))
                made.succeeded(one)
                ended.append(one)
            case "fail" | "refuse" as how if under_way:
                one = under_way.pop(0)
                gone = made.failed(one, now, "503") if how == "fail" else made.refused(one, now, "no")
                ended += [gone.delivery] if gone else []
            case "wait":
                now += data.draw(st.floats(0.0, 300.0))
            case "give up":
                ended += [each.delivery for each in made.give_up(now, pressed=data.draw(st.booleans()))]
            case _:
                pass
        made.check_invariants()
    for key in ("xa", "xb", "ya"):
        of_key = positions([each for each in ended if each.key == key])
        assert of_key == sorted(set(of_key))
    assert len(ended) + len(made) == position
    for _ in range(20 * position):
        for each in [*under_way, *made.ready(now)]:
            made.succeeded(each)
        under_way = []
        made.give_up(now)
        now = max(now, made.deadline() or now)
    assert len(made) == 0, "nothing is left in a world that takes everything"

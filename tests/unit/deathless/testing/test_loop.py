"""Logical time, and the order of what happens in it."""

from __future__ import annotations

import pytest

from deathless.testing.loop import Clock, Killed, Life, Loop


def drain(loop: Loop) -> None:
    while loop.step():
        pass


def test_what_is_posted_happens_in_its_order() -> None:
    loop, seen = Loop(0), list[int]()
    for number in (1, 2):
        loop.post(lambda number=number: seen.append(number))  # type: ignore[misc]
    drain(loop)
    assert seen == [1, 2]
    assert not loop.step()


def test_timers_fire_by_time_and_then_by_their_order() -> None:
    loop, seen = Loop(0), list[str]()
    loop.at(5, lambda: seen.append("late"))
    loop.at(3, lambda: seen.append("first"))
    loop.at(3, lambda: seen.append("second"))
    loop.at(3, lambda: seen.append("never")).cancel()
    assert loop.next_us() == 3
    loop.move_to(3)
    drain(loop)
    assert seen == ["first", "second"]
    assert loop.next_us() == 5


def test_a_process_that_is_killed_does_nothing_more() -> None:
    loop, seen, ended = Loop(0), list[str](), list[BaseException | None]()
    life = Life("bank", ended.append)

    def die() -> None:
        seen.append("died")
        raise Killed

    loop.post(die, life)
    loop.post(lambda: seen.append("dropped"), life)
    loop.at(1, lambda: seen.append("dropped"), life)
    drain(loop)
    assert seen == ["died"]
    assert ended == [None]
    assert loop.next_us() is None


def test_an_error_of_a_process_ends_it_and_is_told() -> None:
    loop, ended = Loop(0), list[BaseException | None]()
    error = ValueError("broken")

    def fail() -> None:
        raise error

    loop.post(fail, Life("bank", ended.append))
    drain(loop)
    assert ended == [error]


@pytest.mark.parametrize("us", [0, 1, 999_999, 86_400_000_000 * 3650])
def test_seconds_give_the_microsecond_that_they_are_made_of(us: int) -> None:
    loop = Loop(1_900_000_000_000_000)
    clock = Clock(loop)
    loop.move_to(us)
    assert int(clock.now() * 1_000_000) == us
    assert clock.boot_us() == us
    assert clock.wall_us() == 1_900_000_000_000_000 + us


def test_what_is_due_in_a_microsecond_is_so_within_it() -> None:
    loop = Loop(0)
    loop.move_to(10)
    assert loop.us_until(0.0000004) == 0
    for _ in range(20):
        loop.later_in_it()
    assert int(loop.seconds() * 1e6) == 10
    assert loop.us_until(0.0000004) == 1, "where there is no later any more, it is the next one"


def test_the_anchor_of_a_machine_stays() -> None:
    clock = Clock(Loop(0))
    assert clock.anchor() is None

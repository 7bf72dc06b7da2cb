"""What is remembered of a service: for how long, for what, and what is never kept."""

from __future__ import annotations

from deathless_operator.cluster.memory import Memory

KEY, OTHER = ("shop", "bank"), ("shop", "till")


class Clock:
    """Seconds, moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def filled(clock: Clock) -> Memory[str]:
    memory = Memory[str](5.0, clock)
    memory.keep(KEY, memory.begin(KEY), 1, "read")
    return memory


def test_what_was_read_is_recalled_for_its_time_since_the_reading_began() -> None:
    clock = Clock()
    memory = Memory[str](5.0, clock)
    mark = memory.begin(KEY)
    clock.now += 2.0
    memory.keep(KEY, mark, 1, "read")
    assert (memory.recall(KEY, 1), memory.recall(OTHER, 1)) == ("read", None)
    clock.now += 2.9
    assert memory.recall(KEY, 1) == "read"
    clock.now += 0.1
    assert memory.recall(KEY, 1) is None


def test_what_was_read_for_something_else_is_not_recalled() -> None:
    assert filled(Clock()).recall(KEY, 2) is None


def test_what_was_forgotten_is_not_recalled() -> None:
    memory = filled(Clock())
    memory.forget(OTHER)
    assert memory.recall(KEY, 1) == "read"
    memory.forget(KEY)
    assert memory.recall(KEY, 1) is None


def test_what_is_forgotten_while_it_is_read_is_not_kept() -> None:
    memory = Memory[str](5.0, Clock())
    mark = memory.begin(KEY)
    memory.forget(KEY)
    memory.keep(KEY, mark, 1, "old")
    assert memory.recall(KEY, 1) is None


def test_of_two_readings_the_later_one_is_kept() -> None:
    memory = Memory[str](5.0, Clock())
    first, second = memory.begin(KEY), memory.begin(KEY)
    memory.keep(KEY, first, 1, "old")
    assert memory.recall(KEY, 1) is None
    memory.keep(KEY, second, 1, "new")
    assert memory.recall(KEY, 1) == "new"

"""The checker that takes the log's order: what it accepts is linearizable; what the log contradicts it names."""

from hypothesis import given
from hypothesis import strategies as st

from deathless.simulation.checkers import CounterModel, History, Outcome, check_linearizable, check_log_order

MODEL = CounterModel()


def add(history: History, tag: str, start: int, end: int | None, result: int | None = None) -> None:
    """An addition of 1 that was asked for at `start` and answered at `end`; None: never."""
    operation = history.invoke(
        caller="c", action="add", keys=("counter-x",), argument=1, tag=tag, now_us=start, session="c"
    )
    if end is not None:
        history.complete(operation, outcome=Outcome.OK, result=result, now_us=end)


def read(history: History, start: int, end: int, result: int) -> None:
    operation = history.invoke(caller="c", action="read", keys=("counter-x",), argument=None, tag="", now_us=start)
    history.complete(operation, outcome=Outcome.OK, result=result, now_us=end)


def test_answers_that_the_log_explains_are_good() -> None:
    history = History()
    add(history, "a", 0, 10, 2)
    add(history, "b", 5, 8, 1)
    read(history, 9, 20, 1)
    assert not check_log_order(history, ["b", "a"], MODEL)


def test_answer_that_the_log_does_not_give_is_named() -> None:
    history = History()
    add(history, "a", 0, 10, 2)
    add(history, "b", 5, 8, 1)
    (first, second) = check_log_order(history, ["a", "b"], MODEL)
    assert "in log order the answer is 1" in first.text
    assert "in log order the answer is 2" in second.text


def test_change_that_ended_before_another_began_may_not_stand_behind_it() -> None:
    history = History()
    add(history, "a", 0, 10, 2)
    add(history, "b", 20, 30, 1)
    (violation,) = check_log_order(history, ["b", "a"], MODEL)
    assert "stands behind it" in violation.text


def test_read_that_goes_back_behind_an_earlier_read_is_named() -> None:
    history = History()
    add(history, "a", 0, None)
    read(history, 10, 20, 1)
    read(history, 30, 40, 0)
    (violation,) = check_log_order(history, ["a"], MODEL)
    assert "-> ok 0" in violation.text


def test_change_without_an_answer_counts_where_the_log_has_it_and_nowhere_else() -> None:
    history = History()
    add(history, "a", 0, None)
    add(history, "b", 0, None)
    read(history, 10, 20, 1)
    assert not check_log_order(history, ["a"], MODEL)
    assert check_log_order(history, [], MODEL)


@given(st.data())
def test_what_it_accepts_the_search_accepts_too(data: st.DataObject) -> None:
    history = History()
    times = st.integers(0, 30)
    tags = [f"t{index}" for index in range(data.draw(st.integers(1, 4)))]
    for tag in tags:
        start, end = sorted((data.draw(times), data.draw(times)))
        add(history, tag, start, end if data.draw(st.booleans()) else None, data.draw(st.integers(1, 4)))
    for _ in range(data.draw(st.integers(0, 3))):
        start, end = sorted((data.draw(times), data.draw(times)))
        read(history, start, end, data.draw(st.integers(0, 4)))
    order = data.draw(st.permutations(tags))
    if not check_log_order(history, order, MODEL):
        assert not check_linearizable(history, MODEL)

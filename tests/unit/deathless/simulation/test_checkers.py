"""Each kind of badness is caught by its checker, and good histories pass them all."""

import pytest

from deathless.simulation.checkers import (
    BankModel,
    CounterModel,
    History,
    InconclusiveError,
    Operation,
    Outcome,
    RegisterModel,
    Released,
    Value,
    check_conservation,
    check_exactly_once,
    check_linearizable,
    check_liveness,
    check_released,
    check_replies,
    check_session_order,
    linearizability,
)
from deathless.simulation.checkers.inputs import check_inputs

NEVER = None


class Script:
    """Builds histories in a line each."""

    def __init__(self) -> None:
        self.history = History()

    def op(
        self,
        action: str,
        keys: str,
        argument: Value,
        begin: int,
        end: int | None,
        result: Value = None,
        *,
        refused: bool = False,
        caller: str = "c",
    ) -> Operation:
        tag = "" if action in {"read", "balance", "total"} else f"t{len(self.history)}"
        operation = self.history.invoke(
            caller=caller, action=action, keys=tuple(keys.split()), argument=argument, tag=tag, now_us=begin
        )
        if end is not None:
            outcome = Outcome.REFUSED if refused else Outcome.OK
            self.history.complete(operation, outcome=outcome, result=result, now_us=end)
        return operation


# ---------------------------------------------------------------- linearizability


def test_concurrent_writes_may_be_read_in_either_order() -> None:
    for read in ("1", "2"):
        script = Script()
        script.op("write", "u", "1", 0, 10)
        script.op("write", "u", "2", 5, 12)
        script.op("read", "u", None, 13, 20, read)
        assert check_linearizable(script.history, RegisterModel()) == []


def test_a_stale_read_is_caught() -> None:
    script = Script()
    script.op("write", "u", "1", 0, 10)
    script.op("write", "u", "2", 11, 20)
    script.op("read", "u", None, 21, 30, "1")
    (violation,) = check_linearizable(script.history, RegisterModel())
    assert violation.checker == "linearizability"
    assert "read" in violation.text


def test_a_read_that_goes_back_is_caught() -> None:
    script = Script()
    script.op("write", "u", "1", 0, NEVER)
    script.op("read", "u", None, 5, 6, "1")
    script.op("read", "u", None, 7, 8, None)
    assert len(check_linearizable(script.history, RegisterModel())) == 1


def test_a_write_without_answer_may_have_happened_late_or_never() -> None:
    for reads in ((None, None), (None, "1"), ("1", "1")):
        script = Script()
        script.op("write", "u", "1", 0, NEVER)
        script.op("read", "u", None, 5, 6, reads[0])
        script.op("read", "u", None, 7, 8, reads[1])
        assert check_linearizable(script.history, RegisterModel()) == []


def test_a_caller_that_gave_up_may_be_applied_after_it_did() -> None:
    script = Script()
    given_up = script.op("write", "u", "1", 0, NEVER)
    script.history.complete(given_up, outcome=Outcome.UNKNOWN, result=None, now_us=3)
    script.op("read", "u", None, 5, 6, None)
    script.op("read", "u", None, 7, 8, "1")
    assert check_linearizable(script.history, RegisterModel()) == []


def test_a_refused_write_that_is_read_is_caught() -> None:
    script = Script()
    script.op("write", "u", "1", 0, 3, refused=True)
    script.op("read", "u", None, 5, 6, "1")
    assert len(check_linearizable(script.history, RegisterModel())) == 1


def test_two_swaps_that_both_succeed_are_caught() -> None:
    script = Script()
    script.op("write", "u", "0", 0, 1)
    script.op("cas", "u", ("0", "1"), 2, 10, 1)
    script.op("cas", "u", ("0", "2"), 2, 10, 1)
    assert len(check_linearizable(script.history, RegisterModel())) == 1


def test_a_doubled_add_is_caught_by_the_totals_it_returns() -> None:
    script = Script()
    script.op("add", "x", 5, 0, 1, 5)
    script.op("add", "x", 5, 2, 3, 15)
    assert len(check_linearizable(script.history, CounterModel())) == 1


def test_a_lost_add_is_caught_by_a_later_read() -> None:
    script = Script()
    script.op("add", "x", 5, 0, 1, 5)
    script.op("read", "x", None, 2, 3, 0)
    assert len(check_linearizable(script.history, CounterModel())) == 1


def test_keys_are_judged_apart_and_each_violation_is_named() -> None:
    script = Script()
    for key in ("x", "y", "z"):
        script.op("add", key, 1, 0, 1, 1 if key == "z" else 7)
    violations = check_linearizable(script.history, CounterModel())
    assert len(violations) == 2
    assert "('x',)" in violations[0].text
    assert "('y',)" in violations[1].text


def test_a_transfer_joins_its_keys() -> None:
    script = Script()
    script.op("deposit", "a", 10, 0, 1, 10)
    script.op("transfer", "a b", 4, 2, 10, None)
    script.op("balance", "a", None, 3, 4, 6)
    script.op("balance", "b", None, 5, 6, 4)
    assert check_linearizable(script.history, BankModel()) == []


def test_half_a_transfer_is_caught() -> None:
    script = Script()
    script.op("deposit", "a", 10, 0, 1, 10)
    script.op("transfer", "a b", 4, 2, 10, None)
    script.op("balance", "a", None, 3, 4, 6)
    script.op("balance", "b", None, 5, 6, 0)
    assert len(check_linearizable(script.history, BankModel())) == 1


def test_a_transfer_without_funds_changes_nothing() -> None:
    script = Script()
    script.op("deposit", "a", 1, 0, 1, 1)
    script.op("transfer", "a b", 4, 2, 10, ("error", "funds"))
    script.op("total", "a b", None, 11, 12, 1)
    assert check_linearizable(script.history, BankModel()) == []


def test_a_long_history_with_many_unanswered_operations_is_judged_in_time() -> None:
    script = Script()
    for number in range(300):
        if number % 30 == 0:
            script.op("add", "x", 1000, number * 10, NEVER)
        script.op("add", "x", 1, number * 10, number * 10 + 9, number + 1)
    assert check_linearizable(script.history, CounterModel()) == []


def test_a_search_that_is_too_large_is_never_called_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linearizability, "STATES_MAX", 50)
    script = Script()
    for number in range(20):
        script.op("write", "u", str(number), 0, 100)
    script.op("read", "u", None, 101, 102, "nobody")
    with pytest.raises(InconclusiveError):
        check_linearizable(script.history, RegisterModel())


# ---------------------------------------------------------------- exactly once


def test_every_acknowledged_tag_applied_once_is_good() -> None:
    script = Script()
    script.op("add", "x", 1, 0, 1, 1)
    script.op("add", "x", 1, 0, NEVER)
    script.op("add", "x", 1, 0, NEVER)
    script.op("transfer", "a b", 1, 0, 1, ("error", "funds"))
    script.op("read", "x", None, 0, 1, 1)
    assert check_exactly_once(script.history, ["t0", "t2"]) == []


@pytest.mark.parametrize(
    ("applied", "text"),
    [
        ([], "acknowledged and lost"),
        (["t0", "t0"], "applied 2 times"),
        (["t0", "t1", "t1"], "applied 2 times"),
        (["t0", "t2"], "refused and yet applied"),
        (["t0", "t3"], "refused and yet applied"),
        (["t0", "zz"], "nobody asked"),
    ],
)
def test_lost_doubled_refused_and_invented_changes_are_caught(applied: list[str], text: str) -> None:
    script = Script()
    script.op("add", "x", 1, 0, 1, 1)
    script.op("add", "x", 1, 0, NEVER)
    script.op("add", "x", 1, 0, 1, refused=True)
    script.op("transfer", "a b", 1, 0, 1, ("error", "funds"))
    (violation,) = check_exactly_once(script.history, applied)
    assert text in violation.text


# ---------------------------------------------------------------- replies, releases, order


def test_the_same_bytes_for_every_retry_are_good() -> None:
    seen: list[tuple[tuple[int, int] | str, bytes]] = [((1, 1), b"a"), ("key", b"b"), ((1, 1), b"a")]
    assert check_replies(seen, {(1, 1): b"a", "key": b"b", (1, 2): b"unseen"}) == []
    assert check_replies(seen) == []


@pytest.mark.parametrize(
    ("seen", "text"),
    [
        ([((1, 1), b"a"), ((1, 1), b"c")], "two answers"),
        ([((1, 1), b"c")], "differs from replay"),
        ([((1, 9), b"a"), ((1, 9), b"a")], "does not know"),
    ],
)
def test_other_answers_are_caught_once_each(seen: list[tuple[tuple[int, int], bytes]], text: str) -> None:
    (violation,) = check_replies(seen, {(1, 1): b"a"})
    assert text in violation.text


def released(place: tuple[int, ...], data: bytes) -> Released:
    return Released(kind="reply", place=place, data=data, who="r0", at_us=5)


def test_releases_in_the_log_are_good() -> None:
    logged: dict[str, dict[tuple[int, ...], bytes]] = {"reply": {(1, 1): b"a", (1, 2): b"b"}}
    assert check_released([released((1, 1), b"a"), released((1, 2), b"")], logged) == []


def test_a_release_that_the_log_lacks_or_has_otherwise_is_caught_once() -> None:
    logged: dict[str, dict[tuple[int, ...], bytes]] = {"reply": {(1, 1): b"a"}}
    lacking, other = released((1, 3), b"x"), released((1, 1), b"x")
    violations = check_released([lacking, other, lacking, other], logged)
    assert len(violations) == 2
    assert "not in the log" in violations[0].text
    assert "logged 61" in violations[1].text
    assert len(check_released([lacking], {})) == 1


def test_sessions_without_gaps_are_good() -> None:
    assert check_session_order([(7, 1), (9, 1), (7, 2), (9, 2)], {"s": ["a", "b", "c"]}, ["a", "z", "c"]) == []


@pytest.mark.parametrize("logged", [[(7, 2)], [(7, 1), (7, 3)], [(7, 1), (7, 1)], [(7, 1), (7, 2), (7, 1)]])
def test_a_gap_or_a_repeat_in_a_session_is_caught(logged: list[tuple[int, int]]) -> None:
    assert len(check_session_order(logged)) == 1


def test_changes_applied_in_another_order_than_sent_are_caught() -> None:
    (violation,) = check_session_order([], {"s": ["a", "b"]}, ["b", "a"])
    assert "b was sent after a" in violation.text


# ---------------------------------------------------------------- conservation, liveness


def bank() -> Script:
    script = Script()
    script.op("deposit", "a", 10, 0, 5, 10)
    script.op("deposit", "b", 7, 6, NEVER)
    script.op("deposit", "b", 99, 6, 8, refused=True)
    return script


@pytest.mark.parametrize("balances", [{"a": 10, "b": 0}, {"a": 2, "b": 15}])
def test_totals_within_what_was_paid_in_are_good(balances: dict[str, int]) -> None:
    script = bank()
    script.op("total", "a b", None, 8, 9, 17)
    assert check_conservation(script.history, balances) == []


@pytest.mark.parametrize("balances", [{"a": 9, "b": 0}, {"a": 11, "b": 7}, {"a": 18, "b": -1}])
def test_money_lost_made_or_owed_is_caught(balances: dict[str, int]) -> None:
    assert len(check_conservation(bank().history, balances)) == 1


@pytest.mark.parametrize("total", [9, 18])
def test_a_total_read_that_never_was_is_caught(total: int) -> None:
    script = bank()
    script.op("total", "a b", None, 8, 9, total)
    assert len(check_conservation(script.history, {"a": 10})) == 1


def test_everything_answered_in_time_is_good() -> None:
    script = Script()
    script.op("add", "x", 1, 0, 150, 1)
    script.op("add", "x", 1, 500, 590, 2)
    script.op("add", "x", 1, 0, NEVER, caller="killed")
    assert check_liveness(script.history, healed_us=100, bound_us=100, gone=["killed"]) == []


@pytest.mark.parametrize("end", [NEVER, 201])
def test_no_answer_and_a_late_one_are_caught(end: int | None) -> None:
    script = Script()
    script.op("add", "x", 1, 0, end, 1)
    assert len(check_liveness(script.history, healed_us=100, bound_us=100)) == 1


def test_an_operation_is_completed_once() -> None:
    script = Script()
    operation = script.op("add", "x", 1, 0, 1, 1)
    with pytest.raises(AssertionError):
        script.history.complete(operation, outcome=Outcome.OK, result=1, now_us=2)


STREAM = {"k": ["a", "b", "c"]}


def test_each_input_once_and_in_order_is_good() -> None:
    assert check_inputs(STREAM, {"k": ["a", "b", "c"]}) == []


@pytest.mark.parametrize(
    ("applied", "text"),
    [
        (["a", "b", "b", "c"], "b had its effect 2 times"),
        (["a", "c"], "b is lost"),
        (["a", "c", "b"], "c had its effect where b comes first"),
        (["a", "b", "c", "x"], "x had an effect, and nobody sent it"),
    ],
)
def test_inputs_doubled_lost_out_of_order_and_invented_are_caught(applied: list[str], text: str) -> None:
    [violation] = check_inputs(STREAM, {"k": applied})
    assert (violation.checker, violation.text) == ("inputs", f"k: {text}")

"""The explorer visits everything, finds shortest traces, and never reports a model it has not finished."""

from collections.abc import Iterable

import pytest

from deathless.simulation.models.explorer import StatesMaxReachedError, Verdict, explore, find


class Graph:
    """A model given by its edges; state "a" is the start, the states in ``bad`` are faults."""

    def __init__(self, edges: dict[str, str], bad: str = "") -> None:
        self.edges = edges
        self.bad = bad

    def initial(self) -> str:
        return "a"

    def steps(self, state: str) -> Iterable[tuple[str, str]]:
        return [(f"{state}-{after}", after) for after in self.edges.get(state, "")]

    def fault(self, state: str) -> str:
        return f"reached {state}" if state in self.bad else ""


def test_model_without_reachable_fault_holds_and_counts_each_state_once() -> None:
    verdict = explore(Graph({"a": "bc", "b": "d", "c": "d", "d": "a", "x": "z"}, bad="xz"))
    assert verdict == Verdict(holds=True, states=4, trace=(), reason="")


def test_trace_of_a_broken_model_is_a_shortest_one() -> None:
    verdict = explore(Graph({"a": "bc", "b": "d", "d": "z", "c": "z"}, bad="z"))
    assert not verdict.holds
    assert verdict.trace == ("a-c", "c-z")
    assert verdict.reason == "reached z"


def test_faulty_start_is_reported_with_an_empty_trace() -> None:
    assert explore(Graph({}, bad="a")) == Verdict(holds=False, states=1, trace=(), reason="reached a")


def test_model_larger_than_the_limit_raises_and_never_holds() -> None:
    graph = Graph({"a": "b", "b": "c", "c": "d"})
    assert explore(graph, states_max=4).holds
    with pytest.raises(StatesMaxReachedError):
        explore(graph, states_max=3)


def test_goal_that_every_state_can_still_reach_holds() -> None:
    graph = Graph({"a": "bc", "b": "ag", "c": "b"})
    assert explore(graph, goal=lambda state: state == "g").holds


def test_state_that_has_lost_the_goal_breaks_the_model() -> None:
    graph = Graph({"a": "bc", "b": "g", "c": "d", "d": "c"})
    verdict = explore(graph, goal=lambda state: state == "g")
    assert not verdict.holds
    assert verdict.trace == ("a-c",)
    assert verdict.reason == "the goal can no longer be reached"


def test_fault_is_reported_before_a_lost_goal() -> None:
    verdict = explore(Graph({"a": "bz"}, bad="z"), goal=lambda state: state == "g")
    assert verdict.reason == "reached z"


def test_find_returns_the_shortest_trace_or_none() -> None:
    graph = Graph({"a": "bc", "b": "d", "c": "d"}, bad="d")
    assert find(graph, lambda state: state == "d") == ("a-b", "b-d")
    assert find(graph, lambda state: state == "z") is None


def test_verdict_prints_one_step_per_line() -> None:
    verdict = explore(Graph({"a": "b", "b": "z"}, bad="z"))
    assert str(verdict).splitlines() == ["broken (3 states): reached z", "  a-b", "  b-z"]
    assert str(explore(Graph({}))) == "holds (1 states)"

"""The checkers of what services say to each other: each is shown what is good, and each fault that it must name."""

import pytest

from deathless.simulation.checkers.peers import (
    Began,
    Told,
    check_activities,
    check_answers,
    check_pair,
    check_told,
    check_wire,
)

SENT = [b"one", b"two", b"three"]


@pytest.mark.parametrize(
    ("left", "wrong"),
    [
        ([], 0),
        ([("bee", 1, b"one"), ("bee", 2, b"two"), ("bee", 1, b"one")], 0),
        ([("bee", 2, b"one")], 1),
        ([("bee", 4, b"four")], 1),
        ([("cat", 1, b"one"), ("cat", 1, b"one")], 1),
    ],
    ids=["nothing", "a repetition", "another position", "beyond the log", "to somebody else, told of once"],
)
def test_what_left_stands_in_the_log_at_its_position(left: list[tuple[str, int, bytes]], wrong: int) -> None:
    assert [v.checker for v in check_wire("ant", left, {"bee": SENT})] == ["wire"] * wrong


@pytest.mark.parametrize(
    ("got", "where"),
    [
        (SENT, ""),
        (SENT[:2], "at the end"),
        ([b"two", b"one", b"three"], "first at 1"),
        ([b"one", b"two", b"two", b"three"], "first at 3"),
    ],
    ids=["equal", "lost", "out of order", "doubled"],
)
def test_what_was_got_is_what_was_sent(got: list[bytes], where: str) -> None:
    found = check_pair("ant", "bee", SENT, got)
    assert bool(found) == bool(where)
    assert all(where in violation.text for violation in found)


def test_only_the_connection_that_was_welcomed_last_is_told() -> None:
    first, second = Told("r0 life 1", 7, "#1", True, 10), Told("r0 life 1", 7, "#2", True, 20)
    to_first, to_second = Told("r0 life 1", 7, "#1", False, 30), Told("r0 life 1", 7, "#2", False, 30)
    assert not check_told([first, to_first, second, to_second])
    assert [v.checker for v in check_told([first, second, to_second, to_first])] == ["told"]
    assert check_told([Told("r0 life 2", 7, "#1", False, 30)]), "another life welcomed nobody"
    assert not check_told([first, Told("r0 life 1", 8, "#2", True, 20), to_first]), "another peer is no successor"


@pytest.mark.parametrize(
    ("asked", "answered", "given_up", "text"),
    [
        (["a"], [("a", b"1")], [], ""),
        (["a"], [], ["a"], ""),
        (["a"], [], [], "never answered a"),
        (["a"], [("a", b"1"), ("a", b"1")], [], "answered a 2 times"),
        ([], [("a", b"1")], [], "nobody asked"),
        (["a", "a"], [("a", b"1")], [], "asked a 2 times"),
    ],
    ids=["one reply", "given up", "no reply", "two replies", "no request", "two requests"],
)
def test_each_request_has_one_reply(
    asked: list[str], answered: list[tuple[str, bytes]], given_up: list[str], text: str
) -> None:
    found = check_answers("bee", asked, answered, given_up)
    assert bool(found) == bool(text)
    assert all(text in violation.text for violation in found)


def test_activities_that_are_logged_and_repeated_where_they_may_be_are_good() -> None:
    twice = Began((5, 1), 1, False)
    assert not check_activities([twice, twice, Began((5, 1), 2, False)], [((5, 1), 1), ((5, 1), 2)], [((5, 1), 2)])


@pytest.mark.parametrize(
    ("began", "gave", "text"),
    [
        ([Began((6, 1), 1, False)], [], "never asks"),
        ([Began((5, 1), 1, True), Began((5, 1), 1, True)], [], "began 2 times"),
        ([], [((5, 1), 1)], "never began"),
    ],
    ids=["not in the log", "twice", "a result of nothing"],
)
def test_faults_of_activities_are_named(began: list[Began], gave: list[tuple[tuple[int, int], int]], text: str) -> None:
    (violation,) = check_activities(began, [((5, 1), 1)], gave)
    assert text in violation.text

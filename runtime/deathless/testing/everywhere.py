"""Runs a test once for each point at which a process can be killed, and compares what it came to.

    scenario without a kill  --> outcome, N points
    scenario, killed at 1    --> the same outcome?
    ...
    scenario, killed at N    --> the same outcome?

An outcome is what the scenario gives, the states of all services, what was sent to services that are not under test,
and what activities were asked to do, each once for its idempotency key. Where states hold what may rightly differ (a
number that is drawn, the id of a promise that still waits), the test says itself what its outcome is.

Guarantees: a point is left out only where `every` or `services` says so. Does not: kill twice in one run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from deathless.base.errors import InvalidArgument, OutcomeDiffers
from deathless.execution.author.service import Service
from deathless.testing.environment import Environment
from deathless.testing.moments import Point

SHOWN_MAX: Final = 300  # characters of an outcome in an error

Scenario = Callable[[Environment], object]


class Outcome(NamedTuple):
    """What a run of a scenario came to."""

    result: object
    states: dict[str, dict[bytes, bytes]]  # encoded, by service and key
    messages: dict[str, list[tuple[str, str, str, dict[str, object]]]]  # by peer: (source, method, key, arguments)
    done: dict[str, list[str]]  # by activity: what it was asked to do, each once for its key

    @classmethod
    def of(cls, env: Environment, result: object) -> Outcome:
        """Give what stands now."""
        history = env.history
        messages = {
            name: [(each.source, each.method, each.key, each.arguments) for each in history.to(name)]
            for name in env.peers
        }
        for name, topic in env.topics.items():
            rows = [(each.source, each.method, each.key, {"row": each.arguments["row"]}) for each in topic.messages]
            messages |= {name: rows} if rows else {}
        keys: dict[tuple[str, str], str] = {}
        for call in history.activities:
            keys[call.name, call.key] = repr(sorted(call.arguments.items()))
        names = sorted({name for name, _ in keys})
        done = {name: sorted(told for (of, _), told in keys.items() if of == name) for name in names}
        return cls(result, env.states(), messages, done)


class KillReport(NamedTuple):
    """What `kill_everywhere` did."""

    points: list[Point]  # at which a process was killed, one in each run
    outcome: Any  # the same in all runs; an Outcome, where the test does not say what counts


def kill_everywhere(
    scenario: Scenario,
    *services: Service,
    outcome: Callable[[Environment, Any], object] = Outcome.of,
    every: int = 1,
    **settings: Any,
) -> KillReport:
    """Run a scenario without a kill, and once for each point with one; the outcome must be the same.

    Args:
        scenario: is given an environment that has just begun; what it raises fails the run.
        services: under test.
        outcome: gives what is compared, of the environment behind a run and what the scenario gave.
        every: kill at every so-many-th point only.
        settings: as of Environment.

    Raises: OutcomeDiffers naming the point; what the scenario raises, with a note that names the point; what ends a
        service, such as Diverged.
    """
    return kill_everywhere_in(Environment(*services, **settings), scenario, outcome=outcome, every=every)


def kill_everywhere_in(
    like: Environment,
    scenario: Scenario,
    *,
    outcome: Callable[[Environment, Any], object] = Outcome.of,
    every: int = 1,
) -> KillReport:
    """Do so in environments like one that is there, with the functions that it has for activities and peers."""
    if every < 1:
        raise InvalidArgument(f"every={every} must be at least 1")
    with like.again(0) as env:
        expected = outcome(env, scenario(env))
        env.settle()
        count = env.points.count
    numbers = range(1, count + 1, every)
    return KillReport([_killed_at(like, scenario, number, outcome, expected) for number in numbers], expected)


def _killed_at(
    like: Environment,
    scenario: Scenario,
    number: int,
    outcome: Callable[[Environment, Any], object],
    expected: object,
) -> Point:
    """Run it with a kill at a point."""
    killed: Sequence[Point] = ()
    try:
        with like.again(number) as env:
            try:
                found = outcome(env, scenario(env))
                env.settle()
            finally:
                killed = env.killed
    except BaseException as error:
        error.add_note(f"the process was killed at {killed[0]}" if killed else f"no process came to point {number}")
        raise
    if not killed:
        raise OutcomeDiffers(
            f"no process came to point {number}, which the run without a kill came to",
            remedy="the test itself must do the same each time: look for time, chance and order of sets in it",
        )
    if found != expected:
        raise OutcomeDiffers(f"killed at {killed[0]}: {_difference(expected, found)}")
    return killed[0]


def _difference(expected: object, found: object) -> str:
    """Say how one outcome differs from another."""
    if isinstance(expected, Outcome) and isinstance(found, Outcome):
        for name, one, other in zip(Outcome._fields, expected, found, strict=True):
            if one != other:
                return f"{name}: {_shown(one, other)}"
    return _shown(expected, found)


def _shown(one: object, other: object) -> str:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in [*one, *(key for key in other if key not in one)]:
            if one.get(key) != other.get(key):
                return f"{key!r}: {_shown(one.get(key), other.get(key))}"
    return f"{_short(one)} without a kill, {_short(other)} with it"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."

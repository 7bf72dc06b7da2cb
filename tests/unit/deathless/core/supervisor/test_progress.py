"""Whether a worker gets on, from its page alone: each line of the table, and the clocks that begin again."""

from __future__ import annotations

import pytest

from deathless.core.supervisor.progress import ASLEEP_S, Progress, Signs, Verdict

TURN_S = 5.0
CALL_S = 2.0
STEP_S = ASLEEP_S / 2
FINE, STUCK, OVERDUE = Verdict.FINE, Verdict.STUCK, Verdict.OVERDUE


def signs(running: tuple[int, int] | None = None, ticks: int = 0, calls: int = 0) -> Signs:
    return Signs(running=running, ticks=ticks, calls=calls)


def watching() -> Progress:
    return Progress(turn_max_s=TURN_S, log_call_max_s=CALL_S)


def watch(progress: Progress, seen: Signs, until: float, since: float = 100.0) -> Verdict:
    """Look at the same signs in short steps; gives the last verdict, that at `since + until`."""
    verdict = progress.look(seen, since)
    steps = int(until / STEP_S)
    for step in range(1, steps + 1):
        verdict = progress.look(seen, since + step * STEP_S)
    return progress.look(seen, since + until) if steps * STEP_S < until else verdict


@pytest.mark.parametrize(
    ("seen", "limit_s", "after"),
    [
        (signs(calls=1), CALL_S, STUCK),
        (signs((1, 2)), TURN_S, OVERDUE),
        (signs(), TURN_S, OVERDUE),
        (signs((1, 2), calls=1), TURN_S, OVERDUE),
    ],
)
def test_what_stands_still_is_told_when_its_time_is_over_and_not_before(
    seen: Signs, limit_s: float, after: Verdict
) -> None:
    if seen.running is None or not seen.calls:
        assert watch(watching(), seen, limit_s) is FINE
    assert watch(watching(), seen, limit_s + 0.01) is after


def test_a_call_that_hangs_stays_stuck_and_never_becomes_overdue() -> None:
    assert watch(watching(), signs(calls=1), 10 * TURN_S) is STUCK


@pytest.mark.parametrize("what", ["messages", "ticks", "calls"])
def test_whatever_moves_is_progress_however_long_it_goes_on(what: str) -> None:
    progress = watching()
    for count in range(100):
        seen = {
            "messages": signs((1, count)),
            "ticks": signs(ticks=count),
            "calls": signs(calls=2 * count + 1),
        }[what]
        assert progress.look(seen, 100.0 + count * STEP_S) is FINE


def test_ticks_and_calls_do_not_excuse_a_message_that_runs_too_long() -> None:
    progress = watching()
    verdict = FINE
    for count in range(int(TURN_S / STEP_S) + 2):
        assert verdict is FINE
        verdict = progress.look(signs((1, 2), ticks=count, calls=2 * count), 100.0 + count * STEP_S)
    assert verdict is OVERDUE


def test_a_worker_that_moves_again_is_fine_again() -> None:
    progress = watching()
    assert watch(progress, signs(calls=1), CALL_S + STEP_S) is STUCK
    assert progress.look(signs(calls=2), 100.0 + CALL_S + 2 * STEP_S) is FINE


def test_who_stood_still_himself_begins_all_clocks_again() -> None:
    progress = watching()
    assert watch(progress, signs(), TURN_S) is FINE
    awake = 100.0 + TURN_S + ASLEEP_S + 1
    assert progress.look(signs(), awake) is FINE, "frozen whole: old times say nothing"
    assert watch(progress, signs(), TURN_S, since=awake) is FINE
    assert progress.look(signs(), awake + TURN_S + 0.01) is OVERDUE


def test_another_worker_begins_all_clocks_again() -> None:
    progress = watching()
    assert watch(progress, signs(calls=1), CALL_S) is FINE
    progress.begin()
    assert progress.look(signs(calls=1), 100.0 + CALL_S + 0.01) is FINE


def test_a_call_may_take_what_the_storage_takes_for_everybody() -> None:
    progress = watching()
    for step in range(20):
        assert progress.look(signs(calls=1), 100 + step * STEP_S, 4 * CALL_S + STEP_S) in (
            (FINE,) if step * STEP_S <= 4 * CALL_S else (FINE, STUCK)
        )
    assert watch(progress, signs(calls=1), 5 * CALL_S, since=110.0) is STUCK

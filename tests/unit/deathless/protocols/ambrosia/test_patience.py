"""Time that counts against an application, and time that does not."""

from __future__ import annotations

import pytest

from deathless.protocols.ambrosia.patience import LOOK_MAX_S, Patience, Seen, Watch, Work, work_of
from deathless.protocols.ambrosia.states import State

SHORT = Patience(connect_s=3, load_s=4, snapshot_s=5, handler_s=6)


def looks(work: Work, *, seconds: int, waiting: int = 100, moves: bool = False, held: bool = False) -> list[str]:
    """What each of so many looks finds, one a second."""
    watch = Watch(SHORT)
    return [watch.look(Seen(float(at), work, waiting, at if moves else 0, held)) for at in range(seconds + 1)]


def test_each_work_has_its_own_limit() -> None:
    for work, limit in ((Work.CONNECTING, 3), (Work.LOADING, 4), (Work.SNAPSHOT, 5), (Work.HANDLING, 6)):
        found = looks(work, seconds=limit)
        assert found[:-1] == [""] * limit
        assert found[-1].startswith(f"{limit} s went by without an end of {work.value}; 100 bytes wait for it")


def test_a_replay_may_take_for_ever() -> None:
    assert not any(looks(Work.REPLAYING, seconds=100))


def test_no_limit_is_for_ever() -> None:
    watch = Watch(Patience(handler_s=0))
    assert not any(watch.look(Seen(float(at), Work.HANDLING, 1, 0)) for at in range(1000))


def test_a_handler_that_moves_is_never_overdue_and_a_checkpoint_that_moves_is() -> None:
    assert not any(looks(Work.HANDLING, seconds=100, moves=True))
    assert any(looks(Work.SNAPSHOT, seconds=5, moves=True))
    assert any(looks(Work.LOADING, seconds=4, moves=True))


def test_an_application_for_which_nothing_waits_is_not_still() -> None:
    assert not any(looks(Work.HANDLING, seconds=100, waiting=0))
    assert looks(Work.SNAPSHOT, seconds=5, waiting=0)[-1].endswith("it has read everything that it was sent")


def test_time_in_which_we_hold_it_back_does_not_count() -> None:
    for work in (Work.HANDLING, Work.SNAPSHOT, Work.LOADING):
        assert not any(looks(work, seconds=100, held=True))


def test_time_in_which_this_process_stood_still_counts_for_one_look() -> None:
    watch = Watch(SHORT)
    assert [watch.look(Seen(at, Work.HANDLING, 1, 0)) for at in (0.0, 1000.0, 2000.0)] == ["", "", ""]
    assert watch.still_s == 2 * LOOK_MAX_S
    assert watch.look(Seen(3000.0, Work.HANDLING, 1, 0))


def test_other_work_begins_anew() -> None:
    watch = Watch(SHORT)
    for at in range(4):
        assert not watch.look(Seen(float(at), Work.SNAPSHOT, 0, 0))
    assert not watch.look(Seen(4.0, Work.HANDLING, 1, 0))
    assert watch.still_s == 0


@pytest.mark.parametrize("state", [state for state in State if state is not State.GONE])
def test_each_state_is_some_work(state: State) -> None:
    leading = {State.STARTING, State.INITIALIZING, State.LEADING_SNAPSHOT, State.SWITCHING}
    due = {*leading, State.SNAPSHOT, State.TESTING_SNAPSHOT}
    work = work_of(state, loading=False, replaying=False)
    if state in due:
        assert work is Work.SNAPSHOT
    else:
        others = {State.CONNECTING: Work.CONNECTING, State.WAITING: Work.REPLAYING, State.LOADING: Work.LOADING}
        assert work is others.get(state, Work.HANDLING)


def test_what_was_sent_behind_a_checkpoint_waits_for_its_end() -> None:
    assert work_of(State.FOLLOWING, loading=True, replaying=True) is Work.LOADING
    assert work_of(State.FOLLOWING, loading=False, replaying=True) is Work.REPLAYING

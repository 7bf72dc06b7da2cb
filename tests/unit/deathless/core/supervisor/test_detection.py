"""The failure detector: when a takeover is tried, by whom, and how often; nothing of it is needed for safety (I2)."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless.base.limits import Limits
from deathless.core.supervisor.detection import (
    AGAIN_S,
    FAR_BEHIND,
    FORGET_S,
    TAKING_MAX_S,
    TAKING_SILENT_S,
    TRIES_MAX,
    TURN_S,
    VACANT_MAX_S,
    VACANT_S,
    Detector,
    Order,
    PrimaryClaim,
    Report,
    WorkerState,
)

LIMITS = Limits()
SUSPECT = LIMITS.suspect_after_s
NEVER = float("inf")
RUNNING = WorkerState.RUNNING


def detector(*, always: bool = False, now: float = 0.0) -> Detector:
    """r1's, among r0, r1 and r2."""
    made = Detector(replica="r1", limits=LIMITS, promote_checkpointer="Always" if always else "WhenAlone", now=now)
    made.members_seen({"r0", "r1", "r2"})
    return made


def tell(
    to: Detector,
    replica: str,
    role: str = "standby",
    *,
    state: str = RUNNING,
    epoch: int = 3,
    lsn: int = 0,
    now: float = 0.0,
    heard: dict[str, int] | None = None,
) -> None:
    to.report_received(Report(replica, state, role, epoch, lsn, "c:1", "f:1", heard=heard or {}), now)


def with_primary(*, now: float = 0.0) -> Detector:
    """r0 is primary in epoch 3; r1 (we) and r2 stand by."""
    made = detector(now=now)
    for replica, role in (("r0", "primary"), ("r1", "standby"), ("r2", "checkpointer")):
        tell(made, replica, role, now=now)
    return made


# ---- reported ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [WorkerState.DEAD, WorkerState.STOPPED, WorkerState.STUCK])
def test_reported_death_is_acted_on_at_once(state: WorkerState) -> None:
    made = with_primary()
    assert made.decide(0.0, 0.0) is None
    tell(made, "r0", "primary", state=state)
    order = made.decide(0.0, 0.0)
    assert order == Order(3, f"reported: worker of r0 is {state}")


@pytest.mark.parametrize("role", ["standby", "checkpointer", "recovering"])
def test_primary_that_is_none_any_more_is_replaced(role: str) -> None:
    made = with_primary()
    tell(made, "r0", role)
    order = made.decide(0.0, 0.0) or made.decide(TURN_S, 0.0)  # as a standby it may try again itself, and first
    assert order is not None
    assert order.reason == f"reported: r0 is {role} now"


def test_primary_whose_worker_starts_anew_is_replaced() -> None:
    made = with_primary()
    tell(made, "r0", "starting", state=WorkerState.STARTING, epoch=0)
    assert made.decide(0.0, 0.0) is not None


def test_our_own_worker_that_was_primary_tries_again() -> None:
    made = detector()
    tell(made, "r1", "primary", epoch=4)
    assert made.decide(0.0, 0.0) is None
    tell(made, "r1", "standby", epoch=4)
    order = made.decide(0.0, NEVER)
    assert order is not None
    assert order.reason.startswith("reported: epoch 4 was ours")


@pytest.mark.parametrize(
    ("role", "state"),
    [("standby", WorkerState.DEAD), ("recovering", RUNNING), ("taking-over", RUNNING), ("primary", RUNNING)],
)
def test_only_a_running_standby_or_checkpointer_tries(role: str, state: WorkerState) -> None:
    made = with_primary()
    tell(made, "r0", "primary", state=WorkerState.DEAD)
    tell(made, "r1", role, state=state, epoch=2)
    assert made.decide(0.0, NEVER) is None


def test_without_a_report_of_our_own_nothing_is_tried() -> None:
    assert detector().decide(9.0, NEVER) is None


# ---- silent ------------------------------------------------------------------------------------------------------


def silent(now: float) -> Detector:
    """Nobody has heard r0 since 0; r1 and r2 are well at `now`."""
    made = with_primary()
    for replica in ("r1", "r2"):
        tell(made, replica, now=now, heard={"r0": int(now * 1000)})
    return made


def test_silence_of_supervisor_and_worker_is_acted_on_after_suspect_after_s_and_the_minimum_reign() -> None:
    assert silent(SUSPECT).decide(SUSPECT, NEVER) is None
    made = silent(0.45)
    assert made.decide(0.45, NEVER) is None  # the reign is too young
    made = silent(LIMITS.reign_min_s)
    order = made.decide(LIMITS.reign_min_s, NEVER)
    assert order is not None
    assert order.reason == "silent: r0 unheard for 0.5 s"


def test_silence_of_the_supervisor_alone_is_none() -> None:
    assert silent(5.0).decide(5.0, SUSPECT / 2) is None


def test_silence_that_another_reachable_replica_contradicts_is_none() -> None:
    made = silent(5.0)
    tell(made, "r2", now=5.0, heard={"r0": 10})
    assert made.decide(5.0, NEVER) is None


def test_contradiction_of_a_replica_that_is_silent_itself_does_not_count() -> None:
    made = with_primary()
    tell(made, "r2", now=1.0, heard={"r0": 10})
    tell(made, "r1", now=5.0)
    assert made.decide(5.0, NEVER) is not None


def test_steals_from_silence_back_off_and_a_long_reign_makes_up_for_them() -> None:
    made = silent(1.0)
    assert made.decide(1.0, NEVER) is not None
    tell(made, "r0", "primary", epoch=4, now=2.0)
    for at, expected in ((2.7, False), (3.1, True)):  # the minimum reign has doubled to 1 s
        for replica in ("r1", "r2"):
            tell(made, replica, now=at)
        assert (made.decide(at, NEVER) is not None) is expected
    tell(made, "r0", "primary", epoch=5, now=100.0)
    made.decide(100.0, NEVER)
    at = 104.0  # twice the 2 s that the minimum has doubled to
    for replica in ("r1", "r2"):
        tell(made, replica, now=at)
    assert made.decide(at, NEVER) is not None
    assert made._silent_steals == 1


@pytest.mark.parametrize("apart_s", [4.5, 10.0, 100.0])
def test_nodes_that_die_one_after_the_other_are_no_quarrel(apart_s: float) -> None:
    made = silent(1.0)
    for epoch in range(4, 40):  # each new primary serves for a while, then its node dies
        assert made.decide(1.0 + apart_s * (epoch - 4), NEVER) is not None
        tell(made, "r0", "primary", epoch=epoch, now=2.0 + apart_s * (epoch - 4))
        assert made.decide(2.0 + apart_s * (epoch - 4), 0.0) is None
        for replica in ("r1", "r2"):
            tell(made, replica, now=1.0 + apart_s * (epoch - 3))


def test_two_that_steal_from_each_other_as_soon_as_they_may_wait_longer_each_time() -> None:
    made = silent(1.0)
    assert made.decide(1.0, NEVER) is not None
    began = 1.0
    for epoch, reign in enumerate((1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0), start=4):
        tell(made, "r0", "primary", epoch=epoch, now=began)
        for at, expected in ((began + 0.95 * reign, False), (began + 1.05 * reign, True)):
            for replica in ("r1", "r2"):
                tell(made, replica, now=at)
            assert (made.decide(at, NEVER) is not None) is expected
        began += 1.05 * reign


def test_reported_death_never_waits_for_a_reign() -> None:
    made = silent(1.0)
    made.decide(1.0, NEVER)
    tell(made, "r0", "primary", epoch=4, now=2.0)
    made.decide(2.0, NEVER)
    tell(made, "r0", "primary", state=WorkerState.DEAD, epoch=4, now=2.05)
    assert made.decide(2.05, NEVER) is not None


# ---- vacant ------------------------------------------------------------------------------------------------------


def test_start_waits_until_everybody_known_has_reported_or_had_time_to() -> None:
    made = detector()
    tell(made, "r1", epoch=0)
    tell(made, "r2", epoch=0)
    assert made.decide(VACANT_S / 2, NEVER) is None
    order = made.decide(VACANT_S, NEVER)
    assert order == Order(0, "vacant: no primary")
    made = detector()
    for replica in ("r0", "r1", "r2"):
        tell(made, replica, "checkpointer" if replica == "r0" else "standby", epoch=0)
    assert made.decide(0.0, NEVER) is not None


@pytest.mark.parametrize(("heard_ms", "waits_s"), [(10, VACANT_MAX_S), (5000, VACANT_S)])
def test_replica_that_only_others_hear_may_lead_and_is_waited_for(heard_ms: int, waits_s: float) -> None:
    made = detector()
    for at, expected in ((VACANT_S / 2, False), (waits_s - 0.01, False), (waits_s, True)):
        tell(made, "r1", epoch=0, now=at)
        tell(made, "r2", now=at, heard={"r0": heard_ms})
        assert (made.decide(at, NEVER) is not None) is expected


def test_restart_of_everything_takes_over_from_the_highest_epoch_met_in_the_lock() -> None:
    made = detector()
    tell(made, "r0", "recovering", epoch=0)
    tell(made, "r1", epoch=0)
    tell(made, "r2", "checkpointer", epoch=7)
    assert made.decide(0.0, NEVER) == Order(7, "vacant: no primary")


def test_successor_that_died_before_it_served_is_suspected_too() -> None:
    made = with_primary()
    tell(made, "r0", "primary", state=WorkerState.DEAD)
    tell(made, "r2", "dead", state=WorkerState.DEAD, epoch=4)
    order = made.decide(0.0, NEVER)
    assert order is not None
    assert order.epoch == 4


# ---- turns -------------------------------------------------------------------------------------------------------


def first_turn(made: Detector) -> int:
    """How many turns pass before we try, with the others' reports kept fresh."""
    for turn in range(4):
        now = 10.0 + turn * TURN_S
        for report in list(made.reports.values()):
            made.report_received(report, now)
        if made.decide(now, NEVER) is not None:
            return turn
    return 99


@pytest.mark.parametrize(
    ("ours", "others", "turn"),
    [
        (("standby", 0), ("checkpointer", 0), 0),
        (("checkpointer", 0), ("standby", 0), 1),
        (("standby", 0), ("standby", 0), 1),  # by name: r0 before r1
        (("standby", FAR_BEHIND - 1), ("standby", 0), 1),  # a heartbeat's lag is none
        (("standby", FAR_BEHIND + 1), ("standby", 0), 0),  # the other one is far behind
        (("standby", 0), ("standby", FAR_BEHIND + 1), 1),
    ],
)
def test_candidates_take_turns(ours: tuple[str, int], others: tuple[str, int], turn: int) -> None:
    made = detector()
    tell(made, "r2", "primary", state=RUNNING)
    tell(made, "r2", "primary", state=WorkerState.DEAD)
    tell(made, "r1", ours[0], lsn=ours[1])
    tell(made, "r0", others[0], lsn=others[1])
    assert first_turn(made) == turn


def test_checkpointer_takes_its_turn_like_a_standby_where_it_is_always_promoted() -> None:
    made = detector(always=True)
    tell(made, "r0", "primary")
    tell(made, "r0", "primary", state=WorkerState.DEAD)
    tell(made, "r1", "checkpointer")
    tell(made, "r2", "standby")
    assert first_turn(made) == 0


def test_candidate_that_is_silent_is_not_waited_for() -> None:
    made = detector()
    tell(made, "r2", "primary", now=0.0)
    tell(made, "r0", now=0.0)
    for replica, role, state in (("r2", "primary", WorkerState.DEAD), ("r1", "standby", RUNNING)):
        tell(made, replica, role, state=state, now=5.0)
    assert made.decide(5.0, NEVER) is not None


# ---- again -------------------------------------------------------------------------------------------------------


def test_order_without_effect_is_given_again_ever_more_slowly() -> None:
    made = with_primary()
    orders = []
    for step in range(2000):
        now = step * 0.02
        tell(made, "r0", "primary", state=WorkerState.DEAD, now=now)
        tell(made, "r1", now=now)
        if made.decide(now, NEVER) is not None:
            orders.append(now)
    pauses = [round(after - before, 1) for before, after in pairwise(orders)]
    assert pauses[:TRIES_MAX] == [AGAIN_S * 2**i for i in range(TRIES_MAX)]
    assert set(pauses[TRIES_MAX:]) <= {pauses[TRIES_MAX - 1]}


def test_takeover_of_another_replica_is_waited_for_while_it_is_well_but_not_for_ever() -> None:
    made = with_primary()
    for step in range(int(TAKING_MAX_S / 0.1) + 5):
        now = step * 0.1
        tell(made, "r0", "primary", state=WorkerState.DEAD, now=now)
        tell(made, "r1", now=now)
        tell(made, "r2", "taking-over", now=now)
        order = made.decide(now, NEVER)
        assert (order is not None) <= (now > TAKING_MAX_S)
        if order is not None:
            return
    pytest.fail("waited for ever")


@pytest.mark.parametrize("leader", ["r2", "r1"])
def test_each_takeover_of_another_replica_is_waited_for_anew(leader: str) -> None:
    made = with_primary()
    tell(made, "r0", "primary", state=WorkerState.DEAD)
    tell(made, "r2", "taking-over")
    assert made.decide(0.0, NEVER) is None
    tell(made, leader, "primary", epoch=4, now=1.0)
    made.decide(1.0, 0.0)
    later = 1.0 + TAKING_MAX_S
    tell(made, "r1", now=later)
    tell(made, leader, "standby", epoch=4, now=later)
    tell(made, "r3", "taking-over", epoch=4, now=later)
    assert made.decide(later, NEVER) is None
    tell(made, "r3", "taking-over", epoch=4, now=later + 0.5)
    assert made.decide(later + 0.5, NEVER) is None


def test_takeover_of_another_replica_that_falls_silent_is_not_waited_for_long() -> None:
    made = with_primary()
    tell(made, "r2", "taking-over", now=0.0)
    tell(made, "r0", "primary", state=WorkerState.DEAD, now=0.1)
    for at, expected in ((0.1, False), (TAKING_SILENT_S, False), (TAKING_SILENT_S + 0.05, True)):
        tell(made, "r1", now=at)
        assert (made.decide(at, NEVER) is not None) is expected


def test_try_that_came_to_nothing_is_followed_by_another() -> None:
    made = with_primary()
    tell(made, "r0", "primary", state=WorkerState.DEAD)
    assert made.decide(0.0, NEVER) is not None
    tell(made, "r1", "taking-over")
    assert made.decide(0.1, NEVER) is None
    tell(made, "r1", now=AGAIN_S)
    assert made.decide(AGAIN_S, NEVER) is not None


def test_vacancy_after_a_try_of_ours_waits_for_it_to_show() -> None:
    made = detector()
    for replica in ("r0", "r1", "r2"):
        tell(made, replica, "checkpointer", epoch=0)
    made.report_received(Report("r1", RUNNING, "standby", 0, 0), 0.0)
    assert made.decide(0.0, NEVER) is not None
    assert made.decide(AGAIN_S / 2, NEVER) is None
    assert made.decide(AGAIN_S, NEVER) is not None


# ---- what is known -----------------------------------------------------------------------------------------------


def test_claim_of_the_highest_epoch_stands() -> None:
    made = with_primary()
    assert made.primary == PrimaryClaim(3, "r0", "c:1", "f:1")
    tell(made, "r2", "primary", epoch=2)
    assert made.primary is not None
    assert made.primary.replica == "r0"
    tell(made, "r2", "primary", epoch=4)
    assert made.primary.replica == "r2"


def test_removed_replica_is_forgotten_after_a_while_unless_it_is_the_primary() -> None:
    made = with_primary()
    made.members_seen({"r1"})
    made.forget_removed(FORGET_S)
    assert set(made.reports) == {"r0", "r1", "r2"}
    made.forget_removed(FORGET_S + 1)
    assert set(made.reports) == {"r0", "r1"}


def test_forgetting_with_no_primary_known_forgets_whoever_was_removed() -> None:
    made = detector()
    tell(made, "r2")
    made.members_seen({"r1"})
    made.forget_removed(FORGET_S + 1)
    assert made.reports == {}


def test_ages_told_to_others_leave_ourselves_out() -> None:
    assert with_primary().heard_ms(0.25) == {"r0": 250, "r2": 250}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["r0", "r1", "r2"]),
            st.sampled_from(["primary", "standby", "checkpointer", "taking-over", "recovering", "starting", "dead"]),
            st.sampled_from(list(WorkerState)),
            st.integers(0, 5),
            st.floats(0.0, 3.0),
        ),
        max_size=40,
    )
)
def test_no_reports_make_it_order_from_below_what_it_knows(
    steps: list[tuple[str, str, WorkerState, int, float]],
) -> None:
    made = detector()
    now = 0.0
    for replica, role, state, epoch, pause in steps:
        now += pause
        tell(made, replica, role, state=state, epoch=epoch, now=now)
        order = made.decide(now, NEVER)
        if order is not None:
            own = made.reports["r1"]
            assert own.role in ("standby", "checkpointer")
            assert own.state == RUNNING
            assert made.primary is None or order.epoch >= made.primary.epoch


# ---- what is known confirmed -------------------------------------------------------------------------------------


def test_order_names_what_any_follower_has_applied_also_one_that_forgot_it_since() -> None:
    made = with_primary()
    tell(made, "r2", "checkpointer", lsn=104)
    tell(made, "r2", "starting", state=WorkerState.STARTING)
    tell(made, "r2", "recovering", lsn=0)
    tell(made, "r0", "dead", state=WorkerState.DEAD)
    order = made.decide(0.0, NEVER)
    assert order is not None
    assert order.confirmed_lsn == 104


def test_lsn_of_a_primary_is_not_taken_for_confirmed() -> None:
    made = with_primary()
    tell(made, "r0", "primary", lsn=900)
    tell(made, "r0", "dead", state=WorkerState.DEAD, lsn=900)
    order = made.decide(0.0, NEVER)
    assert order is not None
    assert order.confirmed_lsn == 0


# ---------------------------------------------------------------- instances of one replica


def tell_instance(to: Detector, instance: str, generation: int, role: str, *, epoch: int = 3, now: float = 0.0) -> bool:
    return to.report_received(
        Report("r0", RUNNING, role, epoch, 0, instance, instance=instance, generation=generation), now
    )


def test_former_instances_report_is_dropped_once_a_later_one_was_heard() -> None:
    ours = detector()
    assert tell_instance(ours, "a", 1, "primary")
    assert tell_instance(ours, "b", 2, "recovering", epoch=0)
    assert not tell_instance(ours, "a", 1, "primary", epoch=9, now=5.0)
    assert ours.reports["r0"].instance == "b"
    assert ours.heard_ms(5.0)["r0"] == 5000, "nor is it heard"
    assert ours.primary == PrimaryClaim(3, "r0", "a", "")
    assert tell_instance(ours, "b", 2, "standby", now=6.0)


def test_primary_whose_replacement_has_started_is_taken_over_from() -> None:
    ours = with_primary()
    tell_instance(ours, "b", 2, "recovering", epoch=0)
    order = ours.decide(0.0, NEVER)
    assert order is not None
    assert (order.epoch, order.reason.partition(":")[0]) == (3, "reported")


def test_without_instances_every_report_counts() -> None:
    ours = detector()
    assert all(tell_instance(ours, "", 0, role) for role in ("primary", "standby", "primary"))


def test_another_replica_leads_while_it_says_so_and_is_heard() -> None:
    assert not detector().led(0.0)
    made = with_primary()
    assert made.led(SUSPECT)
    assert not made.led(SUSPECT + 0.1)
    tell(made, "r0", "primary", state=WorkerState.STUCK)
    assert not made.led(0.0)
    tell(made, "r0", "standby")
    assert not made.led(0.0)
    tell(made, "r1", "primary", epoch=4)
    assert not made.led(0.0)

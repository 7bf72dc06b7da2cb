"""What a supervisor decides, event by event: starts, pauses, deaths in a message, holds, stops and their deadlines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from deathless.base.errors import (
    CodeEndedProcess,
    CorruptFrame,
    Internal,
    LogTruncated,
    OtherSupervisor,
    PermissionRefused,
    UpgradeRequired,
)
from deathless.base.limits import END_S, STOP_MAX_S, Limits
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.core.supervisor.detection import Report, WorkerState
from deathless.core.supervisor.divergences import DIVERGED_S
from deathless.core.supervisor.effects import (
    Announce,
    CloseLine,
    Effect,
    Exit,
    KillWorker,
    LeaveWord,
    LookAgain,
    Note,
    PeerLives,
    ReadMembers,
    RefuseReport,
    StartIngress,
    StartWorker,
    StopIngress,
    Tell,
    TellPeers,
)
from deathless.core.supervisor.events import (
    Begun,
    CodeNotKept,
    Event,
    Fenced,
    HeartbeatDue,
    IngressExited,
    IngressNotStarted,
    IngressStarted,
    LineEnded,
    LineOpened,
    MembersSeen,
    PageRead,
    ReportReceived,
    ReportsTaken,
    RestartOrdered,
    StopOrdered,
    Superseded,
    WorkerExited,
    WorkerNotStarted,
    WorkerSaid,
    WorkerStarted,
    WorkerSuspended,
)
from deathless.core.supervisor.machine import INGRESS_STOP_MAX_S, Settings, State, SupervisorMachine
from deathless.core.supervisor.missing import MISSING_S
from deathless.core.supervisor.records import AddressesAre, LockIs, RoleIs, Stop, Stopping, TakeOver
from deathless.core.supervisor.restarts import RESTART_MIN_S
from deathless.core.supervisor.worker_life import LAST_WORDS_S

E = TypeVar("E", bound=Effect)
LIMITS = replace(Limits(), turn_max_s=10.0, log_call_max_s=2.0, handover_wait_s=8.0)


class Replica:
    """A machine, its clock, and what the page of its worker shows."""

    def __init__(self, *, safeguards: Safeguards = ALL_SAFEGUARDS, **settings: Any) -> None:
        self.now = 100.0
        self.machine = SupervisorMachine(Settings(replica="r0", limits=LIMITS, **settings), self.now, safeguards)
        self.page: PageRead | None = None
        self.take(Begun("c:1", pid=7, generation=3))

    @property
    def report(self) -> Report:
        """What the others are told."""
        return self.machine.report

    def take(self, *events: Event) -> list[Effect]:
        """Tell events; gives all effects."""
        return [effect for event in events for effect in self.machine.handle(event, self.now, self.page)]

    def beat(self, after_s: float = 0.05) -> list[Effect]:
        """A heartbeat later."""
        self.now += after_s
        return self.take(HeartbeatDue())

    def beats(self, seconds: float) -> list[Effect]:
        """So many heartbeats."""
        return [effect for _ in range(round(seconds / 0.5)) for effect in self.beat(0.5)]

    def work(self, role: str = "standby", *, runs: bool = True) -> None:
        """Start a worker that says its role."""
        assert StartWorker() in self.beat()
        self.page = PageRead(ticks=1)
        self.take(WorkerStarted(11), LineOpened())
        if runs:
            self.take(WorkerSaid(RoleIs(role, 1, "", 5)))

    def exit(self, code: str | None = None, *, running: tuple[int, int] | None = None) -> list[Effect]:
        """The worker is gone with a last word, or without one."""
        said = [] if code is None else self.take(WorkerSaid(Stopping(code, f"{code} so")))
        return [*said, *self.take(WorkerExited(1, running), LineEnded())]


def of(effects: Sequence[Effect], kind: type[E]) -> list[E]:
    return [effect for effect in effects if isinstance(effect, kind)]


def told(effects: Sequence[Effect]) -> list[object]:
    return [effect.record for effect in of(effects, Tell)]


# ---------------------------------------------------------------- a worker's life


def test_states_of_a_worker_that_starts_runs_ends_and_is_started_again() -> None:
    replica = Replica()
    states = [replica.machine.state]
    replica.work(runs=False)
    states.append(replica.machine.state)
    replica.take(WorkerSaid(RoleIs("standby", 0, "", 0)))
    states.append(replica.machine.state)
    replica.take(WorkerExited(9))
    states.append(replica.machine.state)
    replica.take(LineEnded())
    states.append(replica.machine.state)
    assert states == [State.WAITING, State.STARTING, State.RUNNING, State.ENDING, State.WAITING]
    replica.work()
    assert replica.machine.state is State.RUNNING


def test_death_is_told_at_once_and_judged_once_the_last_words_are_read() -> None:
    replica = Replica()
    replica.work()
    effects = replica.take(WorkerExited(9))
    assert [each.report.state for each in of(effects, TellPeers)] == [WorkerState.DEAD]
    assert replica.report.role == "standby", "its last words are awaited"
    replica.take(WorkerSaid(Stopping(Internal.code, "why")), LineEnded())
    assert (replica.report.role, replica.report.problem) == ("dead", Internal.code)


@pytest.mark.parametrize(("status", "said"), [(0, "with status 0"), (-9, "by signal 9")])
def test_code_that_ends_its_process_at_the_start_is_told_by_name_until_a_worker_serves(status: int, said: str) -> None:
    replica = Replica()
    replica.work(runs=False)
    replica.take(WorkerExited(status), LineEnded())
    assert replica.report.problem == CodeEndedProcess.code
    assert said in replica.machine.last_error and CodeEndedProcess.code in replica.machine.last_error
    assert StartWorker() in replica.beats(60), "what ended it may pass"
    replica.take(WorkerStarted(12), LineOpened(), WorkerSaid(RoleIs("standby", 1, "", 5)))
    assert (replica.report.problem, replica.machine.last_error) == ("", "")


def test_worker_that_was_ended_while_it_started_ended_by_no_code() -> None:
    replica = Replica()
    replica.work(runs=False)
    replica.take(StopOrdered())
    replica.take(WorkerExited(-15), LineEnded())
    assert replica.report.problem == ""


def test_line_that_somebody_keeps_open_is_not_waited_for() -> None:
    replica = Replica()
    replica.work()
    replica.take(WorkerExited(9))
    assert not of(replica.beat(LAST_WORDS_S), CloseLine)
    assert of(replica.beat(0.01), CloseLine)
    assert replica.report.role == "dead"


def test_end_of_the_line_may_come_before_the_death() -> None:
    replica = Replica()
    replica.work()
    replica.take(WorkerSaid(Stopping("", "")), LineEnded())
    assert of(replica.take(WorkerExited(0)), CloseLine)


@pytest.mark.parametrize(
    ("code", "ran_s", "pause_s"),
    [(None, 1.0, RESTART_MIN_S), ("DL2001", 1.0, 0.0), ("DL2001", 0.2, RESTART_MIN_S), (None, 60.0, 0.0)],
    ids=["killed", "deposed after a fair run", "deposed at once", "killed after a long run"],
)
def test_pause_before_the_next_start(code: str | None, ran_s: float, pause_s: float) -> None:
    replica = Replica()
    replica.work()
    replica.now += ran_s
    replica.exit(code)
    assert replica.machine.worker.delay_s == pause_s
    assert replica.report.problem == ""


@pytest.mark.parametrize("code", [CorruptFrame.code, "DL4007"])
def test_error_that_another_start_would_meet_as_well_waits_for_an_operator(code: str) -> None:
    replica = Replica()
    replica.work()
    assert LeaveWord(f"{code} so") in replica.exit(code)
    assert (replica.report.condition, replica.machine.last_error) == (code, f"{code} so")
    assert not of(replica.beats(60), StartWorker)
    replica.take(RestartOrdered())
    replica.work(runs=False)
    assert LeaveWord("") in replica.take(WorkerSaid(RoleIs("standby", 0, "", 0)))
    assert replica.report.condition == ""


@pytest.mark.parametrize("told_first", [True, False])
def test_log_of_other_code_needs_an_operator_where_that_code_is_not_kept(told_first: bool) -> None:
    code = UpgradeRequired.code
    replica = Replica(follows_code=True)
    replica.work()
    if told_first:
        replica.take(CodeNotKept())
        assert replica.report.condition == ""
        replica.exit(code)
    else:
        replica.exit(code)
        assert (replica.report.condition, replica.report.problem) == ("", code)
        assert not of(replica.beats(60), StartWorker)
        assert [note.level for note in of(replica.take(CodeNotKept()), Note)] == ["error"]
    assert (replica.report.condition, replica.machine.last_error) == (code, f"{code} so")


def test_log_of_other_code_is_no_error_while_that_may_be_kept() -> None:
    replica = Replica(follows_code=True)
    replica.work()
    assert "error" not in {note.level for note in of(replica.exit(UpgradeRequired.code), Note)}


def test_log_that_lacks_something_is_looked_at_again_before_an_operator_is_asked() -> None:
    replica = Replica()
    replica.work("recovering")
    replica.exit(LogTruncated.code)
    assert replica.report.condition == ""
    replica.work("recovering")
    replica.now += MISSING_S
    replica.exit(LogTruncated.code)
    assert replica.report.condition == LogTruncated.code


def test_divergence_is_told_and_tried_again_after_a_while() -> None:
    replica = Replica()
    replica.work()
    replica.exit("DL4008")
    assert replica.report.divergences == ["DL4008 so"]
    assert not of(replica.beat(DIVERGED_S - 0.1), StartWorker)
    assert of(replica.beat(0.2), StartWorker)


@pytest.mark.parametrize("code", [Internal.code, PermissionRefused.code])
def test_worker_that_can_not_be_started_is_a_problem_or_an_operators(code: str) -> None:
    replica = Replica()
    replica.beat()
    replica.take(WorkerNotStarted(code, f"{code} so"))
    final = code == PermissionRefused.code
    assert (replica.report.problem, bool(replica.report.condition)) == (code, final)
    assert bool(of(replica.beats(5), StartWorker)) is not final


def test_word_of_a_role_ends_the_problem_and_a_new_epoch_counts_as_a_takeover() -> None:
    replica = Replica()
    replica.work()
    replica.exit(Internal.code)
    replica.work(runs=False)
    replica.take(WorkerSaid(RoleIs("recovering", 0, "", 0)))
    assert replica.report.problem == Internal.code
    replica.take(WorkerSaid(RoleIs("primary", 4, "", 9)), WorkerSaid(RoleIs("primary", 4, "", 9)))
    assert (replica.report.problem, replica.report.epoch, replica.machine.takeovers) == ("", 4, 1)


def test_addresses_are_told_and_announced() -> None:
    replica = Replica()
    replica.work()
    assert Announce() in replica.take(WorkerSaid(AddressesAre("a:1", "b:2")))
    assert (replica.report.client, replica.report.replication) == ("a:1", "b:2")


# ---------------------------------------------------------------- getting on, and deaths in a message (I11)


def test_i11_death_in_a_message_is_counted_once_and_a_follower_says_why_it_stopped() -> None:
    replica = Replica()
    replica.work()
    replica.exit(running=(5, 8))
    assert (replica.report.deaths, replica.report.problem) == ([(5, 8, 1)], "DL3015")


def test_i11_message_of_a_worker_that_nobody_looked_after_counts() -> None:
    replica = Replica()
    replica.take(Begun("c:1", running=(5, 8)))
    assert replica.report.deaths == [(5, 8, 1)]


@pytest.mark.parametrize("on", [True, False])
def test_loop_that_stands_still_is_ended_after_turn_max_s(on: bool) -> None:
    replica = Replica(safeguards=replace(ALL_SAFEGUARDS, end_still_workers=on))
    replica.work()
    assert not of(replica.beats(LIMITS.turn_max_s), KillWorker)
    assert len(of(replica.beats(2), KillWorker)) == (1 if on else 0)


def test_i11_message_for_which_a_worker_is_ended_is_told_with_the_word_that_it_is_stuck() -> None:
    replica = Replica()
    replica.work("primary")
    replica.page = PageRead(running=(9, 3))
    replica.beats(LIMITS.turn_max_s)
    effects = replica.beats(1.0)
    first = next(each.report for each in of(effects, TellPeers) if each.report.state == WorkerState.STUCK)
    assert first.deaths == [(9, 3, 1)]
    replica.exit(running=(9, 3))
    assert replica.report.deaths == [(9, 3, 1)], "counted once"


@pytest.mark.parametrize("on", [True, False])
def test_replica_that_slept_ends_no_worker_for_it(on: bool) -> None:
    replica = Replica(safeguards=replace(ALL_SAFEGUARDS, forgive_sleep=on))
    replica.work()
    replica.beats(2)
    assert bool(of(replica.beat(20.0), KillWorker)) is not on


def test_worker_in_one_call_of_the_storage_is_stuck_and_left_alone() -> None:
    replica = Replica()
    replica.work()
    replica.page = PageRead(calls=3)
    assert not of(replica.beats(60), KillWorker)
    assert replica.report.state == WorkerState.STUCK


def test_worker_that_recovers_may_take_its_time() -> None:
    replica = Replica()
    replica.work("recovering")
    assert not of(replica.beats(60), KillWorker)


def test_worker_that_a_signal_stopped_is_told_to_be_stopped_and_not_judged_by_its_page() -> None:
    replica = Replica()
    replica.work("primary")
    replica.page = PageRead(unproved_s=9.0)
    replica.beat()
    assert replica.report.unproved
    replica.take(WorkerSuspended(True))
    assert (replica.report.state, replica.report.unproved) == (WorkerState.STOPPED, False)
    assert not of(replica.beats(60), KillWorker)
    replica.take(WorkerSuspended(False))
    assert replica.report.state == WorkerState.RUNNING


# ---------------------------------------------------------------- held


@pytest.mark.parametrize("on", [True, False])
def test_fenced_replica_stops_in_order_and_starts_again_without_the_fence(on: bool) -> None:
    replica = Replica(safeguards=replace(ALL_SAFEGUARDS, hold_worker=on))
    replica.work()
    effects = replica.take(Fenced(True)) + replica.beat()
    assert Stop() in told(effects)
    assert replica.machine.state is State.ENDING
    replica.exit("")
    assert bool(of(replica.beats(5), StartWorker)) is not on
    if on:
        assert (replica.machine.state, replica.report.role, replica.report.condition) == (State.HELD, "fenced", "")
        replica.take(Fenced(False))
        replica.work()


@pytest.mark.parametrize("on", [True, False])
def test_fence_reaches_a_worker_that_runs(on: bool) -> None:
    replica = Replica(safeguards=replace(ALL_SAFEGUARDS, stop_worker=on))
    replica.work()
    assert (Stop() in told(replica.take(Fenced(True)) + replica.beats(5))) is on


@pytest.mark.parametrize("deadline", [True, False])
@pytest.mark.parametrize("blameless", [True, False])
def test_fenced_worker_that_does_not_stop_is_killed_and_no_message_is_to_blame(deadline: bool, blameless: bool) -> None:
    kept = replace(ALL_SAFEGUARDS, end_at_deadline=deadline, ordered_ends_kill_no_message=blameless)
    replica = Replica(safeguards=kept)
    replica.work()
    replica.take(WorkerSuspended(True), Fenced(True))
    assert not of(replica.beats(STOP_MAX_S), KillWorker)
    assert bool(of(replica.beats(1.0), KillWorker)) is deadline
    replica.exit(running=(5, 8))
    assert bool(replica.report.deaths) is not blameless


def test_worker_that_refused_for_good_does_not_start_for_want_of_a_fence() -> None:
    replica = Replica()
    replica.work()
    replica.exit(CorruptFrame.code)
    replica.take(Fenced(True), Fenced(False))
    assert not of(replica.beats(60), StartWorker)


def test_instance_that_was_superseded_stops_at_once_and_for_good() -> None:
    replica = Replica(instance="a")
    replica.work("primary")
    assert Stop(at_once=True) in told(replica.take(Superseded("b"), Superseded("b")) + replica.beat())
    words = of(replica.exit(""), LeaveWord)
    assert len(words) == 1
    assert "instance b" in words[0].text
    assert (replica.report.condition, replica.report.role) == (OtherSupervisor.code, "dead")
    replica.take(RestartOrdered())
    assert not of(replica.beats(60), StartWorker)


# ---------------------------------------------------------------- stopping


def test_stop_waits_for_the_ingress_then_for_the_worker_then_leaves() -> None:
    replica = Replica(has_ingress=True)
    replica.work()
    replica.take(WorkerSaid(AddressesAre("a:1", "b:2")))
    assert of(replica.beat(), StartIngress)
    replica.take(IngressStarted())
    assert of(replica.take(StopOrdered()), StopIngress)
    assert Stop() not in told(replica.beat())
    replica.take(IngressExited(0))
    assert Stop() in told(replica.beat())
    replica.exit("")
    assert replica.beat() == [Exit()]
    assert replica.machine.state is State.GONE


def test_ingress_that_does_not_end_is_waited_for_no_longer_than_so() -> None:
    replica = Replica(has_ingress=True)
    replica.work()
    replica.take(IngressStarted(), StopOrdered())
    assert Stop() not in told(replica.beat(INGRESS_STOP_MAX_S - 0.1))
    assert Stop() in told(replica.beat(0.2))


@pytest.mark.parametrize("role", ["primary", "standby"])
def test_worker_that_does_not_stop_is_killed_at_the_deadline_which_is_later_for_a_primary(role: str) -> None:
    replica = Replica()
    replica.work(role)
    replica.take(WorkerSuspended(True), StopOrdered())
    replica.beat()
    more_s = LIMITS.handover_wait_s if role == "primary" else 0.0
    assert not of(replica.beats(STOP_MAX_S + more_s - 1), KillWorker)
    assert of(replica.beats(1.0), KillWorker)
    assert not of(replica.beats(END_S - 0.5), Exit)
    assert of(replica.beats(1.0), Exit), "one that the kernel keeps is left to it"


def test_worker_still_in_a_message_at_the_deadline_is_killed_and_not_counted() -> None:
    replica = Replica()
    replica.work()
    replica.take(WorkerSuspended(True), StopOrdered())
    replica.beats(STOP_MAX_S + 1)
    replica.exit(running=(5, 8))
    assert replica.report.deaths == []


def test_pod_that_handed_over_waits_until_its_successor_leads() -> None:
    replica = Replica(instance="a")
    replica.work("primary")
    replica.take(StopOrdered())
    replica.beat()
    replica.take(WorkerSaid(Stopping("", "", successor="r1")))
    assert replica.report.role == "stopping"
    replica.take(WorkerExited(0), LineEnded())
    assert not of(replica.beat(), Exit)
    leads = Report("r1", WorkerState.RUNNING, "primary", 2, 0)
    assert PeerLives("r1") in replica.take(ReportReceived(leads))
    assert "the successor leads" in [each.text for each in of(replica.beat(), Note)]
    assert of(replica.beats(1.5), Exit)


def test_restart_of_a_worker_that_does_not_end_is_a_kill_and_no_failure() -> None:
    replica = Replica()
    replica.work()
    assert told(replica.take(RestartOrdered())) == [Stop()]
    replica.page = PageRead(running=(5, 8))
    replica.take(WorkerSuspended(True))
    assert of(replica.beats(STOP_MAX_S + 1), KillWorker)
    replica.exit(running=(5, 8))
    assert replica.report.deaths == []
    assert of(replica.beats(1), StartWorker)


def test_ingress_that_can_not_be_started_or_dies_is_started_with_growing_pauses() -> None:
    replica = Replica(has_ingress=True)
    replica.work()
    replica.take(WorkerSaid(AddressesAre("a:1", "b:2")))
    replica.beat()
    replica.take(IngressNotStarted("no process"))
    assert replica.machine.ingress.delay_s == RESTART_MIN_S
    assert of(replica.beats(1), StartIngress)
    replica.take(IngressStarted(), IngressExited(1))
    assert replica.machine.ingress.delay_s == 2 * RESTART_MIN_S


# ---------------------------------------------------------------- other supervisors


def test_report_of_one_who_is_not_known_has_members_read_and_a_former_instance_is_refused() -> None:
    replica = Replica()
    later = Report("r1", WorkerState.RUNNING, "standby", 0, 0, instance="i2", generation=2)
    former = Report("r1", WorkerState.RUNNING, "standby", 0, 0, instance="i1", generation=1)
    assert replica.take(ReportReceived(later)) == [ReadMembers(), PeerLives("r1")]
    [refusal] = replica.take(ReportReceived(former))
    assert isinstance(refusal, RefuseReport)
    assert "instance i2" in refusal.text
    assert replica.take(ReportReceived(Report("r0", WorkerState.DEAD, "", 9, 9))) == []


def test_takeover_is_ordered_where_the_primary_is_reported_dead_and_not_while_stopping() -> None:
    replica = Replica()
    replica.work()
    replica.take(WorkerSaid(LockIs(3, "r1")))
    replica.take(ReportReceived(Report("r1", WorkerState.RUNNING, "primary", 3, 0)))
    dead = Report("r1", WorkerState.DEAD, "primary", 3, 0)
    orders = [each for each in told(replica.take(ReportReceived(dead), ReportsTaken())) if isinstance(each, TakeOver)]
    assert [order.epoch for order in orders] == [3]
    replica.take(StopOrdered())
    assert not [each for each in told(replica.beats(5)) if isinstance(each, TakeOver)]


def test_our_own_announcement_says_where_http_is_served() -> None:
    replica = Replica()
    replica.take(MembersSeen(frozenset({"r0", "r1"}), "h:80"), MembersSeen(frozenset({"r0"})))
    assert replica.report.ingress == "h:80"


@pytest.mark.parametrize(
    "event", [Fenced(True), StopOrdered(), Superseded("b"), WorkerSaid(RoleIs("standby", 0, "", 0))]
)
def test_what_changes_something_asks_for_a_round_at_once(event: Event) -> None:
    replica = Replica()
    replica.work()
    assert LookAgain() in replica.take(event)


def test_equal_events_give_equal_effects() -> None:
    def story() -> list[Effect]:
        replica = Replica()
        replica.work("primary")
        effects = replica.exit(Internal.code, running=(5, 8)) + replica.beats(3)
        return effects + replica.take(Fenced(True), StopOrdered()) + replica.beats(3)

    assert story() == story()

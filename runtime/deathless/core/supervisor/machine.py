"""What pid 1 of a replica decides, without IO: its worker's life, what the others are told, when to take over.

States (derived, so no two parts can disagree):

    STARTING ---> RUNNING ---> ENDING ---> WAITING ---> STARTING ...
       |             |           |            |
       '-------------'-----------'------------'--> HELD      an operator fences the replica, or its later instance runs
                                               '-> STOPPING --> GONE   an ordered stop, from each

    what is                                                   state
    a worker that has not said its role yet                   STARTING
    a worker                                                  RUNNING
    a worker that was told, or says, to end; or is dead, and
    its last words are awaited                                ENDING
    no worker; the next one starts after a pause, or once an
    operator has acted (`Report.condition` says on what)      WAITING
    no worker, and none is to be                              HELD
    an ordered stop is under way                              STOPPING
    it is done                                                GONE

A worker's death is told at once, what it said last is waited for, and only then is decided when the next one starts.
A message that stood in the page when the worker died is counted and told as well (I11).

How a stop goes: the ingress answers what it took in, for INGRESS_STOP_MAX_S at most; then the worker is told; at
STOP_MAX_S, and `handover_wait_s` more for a primary, it is killed; at END_S behind that nobody waits for it any more.

Guarantees: no clock, no chance: `now` (seconds, monotonic) and what the worker's page shows come with each event; equal
events give equal effects. What a former worker said is the host's to drop. Does not: IO; tell when a primary has failed
(`detection` does), or make anything safe (lock and fence do). Source: design 0003, "Detection".
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Final, assert_never

import msgspec

from deathless.base.errors import (
    CodeEndedProcess,
    GenerationEnded,
    LogTruncated,
    NewerLevel,
    OtherSupervisor,
    Parked,
    UpgradeRequired,
)
from deathless.base.errors import Diverged as DivergedError
from deathless.base.limits import END_S, STOP_MAX_S, Limits
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.core.supervisor.departure import Leave
from deathless.core.supervisor.detection import Detector, Report, WorkerState
from deathless.core.supervisor.divergences import Divergences
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
    MessageId,
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
from deathless.core.supervisor.missing import Missing
from deathless.core.supervisor.progress import Verdict
from deathless.core.supervisor.records import (
    AddressesAre,
    LockIs,
    RoleIs,
    Stop,
    Stopping,
    TakeOver,
    ToSupervisor,
    ToWorker,
)
from deathless.core.supervisor.restarts import Restarts
from deathless.core.supervisor.worker_life import NEVER, WorkerLife
from deathless.core.supervisor.worker_news import WorkerNews
from deathless.core.supervisor.worker_watch import WorkerWatch

INGRESS_STOP_MAX_S: Final = 6.0
"""So long the ingress may answer what it took in, before the worker is told to stop."""
FINAL_CODES: Final = frozenset(
    (
        *("DL3001", "DL3012", "DL3013", "DL4001", "DL4003", "DL4004", "DL4005", "DL4006", "DL4007", "DL4009"),
        NewerLevel.code,
    )
)
"""Errors an operator must act on: the worker is not started again until the supervisor is."""

FOLLOWED_CODES: Final = frozenset({GenerationEnded.code, UpgradeRequired.code})
"""A worker of kept code ends with these where the log is of other code by now; its host goes on with that, if kept."""


class State(enum.StrEnum):
    """See the module."""

    STARTING = "starting"
    RUNNING = "running"
    ENDING = "ending"
    WAITING = "waiting"
    HELD = "held"
    STOPPING = "stopping"
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a supervisor is told of its replica."""

    replica: str
    limits: Limits
    directory: str = ""  # of the service, for texts
    instance: str = ""  # which of several that call themselves this replica; empty: there is one at a time
    has_ingress: bool = False  # a process of its own serves HTTP
    promote_checkpointer: str = "WhenAlone"
    follows_code: bool = False  # its host looks whether other code that the log is of is kept, and goes on with it


@dataclass(slots=True, kw_only=True)
class Hold:
    """Why the worker is to stay stopped."""

    fenced: bool = False  # an operator wants it
    superseded: str = ""  # a later instance of this replica runs: that error, in full

    @property
    def held(self) -> bool:
        """Is it to?"""
        return self.fenced or bool(self.superseded)


@dataclass(slots=True, kw_only=True)
class StopPlan:
    """An ordered stop; times are monotonic seconds."""

    ordered: bool = False
    ends_by: float = NEVER  # the worker is killed then
    ingress_by: float = NEVER  # the ingress is waited for until then
    done: bool = False


@dataclass(slots=True, kw_only=True)
class _Told:
    """What was told to people."""

    error: str = ""  # the one behind condition or problem, in full
    takeovers: int = 0  # how often this replica became primary
    effects: list[Effect] = field(default_factory=list)


class SupervisorMachine:
    """One supervisor's life.

    Args:
        settings: of the replica.
        now: monotonic seconds.
        safeguards: what is kept.
    """

    def __init__(self, settings: Settings, now: float, safeguards: Safeguards = ALL_SAFEGUARDS) -> None:
        self.settings = settings
        self.detector = Detector(
            replica=settings.replica,
            limits=settings.limits,
            promote_checkpointer=settings.promote_checkpointer,
            now=now,
            safeguards=safeguards,
        )
        self.report = Report(
            replica=settings.replica,
            state=WorkerState.DEAD,
            role="starting",
            epoch=0,
            lsn=0,
            instance=settings.instance,
        )
        self.worker = Restarts()
        self.ingress = Restarts()
        self.life = WorkerLife()
        self.hold = Hold()
        self.stop = StopPlan()
        self._safeguards = safeguards
        self._watch = WorkerWatch(self.report, settings.limits, settings.directory, safeguards)
        self._news = WorkerNews()
        self._divergences = Divergences(settings.limits.rebases_per_hour_max)
        self._log_lacks = _LogLacks()
        self._leave = Leave(waits=bool(settings.instance))
        self._told = _Told()

    @property
    def state(self) -> State:
        """What it is about."""
        if self.stop.done:
            return State.GONE
        if self.stop.ordered:
            return State.STOPPING
        if self.life.dead or (self.life.has_line and (self.life.told_to_stop or self.life.ends_by < NEVER)):
            return State.ENDING
        if self.worker.runs:
            return State.STARTING if self.report.role == "starting" else State.RUNNING
        return State.HELD if self.hold.held else State.WAITING

    @property
    def last_error(self) -> str:
        """The error behind the report's condition or problem, `DLnnnn text (remedy)`; empty where there is neither."""
        return self._told.error if self.report.condition or self.report.problem else ""

    @property
    def takeovers(self) -> int:
        """How often this replica became primary since the supervisor began."""
        return self._told.takeovers

    def handle(self, event: Event, now: float, page: PageRead | None = None) -> list[Effect]:
        """Take one event in.

        Args:
            event: what happened.
            now: monotonic seconds, never less than before.
            page: what the worker's page shows just now; None: there is none.
        """
        effects = self._told.effects = []
        match event:
            case HeartbeatDue():
                self._beat(now, page)
            case WorkerSaid():
                self._worker_said(event.record, now)
                self._changed(now, page)
            case ReportReceived():
                self._report_received(event.report, now)
            case ReportsTaken():
                self._tell_worker(now)
                self._maybe_order_takeover(now, page)
            case MembersSeen():
                self._members_seen(event, now)
            case WorkerStarted() | WorkerNotStarted() | WorkerExited() | WorkerSuspended() | LineOpened() | LineEnded():
                self._worker_changed(event, now)
                self._changed(now, page)
            case IngressStarted() | IngressNotStarted() | IngressExited():
                self._ingress_changed(event, now)
            case Begun():
                self._begin(event)
            case Fenced():
                self._fence(event.fenced, now)
            case Superseded():
                self._be_superseded(event.later)
            case StopOrdered():
                self._order_stop(now)
            case RestartOrdered():
                self._restart_worker(now)
            case CodeNotKept():
                self._code_is_not_kept()
            case _:
                assert_never(event)
        return effects

    # ---- life ------------------------------------------------------------------------------------------------

    def _begin(self, event: Begun) -> None:
        report = self.report
        report.control, report.pid, report.generation = event.control, event.pid, event.generation
        self._log_lacks.local = event.local
        self._count_death(event.running)
        self._do(Announce())

    def _beat(self, now: float, page: PageRead | None) -> None:
        """One round; the order of its parts is a stop's, then the worker's, then what follows for others."""
        if self.life.last_words_overdue(now):
            self._worker_done(now)
        if self.stop.ordered and self._may_leave(now):
            self.stop.done = True
            self._do(Exit())
            return
        if self.stop.ordered or (self.hold.held and self._safeguards.stop_worker):
            self._pass_stop_on(now)
        if self.worker.due(now) and not self.life.has_line:
            self._do(StartWorker())
        if self.settings.has_ingress and self.report.client and self.ingress.due(now):
            self._do(StartIngress())
        self._watch_worker(now, page)
        self._tell_others(now)
        self._maybe_order_takeover(now, page)
        if now > min(self.stop.ends_by, self.life.ends_by) and self._safeguards.end_at_deadline:
            self._end_worker()

    def _changed(self, now: float, page: PageRead | None) -> None:
        """The worker is another than it was: say so at once."""
        self._watch_worker(now, page)
        self._tell_others(now)
        self._do(LookAgain())

    def _order_stop(self, now: float) -> None:
        if self.stop.ordered:
            return
        self.stop.ordered = True
        self.stop.ends_by = now + STOP_MAX_S + (self._handover_wait_s if self.life.told_to_stop else 0.0)
        self.stop.ingress_by = now + INGRESS_STOP_MAX_S
        self.worker.start_at = self.ingress.start_at = None
        if self.ingress.runs:
            self._do(StopIngress())
        self._do(LookAgain())

    def _pass_stop_on(self, now: float) -> None:
        """The worker is told to stop; at the end of all, once the ingress has answered its callers."""
        life = self.life
        answering = self.stop.ordered and self.ingress.runs and now < self.stop.ingress_by
        if life.told_to_stop or answering or not (life.hears and life.line_open):
            return
        life.told_to_stop = True
        # Others do not listen to an instance that was superseded: they take over from it, whatever it waits for.
        self._tell(Stop(at_once=bool(self.hold.superseded)))
        self.stop.ends_by += self._handover_wait_s
        if self.hold.held:
            life.end_ordered = True
            life.ends_by = now + STOP_MAX_S + self._handover_wait_s

    @property
    def _handover_wait_s(self) -> float:
        """How much longer than others our worker may take to stop in order: a primary waits for activities."""
        return self.settings.limits.handover_wait_s if self.report.role == "primary" else 0.0

    def _end_worker(self) -> None:
        if self.worker.runs and not (self.life.dead or self.life.killed):
            self.life.end_ordered = self.life.killed = True
            self._do(KillWorker())

    def _may_leave(self, now: float) -> bool:
        overdue = now > min(self.stop.ends_by, self.life.ends_by) + END_S  # killed, and hangs in the kernel
        if self.worker.runs and not overdue:
            return False
        settling = self._leave.settling
        due = self._leave.is_due(now, handed_over=bool(self.report.successor), led=self.detector.led(now))
        if self._leave.settling and not settling:
            self._note("info", "the successor leads", successor=self.report.successor)
        return due

    def _restart_worker(self, now: float) -> None:
        if self.worker.runs and self.life.has_line:
            self.life.end_ordered = True
            self.life.ends_by = now + STOP_MAX_S + self._handover_wait_s
            self._tell(Stop())
        elif not (self.stop.ordered or self.hold.held):
            self.worker.start_at = now
            self._divergences.clear()
            self.report.divergences = []
            self._do(LookAgain())

    # ---- held ------------------------------------------------------------------------------------------------

    def _fence(self, fenced: bool, now: float) -> None:
        """A primary hands over first."""
        if fenced == self.hold.fenced:
            return
        self._note("warning", "fenced" if fenced else "no longer fenced")
        self.hold.fenced = fenced
        self._apply_hold()
        if not (self.hold.held or self.worker.runs or self.report.condition or self.stop.ordered):
            self.report.role = "dead"
            self.worker.start_at = now

    def _be_superseded(self, later: str) -> None:
        """The later instance is the one to be heard, and we only cost it time."""
        if self.hold.superseded:
            return
        why = f"replica {self.settings.replica} is run by instance {later}, which started later"
        self._note("error", "a later instance runs", why=why)
        self.hold.superseded = str(OtherSupervisor(why, remedy="do nothing if this pod is being replaced"))
        self._apply_hold()

    def _apply_hold(self) -> None:
        if self.hold.held and not self.worker.runs:
            self._stay_stopped()
        self._do(LookAgain())

    def _stay_stopped(self) -> None:
        if not self._safeguards.hold_worker:
            return
        self.worker.start_at = None
        self.report.role = "fenced" if self.hold.fenced else "dead"
        if self.hold.superseded:
            self._set_condition(OtherSupervisor.code, self.hold.superseded)

    def _set_condition(self, code: str, text: str) -> None:
        """An operator must act: say it where one looks."""
        self.report.condition, self._told.error = code, text
        self._do(LeaveWord(text))

    # ---- the worker ------------------------------------------------------------------------------------------

    def _worker_changed(
        self,
        event: WorkerStarted | WorkerNotStarted | WorkerExited | WorkerSuspended | LineOpened | LineEnded,
        now: float,
    ) -> None:
        life = self.life
        match event:
            case WorkerStarted():
                self._worker_started(event.pid, now)
            case WorkerNotStarted():
                self._worker_not_started(event, now)
            case WorkerExited():
                life.exit_code, life.died_at = event.exit_code, now
                self._count_death(event.running)
                self.report.state = WorkerState.DEAD
                self.report.worker_pid = 0
                if life.line_ended or not life.has_line:
                    self._worker_done(now)
            case WorkerSuspended():
                self.worker.suspended = event.suspended
            case LineOpened():
                life.line_open = True
            case LineEnded():
                life.line_open, life.line_ended = False, True
                if life.dead:
                    self._worker_done(now)
            case _:
                assert_never(event)

    def _worker_started(self, pid: int, now: float) -> None:
        self.worker.started(now)
        self.life = WorkerLife(has_line=True)
        self._watch.begin()
        self._news.worker_started()
        report = self.report
        report.state, report.role, report.worker_pid = WorkerState.STARTING, "starting", pid
        report.client = report.replication = report.successor = ""

    def _worker_not_started(self, event: WorkerNotStarted, now: float) -> None:
        self.worker.not_started(now)
        self.report.problem, self._told.error = event.code, event.text
        if event.code in FINAL_CODES:
            self.worker.start_at = None
            self._set_condition(event.code, event.text)
        self._note("warning", "worker can't be started", code=event.code, why=event.text)

    def _worker_done(self, now: float) -> None:
        """The worker is dead and all it said is told: decide when to start the next one."""
        life, child, role = self.life, self.worker, self.report.role
        self.life = WorkerLife(told_to_stop=life.told_to_stop)
        self._do(CloseLine())
        words, ordered, unsaid = life.last_words, life.ended_in_order, "killed"
        child.ended(now, at_once=ordered)
        self.report.role = "dead"
        if words is not None:
            self.report.problem = "" if ordered else words.code
            self._told.error = "" if ordered else words.text
        elif self._watch.died_in is not None and role not in ("primary", "taking-over"):
            # A logged message that kills a follower stops that follower alone, and an operator sees why (I11).
            self.report.problem = Parked.code
        elif role == "starting" and not (
            self.stop.ordered or self.hold.held or life.end_ordered or life.told_to_stop or life.killed
        ):
            # It says its role once its code is imported and the log is open: what ends a process says nothing.
            unsaid = str(CodeEndedProcess(f"the worker ended {_how(life)} while it started, without a word"))
            self._told.error = unsaid
            self.report.problem = CodeEndedProcess.code
        if words is not None and self._is_final(words.code, role, now):
            if not self._log_lacks.waits_for_claim(role, self.report.lsn):
                child.start_at = None
            if not self._follows(life):
                self._needs_operator(words.code, words.text)
        elif words is not None and words.code == DivergedError.code:
            self._worker_diverged(words.text, now)
        if self.hold.held:
            self._stay_stopped()
        if self.stop.ordered:
            child.start_at = None
        elif not self.hold.held:
            why = words.text if words is not None else unsaid
            level = "info" if self._follows(life) else "warning"
            self._note(level, "worker ended", exit_code=life.exit_code, why=why, again_in_s=child.delay_s)
        self._do(LookAgain())

    def _follows(self, life: WorkerLife) -> bool:
        """Did the worker end because the log is of other code by now, which may be kept?"""
        code = life.last_words.code if life.last_words is not None else ""
        return self.settings.follows_code and code in FOLLOWED_CODES and not life.code_is_gone

    def _code_is_not_kept(self) -> None:
        """The host has found no other code to go on with, before the worker's end was told or behind it."""
        self.life.code_is_gone = True
        if self.report.problem == UpgradeRequired.code:
            self._needs_operator(UpgradeRequired.code, self._told.error)

    def _needs_operator(self, code: str, text: str) -> None:
        self._set_condition(code, text)
        self._note("error", "worker needs an operator", code=code, why=text)

    def _is_final(self, code: str, role: str, now: float) -> bool:
        """Would a new worker meet the same?"""
        return self._log_lacks.ended(role, now) if code == LogTruncated.code else code in FINAL_CODES

    def _worker_diverged(self, text: str, now: float) -> None:
        """I6: tell the others, so that the primary checkpoints at once; start again from that, so often an hour."""
        self.worker.start_at = self._divergences.met(text, now)
        self.report.divergences = self._divergences.texts
        if self.worker.start_at is None:
            self._set_condition(DivergedError.code, text)
        self._note("error", "worker diverged", why=text, times_this_hour=len(self.report.divergences))

    def _count_death(self, running: MessageId | None) -> None:
        counts = not (self.life.end_ordered and self._safeguards.ordered_ends_kill_no_message)
        if self._watch.met_death(running, counts=counts) and running is not None:
            self._note("warning", "worker died while running a message", session=running[0], seq=running[1])

    def _watch_worker(self, now: float, page: PageRead | None) -> None:
        """Keep our own report true."""
        report = self.report
        report.unproved = False
        if not self.worker.runs or self.life.dead:
            report.state = WorkerState.DEAD
        elif self.worker.suspended:
            report.state = WorkerState.STOPPED
        elif page is not None and report.role not in ("starting", "stopping"):
            verdict, storage = self._watch.look(page, now, self.detector.call_max_s(now))
            if storage is not None:
                self._told.error = storage
            if verdict is Verdict.OVERDUE and report.role != "recovering" and not self.life.killed:
                self.life.killed = True
                self._note("error", "no progress for turn_max_s; the worker is killed", running=str(page.running))
                self._do(KillWorker())
                self._count_death(page.running)  # told with STUCK: who takes over is not to run it unawares

    def _worker_said(self, record: ToSupervisor, now: float) -> None:
        report = self.report
        match record:
            case RoleIs():
                self._role_said(record, now)
            case AddressesAre():
                report.client, report.replication = record.client, record.replication
                self._do(Announce())
            case LockIs():
                self.detector.lock_answered(record.epoch, record.holder, now)
            case Stopping():
                self.life.last_words = record
                report.successor = record.successor
                self.life.ends_by = now + STOP_MAX_S
                if report.role == "primary":
                    report.role = "stopping"
            case _:
                assert_never(record)

    def _role_said(self, record: RoleIs, now: float) -> None:
        report, role, led = self.report, record.role, self.detector.led(now)
        self._note("info", "role", role=role, epoch=record.epoch, why=record.reason, lsn=record.lsn)
        if not self.life.dead:
            report.role, report.lsn = role, record.lsn
            retried = report.condition == LogTruncated.code and role != "primary" and not led
            if report.condition and not retried:
                report.condition = ""
                self._do(LeaveWord(""))
        if role == "primary" and record.epoch > report.epoch:
            self._told.takeovers += 1
        if role not in ("recovering", "taking-over"):
            report.problem = self._told.error = ""
        self._log_lacks.role_said(role, led=led)
        report.epoch = max(record.epoch, report.epoch)

    def _ingress_changed(self, event: IngressStarted | IngressNotStarted | IngressExited, now: float) -> None:
        child = self.ingress
        match event:
            case IngressStarted():
                child.started(now)
                return
            case IngressNotStarted():
                child.not_started(now)
                self._note("warning", "ingress can't be started yet", why=event.text)
            case IngressExited():
                child.ended(now, at_once=False)
                if not self.stop.ordered:
                    self._note("warning", "ingress ended", exit_code=event.exit_code, again_in_s=child.delay_s)
                self._do(LookAgain())
            case _:
                assert_never(event)
        if self.stop.ordered:
            child.start_at = None

    # ---- other supervisors -----------------------------------------------------------------------------------

    def _members_seen(self, event: MembersSeen, now: float) -> None:
        if event.ingress is not None:
            self.report.ingress = event.ingress
        self.detector.members_seen(set(event.names))
        self.detector.forget_removed(now)

    def _report_received(self, report: Report, now: float) -> None:
        """Another supervisor tells how it is, unless a later instance of its replica is heard."""
        if report.replica == self.settings.replica:
            return
        if report.replica not in self.detector.reports:
            self._do(ReadMembers())
        if self.detector.report_received(report, now):
            self._do(PeerLives(report.replica))
            return
        later = self.detector.reports[report.replica].instance
        self._do(RefuseReport(f"replica {report.replica} is run by instance {later}, which started later"))

    def _tell_others(self, now: float) -> None:
        self.report.heard = self.detector.heard_ms(now)
        told = msgspec.structs.replace(self.report)
        self.detector.report_received(told, now)
        self._do(TellPeers(told))
        self._tell_worker(now)

    def _tell_worker(self, now: float) -> None:
        if self.life.hears and self.report.role != "starting":
            self._news.tell(self._tell, self.detector, now)

    def _maybe_order_takeover(self, now: float, page: PageRead | None) -> None:
        if not self.life.hears or self.stop.ordered or page is None:
            return
        order = self.detector.decide(now, page.upstream_age_s, page.lock_answers_s)
        if order is not None:
            self._note("warning", "takeover", epoch=order.epoch, why=order.reason)
            self._log_lacks.claimed_lsn = order.confirmed_lsn
            self._tell(TakeOver(order.epoch, order.reason, order.confirmed_lsn))

    # ---- effects ---------------------------------------------------------------------------------------------

    def _do(self, effect: Effect) -> None:
        self._told.effects.append(effect)

    def _tell(self, record: ToWorker) -> None:
        self._do(Tell(record))

    def _note(self, level: str, text: str, **fields: str | float | bool | None) -> None:
        self._do(Note(level, text, fields))


class _LogLacks:
    """What workers end for because the log lacks it, and what another replica says that it has."""

    def __init__(self) -> None:
        self.local = True  # the log lies on a file system of this machine
        self.claimed_lsn = 0  # of the last order to take over: what another replica says it has applied
        self._missing = Missing()

    def ended(self, role: str, now: float) -> bool:
        """See `Missing.ended`."""
        return self._missing.ended(role, now, local=self.local)

    def role_said(self, role: str, *, led: bool) -> None:
        """See `Missing.role_said`."""
        self._missing.role_said(role, led=led)

    def waits_for_claim(self, role: str, lsn: int) -> bool:
        """Did a takeover end because another replica says that it has more? It is asked again with the next one."""
        return role == "taking-over" and self.claimed_lsn > lsn


def _how(life: WorkerLife) -> str:
    """Say how a worker ended."""
    status = life.exit_code or 0
    return f"by signal {-status}" if status < 0 else f"with status {status}"

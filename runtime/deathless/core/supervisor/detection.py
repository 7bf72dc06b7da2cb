"""The failure detector: when to try a takeover. Lives in the supervisors, which no handler can block.

Each supervisor tells every other one, each heartbeat and at once on a change, what its worker is (`Report`). A takeover
is tried (design 0003, "Detection") when

    REPORTED   the primary's own supervisor says that its worker is dead, stopped or stuck, or is no primary any more;
    UNPROVED   the primary's own supervisor says that its proof gets no answer from the lock store, which has answered
               our worker for a while without a miss; held back like the next;
    SILENT     nothing was heard for `suspect_after_s` from its supervisor AND its worker, and no other reachable
               replica has heard it meanwhile; held back by a minimum reign that doubles with each such steal, until
               a primary has reigned twice as long as it had to, and QUIET_REIGNS of the first minimum: two that steal
               from each other do so as soon as they may, and nodes that die one after the other are no quarrel;
    VACANT     nobody claims to be primary, and everybody known has reported or had time to: more of it where
               another replica hears one that we don't hear yet, for that one may lead.

Whom a primary handed over to goes first. Candidates take turns: standbys before the checkpointer (`WhenAlone`), those
far behind last, then by name; the k-th waits k * TURN_S. The lock decides between two that try at once; nothing here is
needed for safety (I2). What others claim of their log and epoch is believed as far as core.supervisor.claims says.

Does not: sockets, clocks. Imports base only.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

import msgspec

from deathless.base.backoff import pause_after
from deathless.base.limits import Limits
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.core.supervisor.claims import Claims

TURN_S = 0.15  # between two candidates' turns
AGAIN_S = 0.5  # an order that had no effect is given again after this
TRIES_MAX = 5  # the wait doubles with each order, this often
TAKING_MAX_S = 10.0  # another replica's takeover is waited for so long, while its supervisor calls it well
TAKING_CALLS = (
    40  # calls to the storage that wait for each other in a takeover, and some: one that is slow takes longer
)
SLOW_FACTOR = 4  # a call that takes so many times what the slowest took lately hangs
SLOW_MAX_S = 15.0  # a storage that is slower than this is told from a hung one no more
FAR_BEHIND = 100_000  # messages; a candidate so far behind the best lets the others go first
FORGET_S = 5.0  # a replica that was removed is remembered for so long
FOLLOWING_ROLES = frozenset({"standby", "checkpointer", "recovering"})
UNPROVED_S = 1.0  # a proof without an answer for so long is told to the others
LOCK_ANSWERS_S = 1.0  # the lock store has answered us for so long: it is not the store that is away
LIVE_CAUSES = ("silent", "unproved")  # the holder may be well, for all we know: steals for these back off
SILENT_S = 0.5  # a replica unheard for so long gets no new callers; longer than a takeover waits with a steal
QUIET_REIGNS = 6  # first minimums: a quarrel's steals come sooner, though each takes its time to be decided
VACANT_S = 0.3  # how long a start waits for the others to report
VACANT_MAX_S = 5.0  # the same for one that others hear
LATER_S = 10.0  # a later instance of a replica that was unheard for so long is not waited for any more
HEIR_S = 1.0  # whom a primary has handed over to is waited for so long, or as long as silence; it needs milliseconds
TAKING_SILENT_S = 0.6  # a replica that takes over is waited for although nothing was heard of it for so long


class WorkerState(enum.StrEnum):
    """What a supervisor sees of its worker."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPED = "stopped"  # by a signal, still there
    STUCK = "stuck"  # in one handler or one sync for longer than allowed
    DEAD = "dead"


class Report(msgspec.Struct, array_like=True):
    """What a supervisor tells the others; `heard` is milliseconds since it heard each other replica."""

    replica: str
    state: str
    role: str
    epoch: int
    lsn: int
    client: str = ""
    replication: str = ""
    control: str = ""
    ingress: str = ""
    heard: dict[str, int] = {}
    deaths: list[tuple[int, int, int]] = []
    condition: str = ""  # why the replica stays stopped: an error's code
    pid: int = 0
    worker_pid: int = 0
    full: bool = False
    problem: str = ""  # why the worker ended last, an error's code; it is started again
    divergences: list[str] = []  # what each differing start of the worker gave, the last ones
    instance: str = ""  # which of several that call themselves this replica; empty: there is one at a time
    generation: int = 0  # the later instance of a replica has the higher one
    unproved: bool = False  # a primary whose proof has had no answer from the lock store for UNPROVED_S
    successor: str = ""  # whom a primary that has ended handed over to
    outbox_full: bool = False  # of a primary: messages to peers have no room, so clients' calls are refused
    clock: str = ""  # of a primary whose wall clock logical time does not go with: ahead or behind
    slow_ms: int = 0  # what the slowest call of its worker to the storage took lately; 0: none took long


@dataclass(frozen=True, slots=True)
class Order:
    """Try a takeover from `epoch`; `confirmed_lsn` is the highest that any replica is known to have applied."""

    epoch: int
    reason: str
    confirmed_lsn: int = 0


@dataclass(frozen=True, slots=True)
class PrimaryClaim:
    """Who is primary, as far as is known."""

    epoch: int
    replica: str
    client: str
    replication: str


class Detector:
    """What one supervisor knows of the set.

    Args:
        replica: our name.
        promote_checkpointer: "Always" lets the checkpointer take its turn like a standby.
    """

    def __init__(
        self,
        *,
        replica: str,
        limits: Limits,
        promote_checkpointer: str = "WhenAlone",
        now: float,
        safeguards: Safeguards = ALL_SAFEGUARDS,
    ) -> None:
        self.replica = replica
        self.reports: dict[str, Report] = {}
        self.claims = Claims(replica, safeguards)
        self._adapts = safeguards.adapt_to_slow_storage
        self.primary: PrimaryClaim | None = None
        self._limits = limits
        self._always = promote_checkpointer == "Always"
        self._heard_at: dict[str, float] = {}
        self._members: set[str] = {replica}
        self._started_at = now
        self._since: float | None = None  # since when the present cause stands
        self._cause = ""  # its kind: reported, unproved, silent or vacant
        self._tried_at: float | None = None  # our last order
        self._tries = 0  # orders since a primary was last fine: a takeover under way must not be stolen at once
        self._reign_since = now  # when the present primary was first seen
        self._silent_steals = 0
        self._taking_since: float | None = None  # since when another replica takes over; None: nobody does

    def members_seen(self, members: set[str]) -> None:
        """Names of all replicas that have announced themselves."""
        self._members = members | {self.replica}

    def forget_removed(self, now: float) -> None:
        """Forget replicas that have taken their announcement back and say nothing any more."""
        claimed = self.primary.replica if self.primary is not None else ""
        for name in sorted(set(self.reports) - self._members - {claimed}):
            if now - self._heard_at[name] > FORGET_S:
                del self.reports[name], self._heard_at[name]
                self.claims.forget(name)

    def report_received(self, report: Report, now: float) -> bool:
        """Take another replica's report, or our own, in.

        Returns: False for one of a former instance of a replica whose later one is heard: it is dropped, for what it
        says of the replica is not so any more.
        """
        known = self.reports.get(report.replica)
        if known is not None and report.generation < known.generation and self._stands_before(known, report, now):
            return False
        self.reports[report.replica] = report
        self._heard_at[report.replica] = now
        # What followers have applied is confirmed, whatever becomes of them; a primary's own lsn need not be (I1).
        applied = report.lsn if report.role in FOLLOWING_ROLES else None
        works = report.state != WorkerState.DEAD and report.role != "starting"
        self.claims.heard(report.replica, (report.pid, report.generation), applied, now, works=works)
        self._weigh(report, now)
        return True

    def _stands_before(self, later: Report, former: Report, now: float) -> bool:
        """Does the later instance count? It must be heard, and the former not be a primary of a later epoch."""
        if now - self._heard_at[later.replica] > LATER_S:
            return False
        leads = former.role == "primary" and former.epoch > later.epoch and self.claims.lock_epoch is not None
        return not (leads and self.claims.believed(former.replica, former.epoch, now, leads=True))

    def _weigh(self, report: Report, now: float) -> None:
        """Does a report say who leads, and is that so?"""
        leads = report.role == "primary" and report.state in (WorkerState.RUNNING, WorkerState.STUCK)
        if not self.claims.believed(report.replica, report.epoch, now, leads=leads) or not leads:
            return
        claim = PrimaryClaim(report.epoch, report.replica, report.client, report.replication)
        if self.primary is None or claim.epoch > self.primary.epoch:
            self._reign_since = now
        if self.primary is None or claim.epoch >= self.primary.epoch:
            self.primary = claim

    def lock_answered(self, epoch: int, holder: str, now: float) -> None:
        """Our worker has asked the lock, because `claims.question_due` said so: which epoch it gave last, and to whom.

        Whoever was believed meanwhile and was given no such epoch is no primary; the reports that stand say who is.
        """
        self.claims.lock_answered(epoch, holder)
        claim = self.primary
        if claim is not None and not self.claims.believed(claim.replica, claim.epoch, now, leads=True):
            self.primary = None
        for report in list(self.reports.values()):
            self._weigh(report, now)

    def heard_ms(self, now: float) -> dict[str, int]:
        """Milliseconds since each other replica was heard, for our own report."""
        return {name: int((now - at) * 1000) for name, at in self._heard_at.items() if name != self.replica}

    def decide(self, now: float, upstream_age_s: float, lock_answers_s: float = 0.0) -> Order | None:
        """Say whether our worker should try a takeover now.

        Args:
            now: monotonic seconds.
            upstream_age_s: seconds since our worker last heard the primary's worker; infinite without a stream.
            lock_answers_s: seconds for which the lock store has answered our worker without a miss; 0: not asked.
        """
        own = self.reports.get(self.replica)
        if own is None or own.role not in ("standby", "checkpointer") or own.state != WorkerState.RUNNING:
            self._since = self._taking_since = None
            return None
        for report in list(self.reports.values()):  # a claim is believed in the moment in which its doubt ends
            self._weigh(report, now)
        cause = self._find_cause(now, upstream_age_s, lock_answers_s)
        if not cause:
            self._cause, self._since, self._tries = "", None, 0
            self._taking_since = None  # what was waited for is over: the next takeover has its own time
            return None
        kind = cause.partition(":")[0]
        if kind != self._cause:
            self._cause, self._since, self._tries = kind, now, 0
        elif self._since is None:  # an attempt of ours came to nothing
            self._since = now
        if self._someone_takes_over(now) or self._heir_is_due(now - self._since, now) or self.claims.doubted(now):
            return None
        if now - self._since < self._turn(now) * TURN_S:
            return None
        if self._tried_at is not None and self._tries:
            again_s = pause_after(self._tries - 1, first_s=AGAIN_S, most_s=math.inf)
            if now - self._tried_at < again_s:
                return None
        if kind in LIVE_CAUSES:
            reigned = now - self._reign_since
            reign = pause_after(self._silent_steals, first_s=self._limits.reign_min_s, most_s=self._limits.reign_max_s)
            if reigned >= max(QUIET_REIGNS * self._limits.reign_min_s, 2 * reign):
                self._silent_steals = 0  # it has served well for long: an old quarrel is no reason to wait
            elif reigned < reign:
                return None
            self._silent_steals = min(self._silent_steals + 1, 16)
        self._tried_at = now
        self._tries = min(self._tries + 1, TRIES_MAX)
        return Order(self._suspected_epoch(now), cause, self.claims.confirmed(now))

    def _suspected_epoch(self, now: float) -> int:
        """The epoch to take over from: the highest that any worker met; its holder may have died before it served."""
        known = self.primary.epoch if self.primary is not None else 0
        met = (each.epoch for each in self.reports.values() if self.claims.believed(each.replica, each.epoch, now))
        return max([known, *met])

    def led(self, now: float) -> bool:
        """Is another replica primary, by its own word and heard of just now?"""
        claim = self.primary
        if claim is None or claim.replica == self.replica:
            return False
        report, heard_s = self.reports[claim.replica], now - self._heard_at[claim.replica]
        leads = report.role == "primary" and report.state == WorkerState.RUNNING and report.epoch >= claim.epoch
        return leads and heard_s <= self._limits.suspect_after_s

    def unproved(self, now: float) -> bool:
        """Does another replica lead, and say that its proof gets no answer? Our worker is to ask the lock then."""
        return self.primary is not None and self.led(now) and self.reports[self.primary.replica].unproved

    def silent(self, now: float, proved_s: float) -> dict[str, str]:
        """Instances, by replica, to which new callers should not be sent any more; only a primary knows of any.

        A primary that is itself cut off hears nobody either. It may say so of the others only if its epoch was proved
        when they had been silent for SILENT_S already: by then they would have stolen it.

        Args:
            now: monotonic seconds.
            proved_s: seconds since the last proof of our worker's epoch was answered; infinite: none was.
        """
        own = self.reports.get(self.replica)
        if own is None or own.role != "primary" or own.state != WorkerState.RUNNING:
            return {}
        proved_at = now - proved_s
        silent = (name for name, at in sorted(self._heard_at.items()) if proved_at - at >= SILENT_S)
        return {name: self.reports[name].instance for name in silent if self.reports[name].instance}

    def _find_cause(self, now: float, upstream_age_s: float, lock_answers_s: float) -> str:
        claim = self.primary
        if claim is None:
            return "vacant: no primary" if self._is_vacant(now) else ""
        if claim.replica == self.replica:
            return f"reported: epoch {claim.epoch} was ours and its worker ended"
        report = self.reports[claim.replica]
        heard = now - self._heard_at[claim.replica]
        if report.epoch >= claim.epoch and report.state in (WorkerState.DEAD, WorkerState.STOPPED, WorkerState.STUCK):
            return f"reported: worker of {claim.replica} is {report.state}"
        if report.role != "primary" and report.state != WorkerState.RUNNING:
            return f"reported: worker of {claim.replica} is {report.state}"
        if report.role in ("standby", "checkpointer", "recovering"):
            return f"reported: {claim.replica} is {report.role} now"
        if self.unproved(now) and lock_answers_s >= LOCK_ANSWERS_S:
            return f"unproved: {claim.replica} gets no answer from the lock store"
        if min(heard, upstream_age_s) <= self._limits.suspect_after_s:
            return ""
        for name, other in self.reports.items():
            fresh = now - self._heard_at[name] <= self._limits.suspect_after_s
            contradicts = other.heard.get(claim.replica, 1 << 30) <= self._limits.suspect_after_s * 1000
            if name not in (self.replica, claim.replica) and fresh and contradicts:
                return ""
        return f"silent: {claim.replica} unheard for {heard:.1f} s"

    def _is_vacant(self, now: float) -> bool:
        """Everybody known has reported or had time to, and our last try had time to show."""
        if self._tried_at is not None and now - self._tried_at < AGAIN_S:
            return False
        missing = self._members - set(self.reports)
        near = self._limits.suspect_after_s * 1000
        heard = any(report.heard.get(name, 1 << 30) <= near for report in self.reports.values() for name in missing)
        return not missing or now - self._started_at >= (VACANT_MAX_S if heard else VACANT_S)

    def _someone_takes_over(self, now: float) -> bool:
        """Another replica is on the way, and well: to steal from it would only cost time."""
        taking = any(
            report.role == "taking-over"
            and report.state == WorkerState.RUNNING
            and report.replica != self.replica
            and now - self._heard_at[report.replica] <= max(TAKING_SILENT_S, self._limits.suspect_after_s)
            for report in self.reports.values()
        )
        if not taking:
            self._taking_since = None
            return False
        if self._taking_since is None:
            self._taking_since = now
        return now - self._taking_since <= max(TAKING_MAX_S, TAKING_CALLS * self._slow_s(now))

    def _slow_s(self, now: float) -> float:
        """What a call to the storage takes lately, by the slowest replica that is heard."""
        fresh = (each.slow_ms for each in self.reports.values() if now - self._heard_at[each.replica] <= FORGET_S)
        return min(max(fresh, default=0) / 1000, SLOW_MAX_S) if self._adapts else 0.0

    def call_max_s(self, now: float) -> float:
        """What a call of our worker to the storage may take before it counts as hung.

        A storage that is slow for everybody is no reason to depose anybody: the successor would be as slow. Who takes
        over has not led yet, and learns with its first calls how slow the storage is.
        """
        own = self.reports.get(self.replica)
        taking = own is not None and own.role == "taking-over" and self._adapts
        return max(self._limits.log_call_max_s, SLOW_FACTOR * self._slow_s(now), TAKING_MAX_S if taking else 0.0)

    def _heir_is_due(self, waited_s: float, now: float) -> bool:
        """The primary has handed over to another replica, which is well and has had no time to say that it begins."""
        ended = self.reports.get(self.primary.replica) if self.primary is not None else None
        heir = self.reports.get(ended.successor) if ended is not None else None
        return (
            heir is not None
            and heir.replica != self.replica
            and heir.state == WorkerState.RUNNING
            and now - self._heard_at[heir.replica] <= max(TAKING_SILENT_S, self._limits.suspect_after_s)
            and waited_s <= max(HEIR_S, self._limits.suspect_after_s)
        )

    def _turn(self, now: float) -> int:
        """How many candidates go before us."""
        candidates = [
            r
            for r in self.reports.values()
            if r.role in ("standby", "checkpointer")
            and r.state == WorkerState.RUNNING
            and (r.replica == self.replica or now - self._heard_at[r.replica] <= self._limits.suspect_after_s)
        ]
        # Reports are a heartbeat old and our own is not: only a clear lag counts, or each would see itself first.
        best = max((r.lsn for r in candidates), default=0)
        candidates.sort(
            key=lambda r: (r.role == "checkpointer" and not self._always, r.lsn < best - FAR_BEHIND, r.replica)
        )
        return next((i for i, r in enumerate(candidates) if r.replica == self.replica), 0)

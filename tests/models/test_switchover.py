"""Switchover: a planned hand-over is a takeover with good manners, and safe without the manners.

design 0003, "Detection": stop admitting, closing frame confirmed, target applied to it, hand it the lock, takeover
steps,
forward the waiting calls. The old primary follows that order; the target follows its stream of confirmed frames; a
third replica may steal the lock at any moment; the old primary may crash or freeze at any moment. The steps of the
takeover itself are one step here (they have a model of their own): read the log of ``head``, then become head if
the lock is still held. Calls carry their (session, seq); clients send again until they are answered.

What must hold: a primary that serves has everything ever released in its view; no call runs twice; a call that was
reported failed never runs; and all calls can always still be answered.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

import pytest

from deathless.simulation.models.explorer import explore, find

CALLS = ("call a", "call b")
CLOSING = "closing frame"
LOST = "a released frame is not in the log of a primary that serves"
TWICE = "a call runs twice"
FAILED_BUT_RAN = "a call that was reported failed is in the log"
GOAL_LOST = "the goal can no longer be reached"
Log = tuple[str, ...]


class Who(StrEnum):
    """The three replicas."""

    OLD = "old primary"
    TARGET = "target"
    THIEF = "thief"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The defaults are the design; each field switches one part of it off."""

    stops_admitting: bool = True
    # Hand the lock over only when the closing frame is confirmed and the target has applied it.
    waits_for_target: bool = True
    # Hand over in a transaction that compares the lock.
    guarded: bool = True
    # The target takes the steps of a takeover; otherwise it serves what it was streamed.
    target_reads: bool = True
    forwards: bool = True
    clients_retry: bool = True
    deduplicates: bool = True
    # A primary that finds itself deposed tells the callers of unanswered calls that they failed.
    deposed_reports_failure: bool = False


class Phase(StrEnum):
    """What a replica does next."""

    FOLLOW = "follows"
    READ = "reads the log"
    BECOME_HEAD = "becomes head"
    SERVE = "serves"
    PROVE = "proves and releases"
    # The old primary alone: its closing frame is confirmed.
    CLOSED = "hands over"
    ENDED = "has ended"


class Replica(NamedTuple):
    """One replica; ``log`` is what it read and wrote, which is also what a reader of its epoch finds."""

    phase: Phase
    log: Log = ()


class State(NamedTuple):
    """Replicas in the order of ``Who``, the lock store, the clients."""

    old: Replica = Replica(Phase.SERVE)
    target: Replica = Replica(Phase.FOLLOW)
    thief: Replica = Replica(Phase.FOLLOW)
    holder: Who = Who.OLD
    head: Who = Who.OLD
    # Frames of the old primary that the target has applied.
    applied: int = 0
    # Calls at the old primary, not in a frame; calls on their way from it to the target.
    waiting: frozenset[str] = frozenset(CALLS)
    forwarded: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()
    released: Log = ()
    fault: str = ""

    def get(self, who: Who) -> Replica:
        return {Who.OLD: self.old, Who.TARGET: self.target, Who.THIEF: self.thief}[who]

    def put(self, who: Who, replica: Replica) -> "State":
        match who:
            case Who.OLD:
                return self._replace(old=replica)
            case Who.TARGET:
                return self._replace(target=replica)
            case Who.THIEF:
                return self._replace(thief=replica)


def answered(state: State) -> bool:
    """Every client has its answer."""
    return state.failed.union(state.released) >= set(CALLS)


@dataclass(frozen=True, slots=True)
class Switchover:
    """One switchover, one thief."""

    rules: Rules

    def initial(self) -> State:
        return State()

    def fault(self, state: State) -> str:
        if state.fault:
            return state.fault
        log = state.get(state.head).log
        if len(set(log)) != len(log):
            return TWICE
        if log[: len(state.released)] != state.released:
            return LOST
        return FAILED_BUT_RAN if state.head is not Who.OLD and state.failed.intersection(log) else ""

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        for label, after in self.act_old(state):
            yield f"old primary {label}", after
        if state.thief.phase is Phase.FOLLOW:
            yield "thief steals the lock", state._replace(holder=Who.THIEF).put(Who.THIEF, Replica(Phase.READ))
        confirmed = len(state.released)
        if state.target.phase is Phase.FOLLOW and state.applied < confirmed and state.head is Who.OLD:
            yield f"target applies up to {confirmed}", state._replace(applied=confirmed)
        for who in (Who.TARGET, Who.THIEF):
            for label, after in self.succeed(state, who, state.get(who)):
                yield f"{who} {label}", after

    # ---- the old primary

    def act_old(self, state: State) -> Iterator[tuple[str, State]]:
        old = state.old
        if old.phase is not Phase.ENDED:
            yield "crashes", state.put(Who.OLD, old._replace(phase=Phase.ENDED))._replace(waiting=frozenset())
        match old.phase:
            case Phase.SERVE:
                yield from self.admit(state)
                if CLOSING not in old.log:
                    closing = Replica(Phase.PROVE, (*old.log, CLOSING))
                    yield "appends the closing frame", state.put(Who.OLD, closing)
                if not self.rules.waits_for_target:
                    yield from self.hand_over(state)
            case Phase.PROVE:
                yield self.prove(state, Who.OLD, Phase.CLOSED if CLOSING in old.log else Phase.SERVE)
            case Phase.CLOSED:
                if not self.rules.stops_admitting:
                    yield from self.admit(state)
                if state.applied > old.log.index(CLOSING):
                    yield from self.hand_over(state)
            case _:
                return

    def admit(self, state: State) -> Iterator[tuple[str, State]]:
        for call in sorted(state.waiting):
            admitted = Replica(Phase.PROVE, (*state.old.log, call))
            after = state._replace(waiting=state.waiting - {call}).put(Who.OLD, admitted)
            yield f"appends {call}", after

    def hand_over(self, state: State) -> Iterator[tuple[str, State]]:
        if self.rules.guarded and state.holder is not Who.OLD:
            yield self.depose(state, Who.OLD)
            return
        log = state.old.log[: state.applied]
        target = Replica(Phase.READ if self.rules.target_reads else Phase.BECOME_HEAD, log)
        handed = state.put(Who.OLD, state.old._replace(phase=Phase.ENDED)).put(Who.TARGET, target)
        forwarded = state.waiting if self.rules.forwards else frozenset()
        yield "hands over the lock", handed._replace(holder=Who.TARGET, waiting=frozenset(), forwarded=forwarded)

    # ---- any primary

    def prove(self, state: State, who: Who, after: Phase) -> tuple[str, State]:
        if state.holder is not who:
            return self.depose(state, who)
        log = state.get(who).log
        released = state.put(who, Replica(after, log))._replace(released=log)
        lost = log[: len(state.released)] != state.released
        return "proves and releases", released._replace(fault=LOST if lost else "")

    def depose(self, state: State, who: Who) -> tuple[str, State]:
        log = state.get(who).log
        after = state.put(who, Replica(Phase.ENDED, log))
        if self.rules.deposed_reports_failure:
            after = after._replace(failed=state.failed | (set(log) - set(state.released) - {CLOSING}))
        return "finds itself deposed", after

    # ---- target and thief

    def succeed(self, state: State, who: Who, replica: Replica) -> Iterator[tuple[str, State]]:
        match replica.phase:
            case Phase.READ:
                log = state.get(state.head).log
                yield f"reads {len(log)} frames", state.put(who, Replica(Phase.BECOME_HEAD, log))
            case Phase.BECOME_HEAD:
                if state.holder is who:
                    yield "becomes head", state.put(who, replica._replace(phase=Phase.SERVE))._replace(head=who)
                else:
                    yield self.depose(state, who)
            case Phase.SERVE:
                for call in self.arriving(state, who):
                    if self.rules.deduplicates and call in replica.log:
                        continue
                    appended = state.put(who, Replica(Phase.PROVE, (*replica.log, call)))
                    yield f"appends {call}", appended._replace(forwarded=state.forwarded - {call})
                if len(replica.log) > len(state.released):
                    yield self.prove(state, who, Phase.SERVE)
            case Phase.PROVE:
                yield self.prove(state, who, Phase.SERVE)
            case _:
                return

    def arriving(self, state: State, who: Who) -> list[str]:
        """Return the calls that may reach a successor now."""
        sent = set(state.forwarded) if who is Who.TARGET else set()
        if self.rules.clients_retry:
            sent.update(call for call in CALLS if call not in state.failed and call not in state.released)
        return sorted(sent)


DESIGN = Rules()
TRUSTING = Rules(target_reads=False)


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param(DESIGN, id="as designed"),
        pytest.param(replace(DESIGN, waits_for_target=False), id="not waiting for the target costs time alone"),
        pytest.param(replace(DESIGN, stops_admitting=False), id="going on to admit costs time alone"),
        pytest.param(replace(DESIGN, forwards=False), id="not forwarding costs time alone"),
        pytest.param(TRUSTING, id="target that trusts the stream, all else as designed"),
    ],
)
def test_switchover_loses_and_doubles_nothing_and_every_call_is_answered(rules: Rules) -> None:
    verdict = explore(Switchover(rules), goal=answered)
    assert verdict.holds, str(verdict)


def test_model_reaches_a_switchover_that_forwards_and_one_that_a_thief_ends() -> None:
    model = Switchover(DESIGN)
    assert find(model, lambda state: state.head is Who.TARGET and bool(state.forwarded)) is not None
    assert find(model, lambda state: state.head is Who.THIEF and state.target.phase is Phase.ENDED) is not None
    assert find(model, lambda state: state.released == ("call a", CLOSING, "call b")) is not None


@pytest.mark.parametrize(
    ("reason", "rules"),
    [
        pytest.param(LOST, replace(TRUSTING, stops_admitting=False), id="target trusts the stream, admitting goes on"),
        pytest.param(LOST, replace(TRUSTING, waits_for_target=False), id="target trusts the stream, nobody waits"),
        pytest.param(LOST, replace(TRUSTING, guarded=False), id="target trusts the stream, lock handed over unguarded"),
        pytest.param(TWICE, replace(DESIGN, deduplicates=False), id="calls sent again are not deduplicated"),
        pytest.param(
            FAILED_BUT_RAN, replace(DESIGN, deposed_reports_failure=True), id="the deposed reports its calls as failed"
        ),
        pytest.param(GOAL_LOST, replace(DESIGN, clients_retry=False), id="clients rely on forwarding"),
    ],
)
def test_switchover_without_one_of_its_parts_breaks(reason: str, rules: Rules) -> None:
    verdict = explore(Switchover(rules), goal=answered)
    assert not verdict.holds
    assert verdict.reason == reason, str(verdict)
    assert verdict.trace

"""A log, a witness of what is confirmed outside it, and storage that is put back to an older moment.

docs/design/0013-witness.md. One primary at a time appends and confirms frames, tells clients, and now and then writes
the witness: (incarnation, lsn, the frame there). It is killed, stops in order, or its whole machine is put back while
it runs. While it is down the log may be put back to a copy that was taken before. A start compares; a person may give
up what is missing, which begins another incarnation. A write of the witness may be on its way when its writer dies, and
arrive at any later moment.

What must hold: nobody starts to serve without a frame that the witness was told of, nor, after an orderly stop, without
any frame that a client was told of; and nobody is refused where nothing was put back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import pytest

from deathless.simulation.models.explorer import explore

FRAMES = 3
INCARNATIONS = 3
SILENT = "served without a frame that the witness had been told of"
AFTER_STOP = "served without a frame that a client was told of, after an orderly stop"
NEEDLESS = "refused although nothing was put back"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The defaults are the design; each field switches one part of it off."""

    checked: bool = True
    has_chain: bool = True
    of_confirmed: bool = True
    has_incarnation: bool = True
    at_stop: bool = True
    adopt_draws_incarnation: bool = True
    refuses_unknown_incarnation: bool = True
    guarded_by_lock: bool = True
    guarded_by_own_revision: bool = True


class Witness(NamedTuple):
    """What stands in the store."""

    incarnation: int = 1
    lsn: int = 0
    tip: int = 0  # the frame at the lsn


class Copy(NamedTuple):
    """The log, and what lies beside it, at one moment; of a machine also its memory."""

    log: tuple[int, ...]
    incarnation: int
    former: frozenset[int]
    known: Witness


class State(NamedTuple):
    """Everything."""

    log: tuple[int, ...] = ()  # frames by their number; each number is written once
    confirmed: int = 0
    told: frozenset[int] = frozenset()  # frames that clients were told of and that nobody gave up
    witness: Witness = Witness()
    known: Witness = Witness()  # what the primary wrote or read there last
    covered: frozenset[int] = frozenset()  # frames at or below a witness that was written
    late: Witness | None = None  # a write on its way
    copy: Copy | None = None
    incarnation: int = 1
    former: frozenset[int] = frozenset()
    drawn: int = 1
    live: bool = True
    stopped: bool = False  # in order
    put_back: bool = False  # since the last start
    next_frame: int = 1
    broken: str = ""


class Rollback:
    """The model; see the module."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    def initial(self) -> State:
        return State()

    def fault(self, state: State) -> str:
        return state.broken

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        if state.broken:
            return
        yield from self._live(state) if state.live else self._down(state)
        if state.late is not None:
            gone = state._replace(late=None)
            if not self._rules.guarded_by_lock:
                yield "a late write of the witness arrives", gone._replace(witness=state.late)
            yield "a late write of the witness is refused", gone

    def _live(self, state: State) -> Iterator[tuple[str, State]]:
        rules = self._rules
        if state.next_frame <= FRAMES:
            log = (*state.log, state.next_frame)
            yield "a frame is synced", state._replace(log=log, next_frame=state.next_frame + 1)
        if state.confirmed < len(state.log):
            told = state.told | frozenset(state.log)
            yield "it is confirmed and told", state._replace(confirmed=len(state.log), told=told)
        new = self._point(state, state.confirmed if rules.of_confirmed else len(state.log))
        if new != state.witness:
            if state.known == state.witness or not rules.guarded_by_own_revision:
                yield "the witness is written", self._written(state, new)
            else:
                yield "the witness is another's: it stops", state._replace(live=False, put_back=True)
            if state.late is None:
                yield "a write of the witness is sent", state._replace(late=new)
        yield "kill; what was not confirmed is lost", state._replace(live=False, log=state.log[: state.confirmed])
        yield "kill; what was not confirmed stays", state._replace(live=False)
        told = state.told | frozenset(state.log)
        end = state._replace(live=False, stopped=True, confirmed=len(state.log), told=told)
        last = self._point(end, end.confirmed)
        if not rules.at_stop:
            yield "orderly stop", end
        elif state.known == state.witness or not rules.guarded_by_own_revision:
            yield "orderly stop", self._written(end, last)
        if state.copy is None:
            yield "a copy is taken", state._replace(copy=Copy(state.log, state.incarnation, state.former, state.known))
        elif state.copy.incarnation == state.incarnation and state.copy.log != state.log:
            kept = state.copy
            # What no witness was told of since the copy is gone unseen: the window that guarantees.md states.
            yield (
                "the machine is put back while it runs",
                state._replace(
                    log=kept.log,
                    confirmed=min(state.confirmed, len(kept.log)),
                    known=kept.known,
                    told=state.told & (frozenset(kept.log) | state.covered),
                    put_back=True,
                ),
            )

    def _down(self, state: State) -> Iterator[tuple[str, State]]:
        kept = state.copy
        if kept is not None and (kept.log, kept.incarnation) != (state.log, state.incarnation):
            yield (
                "the log is put back",
                state._replace(log=kept.log, incarnation=kept.incarnation, former=kept.former, put_back=True),
            )
        if self._refuses(state):
            if not state.put_back:
                yield "a start is refused", state._replace(broken=NEEDLESS)
            if state.drawn < INCARNATIONS:
                yield "a person gives up what is missing", self._adopted(state)
            return
        lost = state.told - frozenset(state.log)
        broken = SILENT if lost & state.covered else AFTER_STOP if lost and state.stopped else ""
        yield (
            "a start serves",
            state._replace(
                live=True,
                stopped=False,
                put_back=False,
                confirmed=len(state.log),
                told=state.told - lost,
                covered=state.covered - lost,
                known=state.witness,
                broken=broken,
            ),
        )

    def _refuses(self, state: State) -> bool:
        rules, (incarnation, lsn, tip) = self._rules, state.witness
        if not rules.checked:
            return False
        other = incarnation != state.incarnation
        if other and rules.has_incarnation:
            return incarnation not in state.former and rules.refuses_unknown_incarnation
        return len(state.log) < lsn or (rules.has_chain and lsn > 0 and state.log[lsn - 1] != tip)

    def _adopted(self, state: State) -> State:
        drawn = state.drawn + 1
        after = state._replace(
            drawn=drawn,
            told=frozenset(),
            confirmed=len(state.log),
            live=True,
            stopped=False,
            put_back=False,
            covered=frozenset(state.log),
            known=state.witness,
        )
        if not self._rules.adopt_draws_incarnation:
            return after
        after = after._replace(incarnation=drawn, former=state.former | {state.incarnation, state.witness.incarnation})
        if not self._rules.has_incarnation:
            return after
        return self._written(after, self._point(after, len(after.log)))

    def _point(self, state: State, lsn: int) -> Witness:
        return Witness(state.incarnation, lsn, state.log[lsn - 1] if lsn else 0)

    def _written(self, state: State, new: Witness) -> State:
        covered = state.covered | frozenset(state.log[: new.lsn])
        return state._replace(witness=new, known=new, covered=covered)


def test_nothing_the_witness_was_told_of_is_lost_in_silence_and_nobody_is_refused_needlessly() -> None:
    verdict = explore(Rollback(Rules()))
    assert verdict.holds, verdict
    assert verdict.states > 1000


@pytest.mark.parametrize(
    ("rule", "fault"),
    [
        ("checked", SILENT),
        ("has_chain", SILENT),
        ("of_confirmed", NEEDLESS),
        ("has_incarnation", NEEDLESS),
        ("at_stop", AFTER_STOP),
        ("adopt_draws_incarnation", NEEDLESS),
        ("refuses_unknown_incarnation", SILENT),
        ("guarded_by_lock", SILENT),
        ("guarded_by_own_revision", SILENT),
    ],
)
def test_each_rule_matters(rule: str, fault: str) -> None:
    verdict = explore(Rollback(replace(Rules(), **{rule: False})))
    assert not verdict.holds, f"without {rule} nothing is lost"
    assert fault in str(verdict), verdict

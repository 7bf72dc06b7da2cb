"""A proof covers what was synced before it began, and answers queries that arrived before it began.

I1 and design 0003, "Proofs". The proof is one linearizable read of the lock; it begins, is decided at some moment, and
its answer comes back later. Meanwhile the primary writes and syncs the next frame: that overlap is allowed, so it
matters what an answer is good for. A successor takes the lock, reads what is synced, and serves; a client that has
seen the successor's work then asks the old primary.

What must hold: once the successor serves, everything released is in what it read; a query is never answered from a
state older than what its client has already seen.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import pytest

from deathless.simulation.models.explorer import explore, find

FRAMES = 3
NOT_READ = -1
LOST = "a released frame is missing from what the successor read"
STALE = "a query is answered from a state older than what its client has seen"


class Covers(StrEnum):
    """Which frames the answer of a proof releases."""

    SYNCED_WHEN_IT_BEGAN = "frames synced when the proof began"
    SYNCED_WHEN_IT_ENDED = "frames synced when the answer came"
    WRITTEN_WHEN_IT_BEGAN = "frames written when the proof began"


class Query(StrEnum):
    """Where the one query of the client is."""

    NOT_ASKED = "not asked"
    # Asked, and no proof has begun since.
    ARRIVED = "arrived"
    # A proof has begun since it arrived.
    WAITING = "waiting"
    ANSWERED = "answered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The defaults are the design."""

    covers: Covers = Covers.SYNCED_WHEN_IT_BEGAN
    query_needs_later_proof: bool = True


class Proof(NamedTuple):
    """One proof under way."""

    # Frames that it releases if they count from its beginning.
    covers: int
    # Decided by the lock store, the answer on its way; None: not yet.
    answer: bool | None = None


class State(NamedTuple):
    """The old primary with its one file, the successor, and a client."""

    written: int = 0
    synced: int = 0
    released: int = 0
    proof: Proof | None = None
    ended: bool = False
    locked: bool = False
    view: int = NOT_READ
    # The client has seen an effect of the successor.
    client_saw_successor: bool = False
    query: Query = Query.NOT_ASKED
    # Set when the client asks: what it knows then.
    asked_knowing: bool = False


@dataclass(frozen=True, slots=True)
class Overlap:
    """A primary whose proofs overlap its writes, against one successor."""

    rules: Rules

    def initial(self) -> State:
        return State()

    def fault(self, state: State) -> str:
        if state.view != NOT_READ and state.released > state.view:
            return LOST
        return STALE if state.query is Query.ANSWERED and state.asked_knowing else ""

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        if not state.ended:
            for label, after in (*self.write(state), *self.prove(state)):
                yield f"primary {label}", after
        if not state.locked:
            yield "successor takes the lock", state._replace(locked=True)
        elif state.view == NOT_READ:
            yield f"successor reads {state.synced} and serves", state._replace(view=state.synced)
        elif not state.client_saw_successor:
            yield "client sees an effect of the successor", state._replace(client_saw_successor=True)
        if state.query is Query.NOT_ASKED:
            asked = state._replace(query=Query.ARRIVED, asked_knowing=state.client_saw_successor)
            yield "client asks the old primary", asked

    def write(self, state: State) -> Iterator[tuple[str, State]]:
        if state.written > state.synced:
            yield "syncs", state._replace(synced=state.written)
        elif state.written < FRAMES:
            yield "appends", state._replace(written=state.written + 1)

    def prove(self, state: State) -> Iterator[tuple[str, State]]:
        proof = state.proof
        if proof is None:
            at_start = state.written if self.rules.covers is Covers.WRITTEN_WHEN_IT_BEGAN else state.synced
            if at_start > state.released or state.query is Query.ARRIVED:
                query = Query.WAITING if state.query is Query.ARRIVED else state.query
                yield "begins a proof", state._replace(proof=Proof(at_start), query=query)
        elif proof.answer is None:
            yield "has its proof decided", state._replace(proof=proof._replace(answer=not state.locked))
        elif not proof.answer:
            yield "finds itself deposed", state._replace(ended=True, proof=None)
        else:
            at_end = self.rules.covers is Covers.SYNCED_WHEN_IT_ENDED
            released = max(state.synced if at_end else proof.covers, state.released)
            yield f"releases {released}", self.answer(state._replace(proof=None, released=released))

    def answer(self, state: State) -> State:
        """Answer the query, if this proof is good for it."""
        waits = state.query is Query.WAITING
        early = state.query is Query.ARRIVED and not self.rules.query_needs_later_proof
        return state._replace(query=Query.ANSWERED) if waits or early else state


def test_proof_that_covers_what_was_synced_when_it_began_loses_nothing() -> None:
    model = Overlap(Rules())
    verdict = explore(model)
    assert verdict.holds, str(verdict)
    # The overlap is real: a proof under way covers less than what is synced by now, and release goes on.
    assert find(model, lambda state: state.proof is not None and state.proof.covers < state.synced) is not None
    assert find(model, lambda state: state.released == FRAMES and state.query is Query.ANSWERED) is not None
    assert find(model, lambda state: state.ended and state.query is Query.WAITING) is not None


@pytest.mark.parametrize("covers", [Covers.SYNCED_WHEN_IT_ENDED, Covers.WRITTEN_WHEN_IT_BEGAN])
def test_proof_that_is_taken_to_cover_later_syncs_loses_a_released_frame(covers: Covers) -> None:
    verdict = explore(Overlap(Rules(covers=covers)))
    assert not verdict.holds
    assert verdict.reason == LOST
    assert verdict.trace.index("primary begins a proof") < verdict.trace.index("successor takes the lock")


def test_query_answered_by_a_proof_begun_before_it_arrived_is_stale() -> None:
    verdict = explore(Overlap(Rules(query_needs_later_proof=False)))
    assert not verdict.holds
    assert verdict.reason == STALE
    assert verdict.trace.index("primary begins a proof") < verdict.trace.index("client asks the old primary")

"""A log of slots in an object store: release the confirmed prefix only, and one fence is enough.

Each record has one slot; a create succeeds only where the slot is absent, and is durable when it does. The old
writer has a window of creates in flight, which the store carries out in any order. The successor reads to the first
absent slot and puts a fence there; a record it finds there instead is applied, and it tries the next slot. A
writer that finds its slot taken is deposed and ends.

What must hold: once the successor serves, everything ever released is in its view.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import pytest

from deathless.simulation.models.explorer import explore, find

RECORDS = 4
LOST = "a released record is not in the successor's view"


class Slot(StrEnum):
    """What a slot holds."""

    ABSENT = "absent"
    RECORD = "record"
    FENCE = "fence"


class Release(StrEnum):
    """Which records the writer releases."""

    ITS_OWN_SUCCESS = "each record whose own create succeeded"
    PREFIX = "each record whose whole prefix is confirmed"


class Strays(StrEnum):
    """What readers make of a record of the old epoch behind a fence."""

    VOID = "void"
    KEPT = "kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """One way to use the slots. ``fences`` must stand in a row before the successor serves."""

    in_flight: int
    release: Release = Release.PREFIX
    fences: int = 1
    strays: Strays = Strays.VOID


class State(NamedTuple):
    """The store, the writer's window, the successor's place."""

    slots: tuple[Slot, ...]
    # Records are created in order of their slots; those below have been asked for.
    asked: int = 0
    # Asked for, not yet carried out by the store.
    travelling: frozenset[int] = frozenset()
    # Created, and the writer knows it.
    confirmed: frozenset[int] = frozenset()
    writer_ended: bool = False
    cursor: int = 0
    fences: int = 0


@dataclass(frozen=True, slots=True)
class SlotLog:
    """One old writer against one successor."""

    rules: Rules

    def initial(self) -> State:
        return State((Slot.ABSENT,) * (RECORDS + self.rules.fences))

    def serves(self, state: State) -> bool:
        return state.fences == self.rules.fences

    def released(self, state: State) -> set[int]:
        """Return what the world may have seen. A late release only makes it less."""
        if self.rules.release is Release.ITS_OWN_SUCCESS:
            return set(state.confirmed)
        return {record for record in state.confirmed if state.confirmed.issuperset(range(record))}

    def view(self, state: State) -> set[int]:
        records = {index for index, slot in enumerate(state.slots) if slot is Slot.RECORD}
        if self.rules.strays is Strays.KEPT or Slot.FENCE not in state.slots:
            return records
        return {record for record in records if record < state.slots.index(Slot.FENCE)}

    def fault(self, state: State) -> str:
        return LOST if self.serves(state) and not self.released(state) <= self.view(state) else ""

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        if not state.writer_ended:
            yield from self.write(state)
        if not self.serves(state):
            yield self.fence(state)

    def write(self, state: State) -> Iterator[tuple[str, State]]:
        if state.asked < RECORDS and state.asked - len(state.confirmed) < self.rules.in_flight:
            travelling = state.travelling | {state.asked}
            yield f"writer asks for {state.asked}", state._replace(asked=state.asked + 1, travelling=travelling)
        for record in sorted(state.travelling):
            if state.slots[record] is not Slot.ABSENT:
                yield f"writer finds {record} taken and ends", state._replace(writer_ended=True)
                continue
            slots = put(state.slots, record, Slot.RECORD)
            yield f"store creates {record}", state._replace(slots=slots, travelling=state.travelling - {record})
        for record in range(state.asked):
            if record not in state.travelling and record not in state.confirmed:
                yield f"writer learns of {record}", state._replace(confirmed=state.confirmed | {record})

    def fence(self, state: State) -> tuple[str, State]:
        after = state._replace(cursor=state.cursor + 1)
        if state.slots[state.cursor] is Slot.RECORD:
            return f"successor applies {state.cursor}", after._replace(fences=0)
        slots = put(state.slots, state.cursor, Slot.FENCE)
        return f"successor fences {state.cursor}", after._replace(slots=slots, fences=state.fences + 1)


def put(slots: tuple[Slot, ...], index: int, slot: Slot) -> tuple[Slot, ...]:
    return (*slots[:index], slot, *slots[index + 1 :])


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param(Rules(in_flight=1, release=Release.ITS_OWN_SUCCESS), id="one in flight"),
        pytest.param(Rules(in_flight=2), id="two in flight, confirmed prefix"),
        pytest.param(Rules(in_flight=3), id="three in flight, confirmed prefix"),
        pytest.param(
            Rules(in_flight=2, release=Release.ITS_OWN_SUCCESS, fences=2, strays=Strays.KEPT),
            id="two in flight, own success, two fences in a row, strays kept",
        ),
    ],
)
def test_slot_log_loses_nothing(rules: Rules) -> None:
    model = SlotLog(rules)
    verdict = explore(model)
    assert verdict.holds, str(verdict)
    assert find(model, lambda state: model.serves(state) and len(model.released(state)) >= 2) is not None
    assert find(model, lambda state: model.serves(state) and state.writer_ended) is not None


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param(Rules(in_flight=2, release=Release.ITS_OWN_SUCCESS), id="one fence"),
        pytest.param(
            Rules(in_flight=2, release=Release.ITS_OWN_SUCCESS, fences=2), id="two fences in a row, strays void"
        ),
    ],
)
def test_release_on_own_success_with_two_in_flight_loses_a_released_record(rules: Rules) -> None:
    verdict = explore(SlotLog(rules))
    assert not verdict.holds
    assert verdict.reason == LOST
    assert "writer learns of 1" in verdict.trace
    assert "successor fences 0" in verdict.trace

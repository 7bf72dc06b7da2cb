"""Collection is an output: raise the floor durably, then delete; sync the header, prove, then delete.

Two models. The first is the log of slots (see the model of slots) with a collector behind the successor: a fence that
has been deleted stops nobody, so a stalled writer may create its slot a second time, "successfully". A durable
floor, raised before anything is deleted and read after each create, tells it.

The second is the log of files (design 0003, "Checkpoints"): a primary deletes files below a position that it knows to
be
confirmed. A successor learns the confirmed position from the headers it finds, puts its cut there, and needs the
file that holds it. So the position must stand in a synced header, and the primary must have proved, after that
sync, that no successor has read an older one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import pytest

from deathless.simulation.models.explorer import explore, find

RECORDS = 3
LOST = "a released record is not in the successor's view"


class Slot(StrEnum):
    """What a slot holds."""

    ABSENT = "absent"
    OLD = "record of the old writer"
    FENCE = "fence"
    NEW = "record of the successor"


class Floor(StrEnum):
    """What the old writer does about the floor."""

    IGNORED = "never reads it"
    READ_AFTER_CREATE = "reads it after each create"
    READ_BEFORE_CREATE = "reads it before each create"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRules:
    """One way to collect slots. ``prefix``: release a record only when its whole prefix is confirmed."""

    in_flight: int = 1
    prefix: bool = False
    floor: Floor = Floor.READ_AFTER_CREATE
    raised_before_deletion: bool = True


class Create(StrEnum):
    """How far one record of the old writer has come."""

    NOT_ASKED = "not asked"
    ASKED = "asked"
    CREATED = "created"
    CONFIRMED = "confirmed"


class Successor(StrEnum):
    """What the successor does next."""

    FENCE = "looks for the first absent slot and fences it"
    APPEND = "appends behind the fence"
    COLLECT = "collects up to the fence"
    DONE = "is done"


class SlotState(NamedTuple):
    """The store with its floor, the old writer's records, the successor."""

    slots: tuple[Slot, ...]
    creates: tuple[Create, ...] = (Create.NOT_ASKED,) * RECORDS
    # Slots up to and including this one may be gone. -1: none.
    floor: int = -1
    writer_ended: bool = False
    successor: Successor = Successor.FENCE
    fence: int = -1
    # Slots deleted: those below. Invariant with a floor raised first: deleted <= floor + 1.
    deleted: int = 0


@dataclass(frozen=True, slots=True)
class SlotCollection:
    """One old writer against one successor that collects what it has in a checkpoint."""

    rules: SlotRules

    def initial(self) -> SlotState:
        return SlotState((Slot.ABSENT,) * (RECORDS + 2))

    def released(self, state: SlotState) -> set[int]:
        confirmed = {record for record in range(RECORDS) if state.creates[record] is Create.CONFIRMED}
        if not self.rules.prefix:
            return confirmed
        return {record for record in confirmed if confirmed.issuperset(range(record))}

    def fault(self, state: SlotState) -> str:
        # The successor's view is what stood before its fence, whatever has been deleted since.
        lost = state.fence >= 0 and max(self.released(state), default=-1) > state.fence - 1
        return LOST if lost else ""

    def steps(self, state: SlotState) -> Iterator[tuple[str, SlotState]]:
        if not state.writer_ended:
            for record, create in enumerate(state.creates):
                for label, after in self.write(state, record, create):
                    yield f"writer {label} {record}", after
        for label, after in self.succeed(state):
            yield f"successor {label}", after

    def write(self, state: SlotState, record: int, create: Create) -> Iterator[tuple[str, SlotState]]:
        rules = self.rules
        ended = state._replace(writer_ended=True)
        match create:
            case Create.NOT_ASKED:
                unresolved = sum(each in (Create.ASKED, Create.CREATED) for each in state.creates)
                in_order = record == 0 or state.creates[record - 1] is not Create.NOT_ASKED
                passes = rules.floor is not Floor.READ_BEFORE_CREATE or record > state.floor
                if in_order and passes and unresolved < rules.in_flight:
                    yield "asks for", set_create(state, record, Create.ASKED)
            case Create.ASKED:
                if state.slots[record] is not Slot.ABSENT:
                    yield "ends: taken is", ended
                else:
                    slots = put(state.slots, record, Slot.OLD)
                    yield "has created", set_create(state, record, Create.CREATED)._replace(slots=slots)
            case Create.CREATED:
                if rules.floor is Floor.READ_AFTER_CREATE and record <= state.floor:
                    yield "ends: below the floor is", ended
                else:
                    yield "confirms", set_create(state, record, Create.CONFIRMED)
            case Create.CONFIRMED:
                return

    def succeed(self, state: SlotState) -> Iterator[tuple[str, SlotState]]:
        match state.successor:
            case Successor.FENCE:
                fence = state.slots.index(Slot.ABSENT)
                after = state._replace(successor=Successor.APPEND, fence=fence)
                yield f"fences {fence}", after._replace(slots=put(state.slots, fence, Slot.FENCE))
            case Successor.APPEND:
                free = state.slots.index(Slot.ABSENT)
                after = state._replace(successor=Successor.COLLECT)
                yield f"appends {free}", after._replace(slots=put(state.slots, free, Slot.NEW))
            case Successor.COLLECT:
                yield from self.collect(state)
            case Successor.DONE:
                return

    def collect(self, state: SlotState) -> Iterator[tuple[str, SlotState]]:
        if state.floor < state.fence and (self.rules.raised_before_deletion or state.deleted > state.fence):
            yield "raises the floor", state._replace(floor=state.fence)
        elif state.deleted <= state.fence:
            slots = put(state.slots, state.deleted, Slot.ABSENT)
            yield f"deletes {state.deleted}", state._replace(slots=slots, deleted=state.deleted + 1)
        else:
            yield "has collected", state._replace(successor=Successor.DONE)


def put(slots: tuple[Slot, ...], index: int, slot: Slot) -> tuple[Slot, ...]:
    return (*slots[:index], slot, *slots[index + 1 :])


def set_create(state: SlotState, record: int, create: Create) -> SlotState:
    return state._replace(creates=(*state.creates[:record], create, *state.creates[record + 1 :]))


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param(SlotRules(), id="one in flight: floor read before the next create"),
        pytest.param(SlotRules(in_flight=3, prefix=True), id="three in flight: floor and confirmed prefix"),
    ],
)
def test_floor_raised_before_deletion_and_read_after_each_create_loses_nothing(rules: SlotRules) -> None:
    model = SlotCollection(rules)
    verdict = explore(model)
    assert verdict.holds, str(verdict)

    def created_again(state: SlotState) -> bool:
        return state.deleted > state.fence >= 0 and state.slots[state.fence] is Slot.OLD

    assert find(model, created_again) is not None


@pytest.mark.parametrize(
    ("rules", "step"),
    [
        pytest.param(SlotRules(floor=Floor.IGNORED), "successor deletes 0", id="no floor"),
        pytest.param(
            SlotRules(in_flight=2), "writer confirms 1", id="floor, but two in flight and release on own success"
        ),
        pytest.param(
            SlotRules(floor=Floor.READ_BEFORE_CREATE), "successor deletes 0", id="floor read before the create"
        ),
        pytest.param(
            SlotRules(raised_before_deletion=False), "successor deletes 0", id="deleted before the floor is raised"
        ),
    ],
)
def test_collection_of_slots_without_the_floor_or_the_prefix_loses_a_released_record(
    rules: SlotRules, step: str
) -> None:
    verdict = explore(SlotCollection(rules))
    assert not verdict.holds
    assert verdict.reason == LOST
    assert step in verdict.trace
    assert "successor fences 0" in verdict.trace


# ---------------------------------------------------------------- files

FRAMES = 4
GONE = "the file that holds the successor's cut is gone"
NO_CUT = -1


class Below(StrEnum):
    """Which confirmed position a primary collects below."""

    KNOWN = "confirmed as it knows"
    WRITTEN = "confirmed as a header says that is written"
    SYNCED = "confirmed as a header says that is synced"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRules:
    """The defaults are the design. ``proved``: a proof begun after the position was looked up, before the deletion."""

    below: Below = Below.SYNCED
    proved: bool = True


class Primary(StrEnum):
    """What the primary does next. It rolls with every frame: file n holds frame n."""

    APPEND = "appends"
    SYNC = "syncs"
    PROVE = "proves"
    ENDED = "has ended"


class FileState(NamedTuple):
    """The primary, its files, and the cut of the successor."""

    primary: Primary = Primary.APPEND
    # headers[n]: what frame n says is confirmed; frames [0, synced) survive a power cut.
    headers: tuple[int, ...] = ()
    synced: int = 0
    confirmed: int = 0
    # The position that the collector has looked up and, where the rules ask for it, proved.
    allowed: int = 0
    # Files [0, deleted) are gone.
    deleted: int = 0
    locked: bool = False
    # The file behind whose frame the successor has put its cut; 0 also for a log with nothing confirmed.
    cut: int = NO_CUT


@dataclass(frozen=True, slots=True)
class FileCollection:
    """A primary that collects against one successor; a checkpoint covers all that is confirmed."""

    rules: FileRules

    def initial(self) -> FileState:
        return FileState()

    def fault(self, state: FileState) -> str:
        return GONE if state.cut != NO_CUT and state.cut < state.deleted else ""

    def steps(self, state: FileState) -> Iterator[tuple[str, FileState]]:
        if state.primary is not Primary.ENDED:
            for label, after in (*self.act(state), *self.collect(state)):
                yield f"primary {label}", after
        if not state.locked:
            yield "successor takes the lock", state._replace(locked=True)
        elif state.cut == NO_CUT:
            confirmed = max(state.headers, default=0)
            yield f"successor cuts at {confirmed}", state._replace(cut=max(confirmed - 1, 0))
        if state.primary is not Primary.ENDED:
            lost = state._replace(headers=state.headers[: state.synced], primary=Primary.ENDED)
            yield "power cut", lost

    def act(self, state: FileState) -> Iterator[tuple[str, FileState]]:
        match state.primary:
            case Primary.APPEND if len(state.headers) < FRAMES:
                headers = (*state.headers, state.confirmed)
                appended = state._replace(primary=Primary.SYNC, headers=headers)
                yield f"appends with header {state.confirmed}", appended
            case Primary.SYNC:
                yield "syncs", state._replace(primary=Primary.PROVE, synced=len(state.headers))
            case Primary.PROVE:
                proved = state._replace(primary=Primary.APPEND, confirmed=len(state.headers))
                yield self.ask(state, proved, "proves")
            case Primary.APPEND | Primary.ENDED:
                return

    def collect(self, state: FileState) -> Iterator[tuple[str, FileState]]:
        """Look up a position, prove, delete below it; the file that holds the position itself stays."""
        position = self.position(state)
        if position > state.allowed:
            allowed = state._replace(allowed=position)
            if self.rules.proved:
                yield self.ask(state, allowed, f"proves, to collect below {position}")
            else:
                yield f"may collect below {position}", allowed
        if state.deleted < state.allowed - 1:
            yield f"deletes below {state.allowed}", state._replace(deleted=state.allowed - 1)

    def position(self, state: FileState) -> int:
        match self.rules.below:
            case Below.KNOWN:
                return state.confirmed
            case Below.WRITTEN:
                return max(state.headers, default=0)
            case Below.SYNCED:
                return max(state.headers[: state.synced], default=0)

    def ask(self, state: FileState, proved: FileState, label: str) -> tuple[str, FileState]:
        """Return the step of a proof: on to ``proved``, or the end."""
        if state.locked:
            return "finds itself deposed", state._replace(primary=Primary.ENDED)
        return label, proved


def test_collection_below_a_position_in_a_synced_header_after_a_proof_keeps_every_cut() -> None:
    model = FileCollection(FileRules())
    verdict = explore(model)
    assert verdict.holds, str(verdict)
    assert find(model, lambda state: state.deleted == 2 and state.cut == 2) is not None
    assert find(model, lambda state: state.deleted > 0 and len(state.headers) > state.synced) is not None


@pytest.mark.parametrize(
    ("rules", "step"),
    [
        pytest.param(FileRules(below=Below.KNOWN), "primary proves", id="as the primary knows"),
        pytest.param(FileRules(below=Below.WRITTEN), "power cut", id="as a written header says, not synced"),
        pytest.param(FileRules(proved=False), "successor takes the lock", id="synced header, no proof after"),
    ],
)
def test_collection_of_files_by_less_than_a_synced_and_proved_header_deletes_a_cut(rules: FileRules, step: str) -> None:
    verdict = explore(FileCollection(rules))
    assert not verdict.holds
    assert verdict.reason == GONE
    assert step in verdict.trace
    assert any(label.startswith("primary deletes below") for label in verdict.trace)

"""Three epochs in a row, a file each: cuts keep what a deposed primary writes late out of everybody's view.

design 0003, "Takeover". The lock moves on at any moment, from whoever holds it. A successor takes the lock, reads the
log
through the cuts, writes its own cut (the predecessor and the length it read), and serves: append, own?, release.
Its predecessor is the highest lower epoch with a cut (there are no power cuts in this model; with them that reading
is broken, see the model of takeover). Each primary executes a record when it appends it.

What must hold: a primary that serves has everything ever released in its view; and what a primary has executed and
released is a prefix of every later view.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import pytest

from deathless.simulation.models.explorer import explore, find

EPOCHS = 3
RECORDS = 2
LOST = "a released record is not in the view of a later primary"
DIVERGED = "views of one log diverge"
Record = tuple[int, int]
"""(epoch, number)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The defaults are the design. ``own_before_serving`` is hygiene: both ways hold."""

    own_before_serving: bool = True
    read_after_lock: bool = True
    cuts_bound_readers: bool = True


class Phase(StrEnum):
    """What a replica does next."""

    LOCK = "takes the lock"
    READ = "reads the log"
    CUT = "writes its cut"
    CHECK = "checks the lock before serving"
    APPEND = "appends"
    PROVE = "proves"
    RELEASE = "releases"
    ENDED = "has ended"


class Replica(NamedTuple):
    """The replica of one epoch."""

    phase: Phase
    # What it has read and executed.
    view: tuple[Record, ...] = ()
    predecessor: int = 0
    # Records of the predecessor's file that it read.
    length: int = 0


class File(NamedTuple):
    """The segment of one epoch. Invariant: ``predecessor`` < own epoch; 0 is the empty log."""

    predecessor: int
    length: int
    records: tuple[Record, ...] = ()


class State(NamedTuple):
    """Index 0 of ``replicas`` and ``files`` is epoch 1; no file yet: None."""

    replicas: tuple[Replica, ...]
    files: tuple[File | None, ...]
    holder: int = 1
    released: tuple[Record, ...] = ()
    fault: str = ""


@dataclass(frozen=True, slots=True)
class ThreeEpochs:
    """Epoch 1 serves; epochs 2 and 3 take over, each at any moment."""

    rules: Rules

    def initial(self) -> State:
        first = Phase.LOCK if self.rules.read_after_lock else Phase.READ
        waiting = (Replica(first),) * (EPOCHS - 1)
        return State((Replica(Phase.APPEND), *waiting), (File(0, 0), *(None,) * (EPOCHS - 1)))

    def fault(self, state: State) -> str:
        return state.fault

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        for epoch in range(1, EPOCHS + 1):
            for label, after in self.act(state, epoch, state.replicas[epoch - 1]):
                yield f"epoch {epoch} {label}", after

    def act(self, state: State, epoch: int, replica: Replica) -> Iterator[tuple[str, State]]:
        match replica.phase:
            case Phase.LOCK if epoch == state.holder + 1:
                after = Phase.READ if self.rules.read_after_lock else Phase.CUT
                yield "takes the lock", put(state, epoch, replica._replace(phase=after))._replace(holder=epoch)
            case Phase.READ:
                after = Phase.CUT if self.rules.read_after_lock else Phase.LOCK
                yield "reads", put(state, epoch, self.read(state, epoch)._replace(phase=after))
            case Phase.CUT:
                own = File(replica.predecessor, replica.length)
                after = Phase.CHECK if self.rules.own_before_serving else Phase.APPEND
                cut = state._replace(files=replaced(state.files, epoch, own))
                yield "writes its cut", put(cut, epoch, replica._replace(phase=after))
            case Phase.CHECK:
                yield self.ask(state, epoch, Phase.APPEND)
            case Phase.APPEND:
                yield from self.append(state, epoch, replica)
            case Phase.PROVE:
                yield self.ask(state, epoch, Phase.RELEASE)
            case Phase.RELEASE:
                yield "releases", self.release(state, epoch, replica)
            case Phase.LOCK | Phase.ENDED:
                return

    def ask(self, state: State, epoch: int, phase: Phase) -> tuple[str, State]:
        """Go on to the phase if the lock is still this epoch's."""
        owns = state.holder == epoch
        after = put(state, epoch, state.replicas[epoch - 1]._replace(phase=phase) if owns else Replica(Phase.ENDED))
        return ("owns the lock" if owns else "finds itself deposed"), after

    def read(self, state: State, epoch: int) -> Replica:
        """Follow the cuts back from the highest lower epoch that has one."""
        predecessor = max(lower for lower in range(1, epoch) if state.files[lower - 1] is not None)
        last = state.files[predecessor - 1]
        assert last is not None
        return Replica(Phase.READ, self.view(state, predecessor), predecessor, len(last.records))

    def view(self, state: State, epoch: int, length: int | None = None) -> tuple[Record, ...]:
        file = state.files[epoch - 1] if epoch else None
        if file is None:
            return ()
        bound = length if self.rules.cuts_bound_readers else None
        return (*self.view(state, file.predecessor, file.length), *file.records[:bound])

    def append(self, state: State, epoch: int, replica: Replica) -> Iterator[tuple[str, State]]:
        file = state.files[epoch - 1]
        assert file is not None
        if len(file.records) < RECORDS:
            record = (epoch, len(file.records))
            files = replaced(state.files, epoch, file._replace(records=(*file.records, record)))
            executed = replica._replace(phase=Phase.PROVE, view=(*replica.view, record))
            yield f"appends {record[1]}", put(state._replace(files=files), epoch, executed)

    def release(self, state: State, epoch: int, replica: Replica) -> State:
        view, released = replica.view, state.released
        shorter = min(len(view), len(released))
        if view[:shorter] == released[:shorter]:
            longest = max(view, released, key=len)
            return put(state, epoch, replica._replace(phase=Phase.APPEND))._replace(released=longest)
        missing = set(released) - set(view)
        return state._replace(fault=LOST if missing else DIVERGED)


def put(state: State, epoch: int, replica: Replica) -> State:
    replicas = (*state.replicas[: epoch - 1], replica, *state.replicas[epoch:])
    return state._replace(replicas=replicas)


def replaced(files: tuple[File | None, ...], epoch: int, file: File) -> tuple[File | None, ...]:
    return (*files[: epoch - 1], file, *files[epoch:])


@pytest.mark.parametrize("own_before_serving", [True, False])
def test_three_epochs_with_cuts_lose_nothing_and_agree_on_the_order(own_before_serving: bool) -> None:
    model = ThreeEpochs(Rules(own_before_serving=own_before_serving))
    verdict = explore(model)
    assert verdict.holds, str(verdict)
    assert find(model, lambda state: {epoch for epoch, _ in state.released} == {1, 2, 3}) is not None


def test_model_reaches_a_late_record_behind_the_cut() -> None:
    def late(state: State) -> bool:
        old, new = state.files[:2]
        return old is not None and new is not None and len(old.records) > new.length

    assert find(ThreeEpochs(Rules()), late) is not None


def test_standby_that_does_not_read_again_after_taking_the_lock_loses_a_record() -> None:
    verdict = explore(ThreeEpochs(Rules(read_after_lock=False)))
    assert not verdict.holds
    assert verdict.reason == LOST
    assert verdict.trace.index("epoch 2 reads") < verdict.trace.index("epoch 2 takes the lock")


def test_readers_that_go_beyond_a_cut_see_another_log() -> None:
    verdict = explore(ThreeEpochs(Rules(cuts_bound_readers=False)))
    assert not verdict.holds
    assert verdict.reason == DIVERGED
    assert "epoch 3 reads" in verdict.trace

"""Two orders decide everything: writer append, check, release; successor seal, read. The other readings lose records.

I1. An old writer appends records to a file and releases each; one successor raises a flag (the seal) and reads the
file once. Nothing else is shared. The writer checks the flag somewhere on its way; a check may be answered from a
cache of an earlier "not there", as directory look-ups on network file systems are.

What must hold: once the successor serves, everything ever released is in what it read.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import pytest

from deathless.simulation.models.explorer import explore, find

RECORDS = 3
NOT_READ = -1
LOST = "a released record is missing from what the successor read"


class Does(StrEnum):
    """One atomic step of the writer or of the successor."""

    CHECK = "checks the seal"
    APPEND = "appends"
    RELEASE = "releases"
    SEAL = "seals"
    READ = "reads"


CHECK_APPEND_RELEASE = (Does.CHECK, Does.APPEND, Does.RELEASE)
APPEND_CHECK_RELEASE = (Does.APPEND, Does.CHECK, Does.RELEASE)
READ_SEAL = (Does.READ, Does.SEAL)
SEAL_READ = (Does.SEAL, Does.READ)


class State(NamedTuple):
    """The file is a count of records, because only one writer appends to it."""

    # Index into the order of the writer, of the successor. The successor serves when its order is done.
    writer: int = 0
    successor: int = 0
    writer_stopped: bool = False
    appended: int = 0
    released: int = 0
    sealed: bool = False
    # The writer has looked once and found no seal, so a cache may say so again.
    absence_cached: bool = False
    view: int = NOT_READ


@dataclass(frozen=True, slots=True)
class FlagProtocol:
    """One order of the writer against one order of the successor."""

    writer: tuple[Does, ...]
    successor: tuple[Does, ...]
    cached_absence: bool = False

    def initial(self) -> State:
        return State()

    def serves(self, state: State) -> bool:
        return state.successor == len(self.successor)

    def fault(self, state: State) -> str:
        return LOST if self.serves(state) and state.released > state.view else ""

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        if not state.writer_stopped and state.released < RECORDS:
            does = self.writer[state.writer]
            for after in self.write(state, does):
                yield f"writer {does}", after
        if not self.serves(state):
            does = self.successor[state.successor]
            after = state._replace(successor=state.successor + 1)
            change = after._replace(sealed=True) if does is Does.SEAL else after._replace(view=state.appended)
            yield f"successor {does}", change

    def write(self, state: State, does: Does) -> Iterator[State]:
        after = state._replace(writer=(state.writer + 1) % len(self.writer))
        if does is Does.APPEND:
            yield after._replace(appended=state.appended + 1)
        elif does is Does.RELEASE:
            yield after._replace(released=state.appended)
        else:
            if state.sealed:
                yield state._replace(writer_stopped=True)
            if not state.sealed or (self.cached_absence and state.absence_cached):
                yield after._replace(absence_cached=True)


def test_append_check_release_against_seal_read_loses_nothing() -> None:
    protocol = FlagProtocol(APPEND_CHECK_RELEASE, SEAL_READ)
    verdict = explore(protocol)
    assert verdict.holds, str(verdict)
    assert find(protocol, lambda state: protocol.serves(state) and state.released == RECORDS) is not None
    # A record that nobody released may be in the view or not; both happen.
    assert find(protocol, lambda state: protocol.serves(state) and state.view > state.released) is not None
    assert find(protocol, lambda state: protocol.serves(state) and state.view < state.appended) is not None


@pytest.mark.parametrize(
    "protocol",
    [
        pytest.param(FlagProtocol(CHECK_APPEND_RELEASE, READ_SEAL), id="check first, read first"),
        pytest.param(FlagProtocol(CHECK_APPEND_RELEASE, SEAL_READ), id="check first"),
        pytest.param(FlagProtocol(APPEND_CHECK_RELEASE, READ_SEAL), id="read first"),
        pytest.param(
            FlagProtocol(APPEND_CHECK_RELEASE, SEAL_READ, cached_absence=True),
            id="right orders, but the check may be a cached absence",
        ),
    ],
)
def test_every_other_order_and_a_cached_check_lose_a_released_record(protocol: FlagProtocol) -> None:
    verdict = explore(protocol)
    assert not verdict.holds
    assert verdict.reason == LOST
    assert "writer releases" in verdict.trace
    assert "successor reads" in verdict.trace

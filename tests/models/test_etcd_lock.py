"""A lock in etcd fences nothing by itself; append, "own?" by value, release does.

I1, I2 and design 0003, "Takeover". An old primary holds the lock and appends to a file of its own. A successor takes
the
lock when the lease has run out (delete and create: a new create revision) or steals it (put: the create revision
stays), reads the old file up to a cut, appends to its own file, proves, and releases. Neither looks at a clock. A lease
may end at any time; a holder whose lock went with it puts it back where the epoch says that nobody took it.

What must hold: the log that any reader finds begins with everything released, and the two never release different
orders.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import pytest

from deathless.simulation.models.explorer import explore, find

RECORDS = 3
LOST = "the log no longer begins with what was released"
DIVERGED = "two primaries released different orders"
OLD, NEW, NOBODY = "old", "new", ""
Log = tuple[str, ...]


class Proof(StrEnum):
    """When the old primary asks "own?"."""

    BEFORE_APPEND = "own?, append, release"
    AFTER_APPEND = "append, own?, release"


class OwnBy(StrEnum):
    """What "own?" compares."""

    VALUE = "the value of the lock"
    CREATE_REVISION = "the create revision of the lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The defaults are the design."""

    proof: Proof = Proof.AFTER_APPEND
    own_by: OwnBy = OwnBy.VALUE
    read_before_lock: bool = False
    own_files: bool = True
    # A proof without an answer: asked again (nothing happens), or counted as a yes.
    silence_is_yes: bool = False
    # A lock that is gone is put back by whoever held it last of its own knowledge, whatever the epoch.
    put_back_blindly: bool = False


class Old(StrEnum):
    """What the old primary does next."""

    PROVE = "proves"
    APPEND = "appends"
    RELEASE = "releases"
    ENDED = "has ended"


class New(StrEnum):
    """What the successor does next."""

    LOCK = "takes the lock"
    READ = "reads"
    APPEND = "appends"
    RELEASE = "proves and releases"
    DONE = "is done"


class State(NamedTuple):
    """Lock, files, both processes, and what the world has seen."""

    old: Old
    new: New
    holder: str = OLD
    epoch: int = 1
    create_revision: int = 1
    # With shared files the successor writes into old_file too, and new_file stays empty.
    old_file: Log = ()
    new_file: Log = ()
    old_count: int = 0
    view: Log = ()
    released: Log = ()
    diverged: bool = False


@dataclass(frozen=True, slots=True)
class EtcdLock:
    """One old primary against one successor."""

    rules: Rules

    def initial(self) -> State:
        first = Old.PROVE if self.rules.proof is Proof.BEFORE_APPEND else Old.APPEND
        return State(first, New.READ if self.rules.read_before_lock else New.LOCK)

    def log(self, state: State) -> Log:
        """Return the log as a reader finds it once the successor has read: the old file counts up to the cut."""
        return (*state.old_file[: len(state.view)], *state.new_file) if self.rules.own_files else state.old_file

    def fault(self, state: State) -> str:
        if state.diverged:
            return DIVERGED
        serves = state.new in (New.APPEND, New.RELEASE, New.DONE)
        return LOST if serves and self.log(state)[: len(state.released)] != state.released else ""

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        if state.holder != NOBODY:
            yield "the holder's lease ends", state._replace(holder=NOBODY)
        for label, after in self.old_steps(state):
            yield f"old primary {label}", after
        for label, after in self.new_steps(state):
            yield f"successor {label}", after

    def old_steps(self, state: State) -> Iterator[tuple[str, State]]:
        proof_first = self.rules.proof is Proof.BEFORE_APPEND
        match state.old:
            case Old.PROVE:
                proved = state._replace(old=Old.APPEND if proof_first else Old.RELEASE)
                by_value = self.rules.own_by is OwnBy.VALUE
                if state.holder == OLD if by_value else state.create_revision == 1:
                    yield "proves", proved
                elif by_value and state.holder == NOBODY and (state.epoch == 1 or self.rules.put_back_blindly):
                    yield "puts the lock back and proves", proved._replace(holder=OLD)
                else:
                    yield "finds itself deposed", state._replace(old=Old.ENDED)
                    if self.rules.silence_is_yes:
                        yield "gets no answer and goes on", proved
            case Old.APPEND if state.old_count < RECORDS:
                count = state.old_count
                # Each writer writes at its own offset, whatever stands there.
                file = (*state.old_file[:count], f"{OLD} {count}", *state.old_file[count + 1 :])
                after = Old.RELEASE if proof_first else Old.PROVE
                yield f"appends {count}", state._replace(old=after, old_file=file, old_count=count + 1)
            case Old.RELEASE:
                order = tuple(f"{OLD} {index}" for index in range(state.old_count))
                after = Old.PROVE if proof_first else Old.APPEND
                yield f"releases {state.old_count - 1}", release(state._replace(old=after), order)
            case Old.APPEND | Old.ENDED:
                return

    def new_steps(self, state: State) -> Iterator[tuple[str, State]]:
        read_first = self.rules.read_before_lock
        match state.new:
            case New.LOCK:
                locked = state._replace(new=New.APPEND if read_first else New.READ, holder=NEW, epoch=2)
                yield "takes the expired lock", locked._replace(create_revision=state.create_revision + 1)
                yield "steals the lock", locked
            case New.READ:
                after = New.LOCK if read_first else New.APPEND
                yield f"reads {len(state.old_file)} records", state._replace(new=after, view=state.old_file)
            case New.APPEND:
                if self.rules.own_files:
                    yield "appends", state._replace(new=New.RELEASE, new_file=(NEW,))
                else:
                    count = len(state.view)
                    file = (*state.old_file[:count], NEW, *state.old_file[count + 1 :])
                    yield "appends to the same file", state._replace(new=New.RELEASE, old_file=file)
            case New.RELEASE:
                if state.holder != OLD:  # its own, or gone with its lease and put back
                    yield "proves and releases", release(state._replace(new=New.DONE, holder=NEW), (*state.view, NEW))
            case New.DONE:
                return


def release(state: State, order: Log) -> State:
    """Show the world one more order; an order it has seen the end of already adds nothing."""
    shorter = min(len(order), len(state.released))
    if order[:shorter] != state.released[:shorter]:
        return state._replace(diverged=True)
    return state._replace(released=max(order, state.released, key=len))


def test_append_then_own_by_value_then_release_loses_nothing() -> None:
    model = EtcdLock(Rules())
    verdict = explore(model)
    assert verdict.holds, str(verdict)
    # The deposed one does release late, and what it releases is in the log of its successor.
    late = find(model, lambda state: state.new is New.DONE and state.released == ("old 0", "old 1", NEW))
    assert late is not None
    assert find(model, lambda state: state.new is New.DONE and len(state.old_file) > len(state.view)) is not None
    # It serves on after its lease ended, with nobody else interested.
    back = find(model, lambda state: state.new is New.LOCK and state.released == ("old 0", "old 1", "old 2"))
    assert back is not None


@pytest.mark.parametrize(
    ("reason", "rules"),
    [
        pytest.param(LOST, Rules(proof=Proof.BEFORE_APPEND), id="own?, append, release: the usual use of a lock"),
        pytest.param(LOST, Rules(read_before_lock=True), id="standby keeps what it read before it had the lock"),
        pytest.param(LOST, Rules(own_files=False), id="successor appends to the same file"),
        pytest.param(LOST, Rules(own_by=OwnBy.CREATE_REVISION), id="own? by the create revision, which a steal leaves"),
        pytest.param(LOST, Rules(silence_is_yes=True), id="a proof without an answer counts as a yes"),
        pytest.param(LOST, Rules(put_back_blindly=True), id="a lock that is gone is put back whoever had it last"),
    ],
)
def test_lock_used_in_another_way_loses_a_released_record(reason: str, rules: Rules) -> None:
    verdict = explore(EtcdLock(rules))
    assert not verdict.holds
    assert verdict.reason == reason, str(verdict)
    assert any(step.startswith("old primary") for step in verdict.trace)
    assert any(step.startswith("successor") for step in verdict.trace)


def test_own_by_create_revision_is_broken_by_a_steal_and_by_nothing_else() -> None:
    verdict = explore(EtcdLock(Rules(own_by=OwnBy.CREATE_REVISION)))
    assert "successor steals the lock" in verdict.trace
    assert "successor takes the expired lock" not in verdict.trace

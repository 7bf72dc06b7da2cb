"""Numbers what an application emits, and compares it with what is known of an earlier run of it.

Why it exists: outputs are not logged; they are a function of the logged inputs and are emitted again on replay. So the
k-th item for a target is position k, in every run, and whoever has position k already (our log, for calls to oneself;
the receiver, for others) must never get it twice, nor something else in its place.

A lane is one target, but for that of all targets beyond the maximum, whose items name their destinations. What is known
of it from outside comes as expectations: at this position the chain of items is that (a run of our own log, a mark of
the primary, what a receiver confirmed or says at its welcome). An expectation that the application is not at yet waits;
one that it has passed is compared at once.

    position of an item     what happens to it
    <= floor                it had its effect: compared where something is known, and dropped
    <= the receiver's       kept, compared, not sent
    above                   may be sent once the receiver's own chain at its position was found equal (`release_from`)

A difference is fatal under BYTES; under SHAPE it is counted if the shapes are equal, and the lane goes on from the
other's chain, so that one difference is not found again in everything behind it. A lane with a fatal difference
releases nothing any more. Nothing that was compared goes unreported.

Guarantees: positions begin at 1 and have no gaps; the snapshot holds everything, items without confirmation included;
what waits is bounded, and of what is too much the older goes, which the chain of the newer covers. Does not: send,
log, or decide whether a replica leads. Imports base.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import Final, NamedTuple

import msgspec

from deathless.protocols.ambrosia.bounds import Bounds
from deathless.protocols.ambrosia.items import EMPTY, OTHERS, bytes_in, chain_of, chains_of, shape_of
from deathless.protocols.ambrosia.messages import Oversized, Rpc

NO_SHAPE: Final = b""
NOT_LOGGED: Final = -1


class Compare(enum.Enum):
    """What a difference of outputs leads to."""

    BYTES = "any difference is fatal"
    SHAPE = "a difference of shapes is fatal, one of bytes alone is counted"


class Expectation(NamedTuple):
    """What is known of an earlier run of the application.

    Attributes:
        position: of an item, >= 1.
        chain: behind that item (`items.chain_of`).
        shape: of that item (`items.shape_of`); NO_SHAPE: not known.
        lsn: where our log says so, so that whoever ran the log through it must be at this position; NOT_LOGGED: a
            receiver says so.
    """

    position: int
    chain: bytes
    shape: bytes = NO_SHAPE
    lsn: int = NOT_LOGGED


class What(enum.Enum):
    """What was found."""

    BYTES = "the bytes differ"
    SHAPE = "it is another message"
    FEWER = "fewer outputs on replay"
    RECEIVER_BEHIND = "the receiver has less than it once confirmed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Two runs of the application emitted different things.

    Attributes:
        target: the lane.
        position: where it was found; it lies there, or before and behind what was compared last.
        what: differs.
        fatal: the lane releases nothing any more.
    """

    target: str
    position: int
    what: What
    fatal: bool


class Kept(msgspec.Struct, frozen=True):
    """An item without confirmation."""

    item: Rpc | Oversized
    chain: bytes  # behind it


class LaneState(msgspec.Struct, frozen=True, kw_only=True):
    """A lane as it stands in a checkpoint."""

    target: str
    floor: int  # everything up to it had its effect
    chain: bytes  # at the floor, or where the application is if that is before it
    emitted: int  # items so far
    kept: tuple[Kept, ...]  # those above the floor, in order
    expected: tuple[Expectation, ...]


class Lane:
    """What goes to one target.

    Args:
        target: its name.
        policy: for differences.
        bounds: how much may wait.
    """

    __slots__ = (
        "_bounds",
        "_expected",
        "_kept",
        "_open",
        "_policy",
        "_receiver",
        "base",
        "compared",
        "counted",
        "emitted",
        "fatal",
        "floor",
        "target",
    )

    def __init__(self, target: str, policy: Compare, bounds: Bounds) -> None:
        self.target = target
        self.floor = 0  # everything up to it had its effect
        self.emitted = 0  # items so far, since the service was created
        self.base = EMPTY  # the chain at min(floor, emitted)
        self.compared = 0  # expectations that were compared
        self.counted = 0  # differences that were not fatal
        self.fatal = False
        self._kept: list[Kept] = []  # items in (floor, emitted]
        self._expected: list[Expectation] = []  # ascending; all above `emitted`
        self._receiver: Expectation | None = None  # what the connected receiver has; None: nothing, or none is there
        self._open = False  # a receiver is connected, and what it has is what we emitted
        self._policy = policy
        self._bounds = bounds

    def emit(self, item: Rpc | Oversized) -> tuple[int, list[Difference]]:
        """Number an item of the application, and compare it."""
        chain = chain_of(self._chain, bytes_in(self.target, item))
        self.emitted += 1
        if self.emitted > self.floor:
            self._kept.append(Kept(item, chain))
        else:
            self.base = chain
        found: list[Difference] = []
        while self._expected and self._expected[0].position == self.emitted:
            found += self._compare(self._expected.pop(0), self._chain, shape_of(item))
        return self.emitted, found

    def may_take(self, count: int) -> bool:
        """Whether the next items, so many of them, are compared with nothing and are all above the floor."""
        above = self.emitted >= self.floor and not self.fatal
        return above and (not self._expected or self._expected[0].position > self.emitted + count)

    def take(self, items: Sequence[Rpc]) -> None:
        """Number items that `may_take` allows, all of type RPC."""
        kept = self._kept
        kept += starmap(Kept, zip(items, chains_of(self._chain, items), strict=True))
        self.emitted += len(items)

    def expect(self, known: Expectation) -> list[Difference]:
        """Compare with what is known, now or when the application is there."""
        assert known.position >= 1, known
        if known.position > self.emitted:
            self._wait_for(known)
            return []
        if known.position < self.floor:
            return []  # covered by what was compared when the floor rose
        if known.position == self.floor:
            return self._compare(known, self.base, NO_SHAPE)
        at = known.position - self.floor - 1
        return self._compare(known, self._kept[at].chain, shape_of(self._kept[at].item))

    def confirm(self, known: Expectation) -> list[Difference]:
        """Compare, and forget what is known to have had its effect; the application may be behind it still."""
        found = self.expect(known)
        if known.position <= self.floor or self.fatal:
            return found
        gone = min(known.position, self.emitted) - self.floor
        if gone > 0:
            self.base = self._kept[gone - 1].chain
            del self._kept[:gone]
        self.floor = known.position
        return found

    def welcome(self, known: Expectation | None) -> list[Difference]:
        """Hear what a receiver that has just connected holds, all of it confirmed; None: nothing."""
        self.part()
        self._receiver = known
        if (known.position if known else 0) < self.floor:
            return [self._fatal(self.floor, What.RECEIVER_BEHIND)]
        self._open = known is None
        return self.expect(known) if known else []

    def part(self) -> None:
        """The receiver's connection is gone."""
        self._receiver, self._open = None, False

    @property
    def release_from(self) -> int | None:
        """The first position that may be sent to the receiver; None: none may."""
        if self.fatal or not self._open:
            return None
        return self._receiver.position + 1 if self._receiver else 1

    def kept_from(self, position: int) -> Iterable[tuple[int, Rpc | Oversized]]:
        """Give the items without confirmation from a position on, with their positions."""
        first = max(position, self.floor + 1)
        return ((first + index, kept.item) for index, kept in enumerate(self._kept[first - self.floor - 1 :]))

    def items_from(self, position: int) -> tuple[int, list[Rpc | Oversized]]:
        """Give these items, and the position of the first."""
        first = max(position, self.floor + 1)
        return first, [kept.item for kept in self._kept[first - self.floor - 1 :]]

    def chain_at(self, position: int) -> bytes:
        """Give the chain behind an item without confirmation."""
        return self._kept[position - self.floor - 1].chain

    def judge_barrier(self, lsn: int) -> list[Difference]:
        """The application has run the log through this lsn, and emitted all that follows from it."""
        if not any(NOT_LOGGED < each.lsn <= lsn for each in self._expected):
            return []
        return [self._fatal(self.emitted + 1, What.FEWER)]

    def snapshot(self) -> LaneState:
        """Give the lane for a checkpoint."""
        return LaneState(
            target=self.target,
            floor=self.floor,
            chain=self.base,
            emitted=self.emitted,
            kept=tuple(self._kept),
            expected=tuple(self._expected),
        )

    def restore(self, state: LaneState) -> None:
        """Go on from a checkpoint."""
        self.floor, self.emitted, self.base = state.floor, state.emitted, state.chain
        self._kept, self._expected = list(state.kept), list(state.expected)

    def check_invariants(self) -> None:
        """Raise AssertionError if the lane contradicts itself."""
        assert len(self._kept) == max(0, self.emitted - self.floor)
        assert all(each.position > self.emitted for each in self._expected)
        positions = [each.position for each in self._expected]
        assert positions == sorted(positions)
        assert len(self._expected) == len(set(self._expected)) <= self._bounds.expectations_max

    @property
    def _chain(self) -> bytes:
        """Behind the last item."""
        return self._kept[-1].chain if self._kept else self.base

    def _wait_for(self, known: Expectation) -> None:
        if known in self._expected:
            return
        self._expected.append(known)
        self._expected.sort(key=lambda each: each.position)
        if len(self._expected) > self._bounds.expectations_max:
            # The chain of a later one covers it, though a barrier asks less then; the receiver's opens the lane.
            self._expected.remove(next(each for each in self._expected if each != self._receiver))

    def _compare(self, known: Expectation, chain: bytes, shape: bytes) -> list[Difference]:
        if self.fatal:
            return []
        self.compared += 1
        found: list[Difference] = []
        if known.chain != chain:
            if self._policy is Compare.BYTES or not known.shape or known.shape != shape:
                other = bool(known.shape and shape and known.shape != shape)
                return [self._fatal(known.position, What.SHAPE if other else What.BYTES)]
            self.counted += 1
            self._adopt(known)
            found = [Difference(target=self.target, position=known.position, what=What.BYTES, fatal=False)]
        if known == self._receiver:
            self._open = True
        return found

    def _fatal(self, position: int, what: What) -> Difference:
        self.fatal = True
        return Difference(target=self.target, position=position, what=what, fatal=True)

    def _adopt(self, known: Expectation) -> None:
        """Go on from the other's chain at this position."""
        if known.position <= self.floor:
            self.base = known.chain
            first = 0
        else:
            first = known.position - self.floor
            self._kept[first - 1] = Kept(self._kept[first - 1].item, known.chain)
        chain = known.chain
        for index in range(first, len(self._kept)):
            item = self._kept[index].item
            chain = chain_of(chain, bytes_in(self.target, item))
            self._kept[index] = Kept(item, chain)


class Lanes:
    """All lanes of one application.

    Args:
        policy: for differences.
        bounds: how many lanes there may be.
    """

    __slots__ = ("_bounds", "_by_target", "_policy", "others")

    def __init__(self, policy: Compare, bounds: Bounds) -> None:
        self._policy = policy
        self._bounds = bounds
        self._by_target: dict[str, Lane] = {}
        self.others = 0  # targets other than oneself that something was emitted for, in a lane of their own

    @property
    def is_new(self) -> bool:
        """Whether nothing was emitted or known yet."""
        return not self._by_target

    def get(self, target: str) -> Lane:
        """Give a lane, also one that nothing was emitted for yet."""
        lane = self._by_target.get(target)
        if lane is None:
            lane = self._by_target[target] = Lane(target, self._policy, self._bounds)
        return lane

    def own(self, target: str) -> Lane | None:
        """Give the lane of a target that has had something and has one of its own; None: it has not."""
        lane = self._by_target.get(target)
        return lane if lane is not None and lane.emitted and target != OTHERS else None

    def admit(self, target: str) -> Lane:
        """Give the lane for an item: of a target beyond the maximum that of all such, in this run as in every other."""
        known = self._by_target.get(target)
        if not target or target == OTHERS or (known is not None and known.emitted):
            return self.get(target)
        if self.others >= self._bounds.targets_max:
            return self.get(OTHERS)
        self.others += 1
        return self.get(target)

    def judge_barrier(self, lsn: int) -> list[Difference]:
        """Give the lanes that are not where they must be, once the application has run the log through this lsn."""
        return [found for target in sorted(self._by_target) for found in self._by_target[target].judge_barrier(lsn)]

    def snapshot(self) -> tuple[LaneState, ...]:
        """Give all lanes for a checkpoint, by target."""
        states = (self._by_target[target].snapshot() for target in sorted(self._by_target))
        return tuple(state for state in states if state.emitted or state.floor or state.expected)

    def restore(self, states: Iterable[LaneState]) -> None:
        """Go on from a checkpoint."""
        assert self.is_new, self._by_target
        for state in states:
            self.get(state.target).restore(state)
            self.others += bool(state.target and state.target != OTHERS and state.emitted)

    def check_invariants(self) -> None:
        """Raise AssertionError if a lane contradicts itself."""
        for lane in self._by_target.values():
            lane.check_invariants()

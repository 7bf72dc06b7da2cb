"""What waits on its way to an application and from it, counted in bytes; pure.

    Rows        came from the topic, and are not delivered yet; and what was delivered and is not read
    Unlogged    was emitted, and is not known to be logged
    Impulses    were emitted, and not offered to the log yet
    Kept        is kept by the service, which may send to no further one, as rows tell

Guarantees: the sums are exact. Does not: decide what is done when much waits (`coordinator` does). Imports protocols
and this package.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from deathless.base.errors import TargetNotReached
from deathless.foreign.rows import Given, What
from deathless.protocols.ambrosia.messages import RETURNS, Kind, Oversized, Rpc

ROWS_MAX: Final = 4096  # that wait to be delivered; then no more are wanted
ROWS_BYTES_MAX: Final = 4 << 20  # likewise
NAMED_MAX: Final = 1000  # services that can't be sent to and are remembered
ITEM_BYTES: Final = 64  # what an item costs beside its body, and in a row beside its names as well
ANSWER_BYTES: Final = 512  # likewise an error that the application is told in the place of a call


def size_of(item: Rpc | Oversized) -> int:
    """Give the bytes that an item counts for."""
    return ITEM_BYTES + (len(item.body) if isinstance(item, Rpc) else 0)


def room_of(item: Rpc | Oversized) -> int:
    """Give the bytes that an item needs in a row, at most, or in the place of a call an error that names its target."""
    target = len(item.destination.encode())
    own = size_of(item) + len(item.name.encode()) + target
    return max(own, ANSWER_BYTES + 2 * target) if item.kind is Kind.ASYNC else own


def group_behind(items: Sequence[Rpc | Oversized], at: int, bytes_max: int, room_max: int) -> int:
    """Give the place behind the items, from one on, that go together in a row.

    Args:
        items: that wait.
        at: the place of the first one, which goes in any case.
        bytes_max: that these count for at most.
        room_max: likewise, that they may need in a row.
    """
    size, room = size_of(items[at]), room_of(items[at])
    end = at + 1
    while end < len(items):
        size += size_of(items[end])
        room += room_of(items[end])
        if size > bytes_max or room > room_max:
            break
        end += 1
    return end


class Rows:
    """Rows of the topic, in their order."""

    __slots__ = ("bytes", "delivered", "unread", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[tuple[int, Given]] = deque()
        self.unread = 0  # bytes that were delivered and that the kernel did not take yet, as they were told last
        self.bytes = 0  # Invariant: of their items
        self.delivered = 0  # position of the last row that was taken

    @property
    def next(self) -> int:
        """Position behind all that came."""
        return (self.waiting[-1][0] if self.waiting else self.delivered) + 1

    @property
    def is_full(self) -> bool:
        """Whether no more are wanted now."""
        return len(self.waiting) >= ROWS_MAX or self.bytes >= ROWS_BYTES_MAX

    def add(self, rows: Iterable[tuple[int, Given]]) -> None:
        """More came."""
        for position, row in rows:
            self.waiting.append((position, row))
            self.bytes += len(row.items)

    def take(self) -> tuple[int, Given]:
        """Give the first one, which is delivered now."""
        position, row = self.waiting.popleft()
        self.bytes -= len(row.items)
        self.delivered = position
        return position, row

    def check_invariants(self) -> None:
        """Raise AssertionError when the sum is not exact."""
        assert self.bytes == sum(len(row.items) for _, row in self.waiting)


class Impulses:
    """What came from outside, and our own answers to callers, in their order."""

    __slots__ = ("_offered", "bytes", "unlogged", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[Rpc] = deque()  # that were not offered yet
        self.bytes = 0  # Invariant: their sum
        self.unlogged = 0  # impulses that were emitted and are not known to be logged
        self._offered: deque[tuple[int, int]] = deque()  # rows of the control stream: id, and how many are in it

    def add(self, item: Rpc) -> None:
        """It was emitted, or is an answer of ours."""
        self.waiting.append(item)
        self.bytes += size_of(item)
        self.unlogged += item.kind not in RETURNS

    def take(self, bytes_max: int, room_max: int, number: int) -> list[Rpc]:
        """Give the first ones, as `group_behind` does, which are offered now in the row of that id; there is one."""
        taken = [self.waiting.popleft() for _ in range(group_behind(self.waiting, 0, bytes_max, room_max))]
        self.bytes -= sum(map(size_of, taken))
        self._offered.append((number, sum(each.kind not in RETURNS for each in taken)))
        return taken

    def logged(self, upto: int) -> None:
        """Rows up to this id are logged."""
        while self._offered and self._offered[0][0] <= upto:
            self.unlogged -= self._offered.popleft()[1]

    def check_invariants(self) -> None:
        """Raise AssertionError when the sum is not exact."""
        assert self.bytes == sum(map(size_of, self.waiting))


class Kept:
    """For which services the service of the application keeps what is sent to them, and which lanes have to wait."""

    __slots__ = ("full", "held")

    def __init__(self) -> None:
        self.held: dict[str, None] = {}  # targets, the first ones of them
        self.full: set[str] = set()  # lanes; there are only so many

    @property
    def problem(self) -> str:
        """What is to be known of it, code first; empty: nothing is kept."""
        if not self.held and not self.full:
            return ""
        named = ", ".join(sorted([*self.held, *self.full])[:3])
        more = f"; lanes that wait: {len(self.full)}" if self.full else ""
        return (
            f"{TargetNotReached.code} what the program sends to {named} waits, as the service may send to no further "
            f"one{more}: {TargetNotReached.remedy}"
        )

    def take(self, row: Given) -> None:
        """A row tells of it."""
        if row.what == What.HELD and len(self.held) < NAMED_MAX:
            self.held[row.target] = None
        elif row.what == What.FULL:
            self.full.add(row.target)
        elif row.what == What.ROOM:
            self.held.pop(row.target, None)
            self.full.discard(row.target)


class _Alike:
    """Items behind each other that have one size."""

    __slots__ = ("first", "size", "upto")

    def __init__(self, position: int, size: int, count: int = 1) -> None:
        self.first = position
        self.upto = position + count - 1
        self.size = size


class Unlogged:
    """Items of lanes, by position."""

    __slots__ = ("_by_target", "_logged", "bytes")

    def __init__(self) -> None:
        self._by_target: dict[str, deque[_Alike]] = {}
        self._logged: dict[str, int] = {}  # position up to which the log has a lane
        self.bytes = 0  # Invariant: their sum

    def add(self, target: str, position: int, item: Rpc | Oversized) -> None:
        """It was emitted; what the log has already, of another replica's application, does not count."""
        if position > self._logged.get(target, 0):
            size = size_of(item)
            waiting = self._by_target.setdefault(target, deque())
            if waiting and (last := waiting[-1]).size == size and last.upto + 1 == position:
                last.upto = position
            else:
                waiting.append(_Alike(position, size))
            self.bytes += size

    def add_alike(self, target: str, position: int, items: Sequence[Rpc]) -> None:
        """These were emitted, from a position on, and have one size."""
        first = max(position, self._logged.get(target, 0) + 1)
        count = position + len(items) - first
        if count > 0:
            size = size_of(items[0])
            self._by_target.setdefault(target, deque()).append(_Alike(first, size, count))
            self.bytes += count * size

    def logged(self, target: str, upto: int) -> None:
        """All up to this position is logged, also what is emitted only later."""
        self._logged[target] = max(self._logged.pop(target, 0), upto)  # the one that was told last stands last
        waiting = self._by_target.get(target)
        while waiting and waiting[0].first <= upto:
            gone = waiting[0]
            through = min(upto, gone.upto)
            self.bytes -= (through + 1 - gone.first) * gone.size
            gone.first = through + 1
            if gone.first > gone.upto:
                waiting.popleft()

    def recent(self, count: int) -> list[str]:
        """Give targets of which the log has something, so many at most, the one that was told last before others."""
        return list(islice(reversed(self._logged), count))

    def targets(self) -> list[str]:
        """Give those that have some."""
        return [target for target, waiting in self._by_target.items() if waiting]

    def check_invariants(self) -> None:
        """Raise AssertionError when the sum is not exact."""
        each = [one for waiting in self._by_target.values() for one in waiting]
        assert self.bytes == sum((one.upto + 1 - one.first) * one.size for one in each)
        assert all(one.first <= one.upto for one in each)

"""The items of all maps of a shard, encoded, each by itself.

    table     map -> key of the entry (see codec.map_entries) -> encoded item
    Look      what one turn, or one invocation, sees of the table; a recorded one can be taken again
    Change    what a turn did to one map

A handler that waits is brought back by running it again with what it was given (see invocation). What it saw of maps is
part of that, and may be gone by then; so its Look writes down every answer, and gives the same answers in order when it
is taken again, without looking at the table.

Guarantees: to read or change an item costs the same however many there are; the next item is found in logarithmic time,
once the order of its map was asked for. Does not: decode. Imports base and codec.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from deathless.base.errors import Closed, Diverged
from deathless.codec.map_entries import PREFIX, take_apart
from deathless.execution.maps.sorted_keys import SortedKeys


class Change(NamedTuple):
    """What a turn did to one map."""

    prefix: bytes
    cleared: bool  # everything that was there goes first
    entries: list[tuple[bytes, bytes | None]]  # ascending; None: the item goes


class Seen(NamedTuple):
    """One look at the table."""

    next: bool  # it asked for the entry behind `entry`, not for the item there
    prefix: bytes
    entry: bytes  # empty: only the answer is known (of checkpoints of former versions)
    answer: bytes | None


SEEN_BYTES: Final = 96
"""What keeping a look costs beside its own bytes, in round numbers."""


class MapTable:
    """All items."""

    __slots__ = ("_orders", "maps")

    def __init__(self) -> None:
        self.maps: dict[bytes, dict[bytes, bytes]] = {}  # by prefix. Invariant: none is empty
        self._orders: dict[bytes, SortedKeys] = {}  # of those that were iterated over

    def get(self, prefix: bytes, entry: bytes) -> bytes | None:
        """Give an item; None: it is not there."""
        held = self.maps.get(prefix)
        return None if held is None else held.get(entry)

    def after(self, prefix: bytes, entry: bytes) -> bytes | None:
        """Give the key of the first entry of a map above `entry`; None: there is none."""
        held = self.maps.get(prefix)
        if held is None:
            return None
        order = self._orders.get(prefix)
        if order is None:
            order = self._orders[prefix] = SortedKeys(held)
        return order.after(entry)

    def apply(self, change: Change) -> None:
        """Take in what a turn did."""
        prefix = change.prefix
        if change.cleared:
            self.maps.pop(prefix, None)
            self._orders.pop(prefix, None)
        held = self.maps.setdefault(prefix, {})
        order = self._orders.get(prefix)
        for entry, new in change.entries:
            if new is None:
                del held[entry]
                if order is not None:
                    order.remove(entry)
            else:
                if order is not None and entry not in held:
                    order.add(entry)
                held[entry] = new
        if not held:
            del self.maps[prefix]
            self._orders.pop(prefix, None)

    def restore(self, state: dict[bytes, bytes], fields: Collection[str]) -> dict[bytes, bytes]:
        """Replace all items by those among the entries of a checkpoint's state; gives the other entries.

        Args:
            state: all of it; not changed.
            fields: maps that the state's type has. What others held is let go, as is a field that a type no longer has.

        Raises: CorruptCheckpoint.
        """
        self.maps = {}
        self._orders = {}
        entries = [key for key in state if key.startswith(PREFIX)]
        if not entries:
            return dict(state)
        prefix = b""
        held: dict[bytes, bytes] = {}
        for key in entries:
            if not prefix or not key.startswith(prefix):
                entry = take_apart(key)
                prefix = entry.prefix
                held = self.maps.setdefault(prefix, {}) if entry.field in fields else {}
            held[key] = state[key]
        return {key: value for key, value in state.items() if not key.startswith(PREFIX)}


class Look:
    """What one turn or invocation sees of the table.

    Args:
        table: looked at.
        taken: looks, in order; what is asked anew is added. None: nothing is written down.
        again: give just these answers, until `go_on`.
    """

    __slots__ = ("_again", "_at", "_table", "alive", "bytes", "differs", "taken")

    def __init__(self, table: MapTable, taken: list[Seen] | None = None, *, again: bool = False) -> None:
        self._table = table
        self.taken = taken
        self._at = 0  # answers given
        self._again = again
        self.alive = True  # False: its turn has ended
        self.bytes = 0  # that the looks keep which were asked for so far
        self.differs: tuple[Seen | None, Seen] | None = None  # (look before, look now) of the first other one

    def check(self) -> None:
        """Refuse to serve outside of a turn.

        Raises: Closed.
        """
        if not self.alive:
            raise Closed("this map belongs to a turn that has ended; use the state that is passed in")

    def get(self, prefix: bytes, entry: bytes) -> bytes | None:
        """Give an item, as MapTable does."""
        self.check()
        if self.taken is None:
            return self._table.get(prefix, entry)
        return self._answer(self._table.get, prefix, entry, behind=False)

    def after(self, prefix: bytes, entry: bytes) -> bytes | None:
        """Give the next entry's key, as MapTable does."""
        self.check()
        if self.taken is None:
            return self._table.after(prefix, entry)
        return self._answer(self._table.after, prefix, entry, behind=True)

    def _answer(
        self, ask: Callable[[bytes, bytes], bytes | None], prefix: bytes, entry: bytes, *, behind: bool
    ) -> bytes | None:
        assert self.taken is not None
        at = self._at
        self._at += 1
        if at < len(self.taken):
            seen = self.taken[at]
            now = Seen(behind, prefix, entry, seen.answer)
            if not seen.entry:
                self.taken[at] = now
            elif seen != now:
                raise self._other(seen, now)
            self._count(now)
            return now.answer
        if self._again:
            raise self._other(None, Seen(behind, prefix, entry, None))
        seen = Seen(behind, prefix, entry, ask(prefix, entry))
        self.taken.append(seen)
        self._count(seen)
        return seen.answer

    def _count(self, seen: Seen) -> None:
        self.bytes += SEEN_BYTES + len(seen.entry) - len(seen.prefix) + len(seen.answer or b"")

    def _other(self, seen: Seen | None, now: Seen) -> Diverged:
        """Note the first look that differs: the handler may catch the error, and go on."""
        self.differs = self.differs or (seen, now)
        return Diverged("it looked at more of its maps" if seen is None else "it looked at another item of its maps")

    def go_on(self) -> bool:
        """End the giving again, so that the table is looked at from now on; False: not just all answers were given."""
        self._again = False
        return self.differs is None and (self.taken is None or self._at == len(self.taken))

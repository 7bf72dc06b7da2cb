"""The former code's states, key by key, as the new code must have them: each brought forward by its migration.

Where the former states stand in the new code as they are, nothing is run. Else a key is migrated whenever it was
written, with all items of its maps; for that, states and items of services with maps are kept here beside those of the
new code. A key with more than ITEMS_MAX items is compared at the end of a run alone.

Guarantees: what is given is what the upgrade would make of the same bytes (one Migrator). Does not: compare. Imports
base and codec.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from deathless.codec.map_entries import take_apart
from deathless.execution.interface.misfit import Misfit
from deathless.execution.migration.items import NO_ITEMS, Items
from deathless.execution.migration.state import Migrator, parted
from deathless.execution.rehearsal.steps import Did, MapChange

ITEMS_MAX: Final = 1000
_NO_ENTRY: Final = b"s"  # the key of an item that is the empty text


class Mirror:
    """The former states.

    Args:
        state: entries of the former code's checkpoint.
        migrator: brings a key forward; None: they stand as they are.
        maps: states have maps, in one of the two codes.
    """

    def __init__(self, state: Mapping[bytes, bytes], migrator: Migrator | None, *, maps: bool) -> None:
        self._migrator = migrator
        self._maps = maps
        self._states: dict[bytes, bytes] = {}
        self._items: dict[bytes, dict[str, dict[bytes, bytes]]] = {}
        if maps:
            keys, self._items, _ = parted(state)
            self._states = {key: state[key] for key in keys}

    @property
    def migrates(self) -> bool:
        """Are states others in the new code?"""
        return self._migrator is not None

    @property
    def misfits(self) -> list[Misfit]:
        """What could not be migrated."""
        return [] if self._migrator is None else self._migrator.misfits

    def take(self, did: Did) -> None:
        """Take in what the former code has left."""
        if self._maps:
            self._states.update(did.states)
            for change in did.maps:
                self._change(change)

    def _change(self, change: MapChange) -> None:
        entry = take_apart(change.prefix + _NO_ENTRY)
        fields = self._items.setdefault(entry.key, {})
        held: dict[bytes, bytes] = {} if change.cleared else fields.get(entry.field, {})
        cut = len(change.prefix)
        for item, value in change.entries:
            if value is None:
                held.pop(item[cut:], None)
            else:
                held[item[cut:]] = value
        fields[entry.field] = held

    @property
    def keeps(self) -> bool:
        """Are states and items kept here, whenever they were written?"""
        return self._maps

    def item(self, entry: bytes) -> bytes | None:
        """Give an item as the former code has it, by its entry; None: it is not there."""
        place = take_apart(entry)
        return self.items(place.key).get(place.field, {}).get(entry[len(place.prefix) :])

    def items(self, key: bytes) -> Items:
        """Give the items of a key as the former code has them, by field."""
        return self._items.get(key, NO_ITEMS)

    def has_many(self, key: bytes) -> bool:
        """Would it take long to migrate the key?"""
        return sum(map(len, self.items(key).values())) > ITEMS_MAX

    def expected(self, key: bytes, state: bytes | None) -> tuple[bytes | None, Items] | None:
        """Give state and items of a key as the new code must have them; None: they can't be migrated.

        Args:
            key: of them.
            state: as the former code left it; None: it has not been written lately, and services with maps know it.
        """
        if state is None:
            state = self._states.get(key)
        if state is None:
            return None, NO_ITEMS
        if self._migrator is None:
            return state, self.items(key)
        passed = self._migrator.migrate(key, state, self.items(key))
        return None if passed is None else (passed.state, passed.items)


def entries_of(changes: Iterable[MapChange]) -> dict[bytes, bytes]:
    """Give the entries that were changed, each with the prefix of its map."""
    return {entry: change.prefix for change in changes for entry, _ in change.entries}

"""The items of one key's maps while its state is migrated.

Items are held by field and by the bytes of their own keys, without the name of the key they belong to, so that a key
that gets another name keeps them. A function for states sees them as the maps of the old state; nothing is decoded
before it asks.

Guarantees: what an old map gives is what was stored. Does not: migrate anything. Imports base and codec.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

from deathless.codec.map_entries import prefix_of
from deathless.execution.author.signature import map_types
from deathless.execution.handlers.plan import map_field
from deathless.execution.maps.map import Map, view_of
from deathless.execution.maps.sorted_keys import SortedKeys
from deathless.execution.maps.table import Look, MapTable
from deathless.execution.maps.view import HASH_BYTES, MapField

Items = Mapping[str, Mapping[bytes, bytes]]
"""Items of one key's maps: by field, then by the item's key as `encode_item` gives it."""

NO_ITEMS: Final[Items] = {}


class OldItems(MapTable):
    """A table of one key's old items, which notes whether anything was asked.

    Args:
        key: whose they are.
        items: all of them; not changed.
    """

    __slots__ = ("_held", "_sorted", "looked")

    def __init__(self, key: bytes, items: Items) -> None:
        super().__init__()
        self._held = {prefix_of(key, field): held for field, held in items.items()}
        self._sorted: dict[bytes, SortedKeys] = {}
        self.looked = False

    def get(self, prefix: bytes, entry: bytes) -> bytes | None:
        """See MapTable."""
        self.looked = True
        held = self._held.get(prefix)
        return None if held is None else held.get(entry[len(prefix) :])

    def after(self, prefix: bytes, entry: bytes) -> bytes | None:
        """See MapTable."""
        self.looked = True
        order = self._sorted.get(prefix)
        if order is None:
            order = self._sorted[prefix] = SortedKeys(self._held.get(prefix, ()))
        found = order.after(entry[len(prefix) :])
        return None if found is None else prefix + found


def map_fields(state: type) -> dict[str, MapField]:
    """Give the fields of a state that are maps, ready to be read and written."""
    return {name: map_field(name, kind, value) for name, (kind, value) in map_types(state).items()}


def bound(entity: object, fields: Mapping[str, MapField], key: bytes, table: OldItems) -> dict[str, Map[str, object]]:
    """Let the maps of an old state show its items; gives them by field."""
    maps: dict[str, Map[str, object]] = {}
    look = Look(table)
    for name, field in fields.items():
        held = getattr(entity, name)
        view_of(held).bind(field, prefix_of(key, name), look)
        maps[name] = held
    return maps


def chain_of(before: bytes, upgrade: bytes) -> bytes:
    """Give the hash over all changes of a map behind an upgrade, where it had one.

    A pass over all items would tell no more: what they are is a function of what they were and of the code, which the
    upgrade names.
    """
    return hashlib.blake2b(before + upgrade, digest_size=HASH_BYTES).digest()

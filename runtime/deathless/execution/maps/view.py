"""One map as one turn sees it: what the table holds, and over it what the turn has changed so far.

    items    values decoded or given in this turn, by entry: the objects that the handler has in its hands
    known    what the table said of an entry
    gone     entries of the table that the turn has taken away
    added    entries that the table does not hold, or not any more

At the end of the turn every value in `items` is encoded and compared with what the table holds, so one that was changed
in place is noticed, as a field of the state is. What did not change costs nothing more.

The state of the key holds of its maps a header each: how many items there are, and a hash chained over all that turns
ever changed. So the bytes of the state, and with them every digest, stand for the items too (I6), and a state differs
from another one whenever an item of it does.

Guarantees: nothing reaches the table but by the Change that `close` gives, which its caller applies or drops. In an
iteration an item that is added or deleted is seen if it lies ahead. Does not: know types of keys and values beyond what
its field says. Imports base and codec.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from deathless.base.errors import InvalidArgument, InvalidUse, TooLarge
from deathless.base.limits import Limits
from deathless.codec.map_entries import decode_item, encode_item, take_apart
from deathless.execution.maps.sorted_keys import SortedKeys
from deathless.execution.maps.table import Change, Look, MapTable
from deathless.execution.values.failure import bounded

HASH_BYTES: Final = 16
_SIZES: Final = struct.Struct("<II")  # of an item's key; of its value plus 1, or 0: it goes
_CLEARED: Final = b"\xff" * _SIZES.size
MISSING: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class MapField:
    """A field of the state that is a Map."""

    name: str
    kind: type | None  # of its keys: str, int or bytes; None: of a map outside a turn, any of them
    plain: bool  # True: its values can't be changed in place
    decode: Callable[[bytes], object]
    encode: Callable[[object], bytes]


def _never(_: object) -> bytes:
    raise TypeError("a map that stands in no state is not kept")


LOOSE: Final = MapField(name="", kind=None, plain=False, decode=_never, encode=_never)
"""Of a map that no turn was given: it is a dictionary in memory."""


class View:
    """The map. It begins as one outside a turn."""

    __slots__ = (
        "_added", "_cleared", "_committed", "_gone", "_items", "_known", "_order", "_passed", "chain", "count", "field",
        "look", "prefix",
    )  # fmt: skip

    def __init__(self, count: int = 0, chain: bytes = b"") -> None:
        self.field = LOOSE
        self.prefix = b""
        self.look = Look(MapTable())
        self.reset(count, chain)

    def reset(self, count: int, chain: bytes) -> None:
        """Begin anew with a header, as if nothing had been looked at."""
        self.count = count  # of items
        self.chain = chain  # hash over all changes; empty: there were none
        self._committed = count  # of items when the turn began
        self._items: dict[bytes, object] = {}
        self._known: dict[bytes, bytes | None] = {}
        self._begin()

    def _begin(self) -> None:
        """Forget what the turn has changed."""
        self._gone: dict[bytes, None] = {}
        self._added: dict[bytes, None] = {}
        self._order: SortedKeys | None = None  # of `_added`; None: nobody has asked for it
        self._passed = b""  # every entry of the table up to here is gone
        self._cleared = False

    def bind(self, field: MapField, prefix: bytes, look: Look) -> None:
        """Make it the map of a turn."""
        self.field, self.prefix, self.look = field, prefix, look

    # ---- what handlers do -------------------------------------------------------------------------------------

    def entry(self, key: object) -> bytes:
        """Give the entry of a key.

        Raises: InvalidArgument naming field and key, InvalidUse for a key of another type; Closed.
        """
        self.look.check()
        kind = type(key)
        wanted = self.field.kind
        if isinstance(key, str | int | bytes) and (kind is wanted or (wanted is None and kind is not bool)):
            try:
                return self.prefix + encode_item(key)
            except ValueError as error:
                raise InvalidArgument(f"{self._named(repr(key))} can't be: {error}") from None
        kinds = "str, int or bytes" if wanted is None else wanted.__name__
        raise InvalidUse(f"{self._named(repr(key))} can't be: keys are {kinds}, not {kind.__name__}")

    def _named(self, key: str) -> str:
        return f"item {bounded(key, 100)} of map {self.field.name!r}"

    def has(self, entry: bytes) -> bool:
        """Is it there?"""
        return entry in self._items or self._held(entry) is not None

    def _held(self, entry: bytes) -> bytes | None:
        """Give what the table holds of an entry, if the turn has left it there."""
        if self._cleared or entry in self._gone:
            return None
        known = self._known
        if entry not in known:
            known[entry] = self.look.get(self.prefix, entry)
        return known[entry]

    def get(self, entry: bytes) -> object:
        """Give a value, the same object as often as it is asked for; MISSING: it is not there."""
        if entry in self._items:
            return self._items[entry]
        held = self._held(entry)
        if held is None:
            return MISSING
        value = self.field.decode(held)
        if not self.field.plain:
            self._items[entry] = value
        return value

    def put(self, entry: bytes, value: object) -> None:
        """Set a value."""
        if not self.has(entry):
            self.count += 1
            self._added[entry] = None
            if self._order is not None:
                self._order.add(entry)
        self._items[entry] = value

    def drop(self, entry: bytes) -> bool:
        """Delete an item; False: it is not there."""
        if not self.has(entry):
            return False
        self._items.pop(entry, None)
        self.count -= 1
        if entry in self._added:
            del self._added[entry]
            if self._order is not None:
                self._order.remove(entry)
        else:
            self._gone[entry] = None
        return True

    def clear(self) -> None:
        """Delete all items."""
        self.look.check()
        self._items = {}
        self._begin()
        self._cleared = True
        self.count = 0

    def after(self, entry: bytes) -> bytes | None:
        """Give the first entry above one, or above the prefix; None: there is none."""
        self.look.check()
        held = None if self._cleared else self._held_after(entry)
        if not self._added:
            return held
        if self._order is None:
            self._order = SortedKeys(self._added)
        added = self._order.after(entry)
        return min(held, added) if held is not None and added is not None else held or added

    def _held_after(self, entry: bytes) -> bytes | None:
        """Give the first entry of the table above one that is not gone.

        A turn that takes the first item away again and again passes what is gone once, not each time.
        """
        held = self.look.after(self.prefix, max(entry, self._passed))
        while held is not None and held in self._gone:
            if entry <= self._passed or entry == self.prefix:
                self._passed = held
            held = self.look.after(self.prefix, held)
        return held

    def key_of(self, entry: bytes) -> str | int | bytes:
        """Give the key of an entry."""
        return decode_item(entry[len(self.prefix) :])

    # ---- the end of a turn ------------------------------------------------------------------------------------

    def close(self, limits: Limits) -> Change | None:
        """Give what the turn has changed, and go on with that; None: nothing.

        Raises: TooLarge, ValidationError naming field and item; the turn never was then, and this view is of no use.
        """
        cleared = self._cleared and self._committed > 0
        entries: list[tuple[bytes, bytes | None]] = [(entry, None) for entry in self._gone if entry not in self._items]
        for entry, value in self._items.items():
            new = self._encode(entry, value, limits)
            if self._cleared or new != self._known[entry]:
                self._check(entry, new)
                entries.append((entry, new))
        entries.sort()
        if self._cleared:
            self._known = {}
        self._known.update(entries)
        if self.field.plain:
            self._items = {}
        self._begin()
        self._committed = self.count
        if not (cleared or entries):
            return None
        self.chain = self._chained(entries, cleared=cleared)
        return Change(self.prefix, cleared, entries)

    def _encode(self, entry: bytes, value: object, limits: Limits) -> bytes:
        new = self.field.encode(value)
        if len(new) <= limits.item_bytes_max and len(entry) - len(self.prefix) <= limits.key_bytes_max + 1:
            return new
        key, _, item, _ = take_apart(entry)
        what = f"{self._named(repr(item))} of key {bounded(key.decode(errors='backslashreplace'), 100)!r}"
        if len(new) > limits.item_bytes_max:
            raise TooLarge(
                f"{what} would have {len(new)} bytes, at most {limits.item_bytes_max}; "
                "divide it into several items, or raise itemBytesMax"
            )
        raise TooLarge(f"the key of {what} has more than {limits.key_bytes_max} bytes; name it in fewer")

    def _check(self, entry: bytes, new: bytes) -> None:
        """A value that does not fit its type fails its own turn."""
        try:
            self.field.decode(new)
        except msgspec.ValidationError as error:
            raise msgspec.ValidationError(f"{error} - in {self._named(repr(self.key_of(entry)))}") from None

    def _chained(self, entries: list[tuple[bytes, bytes | None]], *, cleared: bool) -> bytes:
        chained = hashlib.blake2b(self.chain, digest_size=HASH_BYTES)
        if cleared:
            chained.update(_CLEARED)
        cut = len(self.prefix)
        for entry, new in entries:
            chained.update(_SIZES.pack(len(entry) - cut, 0 if new is None else len(new) + 1))
            chained.update(entry[cut:])
            if new is not None:
                chained.update(new)
        return chained.digest()

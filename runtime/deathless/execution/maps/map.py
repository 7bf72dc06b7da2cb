"""`Map`: a collection in the state of a key that is kept item by item, however large it is.

    class Stock(Struct):
        name: str = ""
        items: Map[str, Item] = field(default_factory=Map)

    @stock.handler
    def take(stock: Stock, ctx: Context, article: str, count: int) -> int:
        item = stock.items[article]
        item.left -= count
        return item.left

A turn decodes what it reads and encodes what it has read or set; the other items, be they a million, cost it nothing.
Items ascend by their keys. Everything else is as for any field of the state: what is changed in place is kept, a turn
is whole or not at all, and nothing is shared between turns.

Guarantees: outside of a service (in a test of a handler) a Map is a dictionary in memory, in the same order. Does not:
hold other maps. Imports base and codec.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import NoReturn, TypeVar, cast

import msgspec

from deathless.execution.maps.view import LOOSE, MISSING, View

K = TypeVar("K", bound=str | int | bytes)
V = TypeVar("V")


class Map(MutableMapping[K, V]):
    """A map as a field of the state, of type `Map[K, V]` with K one of str, int and bytes.

    To read, set or delete an item, `in` and `len` cost the same however many items there are; a step of an iteration
    costs the logarithm of that, but the first one over a map in a process, which sorts its keys. `clear` costs as much
    as there is to free.
    """

    __slots__ = ("_view",)

    def __init__(self) -> None:
        self._view = View()

    def __getitem__(self, key: K) -> V:
        """Give the item, the same object as often as it is asked for in one turn."""
        view = self._view
        value = view.get(view.entry(key))
        if value is MISSING:
            raise KeyError(key)
        return cast("V", value)

    def __setitem__(self, key: K, value: V) -> None:
        """Set an item; its bytes are those that it has at the end of the turn."""
        view = self._view
        view.put(view.entry(key), value)

    def __delitem__(self, key: K) -> None:
        """Delete an item."""
        view = self._view
        if not view.drop(view.entry(key)):
            raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        """Is it there? The item is not decoded."""
        view = self._view
        return view.has(view.entry(key))

    def __len__(self) -> int:
        """How many there are."""
        view = self._view
        view.look.check()
        return view.count

    def __iter__(self) -> Iterator[K]:
        """Give the keys, ascending; what is added or deleted meanwhile is seen if it lies ahead."""
        return self._above(self._view.prefix)

    def keys_above(self, key: K) -> Iterator[K]:
        """Give the keys above `key`, which need not be there, ascending: where a page ended the next one begins."""
        return self._above(self._view.entry(key))

    def _above(self, entry: bytes) -> Iterator[K]:
        view = self._view
        following = view.after(entry)
        while following is not None:
            yield cast("K", view.key_of(following))
            following = view.after(following)

    def clear(self) -> None:
        """Delete all items."""
        self._view.clear()

    def __repr__(self) -> str:
        """Say how large it is; the items are not looked at."""
        return f"<Map of {self._view.count}>"

    def __reduce__(self) -> NoReturn:
        """Refuse to be copied: a copy would have to hold every item."""
        raise TypeError("a Map can't be copied; take the items that are wanted, or all with dict(...)")


def view_of(map_: Map[K, V]) -> View:
    """Give what stands behind a map."""
    return map_._view  # noqa: SLF001  nothing of it is for users


def encode_map(value: object) -> object:
    """Give the header of a map, for msgspec: how many items, hash of all changes.

    Raises: TypeError for anything else, and for a map that holds items which no table does.
    """
    if type(value) is not Map:
        raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")
    view = view_of(value)
    if view.field is LOOSE and view.count:
        raise TypeError("a Map begins empty")
    return view.count, view.chain


def decode_map(_kind: object, data: object) -> Map[str, object]:
    """Give the map of a header, for msgspec.

    Raises: ValidationError.
    """
    count, chain = msgspec.convert(data, tuple[int, bytes])
    made: Map[str, object] = Map()
    view_of(made).reset(count, chain)
    return made

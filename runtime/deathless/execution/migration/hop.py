"""One stretch of a way made ready: from the bytes of one version to those of the next, key by key.

    decode as the old type -> the author's function -> encode as the new type -> decode that once more

Without a function the bytes are decoded and encoded by the new code all the same, so that what stands afterwards is
what its turns would leave. What the first decoder passes over in silence is looked for in the bytes (see
`unknown_fields`): a field that stands there and has no place is a loss.

Guarantees: what is given back decodes as the new type and is within the limits; whatever a function raises comes out
as it is, and nothing was kept. Does not: count (see state). Imports base and codec.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, get_args, get_origin

import msgspec

from deathless.base.errors import InvalidService, TooLarge
from deathless.base.limits import Limits
from deathless.codec.map_entries import decode_item, encode_item, prefix_of
from deathless.execution.author.changes import Hop, Step, renamed_key
from deathless.execution.author.migration import NO_MAPS, Migration
from deathless.execution.author.signature import map_types
from deathless.execution.declared.unknown_fields import Finder, Found, decode_plain, unknown_fields, unknown_in
from deathless.execution.handlers.plan import check_key, encoder
from deathless.execution.maps.map import Map, decode_map, encode_map, view_of
from deathless.execution.maps.table import Look, MapTable
from deathless.execution.maps.view import MapField
from deathless.execution.migration.items import Items, OldItems, bound, chain_of, map_fields
from deathless.execution.values.function import place

Decode = Callable[[bytes], object]


class Unknown(Exception):
    """Fields stand in bytes that the type does not know."""

    def __init__(self, found: Found) -> None:
        super().__init__(str(found))
        self.found = found


class Passed(NamedTuple):
    """What a key is behind a stretch."""

    key: bytes
    state: bytes
    items: Items


def _decoder(state: type) -> Decode:
    if map_types(state):
        return msgspec.msgpack.Decoder(state, dec_hook=decode_map).decode
    return msgspec.msgpack.Decoder(state).decode


class Stretch:
    """One hop, with everything that its keys need.

    Args:
        hop: what it is.
        limits: `entity_bytes_max`, `item_bytes_max` and `key_bytes_max` are used.
        upgrade: names the upgrade, in the hash of maps.
        strict: look for fields that the old type does not know; needed where other code wrote the bytes.
        drops: (class, field) that may stand there.

    Raises: InvalidService where what a function for items gives is not what the map holds.
    """

    def __init__(
        self,
        hop: Hop,
        limits: Limits,
        upgrade: bytes,
        *,
        strict: bool,
        drops: Collection[tuple[str, str]] = (),
    ) -> None:
        self.hop = hop
        self.limits = limits
        self._bytes_max = limits.entity_bytes_max
        self._function = None if hop.state is None else hop.state.function
        self._upgrade = upgrade
        self.old_maps = map_fields(hop.old)
        self.new_maps = map_fields(hop.new)
        self.decode = _decoder(hop.old)
        self.check = _decoder(hop.new)
        self.encode = encoder(hop.new, encode_map if self.new_maps else None)
        self.find: Finder | None = unknown_fields(hop.old, drops) if strict else None
        self._items = {
            name: _ItemStretch(name, hop.maps.get(name), value, limits, strict=strict, drops=drops)
            for name, (_, value) in map_types(hop.new).items()
        }

    @property
    def has_maps(self) -> bool:
        """The state has maps before or behind it."""
        return bool(self.old_maps or self.new_maps)

    def refuse_unknown(self, data: bytes) -> None:
        """Raise Unknown where the bytes have fields that the old type does not know."""
        if found := unknown_in(self.find, data):
            raise Unknown(found)

    def plain(self, data: bytes, m: Migration) -> bytes:
        """Migrate a state without maps.

        Raises: Unknown, TooLarge, msgspec.ValidationError; what the function raises.
        """
        if self._function is None:
            new = self.encode(self.decode(data))
            if new != data:
                self.refuse_unknown(data)
        else:
            if self.find is not None:  # as `refuse_unknown`, without a call: this is once for each key
                found: Found = []
                self.find(decode_plain(data), found)
                if found:
                    raise Unknown(found)
            new = self.encode(self._function(self.decode(data), m))
        self.check(new)
        if len(new) > self._bytes_max:
            raise TooLarge(f"its state would have {len(new):,} bytes, at most {self.limits.entity_bytes_max:,}")
        return new

    def whole(self, key: bytes, data: bytes, items: Items, m: Migration) -> Passed:
        """Migrate a state with its maps, and its name.

        Raises: as `plain`; InvalidArgument for a key that can't be.
        """
        m.key_bytes = key
        if self.has_maps:
            new, after = self._with_maps(key, data, items, m)
        else:
            new, after = self.plain(data, m), items
        if self.hop.key is not None:
            key = check_key(renamed_key(self.hop.key, key.decode()).encode(), self.limits.key_bytes_max, "key")
        return Passed(key, new, after)

    def _with_maps(self, key: bytes, data: bytes, items: Items, m: Migration) -> tuple[bytes, Items]:
        self.refuse_unknown(data)
        old = self.decode(data)
        table = OldItems(key, items)
        olds = bound(old, self.old_maps, key, table)
        headers = {name: view_of(held).chain for name, held in olds.items()}
        if self.hop.state is None:
            new = old if self.hop.new is self.hop.old else self.check(data)
        else:
            m.held = olds
            try:
                new = self.hop.state.function(old, m)
            finally:
                m.held = NO_MAPS
            m.looked = m.looked or table.looked
        sources = {id(held): name for name, held in olds.items()}
        after: dict[str, dict[bytes, bytes]] = {}
        taken: set[int] = set()
        for name, field in self.new_maps.items():
            held = getattr(new, name, None)
            if type(held) is not Map or id(held) in taken:
                raise TypeError(f"field {name!r} must be a Map of its own, not {type(held).__name__}")
            taken.add(id(held))
            view = view_of(held)
            source = sources.get(id(held), name)
            if id(held) in sources:
                if view.close(self.limits) is not None:
                    raise TypeError(f"map {source!r} of the old state can't be changed; fill a new Map")
            elif len(held) and self.hop.state is not None:
                after[name], chain = self._filled(key, name, field, held, headers.get(name, b""))
                view.bind(field, prefix_of(key, name), Look(MapTable()))
                view.reset(len(after[name]), chain)
                continue
            after[name] = self._items[name].run(key, items.get(source, {}), field)
            before = headers.get(source, b"")
            view.bind(field, prefix_of(key, name), Look(MapTable()))
            view.reset(len(after[name]), chain_of(before, self._upgrade) if before else b"")
        encoded = self.encode(new)
        self.check(encoded)
        if len(encoded) > self.limits.entity_bytes_max:
            raise TooLarge(f"its state would have {len(encoded):,} bytes, at most {self.limits.entity_bytes_max:,}")
        return encoded, after

    def _filled(
        self, key: bytes, name: str, field: MapField, held: Map[str, object], before: bytes
    ) -> tuple[dict[bytes, bytes], bytes]:
        """Give the items of a map that a function has filled, and the hash over its changes."""
        prefix = prefix_of(key, name)
        made: Map[str, object] = Map()
        view = view_of(made)
        view.bind(field, prefix, Look(MapTable()))
        made.update(held)
        change = view.close(self.limits)
        assert change is not None, "it holds something"
        found = {entry[len(prefix) :]: new for entry, new in change.entries if new is not None}
        return found, chain_of(before + view.chain, self._upgrade)


class _ItemStretch:
    """How the items of one map pass."""

    def __init__(
        self,
        name: str,
        step: Step | None,
        value: object,
        limits: Limits,
        *,
        strict: bool,
        drops: Collection[tuple[str, str]],
    ) -> None:
        stated = value if step is None else step.old
        self._name = name
        self._step = step
        self._limits = limits
        self._decode: Decode = msgspec.msgpack.Decoder(stated).decode
        self._find = unknown_fields(stated, drops) if strict else None
        self._renames = step is not None and _renames(name, step, value)

    def run(self, key: bytes, items: Mapping[bytes, bytes], field: MapField) -> dict[bytes, bytes]:
        """Give the new items of one key's map."""
        after: dict[bytes, bytes] = {}
        kind = field.kind
        text = key.decode(errors="backslashreplace")
        for item, data in items.items():
            value = self._decode(data)
            item_key = decode_item(item)
            place_ = item
            if self._step is not None:
                self._refuse_unknown(data)
                value = self._step.function(text, item_key, value)
                if value is None:
                    continue
                if self._renames and type(value) is tuple:
                    item_key, value = value
                    place_ = encode_item(item_key)
            if type(item_key) is not kind:
                kinds = kind.__name__ if kind is not None else "str"
                raise TypeError(f"item {item_key!r} of map {self._name!r} must have a key of type {kinds}")
            new = field.encode(value)
            if self._step is None and new != data:
                self._refuse_unknown(data)
            field.decode(new)
            if len(new) > self._limits.item_bytes_max:
                raise TooLarge(
                    f"item {item_key!r} of map {self._name!r} would have {len(new):,} bytes, "
                    f"at most {self._limits.item_bytes_max:,}"
                )
            if len(place_) > self._limits.key_bytes_max + 1:
                raise TooLarge(
                    f"the key of an item of map {self._name!r} has more than {self._limits.key_bytes_max} bytes"
                )
            if place_ in after:
                raise ValueError(f"two items of map {self._name!r} would have the key {item_key!r}")
            after[place_] = new
        return after

    def _refuse_unknown(self, data: bytes) -> None:
        if found := unknown_in(self._find, data):
            raise Unknown(found)


def _renames(name: str, step: Step, value: object) -> bool:
    """Does the function give (key, item)? Its annotation says so.

    Raises: InvalidService where it gives neither that nor an item.
    """
    given = [each for each in get_args(step.new) if each is not type(None)] if _is_union(step.new) else [step.new]
    parts = list(get_args(value)) if _is_union(value) else [value]
    pairs = [each for each in given if each not in parts and _is_pair(each, value)]
    others = [each for each in given if each not in parts and each not in pairs]
    if others or (pairs and get_origin(value) is tuple):
        raise InvalidService(
            f"{place(step.function)}: a migration of items of map {name!r} gives {_show(value)}, "
            f"tuple[str, {_show(value)}] to rename one, or None, not {_show(step.new)}"
        )
    return bool(pairs)


def _is_pair(stated: object, value: object) -> bool:
    arguments = get_args(stated)
    return get_origin(stated) is tuple and len(arguments) == len(("key", "item")) and arguments[1] == value


def _is_union(stated: object) -> bool:
    return type(stated).__name__ in ("UnionType", "_UnionGenericAlias", "Union") and bool(get_args(stated))


def _show(stated: object) -> str:
    return getattr(stated, "__name__", None) or str(stated)

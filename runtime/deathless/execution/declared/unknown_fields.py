"""Finds fields in encoded values that a type does not know, which a decoder passes over in silence.

A decoder of a Struct or dataclass takes what it knows and drops the rest, at any depth, unless the class says
otherwise. Where a value is read by another type than the one that wrote it, that is a loss. So the value is looked at
once more as plain maps and lists, beside its type.

    find = unknown_fields(Account)
    unknown_in(find, data)      [("Account", "note")]

Guarantees: each field of a class, at any depth, that the type does not name is found, in one pass over the value; what
can't hold any costs nothing. Does not: check types (the decoder does). Imports base and codec.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

import msgspec
from msgspec import inspect as shapes

Found = list[tuple[str, str]]  # (name of the class, name of the field in the bytes)
Finder = Callable[[object, Found], None]
_NAMED: Final = (shapes.StructType, shapes.DataclassType, shapes.TypedDictType)
_LISTS: Final = (shapes.ListType, shapes.SetType, shapes.FrozenSetType, shapes.VarTupleType)


def unknown_fields(stated: object, allowed: Collection[tuple[str, str]] = ()) -> Finder | None:
    """Give what finds unknown fields in values of an annotation, decoded as plain ones; None: they can't have any.

    Args:
        stated: annotation.
        allowed: (class, field) that need not be known.
    """
    return _Compiler(frozenset(allowed)).finder(shapes.type_info(stated))


decode_plain: Final = msgspec.msgpack.Decoder().decode


def unknown_in(
    find: Finder | None, data: bytes, decode: Callable[[bytes], object] = decode_plain
) -> list[tuple[str, str]]:
    """Give the unknown fields of an encoded value: (name of the class, name of the field), in the order of the bytes.

    Args:
        find: of its type; None: it can't have any.
        data: the value.
        decode: gives it as plain maps and lists.
    """
    found: Found = []
    if find is not None:
        find(decode(data), found)
    return found


def class_name(cls: object) -> str:
    """Give the name by which people know a class; one with parameters has them in brackets."""
    return getattr(cls, "__name__", None) or str(cls)


class _Compiler:
    """Makes finders, one for each class, also of classes that hold themselves."""

    def __init__(self, allowed: frozenset[tuple[str, str]]) -> None:
        self._allowed = allowed
        self._made: dict[int, Finder | None] = {}
        self._open: set[int] = set()

    def finder(self, shape: shapes.Type) -> Finder | None:
        place = id(shape)
        if place in self._made:
            return self._made[place]
        if place in self._open:  # it holds itself, so there is one by the time that it is called
            return lambda value, found: self._again(place, value, found)
        self._open.add(place)
        made = self._made[place] = self._make(shape)
        return made

    def _again(self, place: int, value: object, found: Found) -> None:
        finder = self._made[place]
        if finder is not None:
            finder(value, found)

    def _make(self, shape: shapes.Type) -> Finder | None:
        match shape:
            case shapes.Metadata(type=inside):
                return self.finder(inside)
            case shapes.StructType(array_like=True) | shapes.NamedTupleType():
                return self._positions(shape)
            case shapes.StructType() | shapes.DataclassType() | shapes.TypedDictType():
                return self._names(shape)
            case shapes.DictType(key_type=key, value_type=value):
                return _entries(self.finder(key), self.finder(value))
            case shapes.TupleType(item_types=types):
                return _each([self.finder(each) for each in types])
            case shapes.UnionType(types=types):
                return self._union(types)
            case _:
                return _items(self.finder(shape.item_type)) if isinstance(shape, _LISTS) else None

    def _names(self, shape: shapes.StructType | shapes.DataclassType | shapes.TypedDictType) -> Finder:
        name = class_name(shape.cls)
        known = {field.encode_name for field in shape.fields}
        known |= {field for cls, field in self._allowed if cls == name}
        if isinstance(shape, shapes.StructType) and shape.tag_field is not None:
            known.add(shape.tag_field)
        names = frozenset(known)
        inside = [
            (field.encode_name, finder) for field in shape.fields if (finder := self.finder(field.type)) is not None
        ]

        def find(value: object, found: Found) -> None:
            if isinstance(value, dict):
                if not value.keys() <= names:
                    found += [(name, str(field)) for field in value if field not in names]
                for field, finder in inside:
                    if field in value:
                        finder(value[field], found)

        return find

    def _positions(self, shape: shapes.StructType | shapes.NamedTupleType) -> Finder:
        """A class whose values are lists: what is behind its last field is unknown."""
        name = class_name(shape.cls)
        begin = 1 if isinstance(shape, shapes.StructType) and shape.tag_field is not None else 0
        inside = [self.finder(field.type) for field in shape.fields]
        allowed = {field for cls, field in self._allowed if cls == name}

        def find(value: object, found: Found) -> None:
            if isinstance(value, list | tuple):
                for place in range(begin + len(inside), len(value)):
                    if str(place - begin) not in allowed:
                        found.append((name, str(place - begin)))
                for item, finder in zip(value[begin:], inside, strict=False):
                    if finder is not None:
                        finder(item, found)

        return find

    def _union(self, types: tuple[shapes.Type, ...]) -> Finder | None:
        """A value goes to the member that a decoder takes: by its tag, else the one of its form."""
        tagged: dict[object, Finder] = {}
        fields: set[str] = set()
        maps: list[Finder] = []
        lists: list[Finder] = []
        for each in types:
            finder = self.finder(each)
            if finder is None:
                continue
            if isinstance(each, shapes.StructType) and each.tag_field is not None:
                tagged[each.tag] = finder
                fields.add(each.tag_field)
            elif isinstance(each, shapes.DictType) or (isinstance(each, _NAMED) and not getattr(each, "array_like", 0)):
                maps.append(finder)
            else:
                lists.append(finder)
        if not (tagged or maps or lists):
            return None

        def find(value: object, found: Found) -> None:
            chosen = maps if isinstance(value, dict) else lists
            if tagged:
                tag = None
                if isinstance(value, dict):
                    tag = next((value[field] for field in fields if field in value), None)
                elif isinstance(value, list) and value:
                    tag = value[0]
                if isinstance(tag, str | int) and tag in tagged:
                    tagged[tag](value, found)
                    return
            for finder in chosen:
                finder(value, found)

        return find


def _entries(key: Finder | None, value: Finder | None) -> Finder | None:
    if key is None and value is None:
        return None

    def find(held: object, found: Found) -> None:
        if isinstance(held, dict):
            for name, item in held.items():
                if key is not None:
                    key(name, found)
                if value is not None:
                    value(item, found)

    return find


def _items(finder: Finder | None) -> Finder | None:
    if finder is None:
        return None

    def find(held: object, found: Found) -> None:
        if isinstance(held, list | tuple):
            for item in held:
                finder(item, found)

    return find


def _each(finders: list[Finder | None]) -> Finder | None:
    if not any(finders):
        return None

    def find(held: object, found: Found) -> None:
        if isinstance(held, list | tuple):
            for item, finder in zip(held, finders, strict=False):
                if finder is not None:
                    finder(item, found)

    return find

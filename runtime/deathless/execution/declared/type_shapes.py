"""What an annotation is made of, as far as bytes depend on it: order, depth.

Guarantees: the same answer for the same annotation in every process. Does not: refuse anything; signature does. Imports
base and codec.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import lru_cache, wraps
from typing import Final, TypeVar

import msgspec
from msgspec import inspect as shapes

from deathless.base.limits import NESTING_MAX
from deathless.codec.nesting import is_too_deep
from deathless.execution.maps.map import Map

T = TypeVar("T")
KNOWN_MAX: Final = 4096  # types of which an answer is remembered, for each question
_TOO_DEEP: Final = f"more than {NESTING_MAX} containers are nested inside each other"
_ANYTHING: Final = (shapes.AnyType, shapes.CustomType, shapes.RawType)
_RECURSION_IN_C: Final = sys.version_info >= (3, 12)
"""There the room for recursion inside of C differs by the place of the call; before, it is part of a turn's own."""


def walk(stated: object) -> Iterator[shapes.Type]:
    """Give each type an annotation is made of, once, itself first.

    Raises: TypeError for what msgspec does not know how to describe.
    """
    yield from walk_from(shapes.type_info(stated))


def walk_from(shape: shapes.Type) -> Iterator[shapes.Type]:
    """Give each type that a type is made of, likewise."""
    seen: set[int] = set()
    open_ = [shape]
    while open_:
        shape = open_.pop()
        if id(shape) in seen:
            continue
        seen.add(id(shape))
        yield shape
        open_.extend(parts(shape))


def parts(shape: object) -> Iterator[shapes.Type]:
    """Types directly inside `shape`; its fields hold types, tuples of types, or fields that hold a type."""
    for name in getattr(shape, "__struct_fields__", ()):
        value: object = getattr(shape, name)
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, shapes.Field):
                item = item.type  # noqa: PLW2901  the field is but a wrapper
            if isinstance(item, shapes.Type):
                yield item


def _told_once(ask: Callable[[object], bool]) -> Callable[[object], bool]:
    """Remember what a question about a type was answered: an executor asks about each of its types when it is made."""
    known = lru_cache(KNOWN_MAX)(ask)

    @wraps(ask)
    def answer(stated: object) -> bool:
        try:
            return known(stated)
        except TypeError:  # it can't be told from others, or nobody can tell about it
            return ask(stated)

    return answer


@_told_once
def has_no_order(stated: object) -> bool:
    """True when values of this type may hold sets, whose order differs between processes."""
    unordered = (shapes.SetType, shapes.FrozenSetType, shapes.AnyType, shapes.CustomType)
    return any(isinstance(shape, unordered) and getattr(shape, "cls", None) is not Map for shape in walk(stated))


@_told_once
def sorts_itself(stated: object) -> bool:
    """True when the items of all sets have one order, so that sorting them is enough: sets and NaN have none."""
    for shape in walk(stated):
        if isinstance(shape, shapes.SetType | shapes.FrozenSetType):
            inside = walk_from(shape.item_type)
            if any(isinstance(part, shapes.SetType | shapes.FrozenSetType | shapes.FloatType) for part in inside):
                return False
    return True


@_told_once
def has_no_depth(stated: object) -> bool:
    """True when the type does not bound how deep its values are: it may hold anything, or itself."""
    done: set[int] = set()
    above: set[int] = set()
    open_: list[tuple[shapes.Type, bool]] = [(shapes.type_info(stated), False)]
    while open_:
        shape, left = open_.pop()
        if left:
            above.discard(id(shape))
            done.add(id(shape))
        elif id(shape) in above:
            return True
        elif id(shape) not in done:
            if isinstance(shape, _ANYTHING) and getattr(shape, "cls", None) is not Map:
                return True
            above.add(id(shape))
            open_.append((shape, True))
            open_.extend((part, False) for part in parts(shape))
    return False


@_told_once
def _passes_over(stated: object) -> bool:
    """True when a decoder of this type passes over fields that it does not know, whatever is in them."""
    known = (shapes.StructType, shapes.DataclassType, shapes.TypedDictType)
    return any(
        isinstance(shape, known) and not getattr(shape, "forbid_unknown_fields", False) for shape in walk(stated)
    )


def shallow_decoder(stated: object, decode: Callable[[bytes], T]) -> Callable[[bytes], T]:
    """Give `decode` for values of an annotation, or what also refuses values that are nested too deep.

    What is given raises msgspec.ValidationError for those.
    """
    if not (has_no_depth(stated) or (_RECURSION_IN_C and _passes_over(stated))):
        return decode

    def checked(data: bytes) -> T:
        if is_too_deep(data):
            raise msgspec.ValidationError(_TOO_DEEP)
        return decode(data)

    return checked


def shallow_encoder(stated: object, encode: Callable[[object], bytes]) -> Callable[[object], bytes]:
    """Give `encode` for values of an annotation, or what also refuses values that are nested too deep, likewise."""
    if not has_no_depth(stated):
        return encode

    def checked(value: object) -> bytes:
        data = encode(value)
        if is_too_deep(data):
            raise msgspec.ValidationError(_TOO_DEEP)
        return data

    return checked

"""Which types may be declared: what works wherever its values go; all else is refused when the module is imported.

A value of a state is encoded behind each turn and decoded before the next one, in every replica. A value of an argument
or a result crosses HTTP as JSON too. What would come back as something else, or not at all, is named here with the
class and field it stands in, and with what to write in its place.

Guarantees: InvalidService, or values of the type come back equal. Does not: look into what is declared as anything
(`Any`, `object`): it comes back as plain values, as texts, numbers, lists and dictionaries; nor know whether an int has
more than 64 bits, which fails the call or turn that has it. Imports base.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, abc, defaultdict, deque
from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Final, get_args, get_origin, get_type_hints

import msgspec
from msgspec import inspect as shapes

from deathless.base.errors import InvalidService
from deathless.execution.declared.type_shapes import parts
from deathless.execution.maps.map import Map

MAP_HINT: Final = (
    "Map stands directly in the state, with the types of its keys and items: `items: Map[str, Item]`; "
    "elsewhere give the items that are wanted, in a dict"
)
_OTHERS: Final = "a Struct, a dataclass or plain types"
_INSTEAD: Final[tuple[tuple[type, str], ...]] = (
    (defaultdict, "dict"),
    (OrderedDict, "dict, which keeps its order"),
    (Counter, "dict"),
    (deque, "list"),
    (complex, "a tuple of two floats"),
    (dict, "dict"),
    (list, "list"),
    (tuple, "tuple"),
    (set, "set"),
    (frozenset, "frozenset"),
    (int, "int, or an IntEnum"),
    (float, "float"),
    (str, "str, or a StrEnum"),
    (bytes, "bytes"),
)
"""What to write in place of a class or of what is derived from it; the first that fits."""

_INSTEAD_BY_NAME: Final = {
    "Fraction": "a tuple of two ints",
    **dict.fromkeys(("Path", "PosixPath", "PurePath", "PurePosixPath", "PureWindowsPath", "WindowsPath"), "str"),
    **dict.fromkeys(("IPv4Address", "IPv6Address", "IPv4Network", "IPv6Network", "Pattern", "ZoneInfo"), "str"),
    **dict.fromkeys(("Iterable", "Iterator", "Generator"), "list"),
    "timezone": "str",
    "range": "a tuple of its numbers",
}
_ABSTRACT: Final[dict[type, str]] = {abc.Sequence: "list or tuple", abc.Collection: "list, tuple or set"}
_MUTABLE: Final = (
    shapes.ListType,
    shapes.SetType,
    shapes.DictType,
    shapes.TypedDictType,
    shapes.ByteArrayType,
    shapes.MemoryViewType,
)
_JSON_KEYS: Final = (
    shapes.AnyType,
    shapes.StrType,
    shapes.IntType,
    shapes.FloatType,
    shapes.BytesType,
    shapes.DateTimeType,
    shapes.DateType,
    shapes.TimeType,
    shapes.TimeDeltaType,
    shapes.UUIDType,
    shapes.DecimalType,
    shapes.EnumType,
)
"""Types that have a text form of their own in JSON, where a key is a text."""


def check_type(stated: object, where: str, *, as_json: bool = False, kept: bool = False) -> None:
    """Refuse a type whose values would not come back equal.

    Args:
        stated: annotation.
        where: it stands.
        as_json: its values cross HTTP.
        kept: they are part of a state, and are handed to handlers as they come back.

    Raises: InvalidService naming `where`, and class and field below it.
    """
    try:
        places = list(_walk_fields(shapes.type_info(stated)))
    except Exception as error:  # noqa: BLE001  describing a class runs its author's code, and annotations are such
        place = _unreadable(stated)
        raise InvalidService(f"{where}{place}: {error}") from None
    for shape, place in places:
        if why := _misfit(shape, as_json=as_json):
            raise InvalidService(f"{where}{place}: {why}")
    if kept and (found := _abstract(stated, [shape for shape, _ in places])):
        raise InvalidService(f"{where}{found}")
    try:
        msgspec.msgpack.Decoder(stated)
    except (TypeError, ValueError) as error:
        raise InvalidService(f"{where}: {error}") from None


def _walk_fields(top: shapes.Type) -> Iterator[tuple[shapes.Type, str]]:
    """Give each type that a type is made of, once, with the class and field it stands in: `: Item.price`."""
    seen: set[int] = set()
    open_: list[tuple[shapes.Type, str]] = [(top, "")]
    while open_:
        shape, place = open_.pop()
        if id(shape) in seen:
            continue
        seen.add(id(shape))
        yield shape, place
        fields = getattr(shape, "fields", ())
        named = {id(field.type): field.name for field in fields if isinstance(field, shapes.Field)}
        cls = getattr(shape, "cls", None)
        for part in parts(shape):
            name = named.get(id(part))
            below = f": field `{cls.__name__}.{name}`" if name is not None and isinstance(cls, type) else place
            open_.append((part, below))


def _misfit(shape: shapes.Type, *, as_json: bool) -> str:
    """Say why values of this type would not come back, apart from what it holds; empty: they do."""
    match shape:
        case shapes.CustomType(cls=cls) if cls is Map:
            return f"a {MAP_HINT}"
        case shapes.CustomType(cls=cls) if cls is not object:
            return f"{_name(cls)} can't be encoded; use {_instead(cls)}"
        case shapes.RawType():
            return "msgspec.Raw is bytes of one format alone; use bytes, or Any"
        case shapes.ExtType():
            return "msgspec.msgpack.Ext has no form in JSON; use bytes, or a Struct with its code"
        case shapes.SetType(item_type=item) | shapes.FrozenSetType(item_type=item) if why := _unhashable(item):
            return f"a set can't hold {why}, which has no hash; use a list of them, or a frozen class"
        case shapes.DictType(key_type=key) if why := _unhashable(key):
            return f"a dict can't have {why} as keys, which have no hash; use a list of pairs, or a frozen class"
        case shapes.DictType(key_type=key) if why := _map_key(key):
            return f"a dict can't have {why} as keys, for a map can't be one; use a tuple, or array_like=True"
        case shapes.DictType(key_type=key) if as_json and (why := _no_json_key(key)):
            return f"JSON can't carry a dict with keys of type {why}; use str as keys, or a list of pairs"
    return ""


def _name(cls: object) -> str:
    return getattr(cls, "__name__", None) or repr(cls)


def _kind(shape: shapes.Type) -> str:
    return type(shape).__name__.removesuffix("Type").lower().removeprefix("var")


def _instead(cls: object) -> str:
    if isinstance(cls, type):
        for kind, other in _INSTEAD:
            if issubclass(cls, kind):
                return other
    return _INSTEAD_BY_NAME.get(_name(cls), _OTHERS)


def _unhashable(shape: shapes.Type) -> str:
    """Give the name of what has no hash in a type of items or keys; empty: all has one."""
    for part in _through_tuples(shape):
        if isinstance(part, _MUTABLE):
            return _kind(part)
        cls = getattr(part, "cls", None)
        if isinstance(cls, type) and not _has_hash(cls):
            return cls.__name__
    return ""


def _map_key(shape: shapes.Type) -> str:
    """Give the name of a class in a type of keys whose values are encoded as maps; empty: there is none."""
    for part in _through_tuples(shape):
        cls = getattr(part, "cls", None)
        if isinstance(part, shapes.DataclassType) or (isinstance(part, shapes.StructType) and not part.array_like):
            return _name(cls)
    return ""


def _has_hash(cls: type) -> bool:
    if issubclass(cls, msgspec.Struct) and cls.__hash__ is msgspec.Struct.__hash__:
        return cls.__struct_config__.frozen or not cls.__struct_config__.eq
    return getattr(cls, "__hash__", None) is not None


def _through_tuples(shape: shapes.Type) -> Iterator[shapes.Type]:
    """Give what the hash of a value of this type is made of."""
    seen: set[int] = set()
    open_ = [shape]
    while open_:
        shape = open_.pop()
        if id(shape) not in seen:
            seen.add(id(shape))
            yield shape
            open_ += parts(shape)


def _no_json_key(shape: shapes.Type) -> str:
    """Give the name of a type of keys that JSON can't carry; empty: it can."""
    members = shape.types if isinstance(shape, shapes.UnionType) else (shape,)
    if isinstance(shape, shapes.LiteralType):
        kinds = {type(value) for value in shape.values}
        return "" if kinds in ({str}, {int}) else "Literal of several types"
    for member in members:
        if not isinstance(member, _JSON_KEYS):
            cls = getattr(member, "cls", None)
            return _name(cls) if cls is not None else _kind(member)
    return "several kinds, of which 1 and '1' would be one" if len(members) > 1 else ""


def _classes(stated: object) -> Iterator[type]:
    """Give the classes that an annotation names."""
    if isinstance(stated, type) and not get_args(stated):
        yield stated
    origin = get_origin(stated)
    if isinstance(origin, type):
        yield origin
    for part in get_args(stated):
        yield from _classes(part)


def _hints(cls: type) -> dict[str, object]:
    """Give the annotations of a class with fields; none of any other."""
    if not (issubclass(cls, msgspec.Struct | tuple | dict) or is_dataclass(cls)):
        return {}
    try:
        return get_type_hints(cls, include_extras=True)
    except Exception:  # noqa: BLE001  an annotation is its author's code
        return {}


def _unreadable(stated: object, above: frozenset[type] = frozenset()) -> str:
    """Give the innermost class and field whose annotation can't be described; empty: it is `stated` itself."""
    for cls in _classes(stated):
        if cls in above:
            continue
        for name, hint in _hints(cls).items():
            try:
                shapes.type_info(hint)
            except Exception:  # noqa: BLE001  as above
                return _unreadable(hint, above | {cls}) or f": field `{cls.__name__}.{name}`"
    return ""


def _abstract(stated: object, found: list[shapes.Type]) -> str:
    """Name an abstract type whose values come back as a list whatever they were; empty: there is none."""
    hints = [("", stated)]
    for cls in {id(each): each for each in (getattr(shape, "cls", None) for shape in found)}.values():
        if isinstance(cls, type):
            hints += [(f": field `{cls.__name__}.{name}`", hint) for name, hint in _hints(cls).items()]
    for place, hint in hints:
        for cls in _classes(hint):
            if other := _ABSTRACT.get(cls):
                return f"{place}: {cls.__name__} comes back as a list, whatever it was; use {other}"
    return ""

"""Types as data: what the bytes of a value look like, without the code that declares its type.

    Shape        one type; a class is named by its place in the list of classes, so one that holds itself has an end
    ClassShape   a class with fields: Struct, dataclass, TypedDict, NamedTuple
    FieldShape   one of its fields

Guarantees: the same data for the same declarations in every process, wherever a class stands. Does not: hold defaults,
but of classes whose values leave out what equals its default: there the default is part of what bytes mean. Imports
base and codec.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import inspect as shapes

from deathless.execution.author.signature import map_types
from deathless.execution.declared.unknown_fields import class_name
from deathless.execution.maps.map import encode_map
from deathless.execution.values.ordered import ordered_encoder

Value = int | str | bool | None
_BOUNDS: Final = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern", "tz")
_WITH_FIELDS: Final = (shapes.StructType, shapes.DataclassType, shapes.TypedDictType, shapes.NamedTupleType)
_encode_default: Final = ordered_encoder(encode_map, sorts_itself=False)
DEFAULT_BYTES_MAX: Final = 32  # a longer default stands there by its hash


class Shape(msgspec.Struct, frozen=True, omit_defaults=True):
    """One type."""

    kind: str  # int, str, list, dict, union, enum, literal, map, class ...
    parts: tuple[Shape, ...] = ()  # of a list its items, of a dict and a map key and value, of a union its members
    values: tuple[Value, ...] = ()  # of an enum or a literal, in the order of their texts
    name: str = ""  # of an enum, for people
    at: int = -1  # of a class: its place in the list
    bounds: dict[str, int | float | str | bool] = {}


class FieldShape(msgspec.Struct, frozen=True, omit_defaults=True):
    """One field or argument."""

    name: str  # as it stands in the bytes
    type: Shape
    required: bool = False  # it has no default
    default: bytes = b""  # where values leave it out: what it is then, encoded, or hashed


class ClassShape(msgspec.Struct, frozen=True, omit_defaults=True):
    """One class with fields."""

    name: str  # for people
    fields: tuple[FieldShape, ...]
    array: bool = False  # its values are lists, so that fields are known by their places
    tag_field: str = ""
    tag: int | str | None = None
    forbids: bool = False  # its decoder refuses fields that it does not know
    omits: bool = False  # its values leave out what equals its default


Classes = tuple[ClassShape, ...]


class Shapes:
    """Describes types, with one list of classes for all of them."""

    __slots__ = ("_places", "classes_made")

    def __init__(self) -> None:
        self.classes_made: list[ClassShape] = []
        self._places: dict[object, int] = {}  # by class

    @property
    def classes(self) -> Classes:
        """All classes so far."""
        return tuple(self.classes_made)

    def of(self, stated: object) -> Shape:
        """Describe an annotation.

        Raises: TypeError for what msgspec does not know how to describe.
        """
        return self._shape(shapes.type_info(type(None) if stated is None else stated))

    def state(self, state: type) -> Shape:
        """Describe a state, whose fields may be maps."""
        maps = {
            name: Shape("map", (Shape(class_name(key)), self.of(value)))
            for name, (key, value) in map_types(state).items()
        }
        return self._shape(shapes.type_info(state), maps)

    def arguments(self, stated: type[msgspec.Struct]) -> tuple[FieldShape, ...]:
        """Describe named arguments."""
        info = shapes.type_info(stated)
        assert isinstance(info, shapes.StructType), "arguments are a Struct"
        return tuple(self._field(field, omits=False, maps={}) for field in info.fields)

    def _shape(self, info: shapes.Type, maps: Mapping[str, Shape] | None = None) -> Shape:
        bounds = {name: found for name in _BOUNDS if (found := getattr(info, name, None)) is not None}
        match info:
            case shapes.Metadata(type=inside):
                return self._shape(inside, maps)
            case _ if isinstance(info, _WITH_FIELDS):
                return Shape("class", at=self._class(info, maps or {}))
            case shapes.EnumType(cls=cls):
                return Shape("enum", values=_sorted([each.value for each in cls]), name=cls.__name__)
            case shapes.LiteralType(values=values):
                return Shape("literal", values=_sorted(list(values)))
            case shapes.DictType(key_type=key, value_type=value):
                return Shape("dict", (self._shape(key), self._shape(value)), bounds=bounds)
            case shapes.TupleType(item_types=types):
                return Shape("tuple", tuple(self._shape(each) for each in types))
            case shapes.UnionType(types=types):
                return Shape("union", tuple(self._shape(each) for each in types))
            case shapes.CollectionType(item_type=item):
                return Shape(_kind(info), (self._shape(item),), bounds=bounds)
            case shapes.CustomType():
                return Shape("any")
            case _:
                return Shape(_kind(info), bounds=bounds)

    def _class(self, info: shapes.Type, maps: Mapping[str, Shape]) -> int:
        assert isinstance(info, _WITH_FIELDS)
        if info.cls in self._places:
            return self._places[info.cls]
        place = self._places[info.cls] = len(self.classes_made)
        name = class_name(info.cls)
        self.classes_made.append(ClassShape(name, ()))  # so that it may hold itself
        config = getattr(info.cls, "__struct_config__", None)
        omits = bool(config is not None and config.omit_defaults)
        fields = tuple(self._field(field, omits=omits, maps=maps) for field in info.fields)
        if isinstance(info, shapes.StructType):
            made = ClassShape(
                name,
                fields,
                info.array_like,
                info.tag_field or "",
                info.tag,
                info.forbid_unknown_fields,
                omits,
            )
        else:
            made = ClassShape(name, fields, isinstance(info, shapes.NamedTupleType))
        self.classes_made[place] = made
        return place

    def _field(self, field: shapes.Field, *, omits: bool, maps: Mapping[str, Shape]) -> FieldShape:
        shape = maps.get(field.name) or self._shape(field.type)
        default = _default(field) if omits and not field.required else b""
        return FieldShape(field.encode_name, shape, field.required, default)


def _default(field: shapes.Field) -> bytes:
    value = field.default
    if value is msgspec.NODEFAULT:
        value = field.default_factory() if callable(field.default_factory) else None
    try:
        encoded = _encode_default(value)
    except (TypeError, ValueError, msgspec.MsgspecError):
        return b"?"  # it can't be encoded, so it never stands in bytes
    return encoded if len(encoded) < DEFAULT_BYTES_MAX else hashlib.blake2b(encoded, digest_size=32).digest()


def _kind(info: shapes.Type) -> str:
    return type(info).__name__.removesuffix("Type").lower()


def _sorted(values: list[Value]) -> tuple[Value, ...]:
    return tuple(sorted(values, key=lambda value: (type(value).__name__, str(value))))


def show(shape: Shape, classes: Classes) -> str:
    """Give a type as people write it."""
    inside = [show(part, classes) for part in shape.parts]
    match shape.kind:
        case "class":
            return classes[shape.at].name
        case "enum":
            return shape.name
        case "literal":
            return f"Literal[{', '.join(repr(value) for value in shape.values)}]"
        case "union":
            return " | ".join(inside)
        case "none":
            return "None"
        case "vartuple":
            return f"tuple[{inside[0]}, ...]"
        case "map":
            return f"Map[{', '.join(inside)}]"
        case _:
            return f"{shape.kind}[{', '.join(inside)}]" if inside else shape.kind

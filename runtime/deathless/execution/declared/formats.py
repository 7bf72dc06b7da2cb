"""Formats and bounds in JSON Schemas, where msgspec leaves them out although the types have them.

    int        bounds: what a call or a result can carry, -2**63 to 2**64 - 1, or the author's where these are narrower;
               format int32, int64 or uint64 where all of it fits
    datetime   date-time; without an offset (`Meta(tz=False)`) date-time-local
    time       time-local; with an offset (`Meta(tz=True)`) time
    keys       of objects: what the text of a number, a date or a UUID looks like

The formats are those of OpenAPI's registry. Guarantees: a value that fits the schema is taken, and what fails by its
number is outside of it. Does not: touch what msgspec says. Imports nothing of ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

from msgspec import inspect

Json = dict[str, object]  # a schema
INT_MIN: Final = -(2**63)  # what msgpack can say
INT_MAX: Final = 2**64 - 1
_WITH_FIELDS: Final = (inspect.StructType, inspect.TypedDictType, inspect.DataclassType, inspect.NamedTupleType)
_INTEGER_KEY: Final[Json] = {"pattern": "^-?[0-9]+$"}


def add_formats(types: Sequence[object], schemas: Sequence[Json], components: dict[str, Json], reference: str) -> None:
    """Add formats and bounds to schemas in place.

    Args:
        types: what is described.
        schemas: of these, as msgspec gives them.
        components: what they refer to.
        reference: template of a reference.
    """
    walk = _Walk(components, reference.format(name=""))
    for info, schema in zip(inspect.multi_type_info(types), schemas, strict=True):
        walk.describe(info, schema)


class _Walk:
    """One walk over types and the schemas beside them."""

    def __init__(self, components: dict[str, Json], prefix: str) -> None:
        self._components = components
        self._prefix = prefix
        self._seen: set[str] = set()

    def describe(self, info: inspect.Type, schema: Json) -> None:
        """Add what is missing to the schema of a type, and to those of its parts."""
        info = _bare(info)
        if isinstance(reference := schema.get("$ref"), str):
            self._component(info, reference.removeprefix(self._prefix))
            return
        match info:
            case inspect.IntType():
                _bound(schema)
            case inspect.DateTimeType(tz=tz):
                schema["format"] = "date-time-local" if tz is False else "date-time"
            case inspect.TimeType(tz=tz):
                schema["format"] = "time" if tz else "time-local"
            case inspect.CollectionType(item_type=item):
                self.describe(item, _part(schema, "items"))
            case inspect.TupleType(item_types=items):
                for item, part in zip(items, _row(schema, "prefixItems"), strict=False):
                    self.describe(item, part)
            case inspect.DictType(key_type=key, value_type=value):
                self._key(key, schema)
                self.describe(value, _part(schema, "additionalProperties"))
            case inspect.UnionType(types=types):
                self._union([_bare(each) for each in types], schema)
            case _:
                return

    def _component(self, info: inspect.Type, name: str) -> None:
        if name in self._seen or isinstance(info, inspect.EnumType):
            return
        self._seen.add(name)
        schema = self._components[name]
        assert isinstance(info, _WITH_FIELDS)
        parts, row = _part(schema, "properties"), _row(schema, "prefixItems")[-len(info.fields) :]
        for place, field in enumerate(info.fields):
            self.describe(field.type, _part(parts, field.encode_name) if parts else row[place])

    def _union(self, types: list[inspect.Type], schema: Json) -> None:
        """Options stand in the order of their types, those of structs behind them."""
        structs = [each for each in types if isinstance(each, inspect.StructType) and not each.array_like]
        others = [each for each in types if each not in structs and not isinstance(each, inspect.NoneType)]
        options = _row(schema, "anyOf")
        for each, option in zip(others, options, strict=False):
            self.describe(each, option)
        behind = options[len(others) :] if others else options
        flat = [part for option in behind for part in _row(option, "anyOf") or [option]]
        for each, option in zip(structs, flat, strict=False):
            self.describe(each, option)

    def _key(self, info: inspect.Type, schema: Json) -> None:
        """Say what the text of a key looks like that is no text."""
        told: Json = {}
        match _bare(info):
            case inspect.IntType():
                told = dict(_INTEGER_KEY)
            case inspect.UUIDType():
                told = {"format": "uuid"}
            case inspect.DateType():
                told = {"format": "date"}
            case inspect.DateTimeType() | inspect.TimeType() as moment:
                self.describe(moment, told)
            case _:
                return
        schema["propertyNames"] = told


def _part(schema: Json, name: str) -> Json:
    """Give a part that is a schema, or maps names to schemas; empty: there is none to add to."""
    part = schema.get(name)
    return cast("Json", part) if isinstance(part, dict) else {}


def _row(schema: Json, name: str) -> list[Json]:
    """Give a part that is a row of schemas; empty: there is none."""
    return cast("list[Json]", schema.get(name, []))


def _bare(info: inspect.Type) -> inspect.Type:
    while isinstance(info, inspect.Metadata):
        info = info.type
    return info


def _bound(schema: Json) -> None:
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    low = above + 1 if isinstance(above, int) else schema.setdefault("minimum", INT_MIN)
    high = below - 1 if isinstance(below, int) else schema.setdefault("maximum", INT_MAX)
    assert isinstance(low, int)
    assert isinstance(high, int)
    if low >= -(2**31) and high < 2**31:
        schema["format"] = "int32"
    elif high < 2**63:
        schema["format"] = "int64"
    elif low >= 0:
        schema["format"] = "uint64"

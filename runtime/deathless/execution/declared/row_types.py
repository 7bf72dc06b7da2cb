"""From the class of a topic's rows to its schema, and to what turns such a row into the values that travel.

    int, IntEnum, Literal of int          int64            list[T], tuple[T, ...]   list<T>
    float                                 float64          dict[str, T]             map<T>
    bool                                  bool             a Struct                 struct<...>
    str, an Enum or Literal of str        utf8             T | None                 T?
    bytes                                 binary           Annotated[Decimal, Meta(extra={"scale": n})]   decimal<n>
    datetime, with a zone                 timestamp

The plan of a class is made once, when its topic is declared; a row then costs one call for each of its values. A Struct
checks nothing when it is made, so each value is checked here: what passes can be written.

Guarantees: every schema has a text that `parse_row_schema` reads; equal rows give equal values; what does not fit
raises ValueError naming column and value, in words alone. Does not: check constraints such as `Meta(ge=0)`, which are
no part of a schema. Imports base.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Context, Decimal, Inexact, InvalidOperation
from enum import Enum
from operator import attrgetter
from typing import Final, NamedTuple

import msgspec
from msgspec import inspect as shapes

from deathless.base.errors import InvalidService
from deathless.base.topics.row_schema import SCALE_MAX, Column, RowSchema, RowType, parse_row_schema

Convert = Callable[[object], object]
ALLOWED: Final = (
    "int, float, bool, str, bytes, datetime, Annotated[Decimal, Meta(extra={'scale': n})], list, tuple[T, ...], "
    "dict[str, T], a Struct, an Enum or Literal of str or int, and each of them or None"
)
_INT64: Final = 1 << 63
_DIGITS: Final = Context(prec=SCALE_MAX, traps=[InvalidOperation, Inexact])
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SHOWN_MAX: Final = 60


class RowPlan(NamedTuple):
    """What becomes of the rows of a class."""

    schema: RowSchema
    convert: Callable[[object], list[object]]  # raises ValueError


def row_plan(cls: object, where: str) -> RowPlan:
    """Make the plan of a class of rows.

    Args:
        cls: a Struct.
        where: it stands, for errors.

    Raises: InvalidService naming `where`, the field, its type and what is allowed.
    """
    if not (isinstance(cls, type) and issubclass(cls, msgspec.Struct)):
        raise InvalidService(f"{where}: its rows must be of a Struct, not {cls!r}")
    try:
        info = shapes.type_info(cls)
    except Exception as error:  # noqa: BLE001  describing a class runs its author's code
        raise InvalidService(f"{where}: {cls.__name__} can't be read: {error}") from None
    assert isinstance(info, shapes.StructType), "it is one"
    columns, convert = _struct(info, where, ())
    for column in columns:
        if column.name.startswith("_"):
            raise InvalidService(
                f"{where}: field `{cls.__name__}.{column.name}` begins with an underscore, as the columns do that each "
                "topic has; give it another name"
            )
    schema = RowSchema(columns)
    try:
        parse_row_schema(schema.text)
    except ValueError as error:
        raise InvalidService(f"{where}: {cls.__name__}: {error}") from None
    return RowPlan(schema, convert)


# ---- types ------------------------------------------------------------------------------------------------------


def _struct(
    info: shapes.StructType, where: str, above: tuple[type, ...]
) -> tuple[tuple[Column, ...], Callable[[object], list[object]]]:
    cls = info.cls
    if cls in above:
        raise InvalidService(f"{where}: {cls.__name__} holds itself, and a row has a fixed depth")
    if not info.fields:
        raise InvalidService(f"{where}: {cls.__name__} has no fields, and a row has at least one column")
    columns: list[Column] = []
    converts: list[Convert] = []
    for field in info.fields:
        name = field.encode_name
        place = f"{where}: field `{cls.__name__}.{field.name}`"
        if not (name.isascii() and name.isidentifier()):
            raise InvalidService(f"{place}: {name!r} can't name a column; use letters, digits and underscores")
        kind, convert = _read(field.type, place, (*above, cls))
        columns.append(Column(name, kind))
        converts.append(convert)
    return tuple(columns), _of_struct(cls, [field.name for field in info.fields], columns, converts)


def _read(info: shapes.Type, where: str, above: tuple[type, ...]) -> tuple[RowType, Convert]:
    """Give the type of a column, and what converts its values.

    Raises: InvalidService.
    """
    scale: object = None
    while isinstance(info, shapes.Metadata):
        if info.extra is not None:
            scale = info.extra.get("scale", scale)
        info = info.type
    if isinstance(info, shapes.UnionType):
        members = tuple(each for each in info.types if not isinstance(each, shapes.NoneType))
        if len(members) == 1 and len(members) < len(info.types):
            inside = members[0] if scale is None else shapes.Metadata(members[0], extra={"scale": scale})
            return _or_none(*_read(inside, where, above))
    if isinstance(info, shapes.LiteralType) and None in info.values:
        values = tuple(value for value in info.values if value is not None)
        return _or_none(*_read(shapes.LiteralType(values), where, above))
    found = _leaf(info, scale, where) or _container(info, where, above)
    if found is None:
        raise InvalidService(f"{where}: {_told(info)} can't stand in a row; what can: {ALLOWED}")
    return found


def _leaf(info: shapes.Type, scale: object, where: str) -> tuple[RowType, Convert] | None:
    """Give what `_read` does for what holds nothing else; None: it is none of these."""
    match info:
        case shapes.BoolType():
            return RowType("bool"), _bool
        case shapes.IntType():
            return RowType("int64"), _int
        case shapes.FloatType():
            return RowType("float64"), _float
        case shapes.StrType():
            return RowType("utf8"), _str
        case shapes.BytesType():
            return RowType("binary"), _bytes
        case shapes.DateTimeType(tz=zone) if zone is not False:
            return RowType("timestamp"), _timestamp
        case shapes.DecimalType():
            if not (type(scale) is int and 0 <= scale <= SCALE_MAX):
                raise InvalidService(
                    f"{where}: a Decimal needs its digits behind the point, from 0 to {SCALE_MAX}: "
                    "Annotated[Decimal, Meta(extra={'scale': 2})]"
                )
            return RowType("decimal", scale=scale), _of_decimal(scale)
        case shapes.EnumType(cls=cls):
            return _of_values(tuple(each.value for each in cls), cls)
        case shapes.LiteralType(values=values):
            return _of_values(values, None)
        case _:
            return None


def _of_values(values: tuple[object, ...], cls: type[Enum] | None) -> tuple[RowType, Convert] | None:
    kinds = {type(value) for value in values}
    if kinds == {str}:
        return RowType("utf8"), _one_of(values, cls)
    if kinds == {int}:  # msgspec knows none that have more than 64 bits
        return RowType("int64"), _one_of(values, cls)
    return None


def _container(info: shapes.Type, where: str, above: tuple[type, ...]) -> tuple[RowType, Convert] | None:
    """Give what `_read` does for what holds other values; None: it is none of these."""
    match info:
        case shapes.ListType(item_type=item) | shapes.VarTupleType(item_type=item):
            kind, convert = _read(item, where, above)
            return RowType("list", item=kind), _of_list(convert)
        case shapes.DictType(key_type=shapes.StrType(), value_type=value):
            kind, convert = _read(value, where, above)
            return RowType("map", item=kind), _of_map(convert)
        case shapes.StructType():
            columns, convert = _struct(info, where, above)
            return RowType("struct", columns=columns), convert
        case _:
            return None


def _or_none(kind: RowType, convert: Convert) -> tuple[RowType, Convert]:
    def or_none(value: object) -> object:
        return None if value is None else convert(value)

    return RowType(kind.kind, nullable=True, scale=kind.scale, item=kind.item, columns=kind.columns), or_none


def _told(info: shapes.Type) -> str:
    """Name a type, for people."""
    cls = getattr(info, "cls", None)
    if isinstance(cls, type):
        return cls.__name__
    if isinstance(info, shapes.DateTimeType):
        return "a datetime without a zone"
    if isinstance(info, shapes.UnionType):
        return " | ".join(_told(each) for each in info.types)
    return type(info).__name__.removesuffix("Type").lower()


# ---- values -----------------------------------------------------------------------------------------------------


def _wrong(value: object, wanted: str) -> ValueError:
    """Give the error of a value. Its text is shown only where it is ours: an author's class may say anything."""
    shown = repr(value)[:_SHOWN_MAX] if type(value) in (int, float, bool, str, bytes) else f"a {type(value).__name__}"
    return ValueError(f": {shown} is not {wanted}")


def _int(value: object) -> object:
    if type(value) is int:
        if -_INT64 <= value < _INT64:
            return value
        raise ValueError(": the integer has more than 64 bits")
    if isinstance(value, int) and not isinstance(value, bool):  # an IntEnum for instance
        return _int(int.__int__(value))
    raise _wrong(value, "an int")


def _float(value: object) -> object:
    if type(value) is float:
        return value
    if isinstance(value, float | int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise ValueError(": the integer is too large for a float") from None
    raise _wrong(value, "a float")


def _bool(value: object) -> object:
    if value is True or value is False:
        return value
    raise _wrong(value, "a bool")


def _str(value: object) -> object:
    if type(value) is str:
        return value
    if isinstance(value, str):  # a StrEnum for instance
        return str.__str__(value)
    raise _wrong(value, "a str")


def _bytes(value: object) -> object:
    if type(value) is bytes:
        return value
    if isinstance(value, bytes):
        return bytes(value)
    raise _wrong(value, "bytes")


def _timestamp(value: object) -> object:
    if not isinstance(value, datetime):
        raise _wrong(value, "a datetime")
    try:
        since = value - _EPOCH
    except TypeError:
        raise ValueError(": the datetime has no zone; use ctx.now, or datetime(..., tzinfo=UTC)") from None
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _of_decimal(scale: int) -> Convert:
    step = Decimal((0, (1,), -scale))

    def decimal(value: object) -> object:
        if not isinstance(value, Decimal):
            raise _wrong(value, "a Decimal")
        try:
            exact = _DIGITS.quantize(value, step)
        except Inexact:
            raise ValueError(f": the Decimal has more than {scale} digits behind the point; round it") from None
        except InvalidOperation:
            raise ValueError(f": the Decimal has more than {SCALE_MAX} digits") from None
        if not exact.is_finite():
            raise ValueError(": the Decimal is no number")
        return format(exact or abs(exact), "f")

    return decimal


def _one_of(values: tuple[object, ...], cls: type[Enum] | None) -> Convert:
    """Convert members of an Enum, or values of a Literal: to one of `values`."""
    known = {(type(value), value): value for value in values}

    def one_of(value: object) -> object:
        if cls is not None and type(value) is cls:
            return value.value
        found = known.get((type(value), value)) if cls is None and type(value) in (str, int) else None
        if found is None:
            raise _wrong(value, f"a member of {cls.__name__}" if cls is not None else f"one of {[*values]}"[:200])
        return found

    return one_of


def _of_list(convert: Convert) -> Convert:
    def items(value: object) -> object:
        if not isinstance(value, list | tuple):
            raise _wrong(value, "a list")
        try:
            return [convert(each) for each in value]
        except ValueError as error:
            raise _at(error, value, convert) from None

    return items


def _at(error: ValueError, values: list[object] | tuple[object, ...], convert: Convert) -> ValueError:
    """Name the item that did not fit."""
    for index, each in enumerate(values):
        try:
            convert(each)
        except ValueError as again:
            return ValueError(f"[{index}]{again}")
    return error


def _of_map(convert: Convert) -> Convert:
    def items(value: object) -> object:
        if not isinstance(value, dict):
            raise _wrong(value, "a dict")
        found: dict[object, object] = {}
        for key, each in value.items():
            try:
                found[_str(key)] = convert(each)
            except ValueError as error:
                raise ValueError(f"[{key!r:.60}]{error}" if type(key) is str else f": a key{error}") from None
        return found

    return items


def _of_struct(
    cls: type, names: list[str], columns: list[Column], converts: list[Convert]
) -> Callable[[object], list[object]]:
    first, read = attrgetter(names[0]), attrgetter(*names)
    one = len(names) == 1

    def values(value: object) -> list[object]:
        if type(value) is not cls:
            raise _wrong(value, f"a {cls.__name__}")
        found: tuple[object, ...] = (first(value),) if one else read(value)
        try:
            return [convert(each) for convert, each in zip(converts, found, strict=True)]
        except ValueError as error:
            raise _in(error, found) from None

    def _in(error: ValueError, found: tuple[object, ...]) -> ValueError:
        """Name the column that did not fit."""
        for column, convert, each in zip(columns, converts, found, strict=True):
            try:
                convert(each)
            except ValueError as again:
                return ValueError(f".{column.name}{again}")
        return error

    return values

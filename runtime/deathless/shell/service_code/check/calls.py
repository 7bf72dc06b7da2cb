"""Draws calls for a service out of its handlers' types, when none are recorded: the same ones for the same seed.

Guarantees: every call drawn fits its handler's arguments. Does not: know which values make sense to a handler; where
all its calls fail, the check says so, and a recorded log is the better source.
"""

from __future__ import annotations

import datetime as dt
import decimal
import random
import uuid
from collections.abc import Callable
from typing import Final

import msgspec
from msgspec import inspect as shapes

from deathless.codec.messages import Kind, encode
from deathless.execution.author.service import HandlerSpec, Service

KEYS: Final = ("a", "b", "anna", "zoë")
_TEXTS: Final = ("a", "b", "anna", "zoë", "", "0", "hello world", "x" * 40)
_DEPTH_MAX: Final = 4
FIRST_US: Final = 1_900_000_000_000_000
_TRIES: Final = 20


class Call(msgspec.Struct, array_like=True, frozen=True):
    """One message with what it runs under."""

    lsn: int
    now_us: int
    message: bytes
    session: int = 1
    seq: int = 1


class Undrawable(Exception):
    """No value of a type could be drawn."""


def draw_calls(service: Service, count: int, seed: int) -> tuple[list[Call], list[str]]:
    """Draw calls, every handler in turn.

    Args:
        service: whose handlers.
        count: how many.
        seed: of the generator.

    Returns: the calls, and the names of handlers for which none could be drawn.
    """
    drawer = Drawer(random.Random(seed))  # noqa: S311  nothing secret is made of it
    specs = [spec for spec in service.specs.values() if spec.kind == "handler"]
    calls: list[Call] = []
    left_out: list[str] = []
    for spec in list(specs):
        try:
            drawer.message(spec)
        except Undrawable:
            specs.remove(spec)
            left_out.append(spec.name)
    for index in range(count if specs else 0):
        # Handlers take turns by whole rounds over the keys, so that each meets the states the others made.
        spec = specs[(index // len(KEYS)) % len(specs)]
        calls.append(Call(index + 1, FIRST_US + index * 1_000_003, drawer.message(spec), 1, index + 1))
    return calls, left_out


class Drawer:
    """Draws values of types."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._plain: dict[type[shapes.Type], Callable[[], object]] = {
            shapes.AnyType: lambda: self._chance.choice([None, True, 3, 2.5, "text", [1, "two"], {"k": 1}]),
            shapes.CustomType: lambda: self._chance.choice([None, 3, "text"]),
            shapes.NoneType: lambda: None,
            shapes.BoolType: lambda: self._chance.random() < 0.5,
            shapes.DateType: lambda: dt.date(2030, 1, 1) + dt.timedelta(days=self._chance.randrange(3000)),
            shapes.TimeDeltaType: lambda: dt.timedelta(seconds=self._chance.randrange(10**6)),
            shapes.UUIDType: lambda: uuid.UUID(int=self._chance.getrandbits(128), version=4),
            shapes.DecimalType: lambda: decimal.Decimal(self._chance.randrange(10**6)) / 100,
        }

    def message(self, spec: HandlerSpec) -> bytes:
        """Draw one call of a handler. Raises: Undrawable."""
        for _ in range(_TRIES):
            arguments = self.value(shapes.type_info(spec.args_type))
            assert isinstance(arguments, dict)
            arguments |= {name: self._chance.choice(KEYS) for name in spec.keys}
            encoded = msgspec.msgpack.encode(arguments)
            try:
                msgspec.msgpack.decode(encoded, type=spec.args_type)
            except msgspec.ValidationError:
                continue
            key = self._chance.choice(KEYS)
            return encode(Kind.CALL, method=spec.name.encode(), key=key.encode(), args=encoded)
        raise Undrawable(spec.name)

    def value(self, shape: shapes.Type, depth: int = 0) -> object:
        """Draw a value, in a form that encodes as the type would. Raises: Undrawable."""
        if plain := self._plain.get(type(shape)):
            return plain()
        match shape:
            case shapes.Metadata(type=inner):
                return self.value(inner, depth)
            case shapes.IntType() | shapes.FloatType():
                return self._number(shape)
            case shapes.StrType(min_length=least, max_length=most):
                text = self._chance.choice(_TEXTS).ljust(least or 0, "y")
                return text if most is None else text[:most]
            case shapes.BytesType(min_length=least) | shapes.ByteArrayType(min_length=least):
                return self._chance.randbytes(max(self._chance.randrange(9), least or 0))
            case shapes.DateTimeType() | shapes.TimeType():
                return self._moment(shape)
            case shapes.EnumType(cls=members):
                return self._chance.choice(list(members))
            case shapes.LiteralType(values=values):
                return self._chance.choice(list(values))
            case shapes.UnionType(types=types):
                plain_types = [inner for inner in types if type(inner) in self._plain]
                return self.value(self._chance.choice(plain_types if depth > 2 and plain_types else list(types)), depth)
            case _:
                if depth > _DEPTH_MAX:
                    raise Undrawable(str(type(shape)))
                return self._several(shape, depth + 1)

    def _number(self, shape: shapes.IntType | shapes.FloatType) -> int | float:
        whole = isinstance(shape, shapes.IntType)
        step = 1 if whole else 0.001
        low = shape.ge if shape.ge is not None else (shape.gt + step if shape.gt is not None else None)
        high = shape.le if shape.le is not None else (shape.lt - step if shape.lt is not None else None)
        if low is None:
            low = 1 if high is None or high >= 1 else high - 100
        if high is None:
            high = low + self._chance.choice([10, 100, 10_000])
        if isinstance(shape, shapes.FloatType):
            return self._chance.uniform(low, high)
        drawn = self._chance.randint(int(low), int(high))
        return drawn - drawn % int(shape.multiple_of) if shape.multiple_of else drawn

    def _moment(self, shape: shapes.DateTimeType | shapes.TimeType) -> dt.datetime | dt.time:
        zone = None if shape.tz is False else dt.UTC
        moment = dt.datetime(2030, 1, 1, tzinfo=zone) + dt.timedelta(seconds=self._chance.randrange(10**8))
        return moment if isinstance(shape, shapes.DateTimeType) else moment.timetz()

    def _several(self, shape: shapes.Type, depth: int) -> object:
        match shape:
            case (
                shapes.ListType(item_type=inner, min_length=least)
                | shapes.SetType(item_type=inner, min_length=least)
                | shapes.FrozenSetType(item_type=inner, min_length=least)
                | shapes.VarTupleType(item_type=inner, min_length=least)
                | shapes.CollectionType(item_type=inner, min_length=least)
            ):
                size = max(self._chance.randrange(4) if depth < _DEPTH_MAX else 0, least or 0)
                return [self.value(inner, depth) for _ in range(size)]
            case shapes.TupleType(item_types=types):
                return [self.value(inner, depth) for inner in types]
            case shapes.DictType(key_type=key, value_type=value, min_length=least):
                size = max(self._chance.randrange(4) if depth < _DEPTH_MAX else 0, least or 0)
                return {self.value(key, depth): self.value(value, depth) for _ in range(size)}
            case shapes.StructType(array_like=True, fields=fields, tag_field=None):
                return [self.value(field.type, depth) for field in fields]
            case shapes.StructType(array_like=False, fields=fields, tag_field=tag_field, tag=tag):
                tagged: dict[str, object] = {tag_field: tag} if tag_field else {}
                return tagged | self._fields(fields, depth)
            case shapes.DataclassType(fields=fields) | shapes.TypedDictType(fields=fields):
                return self._fields(fields, depth)
            case shapes.NamedTupleType(fields=fields):
                return [self.value(field.type, depth) for field in fields]
            case _:
                raise Undrawable(str(type(shape)))

    def _fields(self, fields: tuple[shapes.Field, ...], depth: int) -> dict[str, object]:
        return {
            field.encode_name: self.value(field.type, depth)
            for field in fields
            if field.required or (depth < _DEPTH_MAX and self._chance.random() < 0.8)
        }

"""Rows that services under test published: taken from the messages that carry them, and given as they were emitted.

Guarantees: a row equals what was handed to `ctx.emit`, as far as its columns say. Does not: write or read the
files of a topic. Imports execution.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final, Generic, NamedTuple

import msgspec
from msgspec import inspect as shapes

from deathless.execution.turn.topic import Row, Topic
from deathless.testing.fake_peer import Message

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Published(NamedTuple, Generic[Row]):
    """A row that a service under test published."""

    row: Row
    key: str  # of the handler that published it
    position: int  # from 1, among those of this service
    time: datetime  # logical time of its turn


def published(topic: Topic[Row], message: Message) -> Published[Row]:
    """Give the row that a message carries."""
    values, time_us = message.arguments["row"], message.arguments["time_us"]
    assert isinstance(time_us, int), "the topic's own messages have one"
    plain = _plain(shapes.type_info(topic.row_type), values)
    row = msgspec.convert(plain, topic.row_type, builtin_types=(bytes, datetime, Decimal))
    return Published(row, message.key, message.position, _EPOCH + timedelta(microseconds=time_us))


def _plain(info: shapes.Type, value: object) -> object:
    """Give what travels of a value as msgspec takes it for a type."""
    while isinstance(info, shapes.Metadata):
        info = info.type
    if value is None:
        return None
    match info:
        case shapes.UnionType(types=types):
            return _plain(next(each for each in types if not isinstance(each, shapes.NoneType)), value)
        case shapes.StructType(fields=fields, array_like=array_like):
            assert isinstance(value, list)
            found = [_plain(field.type, each) for field, each in zip(fields, value, strict=True)]
            names = [field.encode_name for field in fields]
            return found if array_like else dict(zip(names, found, strict=True))
        case shapes.ListType(item_type=item) | shapes.VarTupleType(item_type=item):
            assert isinstance(value, list)
            return [_plain(item, each) for each in value]
        case shapes.DictType(value_type=item):
            assert isinstance(value, dict)
            return {key: _plain(item, each) for key, each in value.items()}
        case shapes.DateTimeType():
            assert isinstance(value, int)
            return _EPOCH + timedelta(microseconds=value)
        case shapes.DecimalType():
            assert isinstance(value, str)
            return Decimal(value)
        case _:
            return value

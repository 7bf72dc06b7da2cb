"""A topic as its author holds it: what `service.topic(name, RowType)` gives, and `ctx.emit` takes.

Guarantees: the same bytes for the same row at the same time, in every process. Does not: send. Imports base.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

import msgspec

from deathless.base.errors import InvalidArgument, InvalidUse
from deathless.base.topics.emitted import Emitted
from deathless.base.topics.row_schema import RowSchema
from deathless.execution.declared.row_types import row_plan

Row = TypeVar("Row", bound=msgspec.Struct)


_encode: Final = msgspec.msgpack.Encoder(order="deterministic").encode
decode_emitted: Final = msgspec.msgpack.Decoder(Emitted).decode


class Topic(Generic[Row]):
    """Rows that a service publishes, in one numbered sequence for each of its shards.

    Args:
        name: of the topic; services, drivers and topics share one namespace.
        row_type: class of its rows.
        where: it is declared, for errors.

    Raises: InvalidService for a class that can't be one of rows.
    """

    __slots__ = ("_convert", "_text", "name", "row_type", "schema")

    def __init__(self, name: str, row_type: type[Row], where: str) -> None:
        plan = row_plan(row_type, where)
        self.name = name
        self.row_type: type[Row] = row_type
        self.schema: RowSchema = plan.schema
        self._convert = plan.convert
        self._text = plan.schema.text

    def __repr__(self) -> str:
        return f"Topic({self.name!r}, {self.row_type.__name__})"

    def encode(self, row: Row, time_us: int) -> bytes:
        """Give the arguments of the message that carries a row.

        Raises: InvalidArgument for a value that does not fit its column; InvalidUse for a row of another class.
        """
        try:
            return _encode(Emitted(self._text, time_us, self._convert(row)))
        except UnicodeEncodeError:
            raise InvalidArgument(f"topic {self.name}: a text of the row has half of a surrogate pair") from None
        except ValueError as error:
            if type(row) is not self.row_type:
                raise InvalidUse(
                    f"topic {self.name} has rows of {self.row_type.__name__}, not of {type(row).__name__}"
                ) from None
            raise InvalidArgument(f"topic {self.name}: {self.row_type.__name__}{error}") from None

"""What tests of sinks of queries share: a pipeline's rules without a service, batches, and Spark's planning of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from deathless.pipelines import ledger
from deathless.pipelines.ledger import Batch, Query
from deathless.pipelines.rows import Row, decode_rows
from deathless.pipelines.service import Opened
from deathless.spark.sink import QuerySink


class InMemory:
    """A pipeline's service: its rules, without one."""

    name = "delays"

    def __init__(self, incarnation: int = 7) -> None:
        self.held = Query()
        self._incarnation = incarnation

    def open(self, query: str, number: int) -> Opened:
        held = self.held
        ledger.open_query(held, number)
        return Opened(held.tip, held.attempt, held.stopped, held.batches, held.planned, held.adopt)

    def stage(self, query: str, number: int, attempt: int, block: str, rows: int, data: bytes) -> None:
        ledger.stage_block(self.held, number, attempt, block, rows, data)

    def plan(self, query: str, batch: Batch) -> bool:
        return ledger.plan_batch(self.held, batch)

    def commit(self, query: str, batch: Batch) -> bool:
        return ledger.commit_batch(self.held, batch, 0)

    def adopted(self, query: str) -> None:
        self.held.adopt = ""

    def incarnation(self, query: str) -> int:
        return self._incarnation

    def rows(self) -> list[Row]:
        return [row for block in self.held.decided for row in decode_rows(self.held.blocks[block.id]).rows]


class Frame:
    """A batch of Spark."""

    def __init__(self, **values: object) -> None:
        self.table = pa.table(values)

    def toArrow(self) -> pa.Table:  # noqa: N802  Spark's name
        return self.table


class Type:
    """A type of Spark: its name, and what belongs to it."""

    def __init__(self, name: str, **parts: Any) -> None:
        self._name = name
        self.__dict__.update(parts)

    def typeName(self) -> str:  # noqa: N802  Spark's name
        return self._name

    def simpleString(self) -> str:  # noqa: N802  as above
        return f"the type {self._name}"


class Field:
    """A column, as Spark has it."""

    def __init__(self, name: str, type_: Type, *, nullable: bool = True) -> None:
        self.name, self.dataType, self.nullable = name, type_, nullable


def columns(**types: str) -> Any:
    """Columns of these types, by name."""
    return Type("struct", fields=[Field(name, Type(type_)) for name, type_ in types.items()])


def plan(folder: Path, batch: int, at: int, place: dict[str, Any] | None = None) -> None:
    """Have Spark plan a batch, of a source that is at that place."""
    (folder / "offsets").mkdir(exist_ok=True)
    line = f'{{"at":{at}}}' if place is None else json.dumps(place)
    text = f'v1\n{{"batchWatermarkMs":0,"batchTimestampMs":{at}}}\n{line}'
    (folder / "offsets" / str(batch)).write_text(text, encoding="utf-8")


def run(sink: QuerySink, batch: int, at: int, place: dict[str, Any] | None = None, **values: object) -> None:
    """Have Spark run a batch of these rows."""
    plan(sink.folder, batch, at, place)
    sink.on_batch(cast("Any", Frame(**values)), batch)

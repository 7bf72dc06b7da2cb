"""Queries of a pipeline, as the function that builds them gives them.

    def build(spark):
        rows = spark.readStream.format("deathless").option("service", "airports").option("topic", "departures").load()
        late = rows.where("minutes_late > 15").selectExpr("carrier AS key", "minutes_late AS minutes")
        return [query("alarms", late).to_service("carriers", "late")]

A row goes to a handler as a call: the column `key` says whose it is, and every other column is the argument of its
name. Or it is stored in a table, which has a column for each of the row's:

        query("facts", rows.select("carrier", "minutes")).to_table("facts", dsn_file="/etc/facts.dsn")

A query that keeps state in Spark says what it gives of it: each change (`update`), or what changes no more (`append`):

        query("per_hour", rows.withWatermark(...).groupBy(...).count(), mode="append")

Guarantees: what is built here is checked here. Does not: start anything (see driver). Imports the pipelines' names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from deathless.base.errors import InvalidArgument, StateFolderMissing, StateRefused
from deathless.codec.peer_messages import is_service_name
from deathless.pipelines.rows import POLICIES, Policy
from deathless.sinks.stores import TRANSACTIONAL
from deathless.spark.row_schema import row_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEY: Final = "key"
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_TABLE: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,62}\.)?[A-Za-z_][A-Za-z0-9_]{0,62}")
_SCHEMA: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")
Mode = Literal["append", "update"]
_KEPT: Final = ("Aggregate", "Deduplicate", "DeduplicateWithinWatermark", "Distinct", "Join")
"""Operators of a plan that keep what they have seen of a stream, where a driver that takes over has it as well."""

_NOT_KEPT: Final = (
    "FlatMapGroupsInPandasWithState",
    "FlatMapGroupsWithState",
    "GlobalLimit",
    "TransformWithState",
    "TransformWithStateInPySpark",
)
"""Those whose state was never handed over in a test: they are refused."""

_BY_ORDER: Final = frozenset((
    "any_value", "array_agg", "collect_list", "collect_set", "first", "first_value", "last", "last_value", "listagg",
    "max_by", "min_by", "mode", "string_agg",
))  # fmt: skip
"""Aggregates that may give something else for the same rows in another order, though Spark calls some deterministic."""
_STORE: Final = "spark.sql.streaming.stateStore.providerClass"
_STORE_WANTED: Final = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
_VERSIONS: Final = "spark.sql.streaming.minBatchesToRetain"
_VERSIONS_MIN: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table that keeps the rows of a query."""

    name: str  # or schema.name
    store: str
    dsn: str
    dsn_file: str  # absolute
    schema: str  # of our own tables beside it
    create: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One query of a pipeline, and where its rows go."""

    name: str
    frame: DataFrame
    service: str = ""
    method: str = ""
    on_refusal: Policy = "stop"
    table: Table | None = None  # None: the rows go to a service
    mode: Mode = "append"
    stateful: bool = False  # it keeps state in Spark; `check` says so

    def to_service(self, service: str, method: str, *, on_refusal: Policy = "stop") -> Query:
        """Have each row be a call of a handler, exactly once.

        Args:
            service: its name, among the peers of the pipeline.
            method: its handler.
            on_refusal: what becomes of the query when the handler raises: `stop`, until somebody resumes it;
                `deadLetter`: it goes on, and the row is listed; `skip`: it goes on, and the row is only counted.

        Raises: InvalidArgument.
        """
        if not is_service_name(service):
            raise InvalidArgument(f"query {self.name}: {service!r} names no service")
        if not method.isidentifier():
            raise InvalidArgument(f"query {self.name}: {method!r} names no handler")
        if on_refusal not in POLICIES:
            raise InvalidArgument(f"query {self.name}: on_refusal is one of {', '.join(POLICIES)}, not {on_refusal!r}")
        return replace(self, service=service, method=method, on_refusal=on_refusal, table=None)

    def to_table(
        self,
        table: str,
        *,
        dsn: str = "",
        dsn_file: str = "",
        store: str = "postgresql",
        schema: str = "deathless",
        create: bool = False,
    ) -> Query:
        """Have each row stored in a table, exactly once: rows of a batch in one transaction, with the count of batches.

        Args:
            table: its name, or schema.table; it has a column for each of the rows', by name.
            dsn: where the store is, without a password: a connection string of libpq.
            dsn_file: file with that string, which may hold a password.
            store: what keeps the table: `postgresql`.
            schema: of the store's table deathless_sinks, which counts the batches.
            create: make the table if it is missing.

        Raises: InvalidArgument.
        """
        if store not in TRANSACTIONAL:
            known = ", ".join(TRANSACTIONAL)
            raise InvalidArgument(f"query {self.name}: a table's store is one of {known}, not {store!r}")
        if not _TABLE.fullmatch(table):
            raise InvalidArgument(f"query {self.name}: {table!r} names no table; write NAME or SCHEMA.NAME")
        if bool(dsn) == bool(dsn_file):
            raise InvalidArgument(f"query {self.name}: to_table takes dsn or dsn_file, one of them")
        if not _SCHEMA.fullmatch(schema):
            raise InvalidArgument(f"query {self.name}: {schema!r} names no schema of lower-case letters")
        file = str(Path(dsn_file).absolute()) if dsn_file else ""
        kept = Table(name=table, store=store, dsn=dsn, dsn_file=file, schema=schema, create=create)
        return replace(self, service="", method="", table=kept)


def query(name: str, frame: DataFrame, *, mode: Mode = "append") -> Query:
    """Name a query of a pipeline.

    Args:
        name: under which its progress is kept: lower-case letters, digits, `_` and `-`, at most 40, the first a letter.
            Another name is another query, which begins anew.
        frame: of a stream.
        mode: what is given of an aggregation: `append`: what changes no more, because the watermark has passed it;
            `update`: each value that a batch has changed.

    Raises: InvalidArgument; StateRefused for the mode `complete`.
    """
    if str(mode) == "complete":
        raise StateRefused(
            f"query {name}: mode complete gives all rows again with each batch, and neither handlers nor tables take "
            "them in place of those before",
            remedy="write mode='update', which gives the rows that a batch has changed",
        )
    if mode not in get_args(Mode):
        raise InvalidArgument(f"query {name}: mode is one of {', '.join(get_args(Mode))}, not {mode!r}")
    if not _NAME.fullmatch(name):
        raise InvalidArgument(
            f"{name!r} can't name a query: lower-case letters, digits, _ and -, at most 40, the first of them a letter"
        )
    if not frame.isStreaming:
        raise InvalidArgument(f"query {name} reads no stream", remedy="read with spark.readStream")
    return Query(name=name, frame=frame, mode=mode)


def check(found: object, *, has_state_folder: bool = True) -> list[Query]:
    """Give the queries that a build function returned, if a driver can run them.

    Args:
        found: what the function gave.
        has_state_folder: there is a folder for what Spark keeps, which all drivers see.

    Raises: InvalidArgument, StateRefused, StateFolderMissing, naming the query and what to write.
    """
    queries: list[Query] = []
    for each in found if isinstance(found, list | tuple) else [found]:
        if not isinstance(each, Query):
            raise InvalidArgument(f"the build function gives a list of queries, and {each!r:.100} is none")
        queries.append(each)
    for each in queries:
        if each.table is not None:
            row_schema(each.name, each.frame.schema)  # raises for a column that no table can have
        elif not each.service:
            raise InvalidArgument(
                f"query {each.name} goes nowhere",
                remedy="say where: query(...).to_service(...), or query(...).to_table(...)",
            )
        elif KEY not in each.frame.columns:
            raise InvalidArgument(
                f"query {each.name} has no column {KEY!r}, which says whose row each is; it has "
                + ", ".join(each.frame.columns),
                remedy="rename a column of texts, as in .selectExpr('carrier AS key', ...)",
            )
    names = [each.name for each in queries]
    if not names or len(set(names)) < len(names):
        raise InvalidArgument(f"the build function gives queries of different names, at least one; not {names}")
    return [_with_state(each, has_state_folder=has_state_folder) for each in queries]


def _with_state(given: Query, *, has_state_folder: bool) -> Query:
    """Say whether a query keeps state in Spark. Raises: StateRefused, StateFolderMissing if no driver could run it."""
    found = _stateful(given.frame)
    if not found:
        return given
    refused = [each for each in found if each in _NOT_KEPT]
    if refused:
        raise StateRefused(
            f"query {given.name} keeps state in Spark ({', '.join(refused)}), which a driver that takes over would not "
            "have"
        )
    analyzed = given.frame._jdf.queryExecution().analyzed()  # noqa: SLF001  as below
    if not analyzed.deterministic() or _by_order(analyzed):
        raise StateRefused(
            f"query {given.name} keeps state ({', '.join(found)}) and would compute something else if a batch was "
            "computed again, as rand(), uuid(), first() and collect_list() do",
            remedy="leave them out, or have them in a query that keeps no state",
        )
    conf = given.frame.sparkSession.conf
    if conf.get(_STORE, _STORE_WANTED) != _STORE_WANTED:
        raise StateRefused(
            f"query {given.name} keeps state ({', '.join(found)}), and {_STORE} is {conf.get(_STORE, None)}",
            remedy=f"leave {_STORE} out: Spark's own store of deltas is the one that is handed over",
        )
    if int(conf.get(_VERSIONS, str(_VERSIONS_MIN)) or 0) < _VERSIONS_MIN:
        raise StateRefused(
            f"query {given.name} keeps state ({', '.join(found)}), and {_VERSIONS} is below {_VERSIONS_MIN}",
            remedy=f"leave {_VERSIONS} out: a driver that takes over needs a version that is not the newest",
        )
    if not has_state_folder:
        raise StateFolderMissing(
            f"query {given.name} keeps state in Spark ({', '.join(found)}), and its drivers share no folder"
        )
    return replace(given, stateful=True)


def _by_order(analyzed: Any) -> bool:
    """Tell whether a plan has an aggregate whose value depends on the order of rows."""
    plans, found = [analyzed], []
    while plans:
        plan = plans.pop()
        plans += _of_seq(plan.children())
        found += _of_seq(plan.expressions())
    while found:
        expression = found.pop()
        if expression.prettyName() in _BY_ORDER:
            return True
        found += _of_seq(expression.children())
    return False


def _of_seq(seq: Any) -> list[Any]:
    """Give what a sequence of Scala holds."""
    return [seq.apply(at) for at in range(seq.size())]


def _stateful(frame: DataFrame) -> list[str]:
    """Give the operators of a frame that keep state of a stream, each once."""
    found: set[str] = set()
    left: list[Any] = [frame._jdf.queryExecution().analyzed()]  # noqa: SLF001  Python has no other way to a plan
    while left:
        plan = left.pop()
        below = _of_seq(plan.children())
        streams = [child for child in below if child.isStreaming()]
        name = plan.nodeName()
        if name in (*_KEPT, *_NOT_KEPT) and streams and (name != "Join" or len(streams) > 1):
            found.add(name)
        left += below
    return sorted(found)

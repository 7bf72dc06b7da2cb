"""What a build function may give. Frames are stand-ins with what is looked at; real ones are tested with Spark."""

from pathlib import Path
from typing import Any, cast

import pytest
from tests.unit.deathless.spark.spark_lab import columns

from deathless.base.errors import InvalidArgument, StateFolderMissing, StateRefused
from deathless.spark.queries import check, query


class Plan:
    """A node of a plan, as Java shows it."""

    def __init__(self, name: str, *children: "Plan", streaming: bool = True, sure: bool = True) -> None:
        self.name, self.below, self.streaming, self.sure = name, children, streaming, sure

    def deterministic(self) -> bool:
        return self.sure

    def expressions(self) -> "Plan":
        return Plan("expressions")

    def nodeName(self) -> str:  # noqa: N802  Java's name
        return self.name

    def isStreaming(self) -> bool:  # noqa: N802  as above
        return self.streaming

    def children(self) -> "Plan":
        return self

    def size(self) -> int:
        return len(self.below)

    def apply(self, at: int) -> "Plan":
        return self.below[at]


class Frame:
    """A frame of a stream."""

    def __init__(self, plan: Plan, *columns: str, streaming: bool = True) -> None:
        self.plan, self.columns, self.isStreaming = plan, list(columns), streaming
        self.schema: Any = None  # of queries that go to a table
        self._jdf = self.sparkSession = self
        self.conf: dict[str, str] = {}

    def queryExecution(self) -> "Frame":  # noqa: N802  as above
        return self

    def analyzed(self) -> Plan:
        return self.plan


def frame(plan: Plan | None = None) -> Any:
    """A frame that a driver can run, unless its plan says otherwise."""
    return Frame(plan or Plan("Project", Plan("Filter", Plan("StreamingDataSourceV2Relation"))), "key", "minutes")


def test_queries_are_given_as_they_are() -> None:
    """One alone needs no list."""
    one = query("alarms", frame()).to_service("carriers", "late", on_refusal="skip")
    assert check(one) == check([one]) == [one]
    assert (one.service, one.method, one.on_refusal) == ("carriers", "late", "skip")


@pytest.mark.parametrize("name", ["", "A", "a b", "1a", "a" * 41, "."])
def test_a_query_has_a_name(name: str) -> None:
    """It is a key of the pipeline's service, and part of a hold's name."""
    with pytest.raises(InvalidArgument, match="can't name a query"):
        query(name, frame())


def test_a_query_goes_somewhere() -> None:
    """To a handler of a service, with a policy that there is."""
    one = query("alarms", frame())
    with pytest.raises(InvalidArgument, match="goes nowhere"):
        check([one])
    with pytest.raises(InvalidArgument, match="'Carriers' names no service"):
        one.to_service("Carriers", "late")
    with pytest.raises(InvalidArgument, match="'a b' names no handler"):
        one.to_service("carriers", "a b")
    with pytest.raises(InvalidArgument, match="on_refusal is one of"):
        one.to_service("carriers", "late", on_refusal="drop")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "told"), [([], "at least one"), (None, "None is none"), ([1], "1 is none"), ("x", "'x' is none")]
)
def test_what_is_no_list_of_queries_is_refused(found: object, told: str) -> None:
    """With what it was."""
    with pytest.raises(InvalidArgument, match=told):
        check(found)


def test_a_query_goes_to_a_table() -> None:
    """Which needs no column of keys; the last one of several places counts."""
    one = query("facts", frame()).to_table("public.facts", dsn_file="facts.dsn", create=True)
    assert one.table is not None
    assert (one.table.name, one.table.store, one.table.create, one.service) == ("public.facts", "postgresql", True, "")
    assert one.table.dsn_file == str(Path("facts.dsn").absolute())
    assert one.to_service("carriers", "late").table is None
    assert one.to_service("carriers", "late").to_table("facts", dsn="host=db").service == ""


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"table": "a b", "dsn": "host=db"}, "'a b' names no table"),
        ({"table": "facts"}, "dsn or dsn_file, one of them"),
        ({"table": "facts", "dsn": "host=db", "dsn_file": "f"}, "dsn or dsn_file, one of them"),
        ({"table": "facts", "dsn": "host=db", "store": "paper"}, "one of postgresql, not 'paper'"),
        ({"table": "facts", "dsn": "host=db", "schema": "A"}, "'A' names no schema"),
    ],
)
def test_a_table_that_can_not_be_is_refused(given: dict[str, Any], told: str) -> None:
    """With what is wrong."""
    with pytest.raises(InvalidArgument, match=told):
        query("facts", frame()).to_table(**given)


def test_columns_that_no_table_gets_are_refused_before_anything_runs() -> None:
    """They are looked at with the query, which needs no key here."""
    given = Frame(Plan("Project"), "day")
    given.schema = columns(day="date")
    with pytest.raises(InvalidArgument, match="column day has values"):
        check([query("facts", cast("Any", given)).to_table("facts", dsn="host=db")])
    given.schema = columns(minutes="long")
    assert len(check([query("facts", cast("Any", given)).to_table("facts", dsn="host=db")])) == 1


def test_names_are_unique() -> None:
    """Two queries of one name would take each other's place."""
    one = query("alarms", frame()).to_service("carriers", "late")
    with pytest.raises(InvalidArgument, match="different names"):
        check([one, one])


def test_rows_have_a_key() -> None:
    """The column says whose they are."""
    with pytest.raises(InvalidArgument, match="no column 'key'"):
        check(query("alarms", Frame(Plan("x"), "carrier")).to_service("carriers", "late"))
    with pytest.raises(InvalidArgument, match="reads no stream"):
        query("alarms", Frame(Plan("x"), "key", streaming=False))


STREAM, TABLE = Plan("Relation"), Plan("Relation", streaming=False)


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        (Plan("Project", Plan("Aggregate", STREAM)), "Aggregate"),
        (Plan("Join", STREAM, Plan("Deduplicate", STREAM)), "Deduplicate, Join"),
        (Plan("DeduplicateWithinWatermark", STREAM), "DeduplicateWithinWatermark"),
        (Plan("Join", STREAM, TABLE), ""),
        (Plan("Join", STREAM, Plan("Aggregate", TABLE, streaming=False)), ""),
        (Plan("Project", STREAM, sure=False), ""),
    ],
)
def test_a_query_with_state_of_spark_is_known(plan: Plan, told: str) -> None:
    """A join with a table, and what is counted in one, keeps none. Without a folder for it no driver could run it."""
    one = query("alarms", frame(plan)).to_service("carriers", "late")
    assert [each.stateful for each in check(one)] == [bool(told)]
    if told:
        with pytest.raises(StateFolderMissing, match=rf"keeps state in Spark \({told}\)"):
            check(one, has_state_folder=False)
    else:
        assert check(one, has_state_folder=False) == [one]


@pytest.mark.parametrize(
    ("plan", "conf", "told"),
    [
        (Plan("TransformWithStateInPySpark", STREAM), {}, r"\(TransformWithStateInPySpark\)"),
        (Plan("Join", STREAM, Plan("GlobalLimit", STREAM)), {}, r"\(GlobalLimit\)"),
        (Plan("Aggregate", STREAM, sure=False), {}, r"\(Aggregate\) and would compute something else"),
        (Plan("Aggregate", STREAM), {"spark.sql.streaming.stateStore.providerClass": "x.RocksDB"}, "is x.RocksDB"),
        (Plan("Aggregate", STREAM), {"spark.sql.streaming.minBatchesToRetain": "9"}, "minBatchesToRetain is below 10"),
    ],
)
def test_state_that_can_not_be_handed_over_is_refused(plan: Plan, conf: dict[str, str], told: str) -> None:
    """What was never handed over in a test, what a repetition would give otherwise, and other stores."""
    given = frame(plan)
    given.conf = conf
    with pytest.raises(StateRefused, match=told):
        check(query("alarms", given).to_service("carriers", "late"))


def test_a_query_gives_changes_or_what_changes_no_more() -> None:
    """All rows again, with each batch, nobody could take in place of those before."""
    assert (query("a", frame()).mode, query("a", frame(), mode="update").mode) == ("append", "update")
    with pytest.raises(StateRefused, match="mode complete gives all rows again"):
        query("a", frame(), mode=cast("Any", "complete"))
    with pytest.raises(InvalidArgument, match="one of append, update, not 'all'"):
        query("a", frame(), mode=cast("Any", "all"))

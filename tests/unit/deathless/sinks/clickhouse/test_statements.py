"""The statements of a sink: each insert is guarded by the fence, and says whose it is."""

from __future__ import annotations

import pytest

from deathless.sinks.clickhouse.journal import Holder, first_entry
from deathless.sinks.clickhouse.statements import Statements, known, present, table_of
from deathless.sinks.clickhouse.table import Place
from deathless.sinks.conformance import KEY
from deathless.sinks.port import Key

SQL = Statements("deathless", KEY, "w1")
GUARD = "ORDER BY epoch DESC, turn DESC, writer DESC LIMIT 1) = 'w1'"


@pytest.mark.parametrize("statement", [SQL.append(first_entry("w1", 5, 1)), SQL.insert("a.t", "`n`", "c0", 7)])
def test_insert_selects_nothing_unless_the_fence_is_ours(statement: str) -> None:
    assert statement.endswith(GUARD)
    assert statement.startswith(f"/* deathless sink {SQL.digest} w1 ")


def test_statements_of_other_claims_are_told_apart_by_how_they_begin() -> None:
    found = SQL.kill_others()
    assert f"position(query, '/* deathless sink {SQL.digest} ') = 1" in found
    assert f"position(query, '/* deathless sink {SQL.digest} w1 ') != 1" in found
    assert not found.startswith("/*")
    assert "system.processes" in SQL.count_others()


def test_each_sink_and_shard_has_a_mark_of_its_own() -> None:
    others = [Key("facts", "shop", 1, KEY.service_id), Key("other", "shop", 0, KEY.service_id)]
    assert len({Statements("deathless", each, "w").digest for each in [KEY, *others]}) == 3


def test_names_and_texts_are_quoted() -> None:
    sql = Statements("deathless", Key("it's", "shop", 0, "id"), "w1")
    assert "sink = 'it\\'s'" in sql.last()
    assert "'it\\'s'" in sql.raise_fence(Holder(1, 1, "w1", "host", "me"))
    assert present(Place("a.t", "b", "p"), ["x", "y"]).endswith(
        "FROM `a`.`t` WHERE `b` IN (toUUID('x'), toUUID('y')) FORMAT TabSeparated"
    )


def test_table_is_looked_for_where_the_user_is_unless_it_says_where() -> None:
    assert "database = currentDatabase() AND name = 't'" in table_of("t", "")[0]
    assert "database = 'd' AND name = 't'" in table_of("t", "d")[0]
    assert "database = 'a' AND table = 't'" in table_of("a.t", "d")[1]


def test_own_tables_reach_the_disk_where_the_server_can_do_so() -> None:
    assert all(each.endswith("8192, fsync_after_insert = 1") for each in SQL.create(["fsync_after_insert = 1"])[1:])
    assert "'fsync_after_insert'" in known()
    assert SQL.name("rows", 3) == f"deathless-{SQL.digest}-w1-rows-3"

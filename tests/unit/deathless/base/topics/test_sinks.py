"""What a manifest says of sinks, and what their processes are started with."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from deathless.base.topics.sinks import ColumnsOptions, Sink, held_by, held_bytes, sink_configs, sink_problems

GIVEN: dict[str, Any] = {
    "name": "facts",
    "kind": "columns",
    "topic": "departures",
    "options": {"store": "postgresql", "dsnFile": "facts.dsn", "table": "facts"},
}


def sink(**options: object) -> Sink:
    return msgspec.convert(GIVEN | {"options": GIVEN["options"] | options}, Sink)


def test_options_have_defaults() -> None:
    assert sink().options == ColumnsOptions(
        store="postgresql", table="facts", dsn_file="facts.dsn", block_rows=100_000, block_seconds=5.0, create=False
    )


@pytest.mark.parametrize(
    "wrong",
    [{"table": "a.b.c"}, {"table": 'a"b'}, {"store": "paper"}, {"blockRows": 0}, {"holdBytesMax": "much"}, {"more": 1}],
)
def test_options_that_are_wrong_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        sink(**wrong)


def test_what_contradicts_other_parts_of_the_spec_is_found() -> None:
    assert sink_problems([sink()], {"departures"}) == []
    assert [each[:2] for each in sink_problems([sink(), sink()], {"departures"})] == [(1, "name")]
    assert [each[:2] for each in sink_problems([sink()], {"arrivals"})] == [(0, "topic")]
    assert [each[:2] for each in sink_problems([sink(dsn="host=db")], {"departures"})] == [(0, "options")]
    assert [each[:2] for each in sink_problems([sink(dsnFile="")], {"departures"})] == [(0, "options")]


def test_sinks_of_one_topic_keep_the_same_rows() -> None:
    assert held_bytes([sink(holdBytesMax="1Ki"), sink(holdBytesMax="2Ki")], 3) == 3 * 2048
    assert held_by([("a", 5), ("b", 7), ("a", 6)]) == 13
    assert held_bytes([sink(holdBytesMax="0")], 3) == 0


def test_processes_are_told_folders_of_their_shard() -> None:
    (config,) = sink_configs([sink(columns={"late": "minutes"}, holdBytesMax="1Ki")], "/data/0/", "/home")
    assert config.topic_directory == "/data/0/topics/departures"
    assert (config.columns, config.hold_bytes_max, config.block_s) == ({"late": "minutes"}, 1024, 5.0)
    assert (config.folder, config.dsn_file) == ("/home", "facts.dsn")
    with_secret = msgspec.convert(GIVEN | {"secretRef": {"name": "database"}}, Sink)
    assert sink_configs([with_secret], "/data", ".", "/etc/sinks")[0].folder == "/etc/sinks/facts"
    assert sink_configs([with_secret], "/data", "/home")[0].folder == "/home"

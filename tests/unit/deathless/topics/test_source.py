"""Names in a topic's folder."""

from __future__ import annotations

import pytest

from deathless.base.errors import InvalidArgument
from deathless.topics.source import (
    FileName,
    TopicSource,
    floor_name,
    hold_name,
    parse_file,
    parse_floor,
    parse_hold,
    parse_source,
)

SOURCE = TopicSource("0123456789abcdef" * 2, 3)
FILE = FileName(41, 7, 2)


def test_names_are_read_as_they_were_written() -> None:
    assert SOURCE.folder == "0123456789abcdef0123456789abcdef.3"
    assert parse_source(SOURCE.folder) == SOURCE
    assert FILE.text == "00000000000000000041-7-2.rows"
    assert parse_file(FILE.text) == FILE
    assert parse_floor(floor_name(17, "retention")) == (17, "retention")
    assert parse_hold(hold_name("nightly.report-1")) == "nightly.report-1"


@pytest.mark.parametrize("name", ["", ".", "x.1", "0" * 32, "0" * 32 + ".01", "0" * 32 + ".1\n", "A" * 32 + ".1"])
def test_other_names_are_no_sources(name: str) -> None:
    assert parse_source(name) is None


@pytest.mark.parametrize("name", ["41-7-2.rows", "0" * 20 + "-0-1.rows", "0" * 20 + "-1-1.rows~", "." + "0" * 20])
def test_other_names_are_no_files_and_no_floors(name: str) -> None:
    assert parse_file(name) is None
    assert parse_floor(name) is None


@pytest.mark.parametrize("name", ["", ".x", "-x", "a/b", "a" * 64, "ü", "a b"])
def test_other_names_are_no_holds(name: str) -> None:
    assert parse_hold(f"{name}.json") is None
    with pytest.raises(InvalidArgument, match="can't name a hold"):
        hold_name(name)


def test_a_hold_s_temporary_file_is_no_hold() -> None:
    assert parse_hold(".report.json.a1b2") is None
    assert parse_hold("report") is None

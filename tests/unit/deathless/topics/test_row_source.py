"""Files and HTTP ports give rows through the same methods."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from tests.unit.deathless.topics.topic_lab import file_bytes, positions, put

from deathless.topics import RemoteTopic, RowSource, TopicReader
from deathless.topics.row_source import follow_rows
from deathless.topics.source import FileName

METHODS = [name for name in vars(RowSource) if not name.startswith("_")]


@pytest.mark.parametrize("name", METHODS)
def test_both_have_each_method_with_its_arguments(name: str) -> None:
    assert len(METHODS) > 7
    wanted = list(inspect.signature(getattr(RowSource, name)).parameters)
    for kind in (TopicReader, RemoteTopic):
        assert list(inspect.signature(getattr(kind, name)).parameters) == wanted


def test_rows_are_followed_from_where_they_were_left(tmp_path: Path) -> None:
    put(tmp_path, FileName(1, 1, 1), file_bytes(1, [[1], [2]]))
    rows = follow_rows(TopicReader(tmp_path), 1, None, pause_s=0.0)
    assert positions([next(rows), next(rows)]) == [1, 2]
    put(tmp_path, FileName(3, 1, 2), file_bytes(3, [[3]]))
    assert positions([next(rows)]) == [3]

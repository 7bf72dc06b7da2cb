"""Readers of files that threads share. Through HTTP: test_remote."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from tests.unit.deathless.topics.topic_lab import FOLDER, file_bytes, put

from deathless.base.errors import InvalidArgument, TopicGap, TopicNotReadable
from deathless.topics.serving import IDLE_MAX, ServedTopics
from deathless.topics.source import FileName, TopicSource


@pytest.fixture(name="served")
def served_topic(tmp_path: Path) -> ServedTopics:
    put(tmp_path, FileName(1, 1, 1), file_bytes(1, [[at] for at in range(1, 20)]))
    return ServedTopics({"sales": [str(tmp_path)]})


def lines(served: ServedTopics, start: int, end: int) -> list[int]:
    rows = served.rows("sales", 0, "", start=start, end=end, columns=["_position"], schema=None, lines=True)
    found: list[int] = []
    while (piece := rows.next()) is not None:
        found += [msgspec.json.decode(line)["_position"] for line in piece.splitlines()]
    rows.close()
    return found


def test_threads_read_at_the_same_time(served: ServedTopics) -> None:
    with ThreadPoolExecutor(8) as threads:
        found = [threads.submit(lines, served, start, 20) for start in range(1, 20)]
        assert [each.result() for each in found] == [[*range(start, 20)] for start in range(1, 20)]
    ((_, idle),) = served._idle.items()
    assert 0 < len(idle) <= IDLE_MAX


def test_a_reader_that_met_an_error_is_not_used_again(served: ServedTopics) -> None:
    assert lines(served, 1, 3) == [1, 2]
    ((_, idle),) = served._idle.items()
    (kept,) = idle
    with pytest.raises(TopicGap):
        lines(served, 20, 21)
    assert not idle
    assert lines(served, 1, 3) == [1, 2]
    assert kept not in idle


def test_rows_that_were_closed_give_no_more(served: ServedTopics) -> None:
    rows = served.rows("sales", 0, "", start=1, end=9, columns=None, schema=None, lines=False)
    assert rows.next()
    rows.close()
    assert rows.next() is None


def test_readers_of_a_former_source_are_let_go(served: ServedTopics, tmp_path: Path) -> None:
    assert served.state("sales", 0, "").next == 20
    other = tmp_path / TopicSource(FOLDER.partition(".")[0], 5).folder
    other.mkdir()
    (other / FileName(1, 8, 1).text).write_bytes(file_bytes(1, [[1]], epoch=8))
    assert served.state("sales", 0, "").next == 2
    ((_, idle),) = served._idle.items()
    assert [reader.source().incarnation for reader in idle] == [5]


def test_rows_of_several_services_are_nobodys(served: ServedTopics, tmp_path: Path) -> None:
    (tmp_path / f"{'f' * 32}.1").mkdir()
    with pytest.raises(InvalidArgument, match="topic 'sales' of shard 0 holds rows of several services"):
        served.state("sales", 0, "")


def test_holds_are_their_owners(served: ServedTopics) -> None:
    served.hold("sales", 0, "", "report", 3, owner="a", since="", of_others=False)
    with pytest.raises(TopicNotReadable, match="is of a"):
        served.drop_hold("sales", 0, "", "report", owner="b", of_others=False)
    assert served.drop_hold("sales", 0, "", "report", owner="b", of_others=True)

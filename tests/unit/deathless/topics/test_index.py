"""What the heads of blocks say: torn tails, damage, files that grow, are cut and are gone."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest
from tests.unit.deathless.topics.topic_lab import FOLDER, file_bytes, put, spans

from deathless.shell.disk.filesystem import RealFileSystem
from deathless.topics.blocks import BLOCK_HEAD_BYTES
from deathless.topics.index import FILES_MAX, TIPS_MAX, SourceIndex
from deathless.topics.source import FileName

NAME = FileName(1, 1, 1)


def looked(folder: Path, index: SourceIndex | None = None) -> SourceIndex:
    found = index or SourceIndex(RealFileSystem(folder), FOLDER)
    found.refresh()
    found.look_at_all()
    return found


def test_files_that_follow_and_overlap_are_one_span(tmp_path: Path) -> None:
    put(tmp_path, NAME, file_bytes(1, [[1, 2], [3, 4]]))
    put(tmp_path, FileName(5, 1, 2), file_bytes(5, [[5, 6]]))
    put(tmp_path, FileName(4, 2, 1), file_bytes(4, [[4, 5, 6, 7]], epoch=2))
    put(tmp_path, FileName(20, 2, 2), file_bytes(20, [[20]], epoch=2))
    index = looked(tmp_path)
    assert spans(index) == [(1, 8), (20, 21)]
    assert next(file.name.epoch for file, _ in index.candidates(6)) == 1
    assert {file.name for file, _ in index.candidates(5)} == {FileName(5, 1, 2), FileName(4, 2, 1)}


def test_a_file_that_is_torn_at_any_byte_counts_up_to_its_last_whole_block(tmp_path: Path) -> None:
    whole = file_bytes(1, [[1, 2], [3]])
    one = len(file_bytes(1, [[1, 2]]))
    for size in range(len(whole)):
        put(tmp_path, NAME, whole[:size])
        assert spans(looked(tmp_path)) == ([(1, 3)] if size >= one else []), size


def test_a_damaged_last_block_and_a_damaged_head_do_not_count(tmp_path: Path) -> None:
    whole = bytearray(file_bytes(1, [[1, 2], [3]]))
    whole[-1] ^= 1
    put(tmp_path, NAME, bytes(whole))
    index = looked(tmp_path)
    assert spans(index) == [(1, 3)]
    assert "no whole block at byte" in index.troubles()
    whole[len(file_bytes(1, [[1, 2]])) + 10] ^= 1
    put(tmp_path, NAME, bytes(whole))
    assert spans(looked(tmp_path)) == [(1, 3)]


def test_a_damaged_payload_in_the_middle_is_not_given(tmp_path: Path) -> None:
    whole = bytearray(file_bytes(1, [[1, 2], [3]]))
    whole[len(file_bytes(1, [])) + BLOCK_HEAD_BYTES + 100] ^= 1
    put(tmp_path, NAME, bytes(whole))
    index = looked(tmp_path)
    (found,) = list(index.candidates(1))
    with index.opened(found[0]) as handle:
        assert index.payload(*found, handle) is None
    assert "is damaged" in index.troubles()


def test_what_a_file_gets_and_loses_is_seen_by_the_next_look(tmp_path: Path) -> None:
    path = put(tmp_path, NAME, file_bytes(1, [[1]]))
    index = looked(tmp_path)
    path.write_bytes(file_bytes(1, [[1], [2, 3]]))
    assert spans(looked(tmp_path, index)) == [(1, 4)]
    path.write_bytes(file_bytes(1, [[1]]))
    assert spans(looked(tmp_path, index)) == [(1, 2)]
    path.unlink()
    index.look_at_all()
    assert spans(index) == []
    assert looked(tmp_path, index).known == {}


@pytest.mark.parametrize("data", [b"", b"x" * 500, file_bytes(7, [[7]])], ids=["empty", "other bytes", "other first"])
def test_a_file_without_its_header_holds_nothing_and_says_so(data: bytes, tmp_path: Path) -> None:
    put(tmp_path, NAME, data)
    index = looked(tmp_path)
    assert spans(index) == []
    assert ("header" in index.troubles()) == bool(data)


def test_a_file_of_a_newer_version_is_named(tmp_path: Path) -> None:
    data = bytearray(file_bytes(1, []))
    data[4] = 9
    data[12:16] = struct.pack("<I", zlib.crc32(data[16:], zlib.crc32(data[:12])))
    put(tmp_path, NAME, bytes(data))
    assert "version 9" in looked(tmp_path).troubles()


def test_the_newest_files_say_up_to_where_rows_are_and_names_what_stands_below(tmp_path: Path) -> None:
    for epoch in range(1, 40):
        put(tmp_path, FileName(epoch, epoch, 1), file_bytes(epoch, [[epoch]], epoch=epoch))
    index = SourceIndex(RealFileSystem(tmp_path), FOLDER)
    index.refresh()
    assert (index.reach(1), index.lowest(1), index.lowest(4)) == (40, 1, 1)
    assert sum(file.header is not None for file in index.known.values()) <= TIPS_MAX + 3  # those below the floor too
    put(tmp_path, FileName(35, 38, 2), file_bytes(35, [list(range(35, 50))], epoch=38))
    index.refresh()
    assert index.reach(1) == 50
    assert index.reach(60) == 60


def test_below_a_floor_rows_count_as_far_as_they_reach_it(tmp_path: Path) -> None:
    put(tmp_path, FileName(1, 1, 1), file_bytes(1, [[1]]))
    put(tmp_path, FileName(3, 1, 2), file_bytes(3, [[3, 4]]))
    put(tmp_path, FileName(5, 1, 3), file_bytes(5, [[5, 9]]))
    index = looked(tmp_path)
    assert [index.lowest(floor) for floor in (1, 2, 3, 5, 7, 10)] == [1, 1, 3, 3, 3, 3]


def test_blocks_of_few_files_are_remembered_and_the_others_are_looked_at_again(tmp_path: Path) -> None:
    for at in range(1, 30):
        put(tmp_path, FileName(at, 1, at), file_bytes(at, [[at]]))
    index = SourceIndex(RealFileSystem(tmp_path), FOLDER)
    index.refresh()
    for at in [*range(1, 30), *range(1, 30)]:
        ((_, block),) = index.candidates(at)
        assert block.head.first == at
        assert sum(file.blocks is not None for file in index.known.values()) <= FILES_MAX


def test_a_folder_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert spans(looked(tmp_path)) == []

"""Floors and holds: one of writer and reader always sees the other, whoever goes on when."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.deathless.topics.topic_lab import FOLDER, file_bytes, put, read_all, reader_in

from deathless.base.errors import InvalidArgument, TopicRowsDropped
from deathless.engine.ports import FileSystem
from deathless.shell.disk.filesystem import RealFileSystem
from deathless.simulation.world.disk import CHANGES, SimDisk, SimFileSystem
from deathless.topics import keeping
from deathless.topics.index import SourceIndex
from deathless.topics.keeping import (
    Floor,
    Hold,
    Keeping,
    drop,
    droppable,
    floor_of,
    holds_of,
    lowest_hold,
    publish_floor,
    register,
    retain,
)
from deathless.topics.source import FileName

ONE_FILE = Keeping(size_bytes=1)


def topic_on_a_disk(gate: Callable[[str, str, str], None] = lambda *_: None) -> SimFileSystem:
    """Three files of two positions each, on a simulated disk."""
    disk = SimDisk(random.Random(1))
    files = disk.view("writer")
    files.make_folder(FOLDER)
    for first in (1, 3, 5):
        handle = files.create(f"{FOLDER}/{FileName(first, 1, first).text}")
        files.write(handle, 0, file_bytes(first, [[first, first + 1]]))
        files.sync(handle)
        files.close(handle)
    files.sync_folder(FOLDER)
    return disk.view("gated", gate)


def indexed(files: FileSystem) -> SourceIndex:
    index = SourceIndex(files, FOLDER)
    index.refresh()
    index.look_at_all()
    return index


def names(files: FileSystem) -> list[int]:
    return [name.first for name in indexed(files).known]


def test_files_go_that_size_or_age_lets_go_and_the_newest_stays() -> None:
    index = indexed(topic_on_a_disk())
    known = list(index.known.values())
    whole = sum(file.size for file in known)
    sizes = (0, whole, whole - 1, whole - known[0].size, known[2].size, 1)
    assert [droppable(index, Keeping(size)) for size in sizes] == [1, 1, 3, 3, 5, 5]
    assert [droppable(index, Keeping(0, s * 1_000_000)) for s in (0, 4, 3, 1)] == [1, 1, 3, 5]
    files = topic_on_a_disk()
    assert retain(indexed(files), ONE_FILE) == [f"{FOLDER}/{FileName(at, 1, at).text}" for at in (1, 3)]
    assert floor_of(files, FOLDER) == Floor(5, "retention")
    assert read_all(files) == [5, 6]


def test_a_file_that_the_newest_one_repeats_in_part_stays(tmp_path: Path) -> None:
    put(tmp_path, FileName(1, 1, 1), file_bytes(1, [[1, 2, 3]]))
    put(tmp_path, FileName(3, 2, 1), file_bytes(3, [[3]], epoch=2))
    files = RealFileSystem(tmp_path)
    assert retain(indexed(files), ONE_FILE) == []
    assert read_all(files) == [1, 2, 3]


def test_nothing_at_or_above_a_hold_is_deleted_and_what_it_kept_goes_once_it_is_gone() -> None:
    files = topic_on_a_disk()
    register(files, FOLDER, "report", Hold(4))
    register(files, FOLDER, "other", Hold(5))
    assert len(retain(indexed(files), ONE_FILE)) == 1
    assert (floor_of(files, FOLDER).position, names(files)) == (4, [3, 5])
    assert drop(files, FOLDER, "report")
    assert not drop(files, FOLDER, "report")
    assert len(retain(indexed(files), ONE_FILE)) == 1
    assert names(files) == [5]


def test_a_hold_that_can_not_be_read_keeps_everything(tmp_path: Path) -> None:
    for first in (1, 2):
        put(tmp_path, FileName(first, 1, first), file_bytes(first, [[first]]))
    files = RealFileSystem(tmp_path)
    register(files, FOLDER, "report", Hold(2))
    (tmp_path / FOLDER / "holds" / "report.json").write_bytes(b"{")
    assert lowest_hold(files, FOLDER) == 0
    assert [each.hold for each in holds_of(files, FOLDER)] == [None]
    assert retain(indexed(files), ONE_FILE) == []


def test_a_hold_below_the_floor_is_refused_and_leaves_nothing() -> None:
    files = topic_on_a_disk()
    publish_floor(files, FOLDER, 5, "skipped")
    with pytest.raises(TopicRowsDropped, match="rows below position 5 may be gone, 4 too: an operator"):
        register(files, FOLDER, "report", Hold(4))
    assert holds_of(files, FOLDER) == []
    register(files, FOLDER, "report", Hold(6))
    with pytest.raises(TopicRowsDropped):
        register(files, FOLDER, "report", Hold(4))
    assert lowest_hold(files, FOLDER) == 6, "the former one stands again"
    with pytest.raises(InvalidArgument):
        register(files, FOLDER, "../x", Hold(6))


def test_a_hold_moves_up_whatever_the_floor_says_since_its_rows_were_kept() -> None:
    files = topic_on_a_disk()
    register(files, FOLDER, "report", Hold(1))
    publish_floor(files, FOLDER, 5, "retention")  # by a writer that had read the holds before
    register(files, FOLDER, "report", Hold(3))
    assert lowest_hold(files, FOLDER) == 3


def test_a_floor_never_sinks_whoever_wakes_late() -> None:
    files = topic_on_a_disk()
    late = topic_writer_that_stops_before(files, "create", lambda: publish_floor(files, FOLDER, 5, "retention"))
    assert publish_floor(late, FOLDER, 3, "retention").position == 3
    assert floor_of(files, FOLDER).position == 5


def topic_writer_that_stops_before(files: SimFileSystem, at: str, then: Callable[[], object]) -> SimFileSystem:
    """A view of the same disk whose first call of an operation lets another process work first."""
    done: list[str] = []

    def gate(operation: str, path: str, moment: str) -> None:
        if operation == at and moment == "before" and not done:
            done.append(path)
            then()

    return files.disk.view("late", gate)


class Interrupted:
    """Lets another process do all of its work before or after one step of the first one."""

    def __init__(self, stop: int, second: Callable[[SimFileSystem], object]) -> None:
        self.files = topic_on_a_disk(self.gate)
        self.count = 0
        self.stop = stop
        self.second = second

    def gate(self, operation: str, _path: str, _moment: str) -> None:
        if operation in CHANGES | {"listing", "open"}:
            self.count += 1
            if self.count == self.stop:
                self.second(self.files.disk.view("second"))


def races(first: Callable[[SimFileSystem], object], second: Callable[[SimFileSystem], object]) -> list[str]:
    """Say where `second`, done as a whole before or after any step of `first`, leaves a hold without its rows."""
    broken = []
    for stop in range(60):
        files = Interrupted(stop, second).files
        first(files)
        held = [each.hold for each in holds_of(files, FOLDER)]
        if any(hold is not None and hold.sure for hold in held) and read_all(files)[0] > 1:
            broken.append(f"step {stop}")
    return broken


def hold_the_first(files: SimFileSystem) -> None:
    try:
        register(files, FOLDER, "report", Hold(1))
    except TopicRowsDropped:
        assert floor_of(files, FOLDER).position > 1


def drop_rows(files: SimFileSystem) -> None:
    retain(indexed(files), ONE_FILE)


def test_writer_and_reader_see_each_other_whichever_is_frozen_where() -> None:
    assert races(drop_rows, hold_the_first) == []
    assert races(hold_the_first, drop_rows) == []


def test_a_writer_that_reads_the_holds_before_its_floor_deletes_what_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    def once(files: FileSystem, folder: str) -> int | None:
        if not seen:
            seen.append(lowest_hold(files, folder))
        return seen[0]

    seen: list[int | None] = []

    def early(files: SimFileSystem) -> None:
        seen.clear()
        drop_rows(files)

    monkeypatch.setattr(keeping, "lowest_hold", once)
    assert races(early, hold_the_first) != []


def test_a_reader_that_reads_the_floor_before_its_hold_is_told_a_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    def early(files: SimFileSystem) -> None:
        floor = floor_of(files, FOLDER)
        monkeypatch.setattr(keeping, "floor_of", lambda *_: floor)
        try:
            hold_the_first(files)
        finally:
            monkeypatch.undo()

    def second(files: SimFileSystem) -> None:
        with monkeypatch.context() as context:
            context.setattr(keeping, "floor_of", floor_of)
            drop_rows(files)

    assert races(early, second) != []


def test_a_power_cut_leaves_no_hold_without_its_rows() -> None:
    for seed in range(40):
        steps = [drop_rows, hold_the_first] if seed % 2 else [hold_the_first, drop_rows]
        files = topic_on_a_disk()
        files.disk.rng.seed(seed)
        for step in steps:
            step(files)
        files.disk.cut_power()
        after = files.disk.view("after")
        held = [each.hold for each in holds_of(after, FOLDER) if each.hold is not None and each.hold.sure]
        floor = floor_of(after, FOLDER).position
        assert not held or read_all(after)[0] == 1
        assert reader_in(after).bounds().first <= max(floor, 1)

"""The page of a worker: read by others as it stands, also after its writer's death; never somebody else's."""

from __future__ import annotations

import errno
import os
import re
import shutil
from pathlib import Path

import msgspec
import pytest
from tests.unit.deathless.shell.faulty_calls import FaultyCalls

from deathless.base.errors import PermissionRefused
from deathless.codec.witness import Point
from deathless.execution.turn.running import Running
from deathless.shell.disk.filesystem import mounts
from deathless.shell.link import status_page as page
from deathless.shell.link.status_page import (
    CELLS,
    FULL,
    LSN,
    OUTBOX_FULL,
    OUTSIDE_HELD,
    PAGE_BYTES,
    SHARED_CELLS,
    TICKS,
    WITNESS_AT,
    Page,
    boot_number,
    confirmed_in_pages,
    open_page,
    page_path,
    sweep,
    waits_of,
)
from deathless.shell.worker.helpers import witness_writer

CELL_NAMES = (
    *("TICKS", "CALLS", "UPSTREAM", "LSN", "FULL", "UNPROVED", "LOCK_ANSWERS", "PROVED", "OUTBOX_FULL", "BOOT_ID"),
    *("BOOT_NS", "BOOT_ELAPSED", "STEPPED", "SLOWEST", "STORAGE", "DURABLE", "WAITS_FOR", "WAITS_SINCE", "WAITS_UNTIL"),
    "OUTSIDE_HELD",
)
POINT = Point(bytes(range(16)), 77, 3, 1000, bytes(range(16, 32)), 1_700_000_000_000_000, boot=5)


def begin(page: Page, *, session: int, seq: int, index: int) -> None:
    assert page.running is not None
    page.running.enter(session, seq)
    page.running.cells[2] = index


def test_a_new_page_names_nobody_and_counts_from_zero(tmp_path: Path) -> None:
    page = Page(str(tmp_path / "page"))
    assert page.read_running() is None
    assert list(page.cells[TICKS:CELLS]) == [0] * (CELLS - TICKS)
    assert (tmp_path / "page").stat().st_size == PAGE_BYTES
    assert (tmp_path / "page").stat().st_mode & 0o777 == 0o600


def test_who_has_it_open_sees_what_the_worker_writes(tmp_path: Path) -> None:
    worker, supervisor = Page(str(tmp_path / "page"), fresh=True), Page(str(tmp_path / "page"))
    begin(worker, session=5, seq=6, index=2)
    worker.cells[LSN] = 2**64 - 1
    assert supervisor.read_running() == Running(5, 8)
    assert supervisor.cells[LSN] == 2**64 - 1
    assert worker.running is not None
    worker.running.leave()
    assert supervisor.read_running() is None


def test_log_and_outbox_without_room_are_told_apart(tmp_path: Path) -> None:
    page = Page(str(tmp_path / "page"), fresh=True)
    assert (page.full, page.outbox_full) == (False, False)
    page.cells[FULL] = 1
    assert (page.full, page.outbox_full) == (True, False)
    page.cells[FULL], page.cells[OUTBOX_FULL] = 0, 1
    assert (page.full, page.outbox_full) == (False, True)


def test_each_cell_has_one_meaning() -> None:
    """Those of the witness's writer, too, which knows this module by numbers alone."""
    cells = [value for name, value in vars(page).items() if name in CELL_NAMES]
    assert len(cells) == len(CELL_NAMES) == len(set(cells))
    assert witness_writer.DURABLE_AT == 8 * page.DURABLE
    header, _, _ = (page.__doc__ or "").partition("Behind the cells")
    said = [int(line.split()[0].rstrip(",")) for line in header.splitlines() if re.match(r" {4}\d+[ ,]", line)]
    assert len(said) == len(set(said))


def test_what_a_primary_waits_for_is_told_in_seconds_of_the_wall_clock_that_do_not_change(tmp_path: Path) -> None:
    found = Page(str(tmp_path / "page"), fresh=True)
    found.note_waiting((2, 100.0, 108.0), 101.0, 5001.2)
    found.note_waiting((1, 100.0, 108.0), 102.0, 5003.9)  # the wall clock was set meanwhile
    assert waits_of(found) == {"waits_for": 1, "waits_since": 5000, "waits_until": 5008, "outside_held": False}
    found.note_waiting(None)
    assert waits_of(found) == {"waits_for": 0, "waits_since": 0, "waits_until": 0, "outside_held": False}
    found.note_waiting((2, 100.0, 108.0), 101.0, 5001.2)
    found.clear()
    assert waits_of(found)["waits_for"] == 0


def test_what_a_former_worker_held_is_not_said_of_the_next_one(tmp_path: Path) -> None:
    found = Page(str(tmp_path / "page"), fresh=True)
    found.cells[OUTSIDE_HELD] = 1
    assert waits_of(found)["outside_held"] is True
    found.clear()
    assert waits_of(found)["outside_held"] is False


def test_what_was_being_run_survives_the_process_that_died_in_it(tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            begin(Page(str(tmp_path / "page"), fresh=True), session=5, seq=6, index=0)
        finally:
            os._exit(9)
    os.waitpid(pid, 0)
    assert Page(str(tmp_path / "page")).read_running() == Running(5, 6)


def test_reopening_clears_nothing_and_fresh_clears_all(tmp_path: Path) -> None:
    first = Page(str(tmp_path / "page"), fresh=True)
    begin(first, session=5, seq=6, index=0)
    first.cells[TICKS] = first.cells[SHARED_CELLS - 1] = 9
    first.note_confirmed(POINT)
    again = Page(str(tmp_path / "page"))
    assert again.running is None, "only who clears it writes to it"
    assert again.read_running() == Running(5, 6)
    assert again.cells[TICKS] == again.cells[SHARED_CELLS - 1] == 9
    fresh = Page(str(tmp_path / "page"), fresh=True)
    assert fresh.read_running() is None
    assert list(fresh.cells[TICKS:SHARED_CELLS]) == [0] * (SHARED_CELLS - TICKS)
    assert fresh.read_confirmed() == POINT, "the witness is what the page is kept for"


def test_a_page_that_is_too_short_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "page"
    path.write_bytes(b"\x07" * 24)
    path.chmod(0o600)
    page = Page(str(path))
    assert page.read_running() is None
    assert page.running is not None


@pytest.mark.parametrize("mode", [0o640, 0o602, 0o666])
def test_a_page_that_others_may_open_is_refused(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "page"
    Page(str(path))
    path.chmod(mode)
    with pytest.raises(PermissionRefused, match="others may write it"):
        Page(str(path))


def test_a_page_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Page(str(tmp_path / "page"))
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    with pytest.raises(PermissionRefused, match="belongs to another user"):
        Page(str(tmp_path / "page"))


def test_a_link_planted_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"precious")
    (tmp_path / "page").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic links"):
        Page(str(tmp_path / "page"), fresh=True)
    assert (tmp_path / "target").read_bytes() == b"precious"


def test_a_forgotten_page_is_gone_and_stays_readable_where_it_is_open(tmp_path: Path) -> None:
    page = Page(str(tmp_path / "page"), fresh=True)
    begin(page, session=5, seq=6, index=0)
    page.forget()
    page.forget()
    assert not (tmp_path / "page").exists()
    assert page.read_running() == Running(5, 6)


def test_each_replica_of_each_directory_has_a_page_of_its_own_in_memory(tmp_path: Path) -> None:
    memory = str(tmp_path)
    paths = {page_path(f"/data/{name}", replica, memory) for name in "ab" for replica in ("r0", "r1")}
    assert len(paths) == 4
    assert {os.path.dirname(path) for path in paths} == {memory}
    assert page_path("/data/x/../a", "r0", memory) == page_path("/data/a", "r0", memory)


def test_without_a_folder_in_memory_the_page_lies_beside_the_replicas_files(tmp_path: Path) -> None:
    assert page_path("/data/a", "r0", str(tmp_path / "none")) == "/data/a/replicas/r0/page"


def test_the_witness_that_was_written_last_is_given_and_a_torn_one_leaves_the_one_before(tmp_path: Path) -> None:
    page = Page(str(tmp_path / "page"), fresh=True)
    assert page.read_confirmed() is None
    for lsn in (1000, 1001, 1002):
        page.note_confirmed(msgspec.structs.replace(POINT, lsn=lsn))
    found = page.read_confirmed("r1")
    assert found is not None
    assert (found.lsn, found.by) == (1002, "r1")
    with open(page.path, "r+b") as file:  # the slot of 1002, half written when its writer died
        file.seek(WITNESS_AT[0] + 40)
        file.write(b"\xff")
    found = page.read_confirmed()
    assert found is not None
    assert found.lsn == 1001
    again = Page(page.path)
    again.note_confirmed(msgspec.structs.replace(POINT, lsn=1003))
    found = again.read_confirmed()
    assert found is not None
    assert found.lsn == 1003


def test_the_first_witness_of_another_service_or_incarnation_replaces_what_stood_there(tmp_path: Path) -> None:
    page = Page(str(tmp_path / "page"), fresh=True)
    page.note_confirmed(POINT)
    other = msgspec.structs.replace(POINT, service_id=bytes(16), epoch=1, lsn=1)
    page.begin_reign(other)
    assert page.read_confirmed() == other
    page.begin_reign(msgspec.structs.replace(other, incarnation=5))
    page.forget_confirmed()
    assert page.read_confirmed() is None


def test_pages_of_all_replicas_of_a_directory_on_this_machine_are_found(tmp_path: Path) -> None:
    memory, directory = tmp_path / "memory", tmp_path / "data"
    memory.mkdir()
    for name in ("r0", "r1"):
        (directory / "replicas" / name).mkdir(parents=True)
    open_page(str(directory), "r1", memory=str(memory)).note_confirmed(POINT)
    open_page(str(directory), "r0", memory=str(memory))
    [found] = confirmed_in_pages(str(directory), "r0", memory=str(memory))
    assert msgspec.structs.replace(found.point, by="") == POINT
    assert found.point.by == "r1"
    assert confirmed_in_pages(str(tmp_path / "none"), "r0", memory=str(memory)) == []


def test_a_directory_put_back_at_the_same_path_finds_the_page_of_the_one_before(tmp_path: Path) -> None:
    memory, directory = tmp_path / "memory", tmp_path / "data"
    memory.mkdir()
    (directory / "replicas" / "r0").mkdir(parents=True)
    open_page(str(directory), "r0", memory=str(memory)).note_confirmed(POINT)
    shutil.copytree(directory, tmp_path / "copy")
    shutil.rmtree(directory)
    shutil.move(str(tmp_path / "copy"), str(directory))
    assert [seen.point.lsn for seen in confirmed_in_pages(str(directory), "r0", memory=str(memory))] == [1000]


def test_pages_whose_directory_is_gone_are_swept_and_others_stay(tmp_path: Path) -> None:
    memory = tmp_path / "memory"
    memory.mkdir()
    for name in ("gone", "there"):
        (tmp_path / name).mkdir()
        open_page(str(tmp_path / name), "r0", memory=str(memory))
    (memory / "deathless-other").write_bytes(b"of another version")
    shutil.rmtree(tmp_path / "gone")
    sweep(str(memory))
    assert len(list(memory.glob("deathless-*.page"))) == 1
    assert (memory / "deathless-other").exists()
    sweep(str(tmp_path / "no such folder"))


def test_a_directory_that_says_an_error_is_not_gone_and_has_no_other_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, directory = tmp_path / "memory", tmp_path / "data"
    memory.mkdir()
    (directory / "replicas" / "r0").mkdir(parents=True)
    open_page(str(directory), "r0", memory=str(memory)).note_confirmed(POINT)
    with monkeypatch.context() as patch:
        calls = FaultyCalls(patch, ("stat", "lstat"))
        calls.run(directory, lambda: sweep(str(memory)), 1, errno.EIO)
        assert calls.failed
        found = calls.run(directory, lambda: page_path(str(directory), "r0", str(memory)), 1, errno.EIO)
        assert isinstance(found, OSError)
    assert [seen.point.lsn for seen in confirmed_in_pages(str(directory), "r0", memory=str(memory))] == [1000]


def test_pages_of_directories_on_storage_that_may_hang_stay_and_are_not_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, gone = tmp_path / "memory", tmp_path / "gone"
    memory.mkdir()
    gone.mkdir()
    open_page(str(gone), "r0", memory=str(memory))
    gone.rmdir()
    looked: list[str] = []
    monkeypatch.setattr(page, "on_local_mounts", lambda whose, seen: looked.append(whose))
    sweep(str(memory))
    assert looked == [str(gone)]
    assert len(list(memory.glob("deathless-*.page"))) == 1


def test_mounts_are_read_once_for_all_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = tmp_path / "memory"
    memory.mkdir()
    for name in ("one", "two", "three"):
        (tmp_path / name).mkdir()
        open_page(str(tmp_path / name), "r0", memory=str(memory))
        (tmp_path / name).rmdir()
    reads: list[int] = []

    def read() -> list[tuple[str, str]]:
        reads.append(1)
        return mounts()

    monkeypatch.setattr(page, "mounts", read)
    sweep(str(memory))
    assert reads == [1]
    assert not list(memory.iterdir())


def test_where_memory_has_no_room_the_page_lies_beside_the_replicas_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, directory = tmp_path / "memory", tmp_path / "data"
    memory.mkdir()
    (directory / "replicas" / "r0").mkdir(parents=True)
    allocate = os.posix_fallocate
    calls: list[int] = []

    def full_at_first(descriptor: int, offset: int, length: int) -> None:
        calls.append(descriptor)
        if len(calls) == 1:
            raise OSError(28, "No space left on device")
        allocate(descriptor, offset, length)

    monkeypatch.setattr(os, "posix_fallocate", full_at_first)
    page = open_page(str(directory), "r0", memory=str(memory))
    assert page.path == str(directory / "replicas" / "r0" / "page")
    assert list(memory.iterdir()) == []


def test_the_boot_of_a_machine_has_a_number_where_it_tells_one(tmp_path: Path) -> None:
    (tmp_path / "boot").write_text("abc\n")
    assert boot_number(str(tmp_path / "boot")) == boot_number(str(tmp_path / "boot")) != 0
    assert boot_number(str(tmp_path / "none")) == 0

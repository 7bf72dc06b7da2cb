"""The page of a worker: read by others as it stands, also after its writer's death; never somebody else's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deathless.base.errors import PermissionRefused
from deathless.execution.running import Running
from deathless.shell.page import CELLS, FULL, LSN, OUTBOX_FULL, PAGE_BYTES, TICKS, Page, page_path


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
    first.cells[TICKS] = first.cells[CELLS - 1] = 9
    again = Page(str(tmp_path / "page"))
    assert again.running is None, "only who clears it writes to it"
    assert again.read_running() == Running(5, 6)
    assert again.cells[TICKS] == again.cells[CELLS - 1] == 9
    fresh = Page(str(tmp_path / "page"), fresh=True)
    assert fresh.read_running() is None
    assert list(fresh.cells[TICKS:CELLS]) == [0] * (CELLS - TICKS)


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

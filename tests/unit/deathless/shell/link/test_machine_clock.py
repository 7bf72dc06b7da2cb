"""What a replica remembers of time across its processes: on one boot of the machine, for one service."""

from __future__ import annotations

from pathlib import Path

import pytest

from deathless.core.tables.logical_time import Anchor
from deathless.shell.link.machine_clock import MachineClock, boot_us
from deathless.shell.link.status_page import BOOT_ELAPSED, BOOT_ID, BOOT_NS, Page

ANCHOR = Anchor(elapsed_us=7_000_000, boot_us=5_000_000)


@pytest.fixture
def boot(tmp_path: Path) -> Path:
    path = tmp_path / "boot_id"
    path.write_text("first\n")
    return path


def opened(folder: Path, boot: Path, whose: bytes = b"service") -> MachineClock:
    """As a worker does that is started anew."""
    return MachineClock(Page(str(folder / "page"), fresh=True).cells, whose, str(boot))


def test_clock_goes_on_and_never_back() -> None:
    before = boot_us()
    assert 0 < before <= boot_us()


def test_next_process_on_the_same_boot_is_given_what_was_noted(tmp_path: Path, boot: Path) -> None:
    clock = opened(tmp_path, boot)
    assert clock.anchor() is None
    clock.note_anchor(ANCHOR)
    assert clock.anchor() == ANCHOR
    assert opened(tmp_path, boot).anchor() == ANCHOR


def test_nothing_is_given_on_another_boot_or_to_another_service(tmp_path: Path, boot: Path) -> None:
    opened(tmp_path, boot).note_anchor(ANCHOR)
    assert opened(tmp_path, boot, b"another").anchor() is None
    assert opened(tmp_path, boot).anchor() is None, "the other has taken the page over"
    opened(tmp_path, boot).note_anchor(ANCHOR)
    boot.write_text("second\n")
    assert opened(tmp_path, boot).anchor() is None


def test_machine_that_does_not_tell_its_boot_remembers_nothing(tmp_path: Path) -> None:
    clock = opened(tmp_path, tmp_path / "missing")
    clock.note_anchor(ANCHOR)
    assert opened(tmp_path, tmp_path / "missing").anchor() is None


@pytest.mark.parametrize("written", [0, 1, 2])
def test_process_killed_while_it_notes_leaves_no_more_than_what_passed(
    tmp_path: Path, boot: Path, written: int
) -> None:
    page = Page(str(tmp_path / "page"), fresh=True)
    MachineClock(page.cells, b"service", str(boot)).note_anchor(ANCHOR)
    later = Anchor(ANCHOR.elapsed_us + 3_000_000, ANCHOR.boot_us + 3_000_000)
    cells = [(BOOT_NS, later.boot_us * 1000), (BOOT_ELAPSED, later.elapsed_us), (BOOT_ID, page.cells[BOOT_ID])]
    for cell, value in cells[:written]:
        page.cells[cell] = value
    found = opened(tmp_path, boot).anchor()
    assert found is not None
    assert found.elapsed_us - found.boot_us <= ANCHOR.elapsed_us - ANCHOR.boot_us


@pytest.mark.parametrize("us", [0, 5, -5, -(400 * 86400 * 10**6)])
def test_page_tells_how_far_the_wall_clock_is_off(tmp_path: Path, us: int) -> None:
    page = Page(str(tmp_path / "page"), fresh=True)
    page.stepped_us = us
    assert Page(str(tmp_path / "page")).stepped_us == us

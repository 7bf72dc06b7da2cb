"""The page of services that talk: of each group what was measured last, with its date, its commit and its notes."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from bench import __main__ as bench
from bench.figures import Figure, Goal, Machine, figure
from bench.groups import messaging_page
from bench.groups.messaging_page import MESSAGING_PAGE, MESSAGING_RESULTS
from bench.kubernetes.results import ClusterResults, Group

MACHINE = Machine(
    processor="a processor", cores=2, memory_gib=4.0, kernel="6.1", python="3.11.7", file_system="ext4",
    load_before=0.1, load_after=0.0, began="2026-11-22 12:00 UTC", took_s=0.0, commit="abcdef0", quick=False,
)  # fmt: skip


def group(each: Figure, began: str = "2026-11-22 12:00 UTC", commit: str = "abcdef0") -> Group:
    return Group(began=began, took_s=9.0, commit=commit, load_before=1.5, load_after=2.5, figures=[each])


def rate(value: float | None, note: str = "") -> Figure:
    return figure(
        "x_per_s", "messages of x", value, "messages/s", floor=9.0, peers={"gRPC": 5.0, "absent": None},
        goal=Goal("at least", 10), note=note,
    )  # fmt: skip


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The file of results and the page, elsewhere."""
    results, page = tmp_path / "messaging.json", tmp_path / "page.md"
    elsewhere = bench.FAMILIES["messaging"]._replace(
        results=results, write_page=lambda whole, order: messaging_page.write_messaging_page(whole, order, page)
    )
    monkeypatch.setitem(bench.FAMILIES, "messaging", elsewhere)
    return results, page


def test_a_group_that_is_measured_again_has_its_new_date_and_the_others_keep_theirs(files: tuple[Path, Path]) -> None:
    _, page = files
    keep = bench.FAMILIES["messaging"].keep
    keep(MACHINE, "timers", group(rate(4.0, "told by timers")))
    keep(MACHINE, "forks", group(rate(3.0)))
    keep(MACHINE, "forks", group(rate(12.0), "2026-11-23 09:00 UTC", "1234567"))
    rows = [line for line in page.read_text().splitlines() if line.startswith("| messages")]
    assert rows == [
        "| messages of x | 12 messages/s | 9 | gRPC 5 | >= 10 | yes | 2026-11-23 09:00 UTC | 1234567 | 1.5, 2.5 |",
        "| messages of x | 4 messages/s | 9 | gRPC 5 | >= 10 | **no** | 2026-11-22 12:00 UTC | abcdef0 | 1.5, 2.5 |",
    ]
    assert "- **messages of x**: told by timers.\n" in page.read_text()


def test_a_group_that_broke_keeps_its_figures_and_the_page_says_why(files: tuple[Path, Path]) -> None:
    _, page = files
    keep = bench.FAMILIES["messaging"].keep
    keep(MACHINE, "forks", group(rate(3.0)))
    row = next(line for line in page.read_text().splitlines() if line.startswith("| messages"))
    keep(MACHINE, "forks", group(rate(None, "left out: broken"), "2026-11-23 09:00 UTC"))
    keep(MACHINE, "timers", group(rate(None, "left out: too late")))
    text = page.read_text()
    assert row in text.splitlines()
    why = "2026-11-23 09:00 UTC, abcdef0: left out: broken."
    assert f"- **forks**: the figures above are from an earlier run; {why}\n" in text
    assert "- **timers**: 2026-11-22 12:00 UTC, abcdef0: left out: too late.\n" in text
    assert "- **payloads**: not measured yet.\n" in text


def test_the_page_of_the_tree_is_made_of_its_results() -> None:
    results = msgspec.json.decode(MESSAGING_RESULTS.read_bytes(), type=ClusterResults)
    assert messaging_page.messaging_page(results, list(bench.MESSAGING)) == MESSAGING_PAGE.read_text(encoding="utf-8")


def test_groups_of_one_alone_are_no_groups_of_services_that_talk() -> None:
    with pytest.raises(SystemExit, match=re.escape("of --messaging are: forks")):
        bench.main(["--messaging", "--only", "recovery"])

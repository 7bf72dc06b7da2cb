"""The page of upgrades: made of what was measured last of each group, and the groups that make it."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import msgspec
import pytest
from bench import __main__ as bench
from bench.figures import Goal, figure
from bench.groups.upgrades import page, rates
from bench.groups.upgrades.page import UPGRADES_PAGE, UPGRADES_RESULTS
from bench.kubernetes.results import ClusterResults
from bench.setting import Setting
from tests.unit.bench.groups.test_messaging_page import MACHINE, group


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page, elsewhere, as is the file of results."""
    path = tmp_path / "page.md"
    elsewhere = bench.FAMILIES["upgrades"]._replace(
        results=tmp_path / "results.json", write_page=lambda whole, order: page.write_upgrades_page(whole, order, path)
    )
    monkeypatch.setitem(bench.FAMILIES, "upgrades", elsewhere)
    return path


def test_each_group_has_its_rows_and_one_that_broke_its_reason(made: Path) -> None:
    keep = bench.FAMILIES["upgrades"].keep
    keep(MACHINE, "testing", group(figure("t", "tests", 60.0, "tests/s", goal=Goal("at least", 50))))
    keep(MACHINE, "upgrade", group(figure("u", "an upgrade", None, "ms", note="left out: broken")))
    text = made.read_text()
    assert "| tests | 60 tests/s |  |  | >= 50 | yes | 2026-11-22 12:00 UTC | abcdef0 | 1.5, 2.5 |" in text
    assert "- **upgrade**: 2026-11-22 12:00 UTC, abcdef0: left out: broken.\n" in text
    assert "- **failed-cut**: not measured yet.\n" in text


def test_the_page_of_the_tree_is_made_of_its_results() -> None:
    results = msgspec.json.decode(UPGRADES_RESULTS.read_bytes(), type=ClusterResults)
    assert page.upgrades_page(results, list(bench.UPGRADES)) == UPGRADES_PAGE.read_text(encoding="utf-8")


def test_groups_of_one_service_are_no_groups_of_upgrades() -> None:
    with pytest.raises(SystemExit, match=re.escape("of --upgrades are: upgrade, failed-cut")):
        bench.main(["--upgrades", "--only", "recovery"])


@pytest.mark.parametrize(
    ("divide", "quick", "size"), [(1, False, 1000), (10, False, 100), (5000, False, 2), (10, True, 2)]
)
def test_full_sizes_are_divided_and_are_never_below_the_quick_ones(
    tmp_path: Path, divide: int, quick: bool, size: int
) -> None:
    assert Setting(tmp_path, quick=quick, divide=divide).size(1000, 2) == size


def test_states_are_migrated_and_the_shop_survives_its_kills(tmp_path: Path) -> None:
    """The two groups that start no server: what they measure is done, and done right."""
    setting = Setting(tmp_path, quick=True)
    found = [*asyncio.run(rates.migration(setting)), *asyncio.run(rates.testing(setting))]
    assert [(each.unit, (each.value or 0) > 0) for each in found] == [("keys/s", True), ("tests/s", True)]

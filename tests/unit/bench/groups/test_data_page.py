"""The page of rows that come in and go out, and how what was sent is compared with what was taken in."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from bench import __main__ as bench
from bench.figures import Goal, figure
from bench.groups.data import page, sources
from bench.kubernetes.results import ClusterResults
from tests.unit.bench.groups.test_messaging_page import MACHINE, group


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page, elsewhere, as is the file of results."""
    path = tmp_path / "page.md"
    elsewhere = bench.FAMILIES["data"]._replace(
        results=tmp_path / "results.json", write_page=lambda whole, order: page.write_data_page(whole, order, path)
    )
    monkeypatch.setitem(bench.FAMILIES, "data", elsewhere)
    return path


def test_what_is_not_installed_leaves_its_own_row_empty(made: Path) -> None:
    goal = Goal("at least", 2_000_000)
    absent = figure("c", "rows stored in ClickHouse", None, "rows/s", goal=goal, note="left out: not installed")
    both = group(figure("p", "rows stored in PostgreSQL", 100.0, "rows/s"))
    both.figures.append(absent)
    keep = bench.FAMILIES["data"].keep
    keep(MACHINE, "stored", both)
    keep(MACHINE, "kafka-in", group(figure("k", "records", None, "records/s", note="left out: no Kafka")))
    text = made.read_text()
    assert "| rows stored in PostgreSQL | 100 rows/s |" in text
    assert "| rows stored in ClickHouse | left out |  |  | >= 2,000,000 |" in text
    assert "- **kafka-in**: 2026-11-22 12:00 UTC, abcdef0: left out: no Kafka.\n" in text
    assert "- **stream-in**: not measured yet.\n" in text


def test_the_page_of_the_tree_is_made_of_its_results() -> None:
    results = msgspec.json.decode(page.DATA_RESULTS.read_bytes(), type=ClusterResults)
    assert page.data_page(results, list(bench.DATA)) == page.DATA_PAGE.read_text(encoding="utf-8")


def test_the_wait_that_a_kill_made_is_the_longest_behind_it() -> None:
    gaps = [(1.0, 1.5), (10.0, 10.1), (10.2, 10.4), (40.0, 45.0)]
    assert sources.gap_ms(gaps, 9.9) == pytest.approx(200)
    assert sources.gap_ms(gaps, 1.2) == pytest.approx(500), "it was there already when the process died"
    assert sources.gap_ms(gaps, 15.0) == 0.0

"""What the shop's chaos run tells: its page has every count, and says so when something is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from examples.shop.chaos import ALL, arguments, page, show

REPORT = {
    "passed": True,
    "seed": 7,
    "seconds": 1_204,
    "kills": 1_100,
    "killsByKind": {"deathless up": 400, "span exporter": 700},
    "orders": 5_000,
    "outcomes": {"sent": 4_900, "refused": 100},
    "articles": 9,
    "sentAgain": 31,
    "medianSeconds": 0.05,
    "longestSeconds": 2.5,
    "loadAverage": 1.5,
    "cores": 2,
    "wrong": [],
}


def test_page_has_verdict_date_commit_and_each_count() -> None:
    text = page(REPORT, date="2026-11-22", commit="abc123")
    assert "**PASSED**, 2026-11-22, commit abc123, seed 7" in text
    for row in (
        "kills | 1,100", "kills of: deathless up | 400", "kills of: span exporter | 700", "orders | 5,000",
        "4,900 sent, 100 refused", "on 2 cores | 1.5", "and the books | 0",
    ):  # fmt: skip
        assert f"{row} |" in text, row


def test_page_of_a_failed_run_tells_the_differences() -> None:
    text = page({**REPORT, "passed": False, "wrong": ["order 1.0 stands twice"]}, date="2026-11-22", commit="abc123")
    assert "**FAILED**" in text
    assert "- order 1.0 stands twice" in text
    assert "and the books | 1 |" in text
    assert "FAILED (seed 7)" in show({**REPORT, "passed": False, "wrong": ["order 1.0 stands twice"]})


def test_every_kind_of_process_can_be_killed_also_what_starts_all_others() -> None:
    assert {
        "PostgreSQL", "activity worker", "deathless up", "driver", "ingress", "span exporter", "supervisor", "worker"
    } == ALL  # fmt: skip


@pytest.mark.parametrize("given", [[], ["--record", "verdict.md"]])
def test_page_is_written_where_one_is_named(given: list[str]) -> None:
    assert arguments(given).record == (Path("verdict.md") if given else None)

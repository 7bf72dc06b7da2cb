"""What the run of the program and the till tells, and who is killed."""

from __future__ import annotations

from pathlib import Path

import pytest
from examples.foreign.orders.demo import ALL, HERE, Run, Shop, show

REPORT = {
    "passed": True,
    "seed": 7,
    "program": "Go",
    "seconds": 124,
    "orders": 1_053,
    "givenBack": 15,
    "kills": 14,
    "killsByKind": {"primary of till": 2, "program": 12},
    "takeovers": {"orders": 2, "till": 1},
    "wrong": [],
}


def test_verdict_has_every_count() -> None:
    text = show(REPORT)
    for word in (
        "14 kills",
        "2 primary of till, 12 program",
        "orders 2, till 1 times",
        "1,053 orders",
        "in Go",
        "15 of",
    ):
        assert word in text, word
    assert text.endswith("as the customers were told (seed 7)")


def test_failed_run_tells_the_differences_and_how_many_it_does_not_show() -> None:
    text = show({**REPORT, "passed": False, "wrong": [f"order {number} stands twice" for number in range(25)]})
    assert "order 0 stands twice" in text
    assert "and 5 more" in text
    assert text.endswith("FAILED (seed 7)")


def run_in(folder: Path) -> Run:
    return Run(Shop(folder), seconds=10, seed=1)


def test_every_kind_has_its_turn_before_one_is_killed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    monkeypatch.setattr("examples.foreign.orders.demo.os.kill", lambda pid, _signal: killed.append(pid))
    run, had = run_in(tmp_path), set[str]()
    running = {kind: [number] for number, kind in enumerate(sorted(ALL), 1)}
    for _ in range(2 * len(ALL)):
        run._kill_one(running, had)
    numbers = sorted(range(1, len(ALL) + 1))
    assert sorted(killed[: len(ALL)]) == sorted(killed[len(ALL) :]) == numbers
    run._kill_one({}, had)
    assert run.kills.total() == 2 * len(ALL)


def test_service_that_was_never_taken_over_is_known_by_its_epochs(tmp_path: Path) -> None:
    run = run_in(tmp_path)
    assert run.takeovers() == {"orders": 0, "till": 0}
    for epochs in ({"orders": 3, "till": 0}, {"orders": 0, "till": 1}, {"orders": 5, "till": 1}):
        run._saw(epochs)
    assert run.takeovers() == {"orders": 2, "till": 0}


def test_program_in_python_stands_for_the_one_in_go_where_go_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("examples.foreign.orders.demo.shutil.which", lambda _: None)
    shop = Shop(tmp_path)
    shop.folder.mkdir()
    (shop.folder / "orders.yaml").write_text((HERE / "orders.yaml").read_text())
    assert shop._build() == "Python"
    assert "orders.py]" in (shop.folder / "orders.yaml").read_text()

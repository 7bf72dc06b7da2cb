"""What the shop's chaos run tells: its page has every count, and says so when something is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from examples.shop.chaos import ALL, CATCH_UP_S, Run, Schedule, Settings, Shop, arguments, page, planned, show

REPORT = {
    "passed": True,
    "seed": 7,
    "seconds": 1_204,
    "killsPlanned": 1_200,
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
        "kills planned | 1,200", "kills done | 1,100",
        "kills of: deathless up | 400", "kills of: span exporter | 700", "orders | 5,000",
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


def settings(*, seconds: float, every_s: float = 1.0, kills: int = 0) -> Settings:
    return Settings(seconds=seconds, seed=1, kills=kills, every_s=every_s, clients=1, as_json=True, record=None)


def killed(schedule: Schedule, now: float, took: Callable[[int], float]) -> list[float]:
    """When each kill began, if the n-th takes so long."""
    found: list[float] = []
    while not schedule.over(len(found), now):
        now += schedule.wait_s(len(found), now)
        found.append(now)
        now += took(len(found))
    return found


def test_one_kill_is_due_each_interval_though_each_takes_time() -> None:
    asked = settings(seconds=600)
    assert planned(asked) == 600
    assert killed(Schedule(asked, 50.0), 50.0, lambda _: 0.75) == [50.0 + at for at in range(1, 601)]


def test_kill_that_takes_long_moves_no_other_and_those_that_were_due_meanwhile_follow_it() -> None:
    asked = settings(seconds=10)
    found = killed(Schedule(asked, 0.0), 0.0, lambda number: 3.5 if number == 2 else 0.25)
    assert found == [1.0, 2.0, 5.5, 5.75, 6.0, 6.25, 7.0, 8.0, 9.0, 10.0]


def test_kills_that_all_take_too_long_end_a_while_after_their_time_with_fewer_than_planned() -> None:
    asked = settings(seconds=100)
    found = killed(Schedule(asked, 0.0), 0.0, lambda _: 4.0)
    assert len(found) < planned(asked) == 100
    assert 100 < found[-1] <= 100 + CATCH_UP_S


def test_fewer_kills_may_be_asked_for_than_the_time_has_room_for() -> None:
    assert planned(settings(seconds=400, every_s=0.5, kills=12)) == 12
    assert planned(settings(seconds=4, every_s=0.5, kills=12)) == 8


class Victims(Shop):
    """A shop of which one process of each kind runs until it is killed; that with pid 0 ends by itself before."""

    def __init__(self) -> None:
        self.killed: list[int] = []

    def kill(self, pid: int) -> None:
        if pid == 0:
            raise ProcessLookupError
        self.killed.append(pid)


def test_victim_that_ended_by_itself_is_no_kill_and_each_kind_has_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("examples.shop.chaos.Customers", Nobody)
    shop, had = Victims(), set[str]()
    shop.logs = Path()
    run = Run(shop, settings(seconds=10))
    assert not run._kill_one({"worker": [0]}, had)
    assert run.kills.total() == 0
    running = {kind: [number] for number, kind in enumerate(sorted(ALL), 1)}
    assert all(run._kill_one(running, had) for _ in ALL)
    assert sorted(shop.killed) == list(range(1, len(ALL) + 1))
    assert not run._kill_one({"worker": [9]}, {"worker"})


class Nobody:
    """Customers that order nothing."""

    def __init__(self, *_: object, **__: object) -> None:
        self.history = None

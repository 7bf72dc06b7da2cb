"""What the groups of Spark pipelines make of what they saw, and what they say where Spark is not installed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from bench import __main__ as bench
from bench import usage
from bench.figures import Goal, figure
from bench.groups.data import between, drivers
from bench.setting import Setting
from lab.spark import Missing

PARENT = """
import subprocess, sys
with subprocess.Popen([sys.executable, "-c", "print('there', flush=True); input()"], stdin=subprocess.PIPE) as child:
    input()
    child.communicate(b"end")
"""


@pytest.mark.asyncio
@pytest.mark.parametrize("name", ["pipeline-batch", "pipeline-rate", "driver-takeover", "driver-memory"])
async def test_a_group_without_spark_is_left_out_with_the_reason(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> Path:
        raise Missing("Spark left out: there is no Java")

    monkeypatch.setattr(drivers, "ensure", missing)
    [found] = await bench.DATA[name](Setting(tmp_path, quick=True))
    assert (found.value, found.note) == (None, "Spark left out: there is no Java")
    assert os.listdir(tmp_path) == [], "nothing is started"


def test_a_takeover_ends_with_the_first_row_behind_the_longest_pause() -> None:
    still_on_their_way, of_the_next = [1_000_100, 1_020_000], [1_520_000, 1_521_000]
    called = [900_000, 990_000, *still_on_their_way, *of_the_next]
    assert drivers.without_rows_ms(1_000_000, called) == 520.0
    assert drivers.without_rows_ms(1_000_000, [990_000, 1_300_000, 1_310_000]) == 300.0, "no row was on its way"


@pytest.mark.parametrize(
    ("numbers", "calls", "wrong"),
    [
        ([1, 2, 3], 3, ""),
        ([1, 3], 3, "1 of 3 rows were lost, and there were 3 calls"),
        ([1, 2, 3], 4, "0 of 3 rows were lost, and there were 4 calls"),
        ([1, 2, 4], 3, "1 of 3 rows were lost, and there were 3 calls"),
    ],
)
def test_rows_that_were_lost_or_doubled_are_told(numbers: list[int], calls: int, wrong: str) -> None:
    assert between.wrong_rows(numbers, 3, calls) == wrong


def test_figures_of_rows_that_were_lost_have_no_numbers() -> None:
    good = figure("x", "x", 1.0, "ms", goal=Goal("at most", 2), note="all is well")
    assert drivers.judged([good], "") == [good]
    [bad] = drivers.judged([good], "1 row was lost")
    assert (bad.value, bad.goal_met, bad.note) == (None, None, "1 row was lost")


def test_a_family_holds_the_children_of_a_process_and_its_begin_is_known() -> None:
    before_us = time.time_ns() // 1000
    with subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"there\n"
        ours, theirs = usage.family(os.getpid()), usage.family(parent.pid)
        began_us = drivers.began_us(parent.pid)
        parent.communicate(b"end\n")
    assert theirs[0] == parent.pid
    assert len(theirs) == 2
    assert set(theirs) < set(ours)
    assert before_us - 20_000 <= began_us <= time.time_ns() // 1000

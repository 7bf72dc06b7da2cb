"""`python -m bench --quick` runs against real replicas and writes results of the documented shape."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from bench.figures import Figure, Goal, Machine, Results, figure, percentile, read_results, rounded
from bench.report import page

ROOT = Path(__file__).resolve().parents[2]
MACHINE = Machine(
    processor="a processor",
    cores=2,
    memory_gib=4.0,
    kernel="6.1",
    python="3.11.7",
    file_system="ext4",
    load_before=0.1,
    load_after=2.0,
    began="2026-11-21 12:00 UTC",
    took_s=600.0,
    commit="abcdef0",
    quick=False,
)


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=220, check=False
    )


@pytest.mark.process
def test_quick_run_of_one_group_writes_results_of_the_documented_shape(tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    done = bench("--quick", "--no-peers", "--only", "one-client", "--directory", str(tmp_path), "--output", str(output))
    assert done.returncode == 0, done.stderr
    results = read_results(output)
    assert results.machine.quick
    first = results.figures[0]
    assert (first.name, first.unit, first.goal) == ("call_1_client_p50_us", "us", "<= 1.5 x floor")
    assert first.value is not None
    assert first.floor is not None
    assert first.value > 0 < first.floor
    assert first.goal_met is not None or first.value < first.floor
    assert first.peers == {"PostgreSQL UPDATE": None, "etcd put": None}
    assert "not asked for" in first.note


@pytest.mark.process
def test_quick_run_of_rows_counts_each_row_that_comes_in_or_goes_out(tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    names = ("--data", "--quick", "--only", "stream-in", "published")
    done = bench(*names, "--directory", str(tmp_path), "--output", str(output))
    assert done.returncode == 0, done.stderr
    found = {each.name: each for each in read_results(output).figures}
    assert [*found] == ["stream_in_1_per_s", "stream_in_3_per_s", "topic_published_per_s", "topic_readable_p50_ms"]
    assert all(each.value is not None and each.samples > 0 for each in found.values()), found


@pytest.mark.process
def test_quick_run_of_programs_compares_them_with_python_services(tmp_path: Path) -> None:
    """Takeovers, each with that of a Python service; every call of the clients counts once in both."""
    output = tmp_path / "results.json"
    names = ("--foreign", "--quick", "--only", "foreign-takeover", "foreign-self-calls")
    done = bench(*names, "--directory", str(tmp_path), "--output", str(output))
    assert done.returncode == 0, done.stderr
    takeover, itself = read_results(output).figures
    beside = takeover.peers["a Python service in turns"]
    assert takeover.value is not None and beside is not None
    assert takeover.goal == f"<= {beside:,.10g}"
    assert "none lost, none doubled" in takeover.note
    assert itself.value is not None and "microseconds" in itself.note


def test_unknown_group_is_refused_with_the_known_ones_named() -> None:
    done = bench("--only", "speed")
    assert done.returncode == 2
    assert "one-client" in done.stderr


@pytest.mark.parametrize(
    ("goal", "value", "floor", "met"),
    [
        (Goal("at most", 20), 20.0, None, True),
        (Goal("at most", 20), 20.1, None, False),
        (Goal("at least", 100), 100.0, None, True),
        (Goal("at least", 100), 99.9, None, False),
        (Goal("at most", 2, floors=True), 300.0, 150.0, True),
        (Goal("at most", 2, floors=True), 301.0, 150.0, False),
        (Goal("at most", 2, floors=True), 300.0, None, None),
        (Goal("at most", 2, floors=True), 149.0, 150.0, None),
    ],
)
def test_goal_is_judged_by_value_and_floor(goal: Goal, value: float, floor: float | None, met: bool | None) -> None:
    assert figure("f", "a figure", value, "us", floor=floor, goal=goal).goal_met is met


def test_figure_left_out_is_not_judged() -> None:
    left_out = figure("f", "a figure", None, "us", goal=Goal("at most", 20), note="left out: no tool")
    assert left_out.goal_met is None
    assert left_out.value is None


def test_numbers_keep_four_digits() -> None:
    assert [rounded(n) for n in (123456.0, 1.23456, 0.00123456, 0.0, None)] == [123500.0, 1.235, 0.001235, 0.0, None]


def test_percentile_is_a_sample_that_was_taken() -> None:
    samples = [float(n) for n in range(1, 101)]
    assert (percentile(samples, 50), percentile(samples, 99), percentile([7.0], 99)) == (50.0, 99.0, 7.0)


def test_page_shows_every_figure_of_the_results_and_whether_its_goal_is_met() -> None:
    figures = [
        figure("a", "a fast one", 12.34, "us", floor=10.0, goal=Goal("at most", 2, floors=True), peers={"other": 50.0}),
        figure("b", "a slow one", 30.0, "ms", goal=Goal("at most", 20), note="the disk"),
        figure("c", "one left out", None, "ms", note="left out: no tool"),
    ]
    text = page(Results(machine=MACHINE, figures=figures))
    assert "| a fast one | 12.34 us | 10 | other 50 | <= 2 x floor | yes |" in text
    assert "| a slow one | 30 ms |  |  | <= 20 | **no** |" in text
    assert "| one left out | left out |" in text
    assert "- **one left out**: left out: no tool." in text


def test_results_survive_the_file_and_unknown_fields_are_refused() -> None:
    results = Results(machine=MACHINE, figures=[Figure(name="a", title="a", value=1.0, unit="us")])
    encoded = msgspec.json.encode(results)
    assert msgspec.json.decode(encoded, type=Results) == results
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(encoded[:-1] + b',"extra":1}', type=Results)

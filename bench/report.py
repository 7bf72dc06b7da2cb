"""Turns results into lines and into docs/benchmarks.md; every number there comes from the file of results."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from bench.figures import Figure, Results

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"

HEAD: Final = """# Benchmarks

`make bench` writes this page and `bench/results/latest.json`; no number is typed by hand. All replicas, the load
generator and the peers run on the one machine described below, so the processor time of a call at client, primary and
both followers comes from the same cores. Unless a line says otherwise, arguments have 64 bytes, the fence is `seal`,
there are three replicas, and every reply is durable and proved before it is sent. A **floor** is the least that is
possible, measured in the same run: one fdatasync of 4 KiB in a file of the same folder that was filled with zeros, and
one round trip over loopback; of a p99, the 99th percentile of these. **Peers** are measured in the same run,
alternating with Deathless, with their default durability.

"""

TAIL: Final = """
## What keeps a missed goal from being met

- **One client**: a call is alone in its frame, so no cost is shared, and each of its steps waits for the one before. A
  frame takes about 390 Python function calls in the primary; without a pause they take a quarter of the time that they
  take after each blocking sync (cold caches are the likely cause, but this is not proved). Fewer layers per frame, one
  iteration of the event loop less in the client, and a native codec behind `Executor` and `PacketReader` would shorten
  it.
- **64 clients, pipelined**: three replicas and the load generator share the cores, so the rate is limited by the sum of
  the processor times in the note. The executor accounts for half of it on the primary and for more on a follower.

`python -m bench --only NAME` runs one group, `--profile` shows where a worker's time goes, and `python -m bench --list`
prints the names. Where a figure could not be measured here, its note says why.
"""


def number(value: float | None) -> str:
    """Print a number with as many digits as it has meaning."""
    if value is None:
        return ""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def line(figure: Figure) -> str:
    """One figure as one line of text."""
    if figure.value is None:
        return f"{figure.name}: {figure.note}"
    parts = [f"{figure.name} = {number(figure.value)} {figure.unit}"]
    if figure.floor is not None:
        parts.append(f"floor {number(figure.floor)}")
    parts += [f"{peer} {number(value)}" for peer, value in figure.peers.items() if value is not None]
    if figure.goal is not None:
        verdict = {True: "met", False: "MISSED", None: "not judged"}[figure.goal_met]
        parts.append(f"goal {figure.goal}: {verdict}")
    return ", ".join(parts) + (f" ({figure.note})" if figure.note else "")


def page(results: Results) -> str:
    """The whole page."""
    machine = results.machine
    rows = [
        "| figure | here | floor | peers | goal | met |",
        "| --- | ---: | ---: | --- | --- | --- |",
        *map(_row, results.figures),
    ]
    notes = [f"- **{each.title}**: {each.note}." for each in results.figures if each.note]
    size = ", in tiny sizes" if machine.quick else ""
    where = (
        f"Measured {machine.began} in {machine.took_s:,.0f} s at {machine.commit or 'an unknown commit'}{size}. "
        f"{machine.cores} cores of {machine.processor}, {machine.memory_gib:g} GiB, Linux {machine.kernel}, "
        f"{machine.file_system}, Python {machine.python}; load average {machine.load_before:g} before, "
        f"{machine.load_after:g} after.\n\n"
    )
    return HEAD + where + "\n".join(rows) + "\n\n## Notes\n\n" + "\n".join(notes) + "\n" + TAIL


def _row(figure: Figure) -> str:
    value = f"{number(figure.value)} {figure.unit}" if figure.value is not None else "left out"
    peers = "; ".join(f"{peer} {number(value)}" for peer, value in figure.peers.items() if value is not None)
    met = {True: "yes", False: "**no**", None: ""}[figure.goal_met]
    cells = (figure.title, value, number(figure.floor), peers, figure.goal or "", met)
    return "| " + " | ".join(cells) + " |"


def write_page(results: Results, path: Path = PAGE) -> None:
    """Write docs/benchmarks.md."""
    path.write_text(page(results), encoding="utf-8")

"""Makes docs/benchmarks-upgrades.md of bench/results/upgrades.json: groups that were measured one by one.

Guarantees: every number of the page comes from the file; each row says when and at which commit it was measured. Does
not: measure, or write the file (bench.kubernetes.results does, group by group).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.dated_page import dated_page
from bench.figures import RESULTS
from bench.kubernetes.results import ClusterResults
from bench.report import PAGE

UPGRADES_RESULTS: Final = RESULTS.with_name("upgrades.json")
UPGRADES_PAGE: Final = PAGE.with_name("benchmarks-upgrades.md")

HEAD: Final = """# Benchmarks of upgrades

`make bench-upgrades` writes this page and `bench/results/upgrades.json`; no number is typed by hand. A service with
small states runs on the one machine described below, together with its clients, the upgraders and the former code: each
of these is a process that wants a core. A title names the sizes that were measured; a note says what is in a figure.
What a client sees is the longest time between two replies to one client that calls without a pause. At the end of each
run every acknowledged call must have been applied once, or the figure is left out.

"""

TAIL: Final = """
## What keeps a missed goal from being met

- **Live upgrade, and back**: two cores are shared by the upgrader, the former code, clients, and the workers of former
  replicas, which end and are started again in that moment. What each of them does at the cut, with its processor
  time and what it grows with, is in [0026](design/0026-upgrades.md): half of it are looks at each handler that waits.

## How to measure again

`python -m bench --upgrades --only NAME` replaces the figures of one group and rewrites this page; `--list` prints the
names. `--divide 10` makes everything ten times smaller, for a machine that is small or shared: sizes stand in the
titles. Figures with a goal are meant for the full sizes and a machine with a core for each process.
"""


def upgrades_page(results: ClusterResults, order: Sequence[str]) -> str:
    """The whole page; groups of `order` that have no figures are named with the reason."""
    return dated_page(HEAD, results, order, TAIL)


def write_upgrades_page(results: ClusterResults, order: Sequence[str], path: Path = UPGRADES_PAGE) -> None:
    """Write docs/benchmarks-upgrades.md."""
    path.write_text(upgrades_page(results, order), encoding="utf-8")

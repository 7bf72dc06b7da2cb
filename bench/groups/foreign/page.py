"""Makes docs/benchmarks-foreign.md of bench/results/foreign.json: groups that were measured one by one.

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

FOREIGN_RESULTS: Final = RESULTS.with_name("foreign.json")
FOREIGN_PAGE: Final = PAGE.with_name("benchmarks-foreign.md")

HEAD: Final = """# Benchmarks of programs in other languages

`make bench-foreign` writes this page and `bench/results/foreign.json`; no number is typed by hand. The code of each
service is a program ([foreign.md](foreign.md)) that sends and counts, in Go where there is one. All processes run on
the one machine described below: of each replica the worker, the process beside it, the program, and the one that
writes what the program gets. Every message is durable at the sender before it leaves, and at the receiver before its
program gets it; messages are counted at the end, and a figure where one is missing or came twice is left out. Python
services of the same sizes are measured in turns with the programs. The original's figures were recorded on another
machine, which its repository does not name; goals are parts of them.

"""

TAIL: Final = """
## How to measure again

`python -m bench --foreign --only NAME` replaces the figures of one group and rewrites this page; `--list` prints the
names. `--divide 10` makes everything ten times smaller, for a machine that is small or shared. Where the time of a
message goes, and what keeps a missed goal from being met, is in
[design 0050](design/0050-speed-of-foreign-services.md).
"""


def foreign_page(results: ClusterResults, order: Sequence[str]) -> str:
    """The whole page; groups of `order` that have no figures are named with the reason."""
    return dated_page(HEAD, results, order, TAIL)


def write_foreign_page(results: ClusterResults, order: Sequence[str], path: Path = FOREIGN_PAGE) -> None:
    """Write docs/benchmarks-foreign.md."""
    path.write_text(foreign_page(results, order), encoding="utf-8")

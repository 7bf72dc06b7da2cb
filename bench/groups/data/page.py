"""Makes docs/benchmarks-data.md of bench/results/data.json: groups that were measured one by one.

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

DATA_RESULTS: Final = RESULTS.with_name("data.json")
DATA_PAGE: Final = PAGE.with_name("benchmarks-data.md")

HEAD: Final = """# Benchmarks of rows that come in and go out

`make bench-data` writes this page and `bench/results/data.json`; no number is typed by hand. Sources, topics, sinks and
pipelines of Spark run on the one machine described below, together with their services, clients, brokers and databases:
each of these is a process that wants a core. Every row is durable before it counts. At the end of each run the rows are
compared by count and content, and a figure where one is missing or came twice is left out.

"""

TAIL: Final = """
## How to measure again

`python -m bench --data --only NAME` replaces the figures of one group and rewrites this page; `--list` prints the
names. `--divide 10` makes everything ten times smaller, for a machine that is small or shared. What is not installed
(`make kafka`, `make spark`, `make clickhouse`, `make postgresql`) is left out, and its row says so.
"""


def data_page(results: ClusterResults, order: Sequence[str]) -> str:
    """The whole page; groups of `order` that have no figures are named with the reason."""
    return dated_page(HEAD, results, order, TAIL)


def write_data_page(results: ClusterResults, order: Sequence[str], path: Path = DATA_PAGE) -> None:
    """Write docs/benchmarks-data.md."""
    path.write_text(data_page(results, order), encoding="utf-8")

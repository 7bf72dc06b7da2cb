"""A page of groups that were measured one by one: each row says when, and at which commit.

Guarantees: every number comes from the results. Does not: measure, read or write.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.figures import Figure
from bench.kubernetes.results import ClusterResults, Group, missing_groups
from bench.report import number


def dated_page(head: str, results: ClusterResults, order: Sequence[str], tail: str) -> str:
    """The whole page; groups of `order` that have no figures are named with the reason.

    Args:
        head: what stands above the table.
        results: of all groups that were measured.
        order: of all groups that there are.
        tail: what stands below the notes.
    """
    machine = results.machine
    size = " in tiny sizes" if machine.quick else ""
    took_s = sum(group.took_s for group in results.groups.values())
    where = (
        f"All groups took {took_s:,.0f} s{size}. {machine.cores} cores of {machine.processor}, {machine.memory_gib:g} "
        f"GiB, Linux {machine.kernel}, {machine.file_system}, Python {machine.python}. The load is that of the machine "
        "in the last minute, before and after the group; up to about the number of cores it comes from the bench "
        "itself, above that from other processes.\n\n"
    )
    rows = [
        "| figure | here | floor | peers | goal | met | measured | at | load |",
        "| --- | ---: | ---: | --- | --- | --- | --- | --- | --- |",
        *(_row(each, group) for group in results.groups.values() for each in group.figures),
    ]
    notes = [
        f"- **{each.title}**: {each.note}." for group in results.groups.values() for each in group.figures if each.note
    ]
    missing = missing_groups(results, order)
    return head + where + "\n".join(rows) + "\n\n## Notes\n\n" + "\n".join(notes) + "\n" + missing + tail


def _row(figure: Figure, group: Group) -> str:
    value = f"{number(figure.value)} {figure.unit}".rstrip() if figure.value is not None else "left out"
    peers = "; ".join(f"{peer} {number(value)}" for peer, value in figure.peers.items() if value is not None)
    met = {True: "yes", False: "**no**", None: ""}[figure.goal_met]
    load = f"{group.load_before:g}, {group.load_after:g}"
    cells = (
        figure.title, value, number(figure.floor), peers, figure.goal or "", met, group.began, group.commit, load
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"

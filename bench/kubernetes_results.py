"""What was measured on the cluster, group by group, and the page made of it.

A run on a cluster takes long and may be interrupted, or be of one group alone; so each group is written when it ends,
beside what earlier calls left, with its own date and load.

Guarantees: writing a group changes no other; every number of the page comes from the file. Does not: measure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from bench.figures import Figure, Machine
from bench.report import number


class Group(msgspec.Struct, kw_only=True):
    """One group as it was measured last."""

    began: str
    took_s: float
    commit: str
    load_before: float  # of the machine, in the last minute
    load_after: float
    figures: list[Figure]
    samples: dict[str, list[float]] = {}  # of each round, seconds; by what they are of


class ClusterResults(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The file `bench/results/kubernetes.json`."""

    machine: Machine  # of the call that wrote last
    groups: dict[str, Group] = {}


def read_groups(path: Path) -> dict[str, Group]:
    """Give what earlier calls measured; nothing where there is no file. Raises: OSError; msgspec.ValidationError."""
    if not path.exists():
        return {}
    return msgspec.json.decode(path.read_bytes(), type=ClusterResults).groups


def write_group(path: Path, machine: Machine, name: str, group: Group, order: Sequence[str]) -> ClusterResults:
    """Add one group to the file, in the place of what stood there of it; gives the whole."""
    groups = {**read_groups(path), name: group}
    results = ClusterResults(machine=machine, groups={each: groups[each] for each in order if each in groups})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=2) + b"\n")
    return results


def cluster_page(results: ClusterResults, head: str, reasons: Mapping[str, str]) -> str:
    """The whole page; `reasons`, by group, are told of the groups that miss a goal."""
    machine = results.machine
    where = (
        f"{machine.cores} cores of {machine.processor}, {machine.memory_gib:g} GiB, Linux {machine.kernel}, Python "
        f"{machine.python}: everything above shares them. Load is the machine's in the last minute, before and after "
        "the group; about the cores and less is the bench itself, more is others.\n\n"
    )
    rows = [
        "| figure | here | rounds | goal | met | peers | measured | load |",
        "| --- | ---: | ---: | --- | --- | --- | --- | --- |",
        *(_row(each, group) for group in results.groups.values() for each in group.figures),
    ]
    notes = [f"- **{each.title}**: {each.note}." for group in results.groups.values() for each in _noted(group)]
    parts = [head, where, "\n".join(rows), "\n\n## Notes\n\n", "\n".join(notes), "\n"]
    missed = [name for name, group in results.groups.items() if any(each.goal_met is False for each in group.figures)]
    told = [f"- **{results.groups[name].figures[0].title}**: {reasons[name]}" for name in missed if name in reasons]
    if told:
        parts += ["\n## What keeps a missed goal from being met\n\n", "\n".join(told), "\n"]
    return "".join(parts)


def _noted(group: Group) -> list[Figure]:
    """One figure for each different note."""
    found: dict[str, Figure] = {}
    for each in group.figures:
        found.setdefault(each.note, each)
    return [each for note, each in found.items() if note]


def _row(figure: Figure, group: Group) -> str:
    value = f"{number(figure.value)} {figure.unit}" if figure.value is not None else "left out"
    peers = "; ".join(f"{peer} {number(value)}" for peer, value in figure.peers.items() if value is not None)
    met = {True: "yes", False: "**no**", None: ""}[figure.goal_met] if figure.goal else ""
    load = f"{group.load_before:g}, {group.load_after:g}"
    cells = (figure.title, value, str(figure.samples or ""), figure.goal or "", met, peers, group.began, load)
    return f"| {' | '.join(cells)} |"

"""What was measured on the cluster, group by group, and the page made of it.

A run on a cluster takes long and may be interrupted, or be of one group alone; so each group is written when it ends,
beside what earlier calls left, with its own date and load.

Guarantees: writing a group changes no other; every number of the page comes from the file; a group that is missing on
the page, or whose last measurement broke, is named there with the reason. Does not: measure.
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
    left_out: dict[str, str] = {}  # why the last measurement of a group gave no figures, by its name


def read_groups(path: Path) -> dict[str, Group]:
    """Give what earlier calls measured; nothing where there is no file. Raises: OSError; msgspec.ValidationError."""
    return _read(path)[0]


def _read(path: Path) -> tuple[dict[str, Group], dict[str, str]]:
    if not path.exists():
        return {}, {}
    found = msgspec.json.decode(path.read_bytes(), type=ClusterResults)
    return found.groups, found.left_out


def write_group(path: Path, machine: Machine, name: str, group: Group, order: Sequence[str]) -> ClusterResults:
    """Add one group to the file, in the place of what stood there of it; gives the whole."""
    groups, left_out = _read(path)
    left_out.pop(name, None)
    return _write(path, machine, {**groups, name: group}, left_out, order)


def write_left_out(path: Path, machine: Machine, name: str, group: Group, order: Sequence[str]) -> ClusterResults:
    """Note in the file why a group gave no figures; those it had stay. Gives the whole."""
    groups, left_out = _read(path)
    why = "; ".join(each.note for each in group.figures if each.value is None)
    return _write(path, machine, groups, {**left_out, name: f"{group.began}, {group.commit}: {why}"}, order)


def _write(
    path: Path, machine: Machine, groups: Mapping[str, Group], left_out: Mapping[str, str], order: Sequence[str]
) -> ClusterResults:
    results = ClusterResults(
        machine=machine,
        groups={each: groups[each] for each in order if each in groups},
        left_out={each: left_out[each] for each in order if each in left_out},
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=2) + b"\n")
    return results


def missing_groups(results: ClusterResults, order: Sequence[str]) -> str:
    """A list of the groups without figures, or whose figures could not be measured again; empty: there are none."""
    told = []
    for name in order:
        why = " ".join(results.left_out.get(name, "").split())
        if name not in results.groups:
            told.append(f"- **{name}**: {why or 'not measured yet'}.")
        elif why:
            told.append(f"- **{name}**: the figures above are from an earlier run; {why}.")
    return "\n## What is missing\n\n" + "\n".join(told) + "\n" if told else ""


def cluster_page(
    results: ClusterResults, head: str, reasons: Mapping[str, str], order: Sequence[str] | None = None
) -> str:
    """The whole page; `reasons`, by group, are told of those that miss a goal; those of `order` without figures too."""
    machine = results.machine
    where = (
        f"{machine.cores} cores of {machine.processor}, {machine.memory_gib:g} GiB, Linux {machine.kernel}, Python "
        f"{machine.python}: everything above shares them. The load is that of the machine in the last minute, before "
        "and after the group; up to about the number of cores it comes from the bench itself, above that from other "
        "processes.\n\n"
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
    parts.append(missing_groups(results, order or ()))
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

"""What a measurement is: a number with its unit, its floor, its peers and its goal; and the file that holds them all.

Guarantees: `goal_met` is computed here and nowhere else; None where there is no goal, or where the floor that it is
relative to is missing or was disturbed. Does not: measure or print.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

RESULTS: Final = Path(__file__).resolve().parent / "results" / "latest.json"


class Goal(msgspec.Struct, frozen=True):
    """What is to be reached: at most or at least a number, in the figure's unit or in floors."""

    word: Literal["at most", "at least"]
    number: float
    floors: bool = False

    def __str__(self) -> str:
        sign = "<=" if self.word == "at most" else ">="
        return f"{sign} {self.number:,.10g}{' x floor' if self.floors else ''}"

    def met(self, value: float, floor: float | None) -> bool | None:
        """Is it reached? None: it is relative to a floor that is missing, or that it undercuts.

        Nobody goes below the floor: a value that does was measured on a disk that others used meanwhile.
        """
        if self.floors and (floor is None or value < floor):
            return None
        limit = self.number * floor if self.floors and floor is not None else self.number
        return value <= limit if self.word == "at most" else value >= limit


class Figure(msgspec.Struct, kw_only=True):
    """One line of the table.

    `value` None: left out, and `note` says why. `peers` hold what others need for the same, in the same unit.
    """

    name: str
    title: str
    value: float | None
    unit: str
    samples: int = 0
    floor: float | None = None
    peers: dict[str, float | None] = {}
    goal: str | None = None
    goal_met: bool | None = None
    note: str = ""


class Machine(msgspec.Struct, kw_only=True):
    """Where it was measured."""

    processor: str
    cores: int
    memory_gib: float
    kernel: str
    python: str
    file_system: str
    load_before: float  # processes that wanted to run in the last minute, before the first figure
    load_after: float  # and after the last one; about the cores: the bench itself; more: others too
    began: str
    took_s: float
    commit: str
    quick: bool


class Results(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The file `bench/results/latest.json`."""

    machine: Machine
    figures: list[Figure]


def figure(
    name: str,
    title: str,
    value: float | None,
    unit: str,
    *,
    samples: int = 0,
    floor: float | None = None,
    peers: dict[str, float | None] | None = None,
    goal: Goal | None = None,
    note: str = "",
) -> Figure:
    """Give a figure with its goal judged; numbers keep four digits."""
    met = goal.met(value, floor) if goal is not None and value is not None else None
    return Figure(
        name=name,
        title=title,
        value=rounded(value),
        unit=unit,
        samples=samples,
        floor=rounded(floor),
        peers={peer: rounded(number) for peer, number in (peers or {}).items()},
        goal=str(goal) if goal is not None else None,
        goal_met=met,
        note=note,
    )


def rounded(number: float | None, digits: int = 4) -> float | None:
    """Keep `digits` digits; None stays."""
    if number is None or number == 0 or not math.isfinite(number):
        return number
    return round(number, digits - 1 - math.floor(math.log10(abs(number))))


def median(samples: Iterable[float]) -> float:
    """The middle one."""
    return statistics.median(samples)


def percentile(samples: Sequence[float], percent: float) -> float:
    """The sample below or at which `percent` of all lie."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def read_results(path: Path = RESULTS) -> Results:
    """Give what the last run wrote. Raises: OSError; msgspec.ValidationError when it is of another shape."""
    return msgspec.json.decode(path.read_bytes(), type=Results)


def write_results(results: Results, path: Path = RESULTS) -> None:
    """Write the file, readable by people too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=2) + b"\n")

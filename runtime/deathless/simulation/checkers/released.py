"""Is everything that was ever released in the log that was left at the end, byte for byte (I1)?

A release is anything that leaves a replica and stands for a change: an answer, a registration, an acknowledgement, a
position called confirmed. Each names where it stands in the log, and the bytes it stands for. Imports nothing of ours
but the history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from deathless.simulation.checkers.history import Violation


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """Something that left a replica.

    Attributes:
        kind: what it is; places of different kinds do not mix.
        place: where it stands: (session, seq), (0, lsn), ...
        data: bytes it stands for; empty where only the place was told.
        who, at_us: for the message.
    """

    kind: str
    place: tuple[int, ...]
    data: bytes
    who: str
    at_us: int


def check_released(
    released: Iterable[Released], logged: Mapping[str, Mapping[tuple[int, ...], bytes]]
) -> list[Violation]:
    """Compare what left with what is there.

    Args:
        released: everything that left any replica.
        logged: by kind and place, the bytes in the final recovered log.
    """
    violations: list[str] = []
    told: dict[tuple[str, tuple[int, ...]], None] = {}
    for item in released:
        mark = (item.kind, item.place)
        if mark in told:
            continue
        there = logged.get(item.kind, {}).get(item.place)
        if there is None:
            violations.append(f"{item.kind} {item.place} left {item.who} at {item.at_us} us and is not in the log")
        elif item.data and there != item.data:
            left = f"{item.kind} {item.place} left {item.who} at {item.at_us} us"
            violations.append(f"{left} as {item.data.hex()}, logged {there.hex()}")
        else:
            continue
        told[mark] = None
    return [Violation(checker="released", text=text) for text in violations]

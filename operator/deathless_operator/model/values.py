"""Values as JSON knows them, with types: what goes to the API server and comes from it.

Guarantees: names for types, and readers that never raise on a foreign shape. Does not: encode. Imports nothing of ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"
JsonObject: TypeAlias = "dict[str, Json]"


def part(value: Json | Mapping[str, Json], *path: str | int) -> Json:
    """Give what lies at `path` of `value`; None where a step is missing."""
    found: Json = dict(value) if not isinstance(value, dict) and isinstance(value, Mapping) else value
    for step in path:
        if isinstance(found, dict) and isinstance(step, str):
            found = found.get(step)
        elif isinstance(found, list) and isinstance(step, int) and -len(found) <= step < len(found):
            found = found[step]
        else:
            return None
    return found


def text(value: Json | Mapping[str, Json], *path: str | int) -> str:
    """Give the text at `path`; empty where there is none."""
    found = part(value, *path)
    return found if isinstance(found, str) else ""


def number(value: Json | Mapping[str, Json], *path: str | int) -> int:
    """Give the whole number at `path`; 0 where there is none."""
    found = part(value, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) else 0


def objects(value: Json | Mapping[str, Json], *path: str | int) -> list[JsonObject]:
    """Give the objects of the list at `path`; what is no object is left out."""
    found = part(value, *path)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def texts(value: Json | Mapping[str, Json], *path: str | int) -> dict[str, str]:
    """Give the texts of the mapping at `path`, as labels and annotations are."""
    found = part(value, *path)
    return {key: item for key, item in found.items() if isinstance(item, str)} if isinstance(found, dict) else {}

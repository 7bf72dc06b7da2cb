"""Reads spec and status of a custom resource as the API server gives it.

Guarantees: a spec that this version can't read gives problems with place and remedy, never an error; a status that
can't be read is an empty one. Does not: know a kind. Imports base and model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import msgspec

from deathless.base.schema_check import find_problems, show_path
from deathless_operator.model.values import JsonObject, part

PROBLEMS_MAX: Final = 8
"""So many problems of a spec are told."""
S = TypeVar("S", bound=msgspec.Struct)


def spec_in(
    raw: JsonObject, kind: type[S], problems_of: Callable[[S], Sequence[str]] = lambda _: ()
) -> tuple[S | None, tuple[str, ...]]:
    """Give the spec of a resource, or what is wrong with it.

    Args:
        raw: the whole resource.
        kind: of its spec.
        problems_of: finds what contradicts itself in one whose fields can all be read.
    """
    found = find_problems(part(raw, "spec"), kind)
    if found:
        shown = [f"{show_path(('spec', *problem.path))}: {problem.what}; {problem.remedy}" for problem in found]
        return None, tuple(shown[:PROBLEMS_MAX])
    spec = msgspec.convert(part(raw, "spec"), kind)
    problems = tuple(problems_of(spec))
    return (None, problems) if problems else (spec, ())


def status_in(raw: JsonObject, kind: type[S]) -> S:
    """Give the status of a resource as it was written last; an empty one where it can't be read."""
    try:
        return msgspec.convert(part(raw, "status") or {}, kind)
    except msgspec.ValidationError:
        return kind()

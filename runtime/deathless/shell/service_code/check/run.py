"""`deathless check`: would a replay of this service give the same bytes? Reads its code, then runs it.

Two parts that find different things: check_static names forbidden things by file and line, check_dynamic runs calls
in processes that differ. Guarantees: a report, the same for the same code and calls as far as the handlers allow.
Does not: import the service into this process longer than it takes to learn its handlers; it stays imported.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from deathless.base.errors import InvalidService
from deathless.execution.author.service import Service
from deathless.execution.check.static import Finding, Root, Source, check_sources
from deathless.shell.service_code.check.calls import Call, draw_calls
from deathless.shell.service_code.check.compare import (
    FACTORS,
    Difference,
    Factor,
    Patience,
    Told,
    compare_processes,
    untold,
)
from deathless.shell.service_code.import_trial import load_tried
from deathless.shell.service_code.sources import code_of

CALLS: Final = 240
SEED: Final = 1


class Report(msgspec.Struct, frozen=True):
    """What a check found."""

    findings: list[Finding]  # from reading
    differences: list[Difference]  # from running
    notes: list[str]  # what could not be looked at
    calls: int  # how many were run, in each process
    undecided: list[str] = []  # what took too long to be decided

    @property
    def clean(self) -> bool:
        """True when nothing was found."""
        return not self.findings and not self.differences


def check_service(
    target: str,
    *,
    folder: str | Path = ".",
    calls: Sequence[Call] | None = None,
    factors: Sequence[Factor] = FACTORS,
    run: bool = True,
    patience: Patience | None = None,
    told: Told = untold,
) -> Report:
    """Check a service.

    Args:
        target: as for `load_service`.
        folder: likewise.
        calls: recorded ones, in the order of their log; None draws `CALLS` from the handlers' types.
        factors: in what the processes differ.
        run: False only reads.
        patience: how long running may take; None: as long as `Patience` says.
        told: is told how far it is.

    Raises: InvalidService when it can't be loaded.
    """
    service = load_tried(target, folder)
    findings = check_static(service)
    if not run:
        return Report(findings, [], [], 0)
    notes: list[str] = []
    if calls is None:
        calls, left_out = draw_calls(service, CALLS, SEED)
        notes += [f"{name}: no calls could be drawn from its types; check it with a recorded log" for name in left_out]
    if not calls:
        return Report(findings, [], [*notes, "there was nothing to run"], 0)
    found = compare_processes(target, calls, folder=str(folder), factors=factors, patience=patience, told=told)
    if not found.differences:
        notes += [f"{name}: all its calls failed, the last with {text}" for name, text in found.failing.items()]
    return Report(findings, found.differences, notes, found.calls, found.undecided)


def check_static(service: Service) -> list[Finding]:
    """Read the source files of a loaded service.

    Raises: InvalidService when one can't be read.
    """
    sources = []
    for module, path in code_of(service).files.items():
        try:
            sources.append(Source(module, str(path), path.read_text()))
        except (OSError, UnicodeError) as error:
            raise InvalidService(f"{path} can't be read: {error}") from None
    activities = [at for spec in service.activities.values() if (at := _begin_of(spec.function))]
    return check_sources(sources, _roots(service), activities)


def _roots(service: Service) -> list[Root]:
    """Where the code of each handler begins: its function, its state's class, and the birth."""
    shared: list[object] = [service.state]
    if service.birth_function is not None:
        shared.append(service.birth_function)
    roots = []
    for spec in service.written:
        begins = (_begin_of(owner) for owner in (spec.function, *shared))
        roots += [Root(spec.name, spec.kind, *at) for at in begins if at]
    return roots


def _begin_of(owner: object) -> tuple[str, int] | None:
    """Give path and line where a function or class begins; None: it has no source."""
    try:
        path = inspect.getsourcefile(inspect.unwrap(owner))  # type: ignore[arg-type]  # a function or a class
        _, line = inspect.getsourcelines(inspect.unwrap(owner))  # type: ignore[arg-type]  # as above
    except (OSError, TypeError):
        return None
    return str(Path(path or "").resolve()), line

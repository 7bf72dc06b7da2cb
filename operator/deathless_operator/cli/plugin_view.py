"""How the plugin prints: services, replicas, conditions and runs, for people and for programs.

Guarantees: with --json standard output holds JSON alone; without a terminal there are neither colours nor boxes. Pure
but for `emit`, `tell` and `confirmed`. Does not: ask the API server.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterable, Sequence
from typing import Final

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from deathless.base.errors import InvalidArgument
from deathless_operator.model.drill import DrillRun, DrillStatus
from deathless_operator.model.status import Condition, ServiceStatus, condition

WIDTH_MAX: Final = 140
STYLES: Final = {
    "primary": "bold green",
    "checkpointer": "cyan",
    "standby": "blue",
    "Passed": "bold green",
    "Failed": "bold red",
    "Aborted": "yellow",
    "Inconclusive": "yellow",
    "yes": "green",
    "no": "bold red",
}
# Conditions of which False is good; of all others True is.
GOOD_WHEN_FALSE: Final = frozenset(
    {
        "Progressing",
        "Degraded",
        "UpgradeRequired",
        "ProgramDiffers",
        "RowsSkipped",
        "OpenAccess",
        "Paused",
        "Fenced",
        "Running",
    }
)


def console() -> Console:
    """A console on standard output; without a terminal it prints plain text of a fixed width."""
    if sys.stdout.isatty():
        return Console(highlight=False)
    return Console(highlight=False, width=WIDTH_MAX, no_color=True)


def emit(value: object) -> None:
    """Print one JSON document."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")
    sys.stdout.flush()


def tell(text: str) -> None:
    """Say what is going on, beside what is printed for programs."""
    sys.stderr.write(text + "\n")


def confirmed(question: str, *, as_json: bool = False, about: str = "") -> bool:
    """Ask a person, beside what is printed for programs; the answer is no unless one says yes.

    Args:
        question: with a question mark.
        as_json: standard output is for a program, so nobody is asked.
        about: what the answer is about.

    Raises: InvalidArgument: there is nobody to ask.
    """
    said = f"{about}\n" if about else ""
    if as_json or not sys.stdin.isatty():
        raise InvalidArgument(f"{said}nobody is there to be asked", remedy="add --yes")
    return click.confirm(f"{said}{question}", default=False, err=True)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """A table without boxes; words that mean something have their colour."""
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in columns:
        shown.add_column(name.upper(), justify="right" if name in ("epoch", "lost", "doubled") else "left")
    for row in rows:
        texts = [_word(value) for value in row]
        shown.add_row(*(Text(text, style=STYLES.get(text, "")) for text in texts))
    return shown


def _word(value: object) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def age(since: str, now: float) -> str:
    """Give a timestamp's age as people read it: 12s, 5m, 3h, 2d."""
    try:
        passed = max(0, int(now - dt.datetime.fromisoformat(since).timestamp()))
    except ValueError:
        return ""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if passed >= 2 * size:
            return f"{passed // size}{unit}"
    return f"{passed}s"


def summary(name: str, status: ServiceStatus) -> str:
    """Give the one line that says how a service is."""
    ready = condition(status.conditions, "Ready")
    up = f"{status.ready_replicas} of {status.replicas} replicas are ready"
    if ready is not None and ready.status == "True" and status.shards:
        return f"{name}: {status.primary}; {up}"
    if ready is not None and ready.status == "True" and status.primary:
        return f"{name}: {status.primary} leads in epoch {status.epoch}; {up}"
    why = f": {ready.message or ready.reason}" if ready is not None else ""
    return f"{name}: not Ready{why}; {up}"


def replica_rows(status: ServiceStatus) -> list[tuple[object, ...]]:
    """Give the rows of a service's replicas."""
    return [
        (one.name, one.pod, one.node, one.role, one.ready, one.epoch or None, one.program, one.problem)
        for one in status.members
    ]


def shard_rows(status: ServiceStatus) -> list[tuple[object, ...]]:
    """Give the rows of a service's shards."""
    return [(one.shard, one.primary, one.epoch or None, one.ready) for one in status.shards]


SHARD_COLUMNS: Final = ("shard", "primary", "epoch", "ready pods")
REPLICA_COLUMNS: Final = ("replica", "pod", "node", "role", "ready", "epoch", "program", "problem")


def is_bad(found: Condition) -> bool:
    """Tell whether a condition is worth a person's look."""
    return found.status != ("False" if found.type in GOOD_WHEN_FALSE else "True")


def condition_rows(conditions: Iterable[Condition], now: float, *, every: bool) -> list[tuple[object, ...]]:
    """Give the rows of conditions: those worth a look, or every one."""
    return [
        (one.type, one.status, one.reason, age(one.last_transition_time, now), one.message)
        for one in conditions
        if every or is_bad(one)
    ]


CONDITION_COLUMNS: Final = ("condition", "status", "reason", "since", "message")


def run_rows(drill: str, status: DrillStatus) -> list[tuple[object, ...]]:
    """Give the rows of a drill: the run under way, and the last one."""
    rows: list[tuple[object, ...]] = []
    for run in (status.active, status.last):
        if run is not None:
            verdict = run.verdict or f"({run.phase})"
            measured = run.unavailable_seconds, run.takeover_seconds
            rows.append(
                (drill, run.fault, run.target, verdict, *measured, run.calls_lost, run.calls_doubled, run.reason)
            )
    return rows


RUN_COLUMNS: Final = ("drill", "fault", "target", "verdict", "unavailable", "takeover", "lost", "doubled", "reason")


def verdict_lines(run: DrillRun) -> list[str]:
    """Tell how a run ended."""
    lines = [f"{run.verdict}: {run.message or run.reason}"]
    if run.calls_sent:
        lines.append(
            f"{run.calls_answered} of {run.calls_sent} calls answered, {run.calls_lost} lost, "
            f"{run.calls_doubled} doubled"
        )
    if run.unavailable_seconds is not None:
        taken = f"; another replica led after {run.takeover_seconds:.2f} s" if run.takeover_seconds is not None else ""
        lines.append(f"the longest wait of a client was {run.unavailable_seconds:.2f} s{taken}")
    return lines

"""`deathless logs`: what the replicas of a service have logged, tracebacks included, and what they log next.

Guarantees: the lines of all replicas in the order of time; with --follow each line that comes, until it is stopped.
Does not: ask a replica: it reads the files that `deathless up` keeps, also of a service that does not run.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from deathless.base.errors import InvalidArgument
from deathless.cli.options import json_option, service_options, target
from deathless.cli.output import print_json_line

if TYPE_CHECKING:
    from deathless.shell.operate.log_history import LoggedLine, ReplicaHistory
    from deathless.shell.operate.status import Part

LOOK_S: Final = 0.2  # between two looks for new lines
LEVELS: Final = ("debug", "info", "warning", "error")
_AGE: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(s|m|h|d)")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_SHOWN_APART: Final = frozenset({"time", "level", "logger", "replica", "process", "text", "traceback"})


@click.command()
@service_options
@click.option("--replica", "names", multiple=True, metavar="NAME", help="Only this replica; may be repeated.")
@click.option(
    "--since",
    default="",
    metavar="AGE|TIME",
    help="Only lines since 90s, 10m, 2h or 1d ago, or since an ISO 8601 time.",
)
@click.option(
    "--level",
    default="info",
    show_default=True,
    type=click.Choice(LEVELS),
    help="Lines of this level and above.",
)
@click.option("--follow", is_flag=True, help="Keep showing new lines until Ctrl-C.")
@json_option
def logs(
    manifest: str, directory: str, names: tuple[str, ...], since: str, level: str, follow: bool, as_json: bool
) -> int:
    """Show what all replicas of a service have logged, in the order of time, with tracebacks.

    The service need not run. With --json each line is one JSON object. The files are replicas/ID/replica.log in the
    service's folder; in a cluster `kubectl logs` shows what a pod logs.

    \b
    deathless logs --level error --since 10m
    deathless logs --follow --replica r0
    """
    from deathless.shell.operate.log_history import in_order

    earliest = _since(since, datetime.now().astimezone())
    parts = target(manifest, directory, every=True).parts
    histories = _histories(parts, names)
    if not histories:
        where = ", ".join(str(part.directory) for part in parts)
        raise InvalidArgument(
            f"{where}: no replica has logged anything here",
            remedy="start it with `deathless up`, or name its folder with --dir; in a cluster: kubectl logs POD",
        )
    _show(in_order(histories.values()), level, earliest, as_json)
    if follow:
        asyncio.run(_follow(histories, parts, names, level, as_json))
    return 0


def _since(text: str, now: datetime) -> str:
    from deathless.shell.operate.log_history import log_time

    if not text:
        return ""
    age = _AGE.fullmatch(text)
    try:
        at = now - timedelta(seconds=float(age[1]) * _UNITS[age[2]]) if age else datetime.fromisoformat(text)
        return log_time(at)
    except (ValueError, OverflowError) as error:
        raise InvalidArgument(
            f"--since: {text!r} is neither an age nor a time", remedy="write 10m, or 2026-01-31T12:00:00"
        ) from error


def _histories(parts: list[Part], names: tuple[str, ...]) -> dict[str, ReplicaHistory]:
    from deathless.shell.operate.log_history import ReplicaHistory

    folders: dict[str, Path] = {}
    for part in parts:
        for path in sorted((Path(part.directory) / "replicas").glob("*/replica.log")):
            folders[part.label + path.parent.name] = path.parent
    for name in names:
        if name not in folders:
            known = ", ".join(folders) or "no replica"
            raise InvalidArgument(f"--replica: {name!r} has no log here", remedy=f"known replicas: {known}")
    return {name: ReplicaHistory(name, folder) for name, folder in folders.items() if not names or name in names}


async def _follow(
    histories: dict[str, ReplicaHistory], parts: list[Part], names: tuple[str, ...], level: str, as_json: bool
) -> None:
    from deathless.shell.operate.log_history import in_order

    while True:
        await asyncio.sleep(LOOK_S)
        lines = [line for history in histories.values() for line in history.new()]
        _show(sorted(lines, key=lambda line: line.time), level, "", as_json)
        known = _histories(parts, names)
        joined = {name: history for name, history in known.items() if name not in histories}
        _show(in_order(joined.values()), level, "", as_json)
        histories |= joined


def _show(lines: Iterable[LoggedLine], level: str, since: str, as_json: bool) -> None:
    from deathless.shell.operate.log_history import wanted

    for line in lines:
        if not wanted(line, level, since):
            continue
        if as_json:
            print_json_line({"time": line.time, "level": line.level, **line.fields, "replica": line.replica})
        else:
            sys.stdout.write(_readable(line))
    sys.stdout.flush()


def _readable(line: LoggedLine) -> str:
    """Give a line for people: what happened, the fields that belong to it, and a traceback below."""
    fields = line.fields
    extra = " ".join(f"{name}={value}" for name, value in fields.items() if name not in _SHOWN_APART and value != "")
    head = (line.time, line.replica, str(fields.get("process", "")), line.level.upper(), line.text, extra)
    below = "".join(f"    {each}\n" for each in str(fields.get("traceback", "")).splitlines())
    return " ".join(filter(None, head)).replace("\n", "; ") + "\n" + below

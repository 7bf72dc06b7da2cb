"""The metrics of the program beside a replica, asked from the process that keeps it, on a local socket.

Each replica has a program and tells of its own: one that leads and those that follow. What is counted is counted since
that process began, over all processes of the program.

Guarantees: where the process says nothing there is `deathless_program_up 0` and no other number. Does not: read the
shared directory, which may hang.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from deathless.base.config import ReplicaConfig
from deathless.shell.link.application_status import STATUS_BYTES_MAX, ApplicationStatus
from deathless.shell.net.abstract_socket import driver_socket
from deathless.shell.net.status_port import ask_status
from deathless.shell.web.metrics import MetricSet, Read

Numbers = Mapping[str, tuple[str, Callable[[ApplicationStatus], float]]]
GAUGES: Final[Numbers] = {
    "serving": ("1 while the program is loaded and runs what is logged.", lambda each: each.serves),
    "failing": (
        "1 while the program ended before it had served for a while, and is started after pauses.",
        lambda each: each.keeps_failing,
    ),
    "position": ("Position of the last row that the program was given.", lambda each: each.position),
    "behind_rows": ("Rows of its topic that the program was not given yet.", lambda each: each.behind_rows),
    "behind_bytes": ("These rows as the topic's files hold them.", lambda each: each.behind_bytes),
    "unlogged_bytes": ("What the program sent and the log is not known to have.", lambda each: each.waiting_bytes),
    "skipped_rows": ("Rows of which an operator has the program skip something.", lambda each: each.skipped),
    "checkpoint_position": (
        "Position of the newest checkpoint of the service's program, whichever replica wrote it; -1 if there is none.",
        lambda each: each.checkpoint_position,
    ),
    "checkpoint_age_seconds": ("Age of that checkpoint; 0 if there is none.", lambda each: each.checkpoint_age_s),
    "checkpoint_bytes": ("Size of that checkpoint.", lambda each: each.checkpoint_bytes),
    "checkpoint_seconds": ("What the last checkpoint of this replica's program took.", lambda each: each.checkpoint_s),
}
COUNTERS: Final[Numbers] = {
    "starts": ("Processes of the program that were started.", lambda each: each.starts),
    "differences": (
        "Messages that the program sent otherwise when it was run again.",
        lambda each: each.differences,
    ),
    "too_long": (
        "Messages of the program that went nowhere, since they are longer than a message may be.",
        lambda each: each.too_long,
    ),
    "unnamed": ("Calls of the program to names that no service can have.", lambda each: each.unnamed),
    "impulses": ("Impulses of the program.", lambda each: each.impulses),
    "impulses_lost": (
        "Impulses that were not known to be logged when their process ended.",
        lambda each: each.impulses_lost,
    ),
    "checkpoints": ("Checkpoints of this replica's program that are durable.", lambda each: each.checkpoints),
    "checkpoint_failures": (
        "Checkpoints of this replica's program that could not be written.",
        lambda each: each.checkpoint_failures,
    ),
}
BY_REASON: Final[Mapping[str, tuple[str, Callable[[ApplicationStatus], Mapping[str, int]]]]] = {
    "ends": ("Processes of the program that ended, by the code of the error, or stopped.", lambda each: each.ends),
}
"""Counters with the label `reason`."""


def application_socket(directory: str, owner: str) -> str:
    """Give the name of the socket at which the process says how it is; see `shell.net.abstract_socket`."""
    return driver_socket(directory, owner, "application")


async def ask_application(config: ReplicaConfig) -> ApplicationStatus | None:
    """Ask the process that keeps a replica's program how it is; None: it does not say."""
    return await ask_status(application_socket(config.directory, config.owner), ApplicationStatus, STATUS_BYTES_MAX)


async def application_metrics(config: ReplicaConfig, labels: Mapping[str, str]) -> bytes:
    """Give the metrics of a replica's program in the text format; nothing where its code is a module."""
    return b"" if config.binding is None else expose_application(await ask_application(config), labels)


def expose_application(told: ApplicationStatus | None, labels: Mapping[str, str]) -> bytes:
    """Give what was said in the text format; None: nothing was."""
    metrics = MetricSet("deathless_program", labels=labels)
    up = 0 if told is None else 1
    metrics.gauge("up", "1 while the process that keeps the program answers.", lambda: up)
    states: dict[str, float] = {} if told is None else {told.state: 1.0}
    metrics.gauge("state", "1 for the state that the program is in.", lambda: states, labels=("state",))
    for counts, numbers in ((False, GAUGES), (True, COUNTERS)):
        for name, (text, number) in numbers.items():
            value: float | dict[str, float] = {} if told is None else float(number(told))
            metrics.gauge(name, text, _constant(value), counts=counts)
    for name, (text, by_reason) in BY_REASON.items():
        values = {} if told is None else {reason: float(count) for reason, count in by_reason(told).items()}
        metrics.gauge(name, text, _constant(values), labels=("reason",), counts=True)
    return metrics.expose()


def _constant(value: float | Mapping[str, float]) -> Read:
    return lambda: value

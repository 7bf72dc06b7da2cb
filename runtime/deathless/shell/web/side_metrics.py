"""The metrics of processes beside a replica, such as its sinks, of what they said of themselves.

Guarantees: a process that said nothing is `up 0`, and one that is not at work has no other number. Does not: ask.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeVar

from deathless.shell.web.metrics import MetricSet, Read

NOT_AT_WORK: Final = frozenset({"idle", "held"})
"""States of one that is not beside a primary, or may not begin yet: the shard's other numbers say nothing of it."""


class Status(Protocol):
    """What every status has."""

    @property
    def state(self) -> str:
        """What it does."""
        ...


S = TypeVar("S", bound=Status)
Numbers = Mapping[str, tuple[str, Callable[[S], float]]]
"""By name of a metric: its help, and the number of one status."""


def expose(
    kind: str, told: Mapping[str, S | None], labels: Mapping[str, str], gauges: Numbers[S], counters: Numbers[S]
) -> bytes:
    """Give what processes of one kind said, in the text format.

    Args:
        kind: such as `sink`; each metric begins with it, and it is the label of a process's name.
        told: by name; None: one that did not answer.
        labels: of all.
        gauges: of those at work.
        counters: likewise.
    """
    metrics = MetricSet("deathless", labels=labels)
    up = {name: float(status is not None) for name, status in told.items()}
    metrics.gauge(f"{kind}_up", f"1 while the process of the {kind} answers.", lambda: up, labels=(kind,))
    at_work = {name: each for name, each in told.items() if each is not None and each.state not in NOT_AT_WORK}
    for counts, numbers in ((False, gauges), (True, counters)):
        for name, (text, number) in numbers.items():
            values = {process: float(number(each)) for process, each in at_work.items()}
            metrics.gauge(f"{kind}_{name}", text, _constant(values), labels=(kind,), counts=counts)
    return metrics.expose()


def _constant(values: Mapping[str, float]) -> Read:
    return lambda: values

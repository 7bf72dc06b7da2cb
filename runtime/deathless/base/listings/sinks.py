"""What operators are shown of sinks.

The entries are those of the page `/-/sinks` and of `deathless sinks list --json`; `shell.link.sink_status` makes them.

Guarantees: the same columns and words for `deathless` and `kubectl deathless`. Does not: print, or ask anybody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from deathless.base.listings.texts import show_bytes

NO_SINKS: Final = "the service has no sinks"
COLUMNS: Final = (
    "sink", "shard", "topic", "state", "position", "rows behind", "seconds behind", "held", "problem"
)  # fmt: skip
NONE_REFUSED: Final = "no refused row is kept"
REFUSED_COLUMNS: Final = ("position", "refused at", "why", "what it was")
PROBLEM_MAX: Final = 100  # characters in a table


class KeptRow(Protocol):
    """A refused row that a store keeps."""

    @property
    def position(self) -> int: ...  # noqa: D102 - as sinks.port has it
    @property
    def at(self) -> str: ...  # noqa: D102 - as above
    @property
    def why(self) -> str: ...  # noqa: D102 - as above
    @property
    def row(self) -> str: ...  # noqa: D102 - as above


def refused_rows(rows: Iterable[KeptRow]) -> list[Sequence[object]]:
    """Give the rows of a table of refused rows."""
    return [(each.position, each.at, each.why[:PROBLEM_MAX], each.row[:PROBLEM_MAX]) for each in rows]


def sink_rows(entries: Iterable[Mapping[str, object]]) -> list[Sequence[object]]:
    """Give the rows of a table of sinks."""
    return [
        (each["sink"], each["shard"], each["topic"], each["state"], each["position"], each["lagRows"],
         each["lagSeconds"], show_bytes(int(str(each["heldBytes"]))), str(each["problem"])[:PROBLEM_MAX])
        for each in entries
    ]  # fmt: skip

"""What operators are shown of sinks.

The entries are those of the page `/-/sinks` and of `deathless sinks list --json`; `shell.link.sink_status` makes them.

Guarantees: the same columns and words for `deathless` and `kubectl deathless`. Does not: print, or ask anybody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from deathless.base.listings.texts import show_bytes

NO_SINKS: Final = "the service has no sinks"
COLUMNS: Final = (
    "sink", "shard", "topic", "state", "position", "rows behind", "seconds behind", "held", "problem"
)  # fmt: skip
PROBLEM_MAX: Final = 100  # characters in a table


def sink_rows(entries: Iterable[Mapping[str, object]]) -> list[Sequence[object]]:
    """Give the rows of a table of sinks."""
    return [
        (each["sink"], each["shard"], each["topic"], each["state"], each["position"], each["lagRows"],
         each["lagSeconds"], show_bytes(int(str(each["heldBytes"]))), str(each["problem"])[:PROBLEM_MAX])
        for each in entries
    ]  # fmt: skip

"""The stores that there are, by name.

Guarantees: a store's module is imported when one is made, not before. Imports the port.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

from deathless.base.config import SinkConfig
from deathless.base.errors import InvalidConfig
from deathless.sinks.port import KeepsRefused, Store

STORES: Final = {
    "clickhouse": "deathless.sinks.clickhouse.store:store",
    "postgresql": "deathless.sinks.postgresql:store",
}
"""What makes stores, by `options.store` of a manifest: `module:function`."""

TRANSACTIONAL: Final = ("postgresql",)
"""Those that store rows and tip in one transaction, so that rows need no positions of a topic."""


def make_store(sink: SinkConfig) -> Store:
    """Make a store that is not open. Raises: InvalidConfig naming sink and field."""
    found = STORES.get(sink.store)
    if found is None:
        raise InvalidConfig(
            f"sink {sink.name}: there is no store {sink.store!r}", remedy=f"stores: {', '.join(STORES)}"
        )
    module, _, name = found.partition(":")
    made: Store = getattr(import_module(module), name)(sink)
    if sink.on_refusal == "deadLetter" and not isinstance(made, KeepsRefused):
        raise InvalidConfig(
            f"sink {sink.name}: {sink.store} keeps no rows that it refuses", remedy="leave onRefusal: stop"
        )
    return made

"""Ordinary Python services that survive the death of any process.

Importing this package costs nothing: what a service author needs is loaded when it is first named.

    from deathless import Context, Service, Struct
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deathless.sdk import Context as Context
    from deathless.sdk import DeathlessError as DeathlessError
    from deathless.sdk import HandlerFailed as HandlerFailed
    from deathless.sdk import Invalid as Invalid
    from deathless.sdk import QueryContext as QueryContext
    from deathless.sdk import Service as Service
    from deathless.sdk import Struct as Struct
    from deathless.sdk.client import Client as Client
    from deathless.sdk.client import SyncClient as SyncClient

# Where each public name lives.
_HOMES = {
    "Client": "deathless.sdk.client",
    "Context": "deathless.sdk",
    "DeathlessError": "deathless.sdk",
    "HandlerFailed": "deathless.sdk",
    "Invalid": "deathless.sdk",
    "QueryContext": "deathless.sdk",
    "Service": "deathless.sdk",
    "Struct": "deathless.sdk",
    "SyncClient": "deathless.sdk.client",
}

__all__ = [
    "Client",
    "Context",
    "DeathlessError",
    "HandlerFailed",
    "Invalid",
    "QueryContext",
    "Service",
    "Struct",
    "SyncClient",
]


def __getattr__(name: str) -> object:
    """Load a public name when it is first asked for."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'deathless' has no attribute {name!r}")
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Public names, loaded or not."""
    return sorted({*globals(), *_HOMES})

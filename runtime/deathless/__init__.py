"""Ordinary Python services that survive the death of any process.

Importing this package costs nothing: what a service author needs is loaded when it is first named.

    from deathless import Context, Service, Struct
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deathless.sdk import Activity as Activity
    from deathless.sdk import ActivityCall as ActivityCall
    from deathless.sdk import ActivityFailed as ActivityFailed
    from deathless.sdk import BytesPeer as BytesPeer
    from deathless.sdk import Call as Call
    from deathless.sdk import CallCycle as CallCycle
    from deathless.sdk import CallFailed as CallFailed
    from deathless.sdk import CallRefused as CallRefused
    from deathless.sdk import Cancelled as Cancelled
    from deathless.sdk import Context as Context
    from deathless.sdk import Continue as Continue
    from deathless.sdk import DeadlineExceeded as DeadlineExceeded
    from deathless.sdk import DeathlessError as DeathlessError
    from deathless.sdk import HandlerFailed as HandlerFailed
    from deathless.sdk import Invalid as Invalid
    from deathless.sdk import InvalidAwait as InvalidAwait
    from deathless.sdk import Map as Map
    from deathless.sdk import MethodAddress as MethodAddress
    from deathless.sdk import Migration as Migration
    from deathless.sdk import NotRetryable as NotRetryable
    from deathless.sdk import Operation as Operation
    from deathless.sdk import OutcomeUnknown as OutcomeUnknown
    from deathless.sdk import Peer as Peer
    from deathless.sdk import PeerReplaced as PeerReplaced
    from deathless.sdk import Promise as Promise
    from deathless.sdk import QueryContext as QueryContext
    from deathless.sdk import Service as Service
    from deathless.sdk import Struct as Struct
    from deathless.sdk import Suspended as Suspended
    from deathless.sdk import Timer as Timer
    from deathless.sdk import Topic as Topic
    from deathless.sdk import current_activity as current_activity
    from deathless.sdk import field as field
    from deathless.sdk import peer as peer
    from deathless.sdk import peer_bytes as peer_bytes
    from deathless.sdk.client import Client as Client
    from deathless.sdk.client import SyncClient as SyncClient

# Where each public name lives.
_HOMES = {
    "Activity": "deathless.sdk",
    "ActivityCall": "deathless.sdk",
    "ActivityFailed": "deathless.sdk",
    "BytesPeer": "deathless.sdk",
    "Call": "deathless.sdk",
    "CallCycle": "deathless.sdk",
    "CallFailed": "deathless.sdk",
    "CallRefused": "deathless.sdk",
    "Cancelled": "deathless.sdk",
    "Client": "deathless.sdk.client",
    "Context": "deathless.sdk",
    "Continue": "deathless.sdk",
    "DeadlineExceeded": "deathless.sdk",
    "DeathlessError": "deathless.sdk",
    "HandlerFailed": "deathless.sdk",
    "Invalid": "deathless.sdk",
    "InvalidAwait": "deathless.sdk",
    "Map": "deathless.sdk",
    "MethodAddress": "deathless.sdk",
    "Migration": "deathless.sdk",
    "NotRetryable": "deathless.sdk",
    "Operation": "deathless.sdk",
    "OutcomeUnknown": "deathless.sdk",
    "Peer": "deathless.sdk",
    "PeerReplaced": "deathless.sdk",
    "Promise": "deathless.sdk",
    "QueryContext": "deathless.sdk",
    "Service": "deathless.sdk",
    "Struct": "deathless.sdk",
    "Suspended": "deathless.sdk",
    "SyncClient": "deathless.sdk.client",
    "Timer": "deathless.sdk",
    "Topic": "deathless.sdk",
    "current_activity": "deathless.sdk",
    "field": "deathless.sdk",
    "peer": "deathless.sdk",
    "peer_bytes": "deathless.sdk",
}

__all__ = [
    "Activity",
    "ActivityCall",
    "ActivityFailed",
    "Call",
    "CallCycle",
    "CallFailed",
    "CallRefused",
    "Cancelled",
    "Client",
    "Context",
    "DeadlineExceeded",
    "DeathlessError",
    "HandlerFailed",
    "Invalid",
    "InvalidAwait",
    "Map",
    "Migration",
    "NotRetryable",
    "Operation",
    "OutcomeUnknown",
    "Peer",
    "PeerReplaced",
    "Promise",
    "QueryContext",
    "Service",
    "Struct",
    "SyncClient",
    "Timer",
    "Topic",
    "current_activity",
    "field",
    "peer",
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

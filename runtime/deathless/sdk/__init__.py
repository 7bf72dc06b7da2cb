"""What a service author imports; `from deathless import ...` gives the same names.

A module of a service needs nothing else of ours: the registry, the context, the base of states, what a handler can
await, and the errors that it may raise or meet. Guarantees: these names stay. Does not: hold code of its own.
"""

from msgspec import Struct, field

from deathless.base.errors import (
    ActivityFailed,
    CallCycle,
    CallFailed,
    CallRefused,
    Cancelled,
    DeadlineExceeded,
    DeathlessError,
    HandlerFailed,
    Invalid,
    InvalidAwait,
    NotRetryable,
    OutcomeUnknown,
    PeerReplaced,
)
from deathless.execution.author.carry import Continue, Suspended
from deathless.execution.author.migration import Migration
from deathless.execution.author.peer import Peer, peer
from deathless.execution.author.peer_bytes import BytesPeer, peer_bytes
from deathless.execution.author.service import HandlerSpec, Service
from deathless.execution.maps.map import Map
from deathless.execution.turn.activity_call import ActivityCall, current_activity
from deathless.execution.turn.context import Context, QueryContext
from deathless.execution.turn.generator import Random
from deathless.execution.turn.method_address import MethodAddress
from deathless.execution.turn.operations import Activity, Call, Operation, Promise, Timer
from deathless.execution.turn.topic import Topic

__all__ = [
    "Activity",
    "ActivityCall",
    "ActivityFailed",
    "BytesPeer",
    "Call",
    "CallCycle",
    "CallFailed",
    "CallRefused",
    "Cancelled",
    "Context",
    "Continue",
    "DeadlineExceeded",
    "DeathlessError",
    "HandlerFailed",
    "HandlerSpec",
    "Invalid",
    "InvalidAwait",
    "Map",
    "MethodAddress",
    "Migration",
    "NotRetryable",
    "Operation",
    "OutcomeUnknown",
    "Peer",
    "PeerReplaced",
    "Promise",
    "QueryContext",
    "Random",
    "Service",
    "Struct",
    "Suspended",
    "Timer",
    "Topic",
    "current_activity",
    "field",
    "peer",
    "peer_bytes",
]

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
from deathless.execution.activity_call import ActivityCall, current_activity
from deathless.execution.context import Context, QueryContext
from deathless.execution.generator import Random
from deathless.execution.maps import Map
from deathless.execution.operations import Activity, Call, Operation, Promise, Timer
from deathless.execution.peer import Peer, peer
from deathless.execution.service import HandlerSpec, Service

__all__ = [
    "Activity",
    "ActivityCall",
    "ActivityFailed",
    "Call",
    "CallCycle",
    "CallFailed",
    "CallRefused",
    "Cancelled",
    "Context",
    "DeadlineExceeded",
    "DeathlessError",
    "HandlerFailed",
    "HandlerSpec",
    "Invalid",
    "InvalidAwait",
    "Map",
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
    "Timer",
    "current_activity",
    "field",
    "peer",
]

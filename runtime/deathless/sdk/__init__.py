"""What a service author imports; `from deathless import ...` gives the same names.

A module of a service needs nothing else of ours: the registry, the context, the base of states, and the errors a
handler may raise or a client may meet. Guarantees: these names stay. Does not: hold code of its own.
"""

from msgspec import Struct

from deathless.base.errors import DeathlessError, HandlerFailed, Invalid
from deathless.execution.context import Context, QueryContext
from deathless.execution.generator import Random
from deathless.execution.service import HandlerSpec, Service

__all__ = [
    "Context",
    "DeathlessError",
    "HandlerFailed",
    "HandlerSpec",
    "Invalid",
    "QueryContext",
    "Random",
    "Service",
    "Struct",
]

"""Applications that speak the AMBROSIA client protocol, in Python: what a program derives from, and how it connects.

    class Counter(Binding):
        def handle(self, call: Call) -> None: ...
        def save(self) -> bytes: ...
        def load(self, state: bytes) -> None: ...

    connect(Counter()).run()

A service in Python needs none of this: `deathless.sdk` is how those are written. This is for programs that keep state
and process to themselves, as one in any other language would, and the shortest description of what such a program does.
"""

from deathless.ambrosia.binding import Binding
from deathless.ambrosia.connection import Connection, connect
from deathless.protocols.ambrosia_binding.encoding import Answer, Call, CallType, Outcome
from deathless.protocols.ambrosia_binding.errors import CoordinatorWrong, NotAllowedNow

__all__ = [
    "Answer",
    "Binding",
    "Call",
    "CallType",
    "Connection",
    "CoordinatorWrong",
    "NotAllowedNow",
    "Outcome",
    "connect",
]

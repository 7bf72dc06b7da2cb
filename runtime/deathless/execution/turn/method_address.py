"""Which method of which service a context calls by its number: what `peer_bytes(name)[7]` gives.

Guarantees: it is a value, equal to another of the same service, key and number. Does not: know whether the service has
such a method. Imports nothing of ours.
"""

from __future__ import annotations

from typing import Final, NamedTuple

CALL: Final = "call"
"""The handler at which a call by a number arrives."""
SEND: Final = "send"
"""That at which a message arrives that nobody waits for."""


class MethodAddress(NamedTuple):
    """A method of a service, by its number; `peer_bytes` gives it."""

    service: str
    key: str  # of the service; empty for one object
    method: int  # [-2**31, 2**31)

    def arguments(self, args: bytes) -> dict[str, object]:
        """Give what its handler is called with."""
        return {"method": self.method, "args": args}

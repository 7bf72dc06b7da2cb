"""Records of handlers that wait, as they were given before: one is made anew only where what it is made of is another.

To make and encode a record takes some 10 microseconds, and a service may have tens of thousands of them. Whoever gives
them again and again, while somebody waits, keeps them here.

Guarantees: what is given is what `Invocation.suspend` would give now; a record that is gone is not kept. Does not: give
the records of what looked at maps from memory. Imports base and codec.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from deathless.execution.invocations.invocation import Invocation
from deathless.execution.invocations.journal import encode_record


class KeptRecords:
    """Of one executor."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[tuple[object, ...], bytes]] = {}  # by id: what it was made of, and the record

    def of(self, invocations: Iterable[Invocation], states: Mapping[bytes, bytes]) -> list[tuple[int, bytes]]:
        """Give id and record of each.

        Args:
            invocations: all that wait.
            states: of all keys, encoded.
        """
        before, self._kept = self._kept, {}
        found: list[tuple[int, bytes]] = []
        for invocation in invocations:
            id_, held = invocation.id, states.get(invocation.received.key)
            made_of = invocation.made_of(held)
            known = before.get(id_)
            if known is None or not made_of or known[0] != made_of:
                known = made_of, encode_record(invocation.suspend(held))
            self._kept[id_] = known
            found.append((id_, known[1]))
        return found

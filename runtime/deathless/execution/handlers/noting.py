"""What changed of the states of all keys since a moment, without looking at those that did not.

Only for who is asked for changes, in a process that serves nobody: each state that a turn keeps costs a little more.

Guarantees: of each key what stood there at the beginning is kept once it is changed first, so what changed is known
however often it did. Does not: note items of maps. Imports base and codec.
"""

from __future__ import annotations

from collections.abc import Mapping

from deathless.codec.checkpoint_ahead import changes_between
from deathless.execution.handlers.entities import Entities


class NotedStates(dict[bytes, bytes]):
    """States by key, and what stood there before the first change; nothing is ever taken out of it."""

    __slots__ = ("was",)

    def __init__(self, states: Mapping[bytes, bytes]) -> None:
        super().__init__(states)
        self.was: dict[bytes, bytes | None] = {}  # None: nothing

    def __setitem__(self, key: bytes, state: bytes) -> None:
        if key not in self.was:
            self.was[key] = self.get(key)
        super().__setitem__(key, state)

    def update(self, states: Mapping[bytes, bytes]) -> None:  # type: ignore[override]  # this is all that is used of it
        """See dict."""
        for key, state in states.items():
            self[key] = state


class Noting:
    """Notes what changes from now on.

    Args:
        entities: of an executor, of a service without maps; what replaces all of them is not noted.
    """

    def __init__(self, entities: Entities) -> None:
        self._entities = entities
        self._states = entities.state = NotedStates(entities.state)
        self._probes = dict(entities.probes.held)

    @staticmethod
    def can_be(entities: Entities) -> bool:
        """Can all changes be noted? Not where somebody looks at the states already, as a rehearsal does."""
        looked_at = type(entities.state) not in (dict, NotedStates)
        return not (looked_at or entities.states.maps or entities.maps.maps)

    def changes(self) -> tuple[dict[bytes, bytes], list[bytes]]:
        """Give the entries that are new or other ones, and the keys that are no more, ascending."""
        states = self._states
        changed = {key: states[key] for key, was in states.was.items() if states[key] != was}
        probes, gone = changes_between(self._probes, self._entities.probes.held)
        return changed | probes, gone

    def base(self) -> dict[bytes, bytes]:
        """Give all entries as they were at the beginning; what changed is forgotten by it."""
        entries: dict[bytes, bytes] = self._states
        for key, was in self._states.was.items():
            if was is None:
                del entries[key]
            else:
                dict.__setitem__(entries, key, was)
        return {**entries, **self._probes}

"""A shard's states and handlers that wait, made ready before it is known what they will be when they are taken.

    Ready(name, state)  --make_some, again and again-->  handlers stand where they wait, and hold nothing
    restore(...)        what changed since replaces what was made ready, and all is as if it had been restored now

To run handlers again takes as long as there are some, and an upgrade has nobody to serve meanwhile. So an upgrader
does that ahead of the cut. A handler that was made ready is taken only where its record is the same, byte for byte, and
the state of its key as well; all others are run again, or are gone.

Guarantees: until `restore` the executor holds nothing of it. Does not: know logs. Imports base and codec.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from deathless.execution.handlers.entities import Entities
from deathless.execution.handlers.probe import KEY
from deathless.execution.invocations.invocation import Invocation
from deathless.execution.invocations.restoration import Restoration

STEP: Final = 32
"""So many handlers are run again at a time: a few milliseconds."""


class Ready:
    """What was made ready.

    Args:
        name: of that state; what changed since is told of this one.
        state: all entries of it, without maps; taken over, and changed here.
        records: of handlers that wait, and others, which are made ready by `make_some`.
    """

    def __init__(self, name: bytes, state: dict[bytes, bytes], records: Sequence[bytes]) -> None:
        self.name = name
        self._state = state
        self._probes = {key: state.pop(key) for key in [key for key in state if key.startswith(KEY)]}
        self._records = records
        self._at = 0
        self._handlers: dict[bytes, Invocation] = {}  # by record

    def make_some(self, entities: Entities, restoration: Restoration, more_memory: Callable[[], object]) -> bool:
        """Make some more handlers ready, with more memory for each; False: there were none left."""
        some = self._records[self._at : self._at + STEP]
        self._at += len(some)
        held, entities.state = entities.state, self._state
        try:
            for record in some:
                more_memory()
                invocation = restoration.make_ready(record)
                if invocation is not None:
                    self._handlers[record] = invocation
        finally:
            entities.state = held
        return bool(some)

    def restore(
        self,
        entities: Entities,
        restoration: Restoration,
        changed: Mapping[bytes, bytes],
        gone: Collection[bytes],
        suspended: Iterable[bytes],
    ) -> None:
        """Give an executor, which holds nothing, all states and invocations; only once.

        Args:
            entities: of the executor.
            restoration: likewise.
            changed: entries that are new or other ones than those that were made ready.
            gone: keys that are no more.
            suspended: records of all that is suspended now, whether changed or not.

        Raises: CorruptCheckpoint.
        """
        state, probes = self._state, self._probes
        for key in gone:
            (probes if key.startswith(KEY) else state).pop(key, None)
        for key, value in changed.items():
            (probes if key.startswith(KEY) else state)[key] = value
        entities.state, entities.probes.held = state, probes
        ready, self._handlers = self._handlers, {}
        for record, invocation in list(ready.items()):
            key = invocation.received.key
            if key in changed or key in gone:
                del ready[record]
                invocation.kill()
        restoration.restore(suspended, same_code=False, ready=ready)

    def drop(self) -> None:
        """Let all of it go."""
        for invocation in self._handlers.values():
            invocation.kill()
        self._handlers = {}

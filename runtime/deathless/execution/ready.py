"""A shard's states and handlers that wait, made ready before it is known what they will be when they are taken.

    Ready(name, state)  --make_some, again and again-->  handlers stand where they wait, and hold nothing
    restore(...)        what changed since replaces what was made ready, and all is as if it had been restored now

To run handlers again takes as long as there are some, and an upgrade has nobody to serve meanwhile. So an upgrader
does that ahead of the cut. A handler that was made ready is taken only where its record is the same, byte for byte, and
the state of its key as well; all others are run again, or are gone.

Guarantees: until `restore` the executor holds nothing of it. Does not: know logs. Imports base and codec.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from deathless.execution.executor import HandlerExecutor
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

    def make_some(self, executor: object) -> bool:
        """Make some more handlers ready; False: there were none left.

        Args:
            executor: a HandlerExecutor; it holds nothing of them.
        """
        return _of(executor).restoring(self._make_some)

    def _make_some(self, entities: Entities, restoration: Restoration, more_memory: Callable[[], object]) -> bool:
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
        self, executor: object, changed: Mapping[bytes, bytes], gone: Collection[bytes], suspended: Iterable[bytes]
    ) -> None:
        """Replace all that an executor holds by all states and invocations; only once.

        Args:
            executor: a HandlerExecutor.
            changed: entries that are new or other ones than those that were made ready.
            gone: keys that are no more.
            suspended: records of all that is suspended now, whether changed or not.

        Raises: CorruptCheckpoint.
        """
        replaced = _of(executor)
        replaced.discard()

        def restore(entities: Entities, restoration: Restoration, more_memory: Callable[[], object]) -> None:
            def records() -> Iterator[bytes]:
                for record in suspended:
                    more_memory()
                    yield record

            self._put(entities, changed, gone)
            restoration.restore(records(), same_code=False, ready=self._still_ready(changed, gone))

        replaced.restoring(restore)

    def _put(self, entities: Entities, changed: Mapping[bytes, bytes], gone: Collection[bytes]) -> None:
        state, probes = self._state, self._probes
        for key in gone:
            (probes if key.startswith(KEY) else state).pop(key, None)
        for key, value in changed.items():
            (probes if key.startswith(KEY) else state)[key] = value
        entities.state, entities.probes.held = state, probes

    def _still_ready(self, changed: Mapping[bytes, bytes], gone: Collection[bytes]) -> dict[bytes, Invocation]:
        """Give the handlers whose key's state is as it was; all others are let go."""
        ready, self._handlers = self._handlers, {}
        for record, invocation in list(ready.items()):
            key = invocation.received.key
            if key in changed or key in gone:
                del ready[record]
                invocation.kill()
        return ready

    def drop(self, executor: object) -> None:
        """Let all of it go, which was made ready for this HandlerExecutor."""
        _of(executor).restoring(lambda *_: self._drop())

    def _drop(self) -> None:
        for invocation in self._handlers.values():
            invocation.kill()
        self._handlers = {}


def _of(executor: object) -> HandlerExecutor:
    assert isinstance(executor, HandlerExecutor)
    return executor

"""Gives a supervisor's machine one event after the other, and its host the effects of each.

Guarantees: an effect that leads to another event, at once, has it told behind the event that is being told; so a host
may answer `StartWorker` while it carries effects out. Does not: IO.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from deathless.core.supervisor.effects import Effect
from deathless.core.supervisor.events import Event


class Dispatch:
    """Of one supervisor.

    Args:
        handle: tells the machine an event, and gives the effects.
        do: carries one out.
    """

    def __init__(self, handle: Callable[[Event], list[Effect]], do: Callable[[Effect], None]) -> None:
        self._handle = handle
        self._do = do
        self._waiting: deque[Event] = deque()
        self._busy = False

    def take(self, event: Event) -> None:
        """Tell an event, and what its effects lead to; while another one is being told, it waits for its turn."""
        self.ask(event)

    def ask(self, event: Event) -> list[Effect]:
        """The same, and gives the effects of the event, none where it has to wait."""
        self._waiting.append(event)
        if self._busy:
            return []
        self._busy = True
        first: list[Effect] | None = None
        try:
            while self._waiting:
                effects = self._handle(self._waiting.popleft())
                first = effects if first is None else first
                for effect in effects:
                    self._do(effect)
        finally:
            self._busy = False
        return first or []

"""Keeps back what an application emits while it is not known whether it may.

Why it exists: an application that goes over to its new code takes itself for the primary from then on, before the
upgrade stands in the log. What it emits meanwhile must not leave, and must not be lost if the upgrade is committed.

Guarantees: what was held comes out whole and in order. Does not: bound itself; whoever reads from the application stops
when `is_full`. Imports nothing of ours but events.
"""

from __future__ import annotations

from typing import Final

from deathless.protocols.ambrosia.events import Effect, Emitted, ImpulseEmitted, OutputRefused
from deathless.protocols.ambrosia.messages import Rpc

_ITEM_BYTES: Final = 64  # what an item costs beside its body


class Holding:
    """Outputs of one application.

    Args:
        bytes_max: that are held before no more is read, at least 1.
    """

    __slots__ = ("_bytes", "_bytes_max", "_effects", "on")

    def __init__(self, bytes_max: int) -> None:
        self.on = False
        self._effects: list[Effect] = []
        self._bytes = 0
        self._bytes_max = bytes_max

    @property
    def is_full(self) -> bool:
        """Whether no more is to be read from the application."""
        return self._bytes >= self._bytes_max

    def pass_on(self, effect: Emitted | ImpulseEmitted | OutputRefused) -> list[Effect]:
        """Give it back, or hold it."""
        if not self.on:
            return [effect]
        item = effect.rpc if isinstance(effect, ImpulseEmitted) else effect.item
        self._effects.append(effect)
        self._bytes += _ITEM_BYTES + (len(item.body) if isinstance(item, Rpc) else 0)
        return []

    def release(self) -> list[Effect]:
        """Give what was held, and hold no more."""
        effects, self._effects = self._effects, []
        self._bytes, self.on = 0, False
        return effects

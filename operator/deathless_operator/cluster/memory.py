"""What was read a moment ago and would be read again alike.

    mark = memory.begin(key)
    ... read ...
    memory.keep(key, mark, about, value)
    memory.recall(key, about)     # value, for keep_s; None once anybody said forget(key)

Guarantees: what is forgotten while it is being read is not kept; what is kept is never older than `keep_s`, whatever
events were missed. Does not: know what it keeps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

V = TypeVar("V")


@dataclass(frozen=True, slots=True, eq=False)
class Mark:
    """A reading that was begun; each is another one."""

    at: float


@dataclass(frozen=True, slots=True)
class _Kept(Generic[V]):
    about: Hashable
    value: V
    at: float  # when its reading began


class Memory(Generic[V]):
    """Remembers one value for each key.

    Args:
        keep_s: for so long after its reading began, seconds.
        clock: monotonic seconds.
    """

    def __init__(self, keep_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._keep_s = keep_s
        self._clock = clock
        self._kept: dict[Hashable, _Kept[V]] = {}
        self._reading: dict[Hashable, Mark] = {}  # what may still be kept

    def begin(self, key: Hashable) -> Mark:
        """Begin to read a key's value; gives what `keep` needs."""
        self._reading[key] = mark = Mark(self._clock())
        return mark

    def keep(self, key: Hashable, mark: Mark, about: Hashable, value: V) -> None:
        """Keep what was read since `begin`, unless the key was forgotten meanwhile or is read by somebody later.

        Args:
            key: whose.
            mark: of `begin`.
            about: what it was read for; another `about` recalls nothing.
            value: what was read.
        """
        if self._reading.get(key) is mark:
            del self._reading[key]
            self._kept[key] = _Kept(about, value, mark.at)

    def recall(self, key: Hashable, about: Hashable) -> V | None:
        """Give what is kept for a key, if it was read for the same and lately."""
        kept = self._kept.get(key)
        if kept is None or kept.about != about or self._clock() - kept.at >= self._keep_s:
            return None
        return kept.value

    def forget(self, key: Hashable) -> None:
        """Keep nothing of a key, nor of what is being read of it."""
        self._kept.pop(key, None)
        self._reading.pop(key, None)

"""What a handler may know beside its state and arguments: its key, logical time, chance from the log.

A context shows nothing that differs between the first run and a replay: no epoch, no role, no session, no hint that
a message came again. It lives for one turn. The executor hands out the same object again as long as nobody kept it;
one that was kept is dead and refuses everything, so that a handler never acts with another turn's time or chance.

Guarantees: every value is a function of the log. Does not: read a clock. Imports base only.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from deathless.base.errors import Closed
from deathless.execution.generator import Random

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Turn:
    """The executor's side of a context: what the next turn shall see."""

    __slots__ = ("alive", "key", "lsn", "now_us", "random", "seed")

    def __init__(self, seed: bytes, now_us: int) -> None:
        self.seed = seed  # 32 bytes of the service
        self.now_us = now_us  # logical time, microseconds
        self.lsn = 0  # of the message being run
        self.key = b""  # of its address, UTF-8
        self.random: Random | None = None  # None: not asked for in this turn
        self.alive = True  # False: the context was kept beyond its turn

    def close_random(self) -> None:
        """End the turn's generator."""
        if self.random is not None:
            self.random.close()
            self.random = None


class QueryContext:
    """What a query may know: its key and logical time. Nothing of it changes anything."""

    __slots__ = ("_turn",)

    def __init__(self, turn: Turn) -> None:
        self._turn = turn

    def _now(self) -> Turn:
        if not self._turn.alive:
            raise Closed("this context belongs to a turn that has ended; use the one that is passed in")
        return self._turn

    @property
    def key(self) -> str:
        """Key of the address that was called; empty for a service of one object."""
        return self._now().key.decode()

    @property
    def now(self) -> datetime:
        """Logical time, aware (UTC): taken from the log, so a replay sees the same."""
        return _EPOCH + timedelta(microseconds=self._now().now_us)

    @property
    def now_us(self) -> int:
        """Logical time in microseconds since 1970-01-01 UTC."""
        return self._now().now_us


class Context(QueryContext):
    """What a handler may know and use during its turn."""

    __slots__ = ()

    @property
    def lsn(self) -> int:
        """Ordinal of the message in the log: unique, growing, the same in every replay."""
        return self._now().lsn

    @property
    def random(self) -> Random:
        """Chance of this turn; the same numbers in every replay."""
        turn = self._now()
        if turn.random is None:
            turn.random = Random(turn.seed, turn.lsn)
        return turn.random

    def uuid(self) -> str:
        """Give a UUID (version 4) as text; the same in every replay."""
        return self.random.uuid()

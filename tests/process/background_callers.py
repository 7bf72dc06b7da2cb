"""Callers that go on in a thread while a test breaks things around them.

Guarantees: what one of them raises is raised in the test, and none outlives its test: a later test's service may get
the address of an earlier one. Does not: know what is called.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Self

from replica_set import wait_for

END_S = 60.0


class BackgroundCallers(ABC):
    """Several callers, in a thread, until the block ends.

    Args:
        count: how many; each is a `call` of its own.
        describe: says what the services do, for a test that fails.
    """

    def __init__(self, count: int, describe: Callable[[], str]) -> None:
        self.errors: list[BaseException] = []
        self._count = count
        self._describe = describe
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self.run()), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._stop.set()
        self._thread.join(END_S)
        assert not self._thread.is_alive(), f"calls did not end\n{self._describe()}"
        if self.errors:
            raise self.errors[0]

    @property
    def stopping(self) -> bool:
        """Is it time to end?"""
        return self._stop.is_set()

    async def run(self) -> None:
        """Have all of them call."""
        await asyncio.gather(*(self._guarded(number) for number in range(self._count)))

    @abstractmethod
    async def call(self, number: int) -> None:
        """Call until it is time to end."""

    async def _guarded(self, number: int) -> None:
        try:
            await self.call(number)
        except BaseException as error:
            self.errors.append(error)
            raise

    def wait_until(self, done: Callable[[], bool], what: str) -> None:
        """Wait for something that callers bring about. Raises: what one of them met."""
        wait_for(lambda: done() or bool(self.errors), what, self._describe)
        if self.errors:
            raise self.errors[0]

"""Waits, at the start of a replica, for a lock store and a storage that can be used.

Guarantees: what a person must act on ends the wait; everything that passes by itself is waited for, and logged. Does
not: give up. Imports base.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from deathless.base.backoff import next_pause
from deathless.base.errors import LockUnavailable, OutOfSpace, StorageFailed, StorageReadOnly
from deathless.base.storage import Use, waits

T = TypeVar("T")
_LOG: Final = logging.getLogger("deathless.supervisor")
AGAIN_MIN_S: Final = 0.1
AGAIN_MAX_S: Final = 2.0


async def when_usable(attempt: Callable[[], Awaitable[T]], between: Callable[[], None]) -> T:
    """Try for as long as the lock store gives no answer, or the storage is full, read-only or away.

    Args:
        attempt: tried again and again, with pauses that double.
        between: called before each pause; what it raises ends the wait.

    Raises: what `attempt` raises that does not pass by itself.
    """
    pause = AGAIN_MIN_S
    while True:
        try:
            return await attempt()
        except LockUnavailable as error:
            _LOG.warning("lock store gives no answer", extra={"why": str(error)})
        except (StorageReadOnly, StorageFailed, OutOfSpace) as error:
            _LOG.warning("storage can't be used yet", extra={"code": error.code, "why": str(error)})
        except OSError as error:
            if not waits(error, Use.START):
                raise
            _LOG.warning("storage can't be used yet", extra={"why": str(error)})
        between()
        await asyncio.sleep(pause)
        pause = next_pause(pause, first_s=AGAIN_MIN_S, most_s=AGAIN_MAX_S)

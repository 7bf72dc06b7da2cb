"""Does the lock store answer us? Asked by a follower while the primary gets no answer (design 0003, "Detection").

    told "unproved" --> ask every ASK_S --answer within ANSWER_S--> milliseconds without a miss, in the page
                                        '--late, or no answer--> 0

Guarantees: what is told never counts time over a miss, and is 0 at the end. A late ask is a miss at once and still goes
on: a client of several endpoints leaves the one that hangs only where it may wait for it. Does not: judge what the
answer says; decide.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Final

from deathless.base.errors import DeathlessError

ASK_S: Final = 0.2  # between an answer and the next ask
ANSWER_S: Final = 0.5  # an answer that takes longer is a miss


async def ask_on(ask: Callable[[], Coroutine[object, object, object]], tell: Callable[[int], None]) -> None:
    """Ask until cancelled; `tell` gets the milliseconds from the first to the last of the answers without a miss."""
    now = asyncio.get_running_loop().time
    since: float | None = None
    try:
        while True:
            if not await _answers(ask, lambda: tell(0)):
                since = None
            elif since is None:
                since = now()
            tell(round((now() - since) * 1000) if since is not None else 0)
            await asyncio.sleep(ASK_S)
    finally:
        tell(0)


async def _answers(ask: Callable[[], Coroutine[object, object, object]], late: Callable[[], None]) -> bool:
    """Ask once and wait for the end of it; True: answered in time."""
    asked = asyncio.ensure_future(ask())
    try:
        in_time, _ = await asyncio.wait({asked}, timeout=ANSWER_S)
        if not in_time:
            late()
        await asked
    except (DeathlessError, OSError):  # whoever takes the lock meets it again, and says so
        return False
    finally:
        asked.cancel()
    return bool(in_time)

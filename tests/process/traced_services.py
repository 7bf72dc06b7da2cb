"""Two services of the process test of traces: `front` calls `back`, whose handler waits for an activity."""

from __future__ import annotations

import threading
from pathlib import Path

from deathless import Context, Service, Struct, current_activity


class Count(Struct):
    """How often it was called."""

    calls: int = 0


front = Service("front", state=Count)
back = Service("back", state=Count)


@front.handler
async def order(count: Count, ctx: Context, folder: str) -> str:
    """Ask the other service, and tell a third handler."""
    count.calls += 1
    ctx.fork("front", "told", "hear")
    return await ctx.call("back", ctx.key, "make", {"folder": folder}, result=str)


@front.handler
def hear(count: Count, ctx: Context) -> int:
    """Count."""
    count.calls += 1
    return count.calls


@back.activity
def press(folder: str) -> str:
    """Say that it began, wait until it may end; gives the header that it would hand on."""
    call = current_activity()
    (Path(folder) / "began").write_text(call.key)
    pause = threading.Event()
    while not (Path(folder) / "go").exists():
        pause.wait(0.01)
    return call.traceparent


@back.handler
async def make(count: Count, ctx: Context, folder: str) -> str:
    """Run the activity; then call ourselves."""
    count.calls += 1
    header = await ctx.run(press, folder)
    await ctx.call("back", "stock", "take")
    return header


@back.handler
def take(count: Count, ctx: Context) -> int:
    """Count."""
    count.calls += 1
    return count.calls

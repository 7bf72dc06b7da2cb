"""The services of bench.services.exchange, for Restate; `python -m bench.peers.restate_services asker|answerer`.

Serves one of the two on a port of its own, which it prints first. Keys, states and what a handler does are the same.
"""

from __future__ import annotations

import asyncio
import base64
import socket
import sys
from typing import Final, TypedDict

import hypercorn.asyncio
import hypercorn.config
import restate


class Asked(TypedDict, total=False):
    """Arguments of all handlers."""

    messages: int
    calls: int
    size: int
    number: int
    note: str


answerer: Final = restate.VirtualObject("answerer")
asker: Final = restate.VirtualObject("asker")
watch: Final = restate.Service("watch")
runs = [0]
"""How often `take` ran in this process, for whoever waits; what is counted at the end is the state."""


@answerer.handler()
async def take(ctx: restate.ObjectContext, _: Asked) -> int:
    """Count one message."""
    count = (await ctx.get("count", type_hint=int) or 0) + 1
    ctx.set("count", count)
    runs[0] += 1
    return count


@answerer.handler(kind="shared")
async def taken(ctx: restate.ObjectSharedContext) -> int:
    """Say how many came."""
    return await ctx.get("count", type_hint=int) or 0


@watch.handler()
async def ran(_: restate.Context) -> int:
    """Say how often this process took one."""
    return runs[0]


def _note(size: int) -> Asked:
    return Asked(note=base64.b64encode(bytes(size * 3 // 4)).decode())


@asker.handler()
async def burst(ctx: restate.ObjectContext, asked: Asked) -> None:
    """Send so many messages one way to the key of this name."""
    for _ in range(asked["messages"]):
        ctx.object_send(take, ctx.key(), _note(asked["size"]))


@asker.handler()
async def chat(ctx: restate.ObjectContext, asked: Asked) -> int:
    """Call so often, one call at a time; gives the last reply."""
    last = 0
    for _ in range(asked["calls"]):
        last = await ctx.object_call(take, ctx.key(), _note(asked["size"]))
    return last


@asker.handler()
async def step(ctx: restate.ObjectContext, asked: Asked) -> int:
    """One durable step outside, then the reply."""

    async def nothing() -> int:
        return asked["number"]

    done = await ctx.run_typed("nothing", nothing)
    ctx.set("count", (await ctx.get("count", type_hint=int) or 0) + 1)
    return done


async def _serve(name: str) -> None:
    services = {"asker": [asker], "answerer": [answerer, watch]}[name]
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = hypercorn.config.Config()
        config.bind = [f"fd://{listening.fileno()}"]
        config.errorlog = None
        print(listening.getsockname()[1], flush=True)
        await hypercorn.asyncio.serve(restate.app(services=services), config)  # type: ignore[arg-type]  # its own kind of ASGI


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))

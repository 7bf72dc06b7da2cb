"""The runner's pod is not Ready before it is told so."""

from __future__ import annotations

import asyncio

import pytest

from deathless_operator.drill.readiness import Readiness


async def ask(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /readyz HTTP/1.1\r\nhost: x\r\n\r\n")
    answer = await reader.read()
    writer.close()
    return answer.split(b"\r\n")[0]


@pytest.mark.asyncio
async def test_ready_is_said_once_it_is_true() -> None:
    async with Readiness(0) as readiness:
        assert b"503" in await ask(readiness.port)
        readiness.become_ready()
        assert b"200" in await ask(readiness.port)


@pytest.mark.asyncio
async def test_client_that_leaves_is_no_matter() -> None:
    async with Readiness(0) as readiness:
        _, writer = await asyncio.open_connection("127.0.0.1", readiness.port)
        writer.close()
        await writer.wait_closed()
        assert b"503" in await ask(readiness.port)

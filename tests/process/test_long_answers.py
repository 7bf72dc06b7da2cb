"""More answers at a time than one packet may hold, whoever dies meanwhile: all arrive, and each call ran once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import pytest
from replica_set import DEADLINE_S, PATIENT, ReplicaSet

from deathless.core.client.link import REPLY_PACKET_BYTES_MAX
from deathless.shell.client.shard_client import Client

SERVICE: Final = Path(__file__).with_name("long_answers.py")
SIZE: Final = 1_000_000
COUNT: Final = 100  # at a time; what they give does not go in one packet
KEYS: Final = [f"k{number}" for number in range(COUNT)]


async def asked(client: Client, kind: str) -> list[int]:
    """Ask for everything at once; gives the lengths of the answers."""
    async with asyncio.timeout(DEADLINE_S):
        if kind == "look":
            answers = await asyncio.gather(*(client.query("look", key, size=SIZE) for key in KEYS))
        else:
            answers = await asyncio.gather(*(client.call(kind, key, size=SIZE) for key in KEYS))
    return [len(answer) for answer in answers]


@pytest.mark.parametrize("kind", ["take", "look", "order"])
def test_long_answers_of_one_moment_arrive_though_the_primary_is_killed(tmp_path: Path, kind: str) -> None:
    assert COUNT * SIZE > REPLY_PACKET_BYTES_MAX
    with ReplicaSet(tmp_path, service="archive", module=f"{SERVICE}:archive", limits=PATIENT) as replicas:
        primary = replicas.primary()

        async def work() -> None:
            async with Client("archive", [f"dir:{replicas.directory}"]) as client:
                await client.ready(DEADLINE_S)
                assert await asked(client, kind) == [SIZE] * COUNT
                again = asyncio.create_task(asked(client, kind))
                await asyncio.sleep(0)
                await asyncio.to_thread(replicas.kill_worker, primary)
                assert await again == [SIZE] * COUNT
                counts = await asyncio.gather(*(client.query("taken", key) for key in KEYS))
                assert counts == [0 if kind == "look" else 2] * COUNT

        asyncio.run(work())

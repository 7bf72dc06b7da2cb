"""What a service recorded, for tests: rows of the topic, as the topic's driver writes them, and a checkpoint."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from deathless.drivers.port import Delivery, Source
from deathless.drivers.topic import Options, TopicSink
from deathless.foreign.checkpoints import Checkpoints, Head, encode_lanes
from deathless.foreign.rows import INPUTS, Given
from deathless.foreign.service import inputs
from deathless.protocols.ambrosia.lanes import LaneState
from deathless.shell.disk.filesystem import RealFileSystem

SERVICE_ID = "ab" * 16
INCARNATION = 7


def publish(path: Path, rows: list[Given]) -> None:
    """Write these rows, from position 1 on, below a shard's directory."""
    folder = path / "topics" / INPUTS
    folder.mkdir(parents=True)

    async def work() -> None:
        sink = TopicSink(lambda: RealFileSystem(folder), Options("topic", 1 << 20, 0, 1 << 20))
        await sink.open(Source("counter", 0, bytes.fromhex(SERVICE_ID), INCARNATION, 1), 1)
        await sink.deliver([_delivery(at, row) for at, row in enumerate(rows, 1)])

    asyncio.run(work())


def checkpoint(path: Path, position: int, blob: bytes, lanes: tuple[LaneState, ...] = (), version: int = -1) -> None:
    """Write a checkpoint at a position, of a version of the program."""
    head = Head(
        service_id=SERVICE_ID,
        incarnation=INCARNATION,
        position=position,
        records=position,
        length=len(blob),
        lanes=encode_lanes(lanes),
        version=version,
    )
    writing = Checkpoints(RealFileSystem(path), "r0").begin(head)
    writing.write(blob)
    assert writing.end()


def _delivery(position: int, row: Given) -> Delivery:
    arguments = {"schema": inputs.schema.text, "time_us": position, "row": list(msgspec.structs.astuple(row))}
    return Delivery(position, "emit", "", arguments, None, 0, f"id-{position}")

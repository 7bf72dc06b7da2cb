"""A topic in a folder of its own: rows as a handler emits them, and sinks that write them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pyarrow as pa

from deathless.drivers.port import Delivery, Reference, Source
from deathless.drivers.topic import Options, TopicSink
from deathless.engine.ports import FileSystem
from deathless.shell.disk.filesystem import RealFileSystem
from deathless.topics.arrow import Row, encode_batch, record_batch
from deathless.topics.blocks import FileHeader, encode_block, encode_header, read_header
from deathless.topics.index import SourceIndex
from deathless.topics.reader import TopicReader
from deathless.topics.source import FileName, TopicSource

SERVICE_ID = b"0123456789abcdef"
SOURCE = Source("airports", 0, SERVICE_ID, 1, 1)
FOLDER = TopicSource(SERVICE_ID.hex(), 1).folder
SCHEMA = "flight:utf8,minutes:int64?"


def values(position: int) -> list[object]:
    return [f"LH {position}", None if position % 5 == 0 else 7 * position]


def emitted(position: int, *, schema: str = SCHEMA, row: object = None, waits: bool = False) -> Delivery:
    arguments = {"schema": schema, "time_us": position * 1_000_000, "row": values(position) if row is None else row}
    reference = Reference(position, 1) if waits else None
    return Delivery(position, "emit", f"key-{position % 3}", arguments, reference, 0, f"id-{position}")


def of_epoch(epoch: int) -> Source:
    return msgspec.structs.replace(SOURCE, epoch=epoch)


def sink_in(
    files: FileSystem | Path, *, keep_bytes: int = 0, keep_seconds: int = 0, roll_bytes: int = 1 << 20
) -> TopicSink:
    opened = RealFileSystem(files) if isinstance(files, Path) else files
    return TopicSink(lambda: opened, Options("topic", keep_bytes, keep_seconds, roll_bytes))


def reader_in(files: FileSystem | Path) -> TopicReader:
    opened = RealFileSystem(files) if isinstance(files, Path) else files
    return TopicReader("topic", files=opened, sleep=lambda _: None)


async def written(
    files: FileSystem | Path, first: int, last: int, *, epoch: int = 1, step: int = 3, **options: int
) -> TopicSink:
    made = sink_in(files, **options)
    await made.open(of_epoch(epoch), first)
    for at in range(first, last + 1, step):
        await made.deliver([emitted(each) for each in range(at, min(at + step, last + 1))])
    return made


def positions(batches: Sequence[pa.RecordBatch]) -> list[int]:
    return [position for batch in batches for position in batch.column("_position").to_pylist()]


def read_all(files: FileSystem | Path) -> list[int]:
    reader = reader_in(files)
    bounds = reader.bounds()
    return positions(list(reader.read(bounds.first, bounds.next)))


def file_bytes(first: int, blocks: Sequence[Sequence[int]], *, epoch: int = 1, schema: str = SCHEMA) -> bytes:
    """A file whose blocks hold these positions."""
    data = encode_header(FileHeader(SERVICE_ID, 1, epoch, first, 0, "airports", schema))
    header = read_header(data)
    assert header is not None
    for block in blocks:
        rows = [Row(at, f"key-{at % 3}", at * 1_000_000, values(at)) for at in block]
        payload = encode_batch(record_batch(schema, 0, rows))
        data += encode_block(payload, block[0], block[-1], len(rows), block[-1] * 1_000_000, seed=header.crc)
    return data


def spans(index: SourceIndex) -> list[tuple[int, int]]:
    """Positions that whole blocks cover, merged: (first, behind the last), ascending."""
    merged: list[tuple[int, int]] = []
    for file in index.known.values():
        if file.next == file.name.first:
            continue
        if merged and file.name.first <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(file.next, merged[-1][1])
        else:
            merged.append((file.name.first, file.next))
    return merged


def put(folder: Path, name: FileName, data: bytes) -> Path:
    path = folder / FOLDER / name.text
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return path

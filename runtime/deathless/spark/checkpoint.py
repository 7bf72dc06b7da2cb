"""Spark's checkpoint of a query, made from where the query stands.

    metadata        {"id": ...}     offsets/<n>   where batch n ends     commits/<n>   batch n is done

A driver lays a new one in a folder of its own before it starts a query, with the last decided batch as its newest:
Spark goes on with the next one. So no checkpoint has to be kept, shared or fenced, and one that is older than what was
decided is never used. Spark wants the batch before the last one as well, but takes nothing from it; it is laid as a
copy.

Only for queries that keep no state of their own: what an aggregation has counted is in no offset (`state` has those).

Guarantees: the folder is the caller's, and empty before. Does not: understand offsets. Imports the pipelines' names.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import NamedTuple

import msgspec

from deathless.base.errors import InvalidArgument
from deathless.pipelines.ledger import Tip
from deathless.pipelines.position import VERSION, position_of


class BatchFiles(NamedTuple):
    """What a checkpoint says of a batch."""

    start: str  # position at which it begins; empty: at the query's beginning
    end: str
    offsets: str  # text of `offsets/<batch>`


def lay(folder: Path, tip: Tip | None) -> str:
    """Write the checkpoint of a query that stands at `tip`; gives the query's id, a new one if there is no tip.

    Raises: OSError.
    """
    query_id = tip.query_id if tip is not None else str(uuid.uuid4())
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metadata").write_bytes(msgspec.json.encode({"id": query_id}))
    if tip is None:
        return query_id
    for name in ("offsets", "commits"):
        (folder / name).mkdir()
    for batch in range(max(0, tip.batch - 1), tip.batch + 1):
        (folder / "offsets" / str(batch)).write_text(tip.offsets, encoding="utf-8")
        (folder / "commits" / str(batch)).write_text(f'{VERSION}\n{{"nextBatchWatermarkMs":0}}', encoding="utf-8")
    return query_id


def read_batch(folder: Path, batch: int, tip: Tip | None, first: int = 0) -> BatchFiles:
    """Read where a batch begins and ends, which Spark has planned.

    Args:
        folder: of the checkpoint.
        batch: its number.
        tip: from which the checkpoint was laid; None: from nothing.
        first: number of the first batch that is decided if there is no tip.

    Raises: InvalidArgument, OSError.
    """
    offsets = (folder / "offsets" / str(batch)).read_text(encoding="utf-8")
    before = folder / "offsets" / str(batch - 1)
    if tip is not None and batch == tip.batch + 1:
        start = tip.position
    elif batch == 0 or (tip is None and batch == first):
        start = ""
    elif before.exists():
        start = position_of(before.read_text(encoding="utf-8"))
    else:
        raise InvalidArgument(f"{folder} says nothing of batch {batch - 1}, behind which batch {batch} begins")
    return BatchFiles(start, position_of(offsets), offsets)

"""Rows that a service published come to its application in order, and stay until a checkpoint holds them."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from deathless.base.errors import TopicRowsDropped
from deathless.drivers.port import Delivery, Source
from deathless.drivers.topic import Options, TopicSink
from deathless.foreign.feed import Feed
from deathless.foreign.rows import INPUTS, Given, What, encode_items
from deathless.foreign.service import inputs
from deathless.foreign.skips import Skip
from deathless.shell.disk.filesystem import RealFileSystem

SERVICE_ID = "ab" * 16


def given(position: int) -> Given:
    return Given(What.ITEMS, b"items %d" % position, "bank", position, b"12345678", b"87654321")


def publish(path: Path, first: int, last: int, *, epoch: int = 1, keep_bytes: int = 1 << 20) -> None:
    """Write rows as the topic's driver does, two in a block; each file is full at once."""

    async def work() -> None:
        sink = TopicSink(lambda: RealFileSystem(path / "topics" / INPUTS), Options("topic", keep_bytes, 0, 1))
        await sink.open(Source("counter", 0, bytes.fromhex(SERVICE_ID), 7, epoch), first)
        for at in range(first, last + 1, 2):
            await sink.deliver([delivery(each) for each in range(at, min(at + 2, last + 1))])

    (path / "topics" / INPUTS).mkdir(parents=True, exist_ok=True)
    asyncio.run(work())


def delivery(position: int) -> Delivery:
    row = list(msgspec.structs.astuple(given(position)))
    arguments = {"schema": SCHEMA, "time_us": position, "row": row}
    return Delivery(position, "emit", "", arguments, None, 0, f"id-{position}")


SCHEMA = inputs.schema.text


def test_rows_come_in_their_order(tmp_path: Path) -> None:
    """None before any was published."""
    feed = Feed(str(tmp_path), SERVICE_ID, 7)
    assert (feed.reach(), feed.read(1)) == (0, [])
    publish(tmp_path, 1, 5)
    assert feed.reach() == 6
    assert feed.read(1) == [(each, given(each)) for each in range(1, 6)]
    assert feed.read(4) == [(4, given(4)), (5, given(5))]
    assert feed.read(6) == []


def test_what_is_skipped_is_left_out_of_its_row(tmp_path: Path) -> None:
    """The others come as they are."""
    publish(tmp_path, 1, 3)
    feed = Feed(str(tmp_path), SERVICE_ID, 7, skips={2: Skip(position=2)})
    rows = dict(feed.read(1))
    assert (rows[1], rows[3]) == (given(1), given(3))
    assert rows[2] == msgspec.structs.replace(given(2), items=encode_items([]))


def test_rows_stay_from_a_hold_on(tmp_path: Path) -> None:
    """Those before it may go, and whoever wants them is told."""
    feed = Feed(str(tmp_path), SERVICE_ID, 7)
    publish(tmp_path, 1, 6)
    feed.hold(3)
    publish(tmp_path, 7, 8, epoch=2, keep_bytes=1)
    assert [position for position, _ in feed.read(3)] == [3, 4, 5, 6, 7, 8]
    with pytest.raises(TopicRowsDropped):
        feed.read(1)


def test_rows_of_another_incarnation_are_not_read(tmp_path: Path) -> None:
    """They are of another log."""
    publish(tmp_path, 1, 2)
    assert Feed(str(tmp_path), SERVICE_ID, 8).read(1) == []


def test_no_more_is_read_at_once_than_has_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row may be large, and there may be many."""
    monkeypatch.setattr("deathless.foreign.feed.READ_BYTES", 1)
    publish(tmp_path, 1, 6)
    feed = Feed(str(tmp_path), SERVICE_ID, 7)
    assert [position for position, _ in feed.read(1)] == [1, 2]  # a block
    assert [position for position, _ in feed.read(3)] == [3, 4]

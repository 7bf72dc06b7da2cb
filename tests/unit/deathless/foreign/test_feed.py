"""Rows that a service published come to its application in order, and stay until a checkpoint holds them."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from deathless.base.errors import TopicRowsDropped
from deathless.drivers.port import Delivery, Source
from deathless.drivers.topic import Options, TopicSink
from deathless.foreign.feed import NOTHING, Feed
from deathless.foreign.rows import INPUTS, Given, What, encode_items
from deathless.foreign.service import inputs
from deathless.foreign.skips import Skip
from deathless.shell.disk.filesystem import RealFileSystem

SERVICE_ID = "ab" * 16


def given(position: int) -> Given:
    return Given(What.ITEMS, b"items %d" % position, "bank", position, b"12345678", b"87654321")


def publish(
    path: Path,
    first: int,
    last: int,
    *,
    epoch: int = 1,
    keep_bytes: int = 1 << 20,
    incarnation: int = 7,
    asked: bool = False,
) -> None:
    """Write rows as the topic's driver does, two in a block; each file is full at once.

    Args:
        path: of the shard.
        first: position of the first one.
        last: of the last one.
        epoch: of the writer.
        keep_bytes: as the topic's.
        incarnation: of the service.
        asked: they are what the service makes when it is asked for a row.
    """

    async def work() -> None:
        sink = TopicSink(lambda: RealFileSystem(path / "topics" / INPUTS), Options("topic", keep_bytes, 0, 1))
        await sink.open(Source("counter", 0, bytes.fromhex(SERVICE_ID), incarnation, epoch), first)
        for at in range(first, last + 1, 2):
            await sink.deliver([delivery(each, asked=asked) for each in range(at, min(at + 2, last + 1))])

    (path / "topics" / INPUTS).mkdir(parents=True, exist_ok=True)
    asyncio.run(work())


def delivery(position: int, *, asked: bool = False) -> Delivery:
    row = list(msgspec.structs.astuple(Given(What.ITEMS, NOTHING) if asked else given(position)))
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


def test_what_is_behind_is_told_in_rows_and_bytes(tmp_path: Path) -> None:
    """Whoever has all of it is behind by nothing."""
    feed = Feed(str(tmp_path), SERVICE_ID, 7)
    feed.look_ahead(0)
    assert feed.ahead == (0, 0)
    publish(tmp_path, 1, 5)
    sizes = []
    for delivered in range(6):
        feed.look_ahead(delivered)
        assert feed.ahead.rows(delivered) == 5 - delivered
        sizes.append(feed.ahead.bytes)
    assert sizes == sorted(sizes, reverse=True) and sizes[4] > sizes[5] == 0


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


def test_rows_below_its_beginning_are_those_of_the_former_incarnation(tmp_path: Path) -> None:
    """Whatever that one has from there on is of a log that this service does not go on from."""
    publish(tmp_path, 1, 9)
    publish(tmp_path, 4, 8, epoch=2, incarnation=8)
    publish(tmp_path, 6, 7, epoch=3, incarnation=9)
    feed = Feed(str(tmp_path), SERVICE_ID, 9, former=(7, 8))
    found: list[int] = []
    while rows := feed.read(len(found) + 1):
        found += [position for position, _ in rows]
    assert found == list(range(1, 8))
    assert [position for position, _ in feed.read(2)] == [2, 3]
    assert [position for position, _ in feed.read(4)] == [4, 5]
    assert feed.hold(3)


def test_checkpoint_of_a_former_incarnation_counts_where_all_rows_up_to_it_are_the_same(tmp_path: Path) -> None:
    """Nothing is known before a row stands behind it: the folder is there earlier than the floor."""
    publish(tmp_path, 1, 9)
    feed = Feed(str(tmp_path), SERVICE_ID, 8, former=(7,))
    assert feed.admits(8, 100)
    assert not feed.admits(6, 0)
    assert feed.admits(7, 3) is None
    publish(tmp_path, 4, 3, epoch=2, incarnation=8)
    assert feed.admits(7, 3) is None
    publish(tmp_path, 4, 5, epoch=2, incarnation=8)
    assert [feed.admits(7, position) for position in (0, 3, 4, 9)] == [True, True, None, None]
    publish(tmp_path, 6, 6, epoch=3, incarnation=8, asked=True)
    assert [feed.admits(7, position) for position in (0, 3, 4, 5, 6, 9)] == [True] * 4 + [False] * 2
    publish(tmp_path, 7, 9, epoch=4, incarnation=8)
    assert not feed.admits(7, 9), "its row 6 is another one"


def test_checkpoint_of_a_copy_of_a_copy_is_compared_with_each_incarnation_behind_it(tmp_path: Path) -> None:
    """The second one never got the first one's row 4, and the third one has nothing to say about it."""
    publish(tmp_path, 1, 9)
    publish(tmp_path, 4, 4, epoch=2, incarnation=8, asked=True)
    publish(tmp_path, 5, 8, epoch=2, incarnation=8)
    publish(tmp_path, 8, 8, epoch=3, incarnation=9)
    publish(tmp_path, 9, 9, epoch=4, incarnation=9, asked=True)
    feed = Feed(str(tmp_path), SERVICE_ID, 9, former=(7, 8))
    assert [feed.admits(7, position) for position in (3, 4, 7, 8)] == [True, False, False, False]
    assert [feed.admits(8, position) for position in (4, 8, 9)] == [True, True, False]


def test_checkpoint_before_the_first_row_counts_in_a_service_that_begins_with_that(tmp_path: Path) -> None:
    """No floor says where it begins, and one that is higher for another reason hides it."""
    publish(tmp_path, 1, 1)
    publish(tmp_path, 1, 6, epoch=2, incarnation=8)
    feed = Feed(str(tmp_path), SERVICE_ID, 8, former=(7,))
    assert [feed.admits(7, position) for position in (0, 1)] == [True, None]
    publish(tmp_path, 7, 8, epoch=3, keep_bytes=1, incarnation=8)
    assert feed.admits(7, 0) is False


def test_no_more_is_read_at_once_than_has_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row may be large, and there may be many."""
    monkeypatch.setattr("deathless.foreign.feed.READ_BYTES", 1)
    publish(tmp_path, 1, 6)
    feed = Feed(str(tmp_path), SERVICE_ID, 7)
    assert [position for position, _ in feed.read(1)] == [1, 2]  # a block
    assert [position for position, _ in feed.read(3)] == [3, 4]


def test_replicas_with_long_names_that_differ_at_their_ends_hold_for_themselves(tmp_path: Path) -> None:
    publish(tmp_path, 1, 6)
    feed = Feed(str(tmp_path), SERVICE_ID, 7)
    one, other = (f"{'a' * 60}-{number}" for number in range(2))
    assert feed.hold_loading(one, 2)
    assert feed.hold_loading(other, 4)
    assert sorted(feed.loading().values()) == [2, 4]
    feed.drop_loading(replica=one)
    assert list(feed.loading().values()) == [4]

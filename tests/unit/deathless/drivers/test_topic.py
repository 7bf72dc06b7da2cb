"""Rows of a topic: all that was counted is on the disk, once for readers, whoever dies or wakes late and when."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from tests.unit.deathless.topics.topic_lab import (
    FOLDER,
    SERVICE_ID,
    SOURCE,
    emitted,
    of_epoch,
    positions,
    read_all,
    reader_in,
    sink_in,
    values,
    written,
)

from deathless.base.errors import (
    DeliveryRefused,
    Deposed,
    InvalidConfig,
    SinkUnavailable,
    TopicGap,
    TopicRowsMissing,
)
from deathless.codec.wire import ok_reply
from deathless.drivers import topic
from deathless.drivers.conformance import World, check
from deathless.drivers.port import Answer, Delivery, Opened, Settings, Source
from deathless.drivers.topic import TopicSink, sink
from deathless.engine.ports import Handle
from deathless.shell.disk.filesystem import RealFileSystem
from deathless.simulation.world.disk import SimDisk, SimFileSystem, no_gate
from deathless.topics import TopicSource
from deathless.topics.arrow import decode_batch
from deathless.topics.index import SourceIndex
from deathless.topics.keeping import Hold, floor_of, register

pytestmark = pytest.mark.asyncio
NUMBERS = "number:int64,text:utf8"


class AsRows:
    """Gives the kit's messages to a topic as rows that a handler emits, and answers who waits, as a topic does not."""

    def __init__(self, made: TopicSink) -> None:
        self.made = made
        self.open, self.pass_over = made.open, made.pass_over
        self.confirmed, self.close = made.confirmed, made.close

    async def deliver(self, deliveries: Sequence[Delivery]) -> Sequence[Answer]:
        await self.made.deliver([self._row(each) for each in deliveries])
        waiting = [(each.position, each.reference) for each in deliveries if each.reference is not None]
        return [Answer(at, who, ok_reply(msgspec.msgpack.encode(at))) for at, who in waiting]

    def _row(self, each: Delivery) -> Delivery:
        row = [each.arguments["number"], each.arguments["text"]]
        method = "emit" if each.method == "write" else each.method
        arguments = {"schema": NUMBERS, "time_us": each.position, "row": row}
        return msgspec.structs.replace(each, method=method, arguments=arguments, reference=None)


@pytest.mark.parametrize("seed", range(12))
async def test_the_kit_loses_no_row_and_reads_each_once(seed: int, tmp_path: Path) -> None:
    async def arrived() -> Sequence[int]:
        reader = reader_in(tmp_path)
        bounds = reader.bounds() if reader.sources() else None
        batches = list(reader.read(1, bounds.next)) if bounds is not None else []
        return [number for batch in batches for number in batch.column("number").to_pylist()]

    made = lambda: AsRows(sink_in(tmp_path, roll_bytes=4096 if seed % 2 else 1 << 20))  # noqa: E731
    await check(World(sink=made, arrived=arrived, refused="other", exact=False), seed=seed)


async def test_rows_are_what_was_emitted_with_key_position_shard_and_time(tmp_path: Path) -> None:
    made = sink(Settings("departures", {"directory": "shards/1/topics/departures"}, str(tmp_path)))
    source = msgspec.structs.replace(SOURCE, shard=1)
    assert await made.open(source, 1) == Opened(1)
    assert await made.deliver([emitted(1), emitted(3)]) == ()
    await made.close()
    (batch,) = reader_in(tmp_path / "shards/1/topics/departures").read(1, 4)
    first, second = batch.to_pylist()
    assert (first["_shard"], first["_position"], first["_key"]) == (1, 1, "key-1")
    assert first["_time"].timestamp() == 1
    assert [second["flight"], second["minutes"]] == values(3)


@pytest.mark.parametrize(
    "options", [{}, {"directory": 7}, {"directory": "t", "more": 1}, {"directory": "t", "keepBytes": -1}]
)
async def test_wrong_options_are_told_before_anything_is_opened(options: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="departures"):
        sink(Settings("departures", options, str(tmp_path)))


# ---- what is written -----------------------------------------------------------------------------------------


async def test_a_file_ends_at_its_size_and_where_the_schema_changes(tmp_path: Path) -> None:
    made = await written(tmp_path, 1, 30, roll_bytes=4096)
    count = len(names(tmp_path))
    assert count > 1
    other = "flight:utf8,minutes:int64?,gate:utf8?"
    await made.deliver([emitted(31), emitted(32, schema=other, row=["LH", 1, "A1"]), emitted(33)])
    assert len(names(tmp_path)) >= count + 2
    assert read_all(tmp_path) == [*range(1, 34)]


async def test_positions_that_are_passed_over_are_covered_without_a_row(tmp_path: Path) -> None:
    made = sink_in(tmp_path)
    await made.open(SOURCE, 1)
    await made.pass_over(1, None)
    await made.deliver([emitted(2), emitted(5)])
    await made.pass_over(7, None)
    assert reader_in(tmp_path).bounds().next == 8
    assert read_all(tmp_path) == [2, 5]
    assert await sink_in(tmp_path).open(of_epoch(2), 8) == Opened(8)


@pytest.mark.parametrize(
    ("delivery", "why"),
    [
        (msgspec.structs.replace(emitted(2), method="other"), "this is 'other'"),
        (emitted(2, waits=True), "a handler waits"),
        (emitted(2, row=["LH"]), "1 values"),
        (emitted(2, row=[7, 7]), "column 'flight'"),
        (emitted(2, row="LH"), "array"),
        (emitted(2, schema="flight"), "expected"),
        (msgspec.structs.replace(emitted(2), arguments={}), "schema"),
    ],
)
async def test_what_is_no_row_is_refused_by_its_position_and_nothing_is_written(
    delivery: Delivery, why: str, tmp_path: Path
) -> None:
    made = sink_in(tmp_path)
    await made.open(SOURCE, 1)
    with pytest.raises(DeliveryRefused, match=why) as caught:
        await made.deliver([emitted(1), delivery, emitted(3)])
    assert caught.value.position == 2
    assert names(tmp_path) == []


async def test_a_batch_that_is_too_large_becomes_several_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic, "PAYLOAD_BYTES_MAX", 900)
    made = sink_in(tmp_path)
    await made.open(SOURCE, 1)
    await made.deliver([emitted(at) for at in range(1, 40)])
    assert read_all(tmp_path) == [*range(1, 40)]
    with pytest.raises(DeliveryRefused, match="the row has"):
        await made.deliver([emitted(40, row=["x" * 1000, 1])])


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / FOLDER).glob("*.rows"))


async def deliver_on(made: TopicSink, at: int) -> None:
    while True:
        await made.deliver([emitted(at)])
        at += 1


# ---- several writers -----------------------------------------------------------------------------------------


def overlapping(files: SimFileSystem) -> Iterator[list[dict[str, object]]]:
    """Give, for each position, the rows that files hold there."""
    index = SourceIndex(files, FOLDER)
    index.refresh()
    found: dict[object, list[dict[str, object]]] = {}
    for file in index.known.values():
        index.update(file, blocks=True)
        for block in file.blocks or []:
            with index.opened(file) as handle:
                payload = index.payload(file, block, handle)
            assert file.header is not None
            assert payload is not None
            for row in decode_batch(payload, file.header.schema).to_pylist() if payload else []:
                found.setdefault(row["_position"], []).append(row)
    yield from found.values()


async def test_a_later_epoch_deposes_at_open_and_at_a_roll(tmp_path: Path) -> None:
    early = await written(tmp_path, 1, 3, roll_bytes=1500)
    await written(tmp_path, 4, 6, epoch=2)
    with pytest.raises(Deposed, match="epoch 1 of airports ended, 2 writes"):
        await sink_in(tmp_path).open(SOURCE, 4)
    with pytest.raises(Deposed):
        await deliver_on(early, 4)
    assert read_all(tmp_path)[:6] == [1, 2, 3, 4, 5, 6]


async def test_processes_of_one_epoch_write_to_files_of_their_own(tmp_path: Path) -> None:
    one, two = sink_in(tmp_path), sink_in(tmp_path)
    await one.open(SOURCE, 1)
    await two.open(SOURCE, 1)
    await two.deliver([emitted(1), emitted(2)])
    await one.deliver([emitted(1)])
    await two.deliver([emitted(3)])
    assert [name[-8:] for name in names(tmp_path)] == ["1-1.rows", "1-2.rows"]
    assert read_all(tmp_path) == [1, 2, 3]


async def test_without_exclusive_creation_they_destroy_each_other_s_blocks() -> None:
    class Shared(SimFileSystem):
        def create(self, path: str) -> Handle:
            try:
                return super().create(path)
            except FileExistsError:
                return self.open(path, write=True)

    files = Shared(SimDisk(random.Random(1)), "both")
    one, two = sink_in(files), sink_in(files)
    await one.open(SOURCE, 1)
    await two.open(SOURCE, 1)
    await two.deliver([emitted(1), emitted(2)])
    await one.deliver([emitted(1)])
    await two.deliver([emitted(3)])
    assert reader_in(files).bounds().next < 4


# ---- storage -------------------------------------------------------------------------------------------------


async def test_a_full_disk_delays_and_leaves_no_files_behind() -> None:
    disk = SimDisk(random.Random(1), capacity_bytes=40 << 10)
    files = disk.view("writer")
    made = await written(files, 1, 3)
    with pytest.raises(SinkUnavailable, match="No space"):
        await deliver_on(made, 4)
    at = reader_in(files).bounds().next
    before = len(files.listing(FOLDER))
    for _ in range(10):
        await made.open(SOURCE, at)
        with pytest.raises(SinkUnavailable, match="No space"):
            await made.deliver([emitted(at)])
    assert len(files.listing(FOLDER)) == before
    assert read_all(files) == [*range(1, at)]
    disk.capacity_bytes = 80 << 10
    await made.open(SOURCE, at)
    await made.deliver([emitted(at)])
    assert read_all(files) == [*range(1, at + 1)]


async def test_a_full_disk_is_freed_by_what_is_kept_no_longer() -> None:
    files = SimDisk(random.Random(1), capacity_bytes=48 << 10).view("writer")
    made = sink_in(files, keep_bytes=24 << 10, roll_bytes=4096)
    await made.open(SOURCE, 1)
    at = refused = 1
    while at < 400 and refused < 100:
        try:
            await made.deliver([emitted(at)])
            at += 1
        except SinkUnavailable:
            refused += 1
            await made.open(SOURCE, at)
    assert at == 400
    assert read_all(files)[-1] == 399


async def test_retention_runs_at_open_at_a_roll_and_every_minute(tmp_path: Path) -> None:
    now = [0.0]
    options = topic.Options("t", keep_bytes=1, roll_bytes=1200)
    made = TopicSink(lambda: RealFileSystem(tmp_path), options, clock=lambda: now[0])
    await made.open(SOURCE, 1)
    for at in range(1, 9):
        await made.deliver([emitted(at)])
    assert floor_of(RealFileSystem(tmp_path), FOLDER).position > 1, "at a roll"
    register(RealFileSystem(tmp_path), FOLDER, "report", Hold(8))
    made = TopicSink(
        lambda: RealFileSystem(tmp_path), msgspec.structs.replace(options, roll_bytes=1 << 20), clock=lambda: now[0]
    )
    await made.open(SOURCE, 9)
    await made.deliver([emitted(9)])
    assert floor_of(RealFileSystem(tmp_path), FOLDER).position <= 8
    (tmp_path / FOLDER / "holds" / "report.json").unlink()
    await made.deliver([emitted(10)])
    assert len(names(tmp_path)) == 2
    now[0] = 61.0
    await made.deliver([emitted(11)])
    assert len(names(tmp_path)) == 1
    assert read_all(tmp_path) == [9, 10, 11]


async def test_rows_that_were_counted_and_are_gone_stop_the_topic_until_they_are_given_up(tmp_path: Path) -> None:
    await (await written(tmp_path, 1, 9, roll_bytes=1200)).close()
    (tmp_path / FOLDER / names(tmp_path)[-1]).unlink()
    later = sink_in(tmp_path)
    with pytest.raises(TopicRowsMissing, match="below position 10 durably, and topic lacks position 9") as caught:
        await later.open(of_epoch(2), 10)
    assert "skip TOPIC --to 10" in caught.value.advice
    with pytest.raises(SinkUnavailable, match="not open"):
        await later.deliver([emitted(10)])
    reader_in(tmp_path).skip(10)
    assert await later.open(of_epoch(2), 10) == Opened(10)
    await later.deliver([emitted(10)])
    assert reader_in(tmp_path).bounds()[0] == 10


async def test_a_restored_service_begins_where_it_stands_beside_its_earlier_rows(tmp_path: Path) -> None:
    assert await sink_in(tmp_path).open(SOURCE, 1) == Opened(1)
    restored = msgspec.structs.replace(SOURCE, incarnation=7)
    assert await sink_in(tmp_path).open(restored, 41) == Opened(41)
    assert floor_of(RealFileSystem(tmp_path), TopicSource(SERVICE_ID.hex(), 7).folder).position == 41


async def test_folder_that_is_gone_with_all_rows_is_no_beginning(tmp_path: Path) -> None:
    with pytest.raises(TopicRowsMissing, match="lacks position 40"):
        await sink_in(tmp_path).open(msgspec.structs.replace(SOURCE, incarnation=7), 41)


# ---- power cuts ----------------------------------------------------------------------------------------------


class _Killed(BaseException):
    """The process ends here."""


class Story:
    """A service whose topic is written by one process after the other, on a disk that loses what was not synced.

    Args:
        seed: of everything.
        make: a sink over a file system.
        view: of the disk.
    """

    def __init__(
        self, seed: int, make: Callable[[SimFileSystem], TopicSink], view: type[SimFileSystem] = SimFileSystem
    ) -> None:
        self.chance = random.Random(seed)
        self.disk = SimDisk(random.Random(seed))
        self.make = make
        self.view = view
        self.first = 1  # counted: the service keeps nothing below
        self.epoch = 0
        self.alive: list[tuple[TopicSink, list[int]]] = []  # with the position that each goes on at
        self.dies_at = ""

    def gate(self, operation: str, _path: str, moment: str) -> None:
        if self.dies_at == f"{operation} {moment}":
            self.dies_at = ""
            raise _Killed

    async def run(self, steps: int = 40) -> None:
        await self.take_over()
        for _ in range(steps):
            step = self.chance.choice([self.deliver, self.deliver, self.late, self.take_over, self.die, self.cut_power])
            await step()
            self.check()

    async def take_over(self) -> None:
        self.epoch += 1
        made = self.make(self.view(self.disk, f"epoch {self.epoch}", self.gate))
        self.first = (await made.open(of_epoch(self.epoch), self.first)).next_position
        self.alive.append((made, [self.first]))

    async def deliver(self) -> None:
        await self.deliver_by(*self.alive[-1])
        self.first = self.alive[-1][1][0]  # counted

    async def late(self) -> None:
        with suppress(SinkUnavailable, Deposed):
            await self.deliver_by(*self.chance.choice(self.alive))
            self.first = max(self.first, self.alive[-1][1][0])

    async def deliver_by(self, made: TopicSink, at: list[int]) -> None:
        count = self.chance.randint(1, 4)
        await made.deliver([emitted(each) for each in range(at[0], at[0] + count)])
        at[0] += count

    async def die(self) -> None:
        """The newest writer ends in the middle of a batch; another one takes over."""
        self.dies_at = self.chance.choice(
            ["write after", "sync before", "sync after", "create after", "sync_folder before"]
        )
        with suppress(_Killed):
            await self.deliver_by(*self.alive[-1])
        self.dies_at = ""
        self.alive.pop()
        await self.take_over()

    async def cut_power(self) -> None:
        self.alive.clear()
        self.disk.cut_power()
        await self.take_over()

    def check(self) -> None:
        files = self.disk.view("reader")
        rows = [row for batch in reader_in(files).read(1, self.first) for row in batch.to_pylist()]
        assert [row["_position"] for row in rows] == [*range(1, self.first)]
        assert all([row["flight"], row["minutes"]] == values(row["_position"]) for row in rows)
        assert all(each[0] == other for each in overlapping(files) for other in each)


def small_files(files: SimFileSystem) -> TopicSink:
    return sink_in(files, roll_bytes=3000)


@pytest.mark.parametrize("seed", range(25))
async def test_no_counted_row_is_lost_and_no_two_files_differ_whatever_dies_or_wakes(seed: int) -> None:
    await Story(seed, small_files).run()


class WithoutSync(SimFileSystem):
    """Promises more than it does."""

    def sync(self, handle: Handle) -> None:
        """Nothing."""


class WithoutFolderSync(SimFileSystem):
    """Names of files last by chance alone."""

    def sync_folder(self, path: str) -> None:
        """Nothing."""


class Believing(TopicSink):
    """Goes on where files end, as if what another process wrote were durable."""

    def _open(self, source: Source, first: int) -> Opened:
        opened = super()._open(source, first)
        assert self._index is not None
        self._next = max(opened.next_position, self._index.reach(1))
        return Opened(self._next)


def believing(files: SimFileSystem) -> TopicSink:
    return Believing(lambda: files, topic.Options("t", roll_bytes=3000))


@pytest.mark.parametrize(
    ("make", "view"),
    [(small_files, WithoutSync), (small_files, WithoutFolderSync), (believing, SimFileSystem)],
    ids=["without sync", "without sync of the folder", "believing files"],
)
async def test_each_safeguard_is_missed_where_it_is_off(
    make: Callable[[SimFileSystem], TopicSink], view: type[SimFileSystem]
) -> None:
    async def all_seeds() -> None:
        for seed in range(60):
            await Story(seed, make, view).run()

    with pytest.raises((AssertionError, TopicGap, TopicRowsMissing)):
        await all_seeds()


async def test_a_delivery_whose_caller_is_gone_ends_before_the_next_call() -> None:
    files = SimDisk(random.Random(1)).view("writer", no_gate)
    made = await written(files, 1, 3)
    task = asyncio.ensure_future(made.deliver([emitted(4)]))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await made.close()
    assert positions(list(reader_in(files).read(1, 4))) == [1, 2, 3]
    assert re.fullmatch(r"0*1-1-1\.rows", files.listing(FOLDER)[0])

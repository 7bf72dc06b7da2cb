"""The process of a source: at work beside a primary alone, each stream by itself; outages and gaps pass."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from tests.unit.deathless.sources.test_machine import Primary, record

from deathless.base.config import ReplicaConfig, SourceConfig
from deathless.base.errors import InvalidConfig, PortTaken, SourceGap, SourceUnavailable
from deathless.base.source_kinds import SOURCE_KINDS, SourceKind
from deathless.shell.link.source_status import SourceStatus, read_status
from deathless.shell.link.standing import Standing
from deathless.shell.web.source_metrics import ask_source
from deathless.sources import host, trouble
from deathless.sources.host import SourceProcess, make_reader, serve
from deathless.sources.link import Packets
from deathless.sources.machine import PartitionMachine
from deathless.sources.port import Batch, Partition, Point

SOURCE = SourceConfig(name="rows", kind="files", input="rows", key="value.key", options={"folder": "in"})
LEADS = Standing(service="taker", replica="r0", role="primary", epoch=1, service_id="ab")
PRIMARIES: dict[int, Primary] = {}  # by shard


class Outside:
    """What stands outside, and whether it can be read."""

    def __init__(self) -> None:
        self.numbers: dict[int, list[int]] = {0: []}  # by partition
        self.error: Exception | None = None
        self.made = 0
        self.opened: list[Sequence[Point]] = []
        self.told: list[int] = []

    def make(self, _source: SourceConfig) -> MemoryReader:
        self.made += 1
        return MemoryReader(self)


class MemoryReader:
    """A reader of that."""

    def __init__(self, outside: Outside) -> None:
        self._outside = outside
        self._next: dict[int, int] = {}

    async def partitions(self) -> Sequence[Partition]:
        return [Partition(number, f"rows/{number}") for number in self._outside.numbers]

    async def open(self, partition: Partition, points: Sequence[Point]) -> None:
        if self._outside.error is not None:
            raise self._outside.error
        self._outside.opened.append(points)
        self._next[partition.number] = points[0].last_id + 1

    async def read(self, partition: Partition, records_max: int, bytes_max: int) -> Batch:
        if self._outside.error is not None:
            raise self._outside.error
        at = self._next[partition.number]
        found = [record(n) for n in self._outside.numbers[partition.number] if n >= at][:records_max]
        last = found[-1].id if found else at - 1
        self._next[partition.number] = last + 1
        return Batch(found, last, b"", end=at + len(found))

    async def taken_in(self, partition: Partition, last_id: int) -> None:
        self._outside.told.append(last_id)

    async def adopt(self, partition: Partition, last_id: int, at: str) -> Point:
        return Point(last_id + int(at), b"")

    async def leave(self, partition: Partition) -> None:
        self._next.pop(partition.number)

    async def close(self) -> None:
        self._next.clear()


class MemoryLink:
    """A connection to a primary that is played."""

    def __init__(
        self, _config: ReplicaConfig, shard: int, _name: str, *,
        up: Callable[[int], None], received: Callable[[int, Packets], None], down: Callable[[int], None],
    ) -> None:  # fmt: skip
        self.shard = shard
        self.problem = ""
        self._received = received
        self._down = down
        asyncio.get_running_loop().call_soon(up, shard)

    def send(self, data: bytes) -> None:
        found = PRIMARIES[self.shard].answer(data)
        asyncio.get_running_loop().call_soon(self._received, self.shard, found)

    def check(self) -> None:
        """It never ends by itself."""

    def close(self) -> None:
        self.problem = "closed"


class Bench:
    """One process, and what is around it."""

    def __init__(self, folder: Path, shards: int = 1) -> None:
        self.outside = Outside()
        self.config = ReplicaConfig(
            service="taker", module="m:m", directory=str(folder), replica="r0", sources=(SOURCE,), shards=shards
        )
        PRIMARIES.clear()
        PRIMARIES.update({shard: Primary() for shard in range(shards)})
        self.process = SourceProcess(self.config, SOURCE, self.outside.make)

    async def until(self, condition: Callable[[], object]) -> None:
        """Have it work until something is so."""
        for _ in range(10_000):
            await self.process.turn()
            if condition():
                return
            await asyncio.sleep(0)
        raise AssertionError(f"it never came: {self.process.status()}")

    def play(self, story: Callable[[], Awaitable[None]]) -> None:
        async def whole() -> None:
            try:
                await story()
            finally:
                await self.process._leave()

        asyncio.run(whole())


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(host, "ShardLink", MemoryLink)
    monkeypatch.setattr(trouble, "AGAIN_MIN_S", 0.0)
    monkeypatch.setattr(trouble, "AGAIN_MAX_S", 0.0)
    return Bench(tmp_path)


def taken(shard: int = 0) -> list[int]:
    return PRIMARIES[shard].taken


def test_rows_are_brought_beside_a_primary_that_may_reach_the_outside_alone(bench: Bench) -> None:
    async def story() -> None:
        bench.outside.numbers[0] = [0, 1, 2]
        for standing in (
            None,
            Standing(service="taker", replica="r0", role="standby", epoch=1, service_id="ab"),
            Standing(service="taker", replica="r0", role="primary", epoch=1, service_id="ab", outside_held=True),
        ):
            if standing is not None:
                bench.process.told(standing)
            await bench.process.turn()
            assert bench.process.work is None
        assert bench.process.status().state == "held"
        bench.process.told(LEADS)
        await bench.until(lambda: taken() == [0, 1, 2])
        await bench.until(lambda: bench.outside.told == [2])
        status = read_status(bench.config.directory, "rows")
        assert status is not None
        assert (status.state, status.epoch) == ("reading", 1), "a change is written at once"
        assert bench.process.status().rows == 3

    bench.play(story)


def test_another_epoch_begins_anew_from_what_the_primary_says(bench: Bench) -> None:
    async def story() -> None:
        bench.outside.numbers[0] = [0, 1]
        bench.process.told(LEADS)
        await bench.until(lambda: taken() == [0, 1])
        bench.process.told(Standing(service="taker", replica="r0", role="standby", epoch=1, service_id="ab"))
        await bench.process.turn()
        assert bench.process.status().state == "idle"
        bench.outside.numbers[0] = [0, 1, 2]
        bench.process.told(Standing(service="taker", replica="r0", role="primary", epoch=3, service_id="ab"))
        await bench.until(lambda: taken() == [0, 1, 2])
        assert [points[0].last_id for points in bench.outside.opened] == [-1, 1]
        assert bench.process.status().rows == 3

    bench.play(story)


@pytest.mark.parametrize(
    ("error", "code"),
    [(SourceGap("gone"), "DL3083"), (SourceUnavailable("down"), "DL1026"), (ValueError("a bug"), "DL9001")],
)
def test_what_can_not_be_read_is_told_by_name_and_read_once_it_can_be(
    bench: Bench, error: Exception, code: str
) -> None:
    async def story() -> None:
        bench.process.told(LEADS)
        bench.outside.numbers[0] = [0]
        await bench.until(lambda: taken() == [0])
        bench.outside.error = error
        await bench.until(lambda: bench.process.status().state == "stopped")
        (stream,) = bench.process.status().streams
        assert stream.code == code
        bench.outside.error, bench.outside.numbers[0] = None, [0, 1]
        await bench.until(lambda: taken() == [0, 1])
        assert bench.process.status().state == "reading"
        assert bench.outside.opened[-1][0].last_id == 0

    bench.play(story)


def test_a_record_that_can_not_be_placed_stops_its_stream_by_name_and_no_other_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered = PartitionMachine.take

    def take(machine: PartitionMachine, batch: Batch, now: float) -> None:
        if machine.partition.number == 0 and batch.records:
            raise ZeroDivisionError("a fault")
        offered(machine, batch, now)

    async def story() -> None:
        bench.outside.numbers = {0: [0], 1: [0]}
        monkeypatch.setattr(PartitionMachine, "take", take)
        bench.process.told(LEADS)
        await bench.until(lambda: [each.code for each in bench.process.status().streams] == ["DL9001", ""])
        monkeypatch.setattr(PartitionMachine, "take", offered)
        await bench.until(lambda: [each.taken_in for each in bench.process.status().streams] == [0, 0])

    bench.play(story)


def test_a_stream_that_another_process_took_is_taken_again_after_a_pause(bench: Bench) -> None:
    async def story() -> None:
        bench.process.told(LEADS)
        bench.outside.numbers[0] = [0]
        await bench.until(lambda: taken() == [0])
        PRIMARIES[0].nonce = b"another's"
        work = bench.process.work
        assert isinstance(work, host.Work)
        work._down(0)
        work._up(0)
        bench.outside.numbers[0] = [0, 1]
        await bench.until(lambda: taken() == [0, 1])
        assert PRIMARIES[0].nonce != b"another's"

    bench.play(story)


def test_each_partition_is_read_beside_the_primary_of_one_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "ShardLink", MemoryLink)
    bench = Bench(tmp_path, shards=2)

    async def story() -> None:
        bench.outside.numbers = {0: [0], 1: [0], 2: [0], 3: [0]}
        bench.process.told(LEADS)
        await bench.until(lambda: len(bench.process.status().streams) == 2)
        assert [each.stream for each in bench.process.status().streams] == [0, 2]

    bench.play(story)


def test_who_asks_on_the_local_socket_is_told(bench: Bench) -> None:
    async def story() -> None:
        await bench.process.start()
        with pytest.raises(PortTaken, match="source rows"):
            await SourceProcess(bench.config, SOURCE, bench.outside.make).start()
        bench.process.told(LEADS)
        bench.outside.numbers[0] = [0]
        running = asyncio.ensure_future(bench.process.run())
        told: SourceStatus | None = None
        while told is None or not told.rows:
            told = await ask_source(bench.config, "rows")
        running.cancel()
        await asyncio.wait([running])

    bench.play(story)


def test_sources_and_kinds_that_are_not_there_are_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(InvalidConfig, match="no source 'others'"):
        asyncio.run(serve(bench.config, "others", theirs))
    with pytest.raises(InvalidConfig, match="there is no kind 'kite'"):
        make_reader(SourceConfig(name="rows", kind="kite", input="rows"))
    monkeypatch.setitem(SOURCE_KINDS, "toy", SourceKind(name="toy", factory="no_such_module:reader", extra="toy"))
    with pytest.raises(InvalidConfig, match="source rows: kind toy: No module") as caught:
        make_reader(SourceConfig(name="rows", kind="toy", input="rows"))
    assert caught.value.advice == "pip install deathless[toy]"

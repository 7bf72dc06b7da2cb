"""The sink's process: beside a primary alone it works, lets go when that ends, and says how it is."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("pyarrow", reason="rows are read with pyarrow: pip install deathless[topics]")

from tests.unit.deathless.sinks.sink_lab import KEY, SINK
from tests.unit.deathless.sinks.test_conformance import Memory, MemoryStore
from tests.unit.deathless.topics.topic_lab import SERVICE_ID, written

from deathless.base.config import ReplicaConfig
from deathless.base.errors import InvalidConfig, PortTaken, SinkUnavailable
from deathless.shell.link.sink_status import SinkStatus, read_status
from deathless.shell.link.standing import Standing
from deathless.shell.web.sink_metrics import ask_sink
from deathless.sinks import host
from deathless.sinks.host import SinkProcess, serve
from deathless.sinks.port import Block, BlockRefused, Claim, Opened
from deathless.sinks.rows import TopicRows
from deathless.topics import TopicReader

PRIMARY = Standing(service="airports", replica="r0", role="primary", epoch=3, service_id=SERVICE_ID.hex())

TURNS_MAX = 20_000


class FlightStore(MemoryStore):
    """Keeps positions of a topic's rows; `fails` while it is away, `hangs` while it does not answer, refuses `bad`."""

    def __init__(self, memory: Memory) -> None:
        super().__init__(memory)
        self.fails = self.hangs = False
        self.bad = 0  # position of a row that is refused

    async def open(self, claim: Claim, schema: str) -> Opened:
        """See Store."""
        if self.hangs:
            await asyncio.Event().wait()
        if self.fails:
            raise SinkUnavailable("away")
        return await super().open(claim, schema)

    async def write(self, block: Block, expected: int) -> None:
        """See Store."""
        if any(self.bad in batch.column("_position").to_pylist() for batch in block.batches):
            raise BlockRefused("it is bad")
        batches = [batch.set_column(0, "number", batch.column("_position")) for batch in block.batches]
        batches = [batch.append_column("text", batch.column("_key")) for batch in batches]
        await super().write(msgspec.structs.replace(block, batches=batches), expected)


class Bench:
    """A topic with rows 1 to 9, a store in memory, and the process of a sink between them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **changes: object) -> None:
        self.folder = folder
        self.memory = Memory()
        self.store = FlightStore(self.memory)
        monkeypatch.setattr(host, "make_store", lambda sink: self.store)
        named = {"topic_directory": str(folder / "topic"), "block_s": 0.0, **changes}
        sink = msgspec.structs.replace(SINK, **named)
        self.config = ReplicaConfig(
            service="airports", module="m:m", directory=str(folder), replica="r0", sinks=(sink,)
        )
        self.process = SinkProcess(self.config, sink)

    async def turns(self, until: Callable[[], object]) -> None:
        """Let it work until something is so."""
        for _ in range(TURNS_MAX):
            if until():
                return
            await self.process.turn()
            await asyncio.sleep(0)
        raise AssertionError(f"it never was: {self.process.status()}")

    def play(self, story: Callable[[], Awaitable[None]]) -> None:
        """Run a story with rows 1 to 9."""

        async def whole() -> None:
            (self.folder / "topic").mkdir()
            writer = await written(self.folder / "topic", 1, 9)
            await story()
            await self.process._leave()
            await writer.close()

        asyncio.run(whole())


@pytest.fixture(name="bench")
def bench_of_this_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


def test_rows_are_stored_beside_a_primary_alone(bench: Bench) -> None:
    async def story() -> None:
        for standing in (
            msgspec.structs.replace(PRIMARY, role="standby"),
            msgspec.structs.replace(PRIMARY, outside_held=True),
            msgspec.structs.replace(PRIMARY, service_id=""),
        ):
            bench.process.told(standing)
            for _ in range(5):
                await bench.process.turn()
            assert (bench.process.work, bench.memory.rows) == (None, [])
        bench.process.told(PRIMARY)
        await bench.turns(lambda: bench.memory.tip.next_position == 10)
        assert (bench.memory.epoch, bench.memory.rows) == (3, [*range(1, 10)])
        bench.process.told(msgspec.structs.replace(PRIMARY, role="standby"))
        await bench.process.turn()
        assert bench.process.work is None

    bench.play(story)
    assert TopicReader(bench.folder / "topic").holds()[0].hold is not None


def test_status_tells_what_keeps_it_from_storing_and_stands_in_a_file(bench: Bench) -> None:
    async def story() -> None:
        bench.store.fails = True
        bench.process.told(PRIMARY)
        await bench.turns(lambda: bench.process.status().code)
        status = bench.process.status()
        assert (status.state, status.code, status.errors, status.next) == ("waiting", "DL1020", 1, 10)
        bench.store.fails = False
        await bench.turns(lambda: bench.memory.tip.next_position == 10 and bench.process.status().position == 10)
        status = bench.process.status()
        assert (status.state, status.code, status.lag, status.rows) == ("ready", "", 0, 9)
        assert (status.hold, status.hold_dropped, status.oldest_us) == (10, False, 0)
        kept = read_status(bench.config.directory, "facts")
        assert kept is not None
        assert (kept.state, kept.replica, kept.epoch) == ("ready", "r0", 3)

    bench.play(story)


def test_holds_are_minded_while_the_store_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path, monkeypatch, hold_bytes_max=1)

    async def story() -> None:
        TopicReader(tmp_path / "topic").hold("sink.facts", 1, since="1 0")
        bench.store.hangs = True
        bench.process.told(PRIMARY)
        await bench.turns(lambda: not TopicReader(tmp_path / "topic").holds())
        assert bench.process.status().hold_dropped
        assert bench.process.status().state == "opening"

    bench.play(story)


def test_holds_are_minded_while_rows_are_waited_for(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    found, read = threading.Event(), TopicRows.block

    def block(rows: TopicRows, start: int, end: int, schema: str) -> Block:
        found.wait()  # as for rows that are in no whole block
        return read(rows, start, end, schema)

    async def story() -> None:
        monkeypatch.setattr(TopicRows, "block", block)
        bench.process.told(PRIMARY)
        await bench.turns(lambda: bench.process.status().state == "writing")
        reader = TopicReader(bench.folder / "topic")
        reader.drop_hold("sink.facts")
        await bench.turns(reader.holds)
        assert bench.process.status().state == "writing"
        found.set()
        await bench.turns(lambda: bench.memory.tip.next_position == 10)

    bench.play(story)


def test_later_epoch_claims_the_store_anew_and_a_service_without_rows_waits(bench: Bench) -> None:
    async def story() -> None:
        bench.process.told(PRIMARY)
        await bench.turns(lambda: bench.memory.tip.next_position == 10)
        bench.process.told(msgspec.structs.replace(PRIMARY, epoch=4))
        await bench.turns(lambda: bench.memory.epoch == 4)
        bench.process.told(msgspec.structs.replace(PRIMARY, service_id="f" * 32))
        await bench.process.turn()
        assert bench.process.work is None
        assert bench.process.status().state == "waiting"

    bench.play(story)
    assert bench.memory.rows == [*range(1, 10)]


def test_store_that_was_restored_is_told_and_made_whole_once_it_is_adopted(bench: Bench) -> None:
    async def story() -> None:
        bench.process.told(PRIMARY)
        await bench.turns(lambda: bench.process.status().hold == 10)
        bench.memory.rows = [1, 2, 3]
        bench.memory.tip = msgspec.structs.replace(bench.memory.tip, next_position=4)
        bench.process.told(msgspec.structs.replace(PRIMARY, epoch=4))
        await bench.turns(lambda: bench.process.status().code == "DL3072")
        assert bench.memory.rows == [1, 2, 3], "nothing before an operator has decided"
        await bench.store.adopt(KEY, 1, "restored")
        bench.process.told(msgspec.structs.replace(PRIMARY, epoch=5))
        await bench.turns(lambda: bench.memory.tip.next_position == 10)

    bench.play(story)
    assert bench.memory.rows == [*range(1, 10)]


def test_bug_of_a_store_is_told_by_the_sinks_name_and_tried_again(bench: Bench) -> None:
    async def story() -> None:
        bench.store.write = None  # type: ignore[method-assign,assignment]
        bench.process.told(PRIMARY)
        await bench.turns(lambda: bench.process.status().code)
        assert bench.process.status().code == "DL9001"
        del bench.store.write
        await bench.turns(lambda: bench.memory.tip.next_position == 10)

    bench.play(story)


def test_who_asks_on_the_local_socket_is_told(bench: Bench) -> None:
    async def story() -> None:
        assert await ask_sink(bench.config, "facts") is None
        await bench.process.start()
        other = SinkProcess(bench.config, bench.config.sinks[0])
        with pytest.raises(PortTaken, match="sink facts"):
            await other.start()
        bench.process.told(PRIMARY)
        running = asyncio.ensure_future(bench.process.run())
        told: SinkStatus | None = None
        while told is None or told.position != 10:
            told = await ask_sink(bench.config, "facts")
        assert told.rows == 9
        running.cancel()
        await asyncio.wait([running])

    bench.play(story)


def test_sink_that_the_config_does_not_name_and_unknown_stores_are_refused(bench: Bench) -> None:
    import socket  # noqa: PLC0415 - this test alone

    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(InvalidConfig, match="no sink 'others'") as raised:
        asyncio.run(serve(bench.config, "others", theirs))
    assert "facts" in str(raised.value)


def test_row_that_the_store_refuses_is_kept_by_it_and_the_sink_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, monkeypatch, on_refusal="deadLetter")
    bench.store.bad = 4

    async def story() -> None:
        bench.process.told(PRIMARY)
        await bench.turns(lambda: bench.memory.tip.next_position == 10)
        assert bench.memory.rows == [1, 2, 3, 5, 6, 7, 8, 9]
        assert list(bench.memory.kept) == [4]
        assert bench.process.status().code == ""

    bench.play(story)

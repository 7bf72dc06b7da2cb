"""An operator's decision where a stream goes on: in every shard's log, or it is told that it is not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.unit.deathless.sources.test_host import PRIMARIES, SOURCE, Bench, MemoryLink
from tests.unit.deathless.sources.test_machine import Primary, opened, record, take

from deathless.base.errors import InputRefused, InvalidArgument, PeerUnreachable, StreamFenced
from deathless.codec.streams.packets import StreamHello, StreamRefused
from deathless.codec.wire import PREFIX_BYTES, PacketReader, Type, decode_struct, struct_packet
from deathless.sources import adopting
from deathless.sources.adopting import adopt
from deathless.sources.keys import FINGERPRINT_BYTES, Routing
from deathless.sources.port import Point


class Refusing(Primary):
    """Refuses every hello with a code."""

    def __init__(self, code: str) -> None:
        super().__init__()
        self.code = code

    def answer(self, data: bytes) -> list[tuple[int, bytes]]:
        ((_, body),) = PacketReader(1 << 20).feed(data)
        hello = decode_struct(StreamHello, body)
        told = StreamRefused(hello.source, hello.stream, hello.nonce, self.code, "why", 0)
        return [(Type.STREAM_REFUSED, struct_packet(Type.STREAM_REFUSED, told)[PREFIX_BYTES:])]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(adopting, "ShardLink", MemoryLink)
    return Bench(tmp_path, shards=2)


def decide(bench: Bench, at: str = "7", stream: int = 0) -> Point:
    return asyncio.run(adopt(bench.config, SOURCE, bench.outside.make(SOURCE), stream, at))


def test_all_shards_have_the_mark_behind_what_any_has_taken_in(bench: Bench) -> None:
    shards = [PRIMARIES[0], PRIMARIES[1]]
    take(opened(shards), shards, [record(n) for n in range(10)])
    point = decide(bench)
    assert point.last_id == 16, "as the reader says"
    assert [(each.next_seq, each.marks) for each in shards] == [(18, 1), (18, 1)]
    assert opened(shards, life=2).points() == [Point(16, b""), Point(16, b"")]


def test_mark_that_some_shards_lack_is_one_of_the_source_as_it_is_read(bench: Bench) -> None:
    """Or the source's process would take its key, or limits, for changed: it goes on from the shard that is behind."""
    shards = [PRIMARIES[0], PRIMARIES[1]]
    take(opened(shards), shards, [record(n) for n in range(10)])
    decide(bench)
    limits = bench.config.make_limits()
    routing = Routing(
        SOURCE.key, input_name=SOURCE.input, shards=2,
        key_bytes_max=limits.key_bytes_max, message_bytes_max=limits.message_bytes_max,
    )  # fmt: skip
    assert [each.note[:FINGERPRINT_BYTES] for each in shards] == [routing.fingerprint] * 2


def test_a_stream_that_is_not_there_is_refused(bench: Bench) -> None:
    with pytest.raises(InvalidArgument, match="source rows has no stream 9"):
        decide(bench, stream=9)


@pytest.mark.parametrize(("code", "error"), [(InputRefused.code, InputRefused), (StreamFenced.code, StreamFenced)])
def test_a_shard_that_stands_and_a_process_that_takes_it_back_are_told(
    bench: Bench, code: str, error: type[Exception]
) -> None:
    PRIMARIES[1] = Refusing(code)
    with pytest.raises(error):
        decide(bench)


def test_a_shard_that_does_not_answer_is_told(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adopting, "PATIENCE_S", 0.01)
    PRIMARIES[1] = Refusing("DL1001")
    with pytest.raises(PeerUnreachable):
        decide(bench)

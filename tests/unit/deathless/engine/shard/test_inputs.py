"""Runs of streams with real handlers: effect and id in one, refusals (DL3081) as each stream says, on every replica."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import msgspec
import pytest
from tests.unit.deathless.engine.shard.test_shard import execute, taken

from deathless.base.limits import Limits
from deathless.codec import checkpoint
from deathless.codec.frames import Run
from deathless.codec.messages import Kind, encode, encode_parked
from deathless.codec.peer_messages import RETRY_INPUT, SKIP_INPUT, Order, encode_body, encode_record
from deathless.codec.streams.records import (
    END_SEQ,
    OnRefusal,
    StreamKey,
    StreamOpened,
    encode_input,
    encode_mark,
)
from deathless.core.tables.stream_table import Stream
from deathless.engine.shard.assembly import open_shard
from deathless.engine.shard.shard import Shard
from deathless.execution.author.service import Service
from deathless.execution.turn.context import Context
from deathless.execution.turn.running import Cells

SYSTEM = Run(0, 0, 0, 1)
KEY = StreamKey("flights", 7)
SESSION = 1  # lsn of the first record
Runs = list[tuple[Run, Sequence[bytes]]]


class Board(msgspec.Struct):
    """State of a key."""

    seen: list[int] = []


board = Service("board", state=Board)


@board.handler
def record(state: Board, _ctx: Context, number: int) -> None:
    """Note a number; negative ones are refused."""
    if number < 0:
        raise ValueError("negative")
    state.seen.append(number)


@board.handler
async def later(state: Board, ctx: Context, number: int) -> None:
    """Note a number, wait, and refuse it if it is negative."""
    state.seen.append(number)
    await ctx.timer(after=timedelta(seconds=1))
    if number < 0:
        raise ValueError("negative after all")


def made(on_refusal: OnRefusal = OnRefusal.STOP) -> Shard:
    shard = open_shard(board, Limits(), bytes(16), Cells(bytearray(256)))
    execute(shard, [(SYSTEM, (encode(Kind.STREAM, args=encode_body(StreamOpened(*KEY, bytes(16), on_refusal))),))])
    return shard


def given(number: object, method: bytes = b"record", key: bytes = b"k", note: bytes = b"") -> bytes:
    return encode_input(method, key, msgspec.msgpack.encode({"number": number}), note)


def inputs(first: int, follows: int, *messages: bytes) -> Runs:
    return [(Run(SESSION, first, follows, len(messages)), messages)]


def stream_of(shard: Shard) -> Stream:
    stream = shard.sessions.streams.get(SESSION)
    assert stream is not None
    return stream


def seen(shard: Shard, key: bytes = b"k") -> list[int]:
    data = shard.executor.state().get(key)
    return [] if data is None else msgspec.msgpack.decode(data, type=Board).seen


def test_each_id_has_its_effect_once_and_a_run_that_does_not_follow_none() -> None:
    shard = made()
    execute(shard, inputs(1, 0, given(0), encode_mark(b"n1"), given(2, note=b"n2")))
    assert (seen(shard), stream_of(shard).next_seq, stream_of(shard).note) == ([0, 2], 4, b"n2")
    execute(shard, inputs(3, 2, given(2)))  # it was taken
    execute(shard, inputs(9, 7, given(8)))  # something is missing
    assert (seen(shard), stream_of(shard).next_seq) == ([0, 2], 4)
    done = shard.execute(inputs(9, 3, given(8)))
    assert [each[1:] for each in done.inputs] == [(1, 10, False, True, False)]
    assert not done.plain
    assert seen(shard) == [0, 2, 8]


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (given(-1), "ValueError: negative"),
        (given("much"), "number"),
        (given(1, method=b"nobody"), "nobody"),
        (given(1, key=b"k" * 600), "key"),
        (encode(Kind.FORK, idempotency_key=b"\xc1"), "malformed"),
    ],
)
def test_a_refused_input_stops_its_stream_with_the_reason_and_what_follows_does_not_run(bad: bytes, why: str) -> None:
    shard = made()
    execute(shard, inputs(1, 0, given(0), bad, given(2)))
    stream = stream_of(shard)
    assert stream.stopped is not None
    assert (seen(shard), stream.next_seq, stream.stopped.seq, stream.refused) == ([0], 2, 2, 1)
    assert why in stream.stopped.why
    execute(shard, inputs(3, 2, given(2)))
    execute(shard, [(SYSTEM, (encode_record(Order(SKIP_INPUT, SESSION, 2)),))])
    execute(shard, inputs(3, 2, given(2)))
    assert (seen(shard), stream.next_seq) == ([0, 2], 4)


def test_a_refused_input_that_is_tried_again_may_pass() -> None:
    shard = made()
    execute(shard, inputs(1, 0, given(-1)))
    execute(shard, [(SYSTEM, (encode_record(Order(RETRY_INPUT, SESSION)),))])
    execute(shard, inputs(1, 0, given(1)))
    assert (seen(shard), shard.sessions.streams.refused()) == ([1], [])


@pytest.mark.parametrize("on_refusal", [OnRefusal.DEAD_LETTER, OnRefusal.SKIP])
def test_where_it_may_the_stream_goes_on_behind_a_refused_input(on_refusal: OnRefusal) -> None:
    shard = made(on_refusal)
    execute(shard, inputs(1, 0, given(0), given(-1), given(2)))
    assert (seen(shard), stream_of(shard).next_seq) == ([0, 2], 4)
    [refused] = shard.sessions.streams.refused()
    assert (refused.lsn, refused.seq, refused.why) == (3, 2, "ValueError: negative")
    assert refused.message == (given(-1) if on_refusal is OnRefusal.DEAD_LETTER else b"")


def test_the_end_of_a_stream_runs_its_handler_and_is_remembered() -> None:
    shard = made()
    execute(shard, inputs(1, 0, given(0)))
    execute(shard, inputs(END_SEQ + 2, 1, given(99)))
    assert (seen(shard), stream_of(shard).ended, stream_of(shard).next_seq) == ([0, 99], True, 2)


def test_what_a_handler_refuses_after_it_has_waited_is_listed_and_stops_the_stream() -> None:
    shard = made()
    execute(shard, inputs(1, 0, given(-1, method=b"later"), given(2)))
    assert (seen(shard), stream_of(shard).next_seq) == ([-1], 3), "the second waits for the key"
    execute(shard, [(SYSTEM, (encode_record(Order("kill", 2)),))])
    stopped = stream_of(shard).stopped
    assert stopped is not None
    assert (stopped.seq, stopped.lsn, seen(shard)) == (0, 2, [-1, 2])
    execute(shard, [(SYSTEM, (encode_record(Order(SKIP_INPUT, SESSION, 0)),))])
    assert stream_of(shard).stopped is None
    assert [each.seq for each in shard.sessions.streams.refused()] == [0]


def test_a_parked_input_takes_its_place_if_it_follows() -> None:
    shard = made()
    gap: Runs = [(Run(SESSION, 5, 0, 0), ())]
    execute(shard, [*gap, (SYSTEM, (encode_parked(SESSION, 5, given(1)),))])
    execute(shard, [(SYSTEM, (encode_parked(SESSION, 9, given(1)),))])  # it does not follow
    assert (seen(shard), stream_of(shard).next_seq) == ([], 6)
    assert [each.seq for each in shard.parked] == [5]
    execute(shard, [(SYSTEM, (encode_parked(SESSION, END_SEQ + 6, given(1)),))])
    assert stream_of(shard).ended


def test_a_replica_and_one_that_begins_at_a_checkpoint_hold_the_same() -> None:
    primary, follower = made(OnRefusal.DEAD_LETTER), made(OnRefusal.DEAD_LETTER)
    frames = [
        inputs(1, 0, given(0, note=b"n"), given(-1)),
        inputs(9, 2, encode_mark(), given(9)),
        inputs(END_SEQ + 11, 10, given(99)),
    ]
    for runs in frames[:2]:
        follower.apply(execute(primary, runs))
    assert taken(follower) == taken(primary)
    data = b"".join(checkpoint.encode(taken(follower)))  # type: ignore[arg-type]  # a snapshot
    late = made()
    late.restore(checkpoint.decode(lambda offset, size: data[offset : offset + size]))
    for shard in (follower, late):
        shard.place.chain = primary.place.chain
    last = execute(primary, frames[2])
    for shard in (follower, late):
        shard.apply(last)
        assert taken(shard) == taken(primary)

"""Rows of a stream reach the input that they are for, and nobody else reaches it; one that does not fit is refused."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import msgspec
import pytest
from tests.unit.deathless.engine.shard.test_shard import execute

from deathless.base.errors import HandlerFailed, InputUnreadable, UnknownHandler
from deathless.base.limits import Limits
from deathless.codec.frames import Run
from deathless.codec.messages import Kind, decode, encode, encode_parked, encode_register
from deathless.codec.peer_messages import Order, encode_body, encode_record
from deathless.codec.streams.records import OnRefusal, StreamKey, StreamOpened
from deathless.codec.streams.rows import decode_row, encode_row
from deathless.core.tables.stream_table import Stream
from deathless.engine.shard.assembly import open_shard
from deathless.engine.shard.shard import Shard
from deathless.execution.author.service import Service
from deathless.execution.turn.context import Context
from deathless.execution.turn.running import Cells

SYSTEM = Run(0, 0, 0, 1)
KEY = StreamKey("flights", 0)
SESSION = 1  # lsn of the first record


class Board(msgspec.Struct):
    seen: list[int] = []


class Seen(msgspec.Struct):
    number: int


board = Service("board", state=Board)


@board.input("numbers")
def record(state: Board, _ctx: Context, row: Seen) -> None:
    """Note a number; negative ones are refused."""
    if row.number < 0:
        raise ValueError("negative")
    state.seen.append(row.number)


@board.input("slow")
async def slow(state: Board, ctx: Context, row: Seen) -> None:
    """Note a number, a second later."""
    await ctx.timer(after=timedelta(seconds=1))
    state.seen.append(row.number)


def made(on_refusal: OnRefusal = OnRefusal.STOP) -> Shard:
    shard = open_shard(board, Limits(), bytes(16), Cells(bytearray(256)))
    execute(shard, [(SYSTEM, (encode(Kind.STREAM, args=encode_body(StreamOpened(*KEY, bytes(16), on_refusal))),))])
    return shard


def rows(first: int, *messages: bytes) -> list[tuple[Run, Sequence[bytes]]]:
    return [(Run(SESSION, first, first - 1, len(messages)), messages)]


def row(number: object, name: str = "numbers", why: str = "") -> bytes:
    return encode_row(name, b"k", msgspec.json.encode({"number": number}), why=why)


def stream_of(shard: Shard) -> Stream:
    stream = shard.sessions.streams.get(SESSION)
    assert stream is not None
    return stream


def seen(shard: Shard) -> list[int]:
    taken = shard.snapshot(service="s", service_id=bytes(16), incarnation=1, epoch=1, fingerprint=b"f")
    state = dict(taken.state).get(b"k")
    return msgspec.msgpack.decode(state, type=Board).seen if state else []


def test_rows_run_in_order_each_once() -> None:
    shard = made()
    execute(shard, rows(1, row(4), row(5)))
    execute(shard, rows(1, row(4), row(5)))
    assert seen(shard) == [4, 5]
    assert stream_of(shard).next_seq == 3


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (row("x"), InputUnreadable.code),
        (row(1, why="too long"), InputUnreadable.code),
        (row(1, name="others"), UnknownHandler.code),
        (row(-1), HandlerFailed.code),
    ],
)
def test_a_row_that_is_refused_stands_and_changes_nothing(message: bytes, code: str) -> None:
    shard = made()
    execute(shard, rows(1, row(4), message, row(6)))
    stopped = stream_of(shard).stopped
    assert stopped is not None
    assert (stopped.seq, stopped.code) == (2, code)
    assert seen(shard) == [4]


def test_a_dead_letter_holds_the_row_as_it_stood_outside() -> None:
    shard = made(OnRefusal.DEAD_LETTER)
    execute(shard, rows(1, encode_row("numbers", b"k", b"{no json"), row(6)))
    (letter,) = shard.sessions.streams.refused()
    assert decode_row(decode(letter.message).args).row == b"{no json"
    assert seen(shard) == [6]


def test_a_row_that_does_not_fit_is_refused_before_it_waits_for_its_key() -> None:
    shard = made()
    execute(shard, rows(1, row(4, "slow"), row("x")))
    stopped = stream_of(shard).stopped
    assert stopped is not None
    assert (stopped.seq, stopped.code) == (2, InputUnreadable.code)
    execute(shard, [(SYSTEM, (encode_record(Order("retry-input", SESSION, 0)),))])
    execute(shard, rows(2, row(5)))
    assert seen(shard) == []  # it fits, and waits
    assert stream_of(shard).next_seq == 3


def test_nobody_but_a_stream_reaches_an_input() -> None:
    shard = made()
    execute(shard, [(SYSTEM, (encode_register(bytes(16)),))])
    call = encode(Kind.CALL, method=b"input:numbers", key=b"k", args=decode(row(4)).args)
    done = shard.execute([(Run(2, 1, 0, 1), (call,))])
    assert seen(shard) == []
    assert UnknownHandler.code in str(done.results)


def test_a_row_that_was_set_aside_may_be_run_again() -> None:
    shard = made()
    execute(shard, [(SYSTEM, (encode_parked(SESSION, 1, row(4)),))])
    assert seen(shard) == []
    execute(shard, [(SYSTEM, (encode_record(Order("retry", 2, 0)),))])
    assert seen(shard) == [4]

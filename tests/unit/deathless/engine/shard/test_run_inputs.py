"""Refused inputs run again by a logged order, each once (DL3076); streams are forgotten (DL3077); replicas agree."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from tests.unit.deathless.engine.shard.test_inputs import KEY, SESSION, SYSTEM, given, inputs, made, seen, stream_of
from tests.unit.deathless.engine.shard.test_shard import execute, taken

from deathless.base.errors import InputNotKept, StreamNotForgotten
from deathless.base.limits import Limits
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.codec import checkpoint
from deathless.codec.frames import Frame
from deathless.codec.messages import Kind, encode
from deathless.codec.peer_messages import (
    DROP_INPUT,
    FORGET_STREAM,
    RUN_INPUT,
    SKIP_INPUT,
    Order,
    Retried,
    encode_body,
    encode_record,
)
from deathless.codec.streams.records import OnRefusal, StreamOpened
from deathless.codec.wire import ReplyError, decode_struct
from deathless.core.tables.stream_table import StreamTable
from deathless.engine.shard.assembly import open_shard
from deathless.engine.shard.shard import Shard
from deathless.execution.author.service import Service
from deathless.execution.turn.context import Context
from deathless.execution.turn.running import Cells


class Gate(msgspec.Struct):
    """State of a key."""

    open: bool = False
    seen: list[int] = []


gates = Service("gates", state=Gate)


@gates.handler
def record(state: Gate, _ctx: Context, number: int) -> None:
    """Note a number, once the gate is open; 0 opens it."""
    state.open = state.open or not number
    if not state.open:
        raise ValueError("it is closed")
    state.seen.append(number)


def gated(on_refusal: OnRefusal = OnRefusal.DEAD_LETTER, safeguards: Safeguards = ALL_SAFEGUARDS) -> Shard:
    """Give a shard whose stream has brought 5 and 6, which were refused, and 0."""
    shard = open_shard(gates, Limits(), bytes(16), Cells(bytearray(256)), safeguards=safeguards)
    execute(shard, [(SYSTEM, (encode(Kind.STREAM, args=encode_body(StreamOpened(*KEY, bytes(16), on_refusal))),))])
    execute(shard, inputs(1, 0, given(5), given(6), given(0)))
    return shard


def ordered(shard: Shard, lsn: int, command: str = RUN_INPUT) -> tuple[Frame, Retried]:
    frame = execute(shard, [(SYSTEM, (encode_record(Order(command, lsn)),))])
    return frame, shard.take_retried(lsn)


def numbers(shard: Shard) -> list[int]:
    return msgspec.msgpack.decode(shard.executor.state()[b"k"], type=Gate).seen


def code_of(told: Retried) -> str:
    assert told.invocation == 0
    return decode_struct(ReplyError, told.reason[1:]).code


def why_of(told: Retried) -> str:
    assert told.invocation == 0
    error = decode_struct(ReplyError, told.reason[1:])
    assert error.code == StreamNotForgotten.code
    return error.text


def lsns(shard: Shard) -> list[int]:
    return [each.lsn for each in shard.sessions.streams.refused()]


def test_a_dead_letter_that_is_run_again_has_its_effect_once_and_is_listed_no_more() -> None:
    shard = gated()
    assert (numbers(shard), lsns(shard)) == ([0], [2, 3])
    _, told = ordered(shard, 3)
    assert told == Retried(shard.place.lsn)
    assert (numbers(shard), lsns(shard), stream_of(shard).next_seq) == ([0, 6], [2], 4)
    assert code_of(ordered(shard, 3)[1]) == InputNotKept.code
    assert numbers(shard) == [0, 6]
    shard.sessions.streams.check_invariants()


def test_without_the_safeguard_it_has_its_effect_again() -> None:
    shard = gated(safeguards=replace(ALL_SAFEGUARDS, run_input_once=False))
    ordered(shard, 3)
    ordered(shard, 3)
    assert numbers(shard) == [0, 6, 6]


def test_one_that_is_refused_again_stays_with_the_reason_of_now() -> None:
    shard = made(OnRefusal.DEAD_LETTER)
    execute(shard, inputs(1, 0, given(-1), given(1)))
    before = shard.sessions.streams.refused()[0]
    execute(shard, [(SYSTEM, (encode(Kind.TIME, args=(7).to_bytes(8, "little")),))])
    _, told = ordered(shard, before.lsn)
    assert "negative" in decode_struct(ReplyError, told.reason[1:]).text
    [now] = shard.sessions.streams.refused()
    assert (now.lsn, now.seq, now.message, now.at_us) == (before.lsn, before.seq, before.message, 7)
    assert (seen(shard), stream_of(shard).refused, stream_of(shard).stopped) == ([1], 1, None)
    shard.sessions.streams.check_invariants()


def test_what_a_handler_refuses_after_it_has_waited_again_is_listed_as_such() -> None:
    shard = made(OnRefusal.DEAD_LETTER)
    execute(shard, inputs(1, 0, given("much", method=b"later")))
    [record_of] = shard.sessions.streams.refused()
    mended = msgspec.structs.replace(record_of, message=given(-1, method=b"later"))
    shard.sessions.streams.restore(shard.sessions.streams.snapshot()[0], [mended])
    _, told = ordered(shard, record_of.lsn)
    assert (seen(shard), lsns(shard)) == ([-1], []), "it was taken in, and waits"
    execute(shard, [(SYSTEM, (encode_record(Order("kill", told.invocation)),))])
    [late] = shard.sessions.streams.refused()
    assert (late.lsn, late.seq, late.message) == (told.invocation, 0, b"")


@pytest.mark.parametrize("lsn", [0, 1, 4, 77])
def test_what_is_not_listed_is_not_run(lsn: int) -> None:
    shard = gated()
    assert code_of(ordered(shard, lsn)[1]) == InputNotKept.code
    assert (numbers(shard), lsns(shard)) == ([0], [2, 3])


def test_of_what_was_passed_over_the_reason_alone_is_kept_so_it_can_only_be_discarded() -> None:
    shard = gated(OnRefusal.SKIP)
    assert code_of(ordered(shard, 2)[1]) == InputNotKept.code
    assert ordered(shard, 2, DROP_INPUT)[1] == Retried(2)
    assert code_of(ordered(shard, 2, DROP_INPUT)[1]) == InputNotKept.code
    assert (numbers(shard), lsns(shard)) == ([0], [3])


def test_replicas_and_one_that_begins_at_a_checkpoint_run_it_alike() -> None:
    primary, follower = gated(), gated()
    data = b"".join(checkpoint.encode(taken(primary)))  # type: ignore[arg-type]  # a snapshot
    late = gated()
    late.restore(checkpoint.decode(lambda offset, size: data[offset : offset + size]))
    frames = [ordered(primary, 2)[0], ordered(primary, 2)[0], ordered(primary, 3, DROP_INPUT)[0]]
    for frame in frames:
        for shard in (follower, late):
            shard.apply(frame)
    assert taken(follower) == taken(primary) == taken(late)
    assert (numbers(late), lsns(late)) == ([0, 5], [])


def test_a_reason_that_differs_is_a_divergence_of_the_frame() -> None:
    one, other = made(OnRefusal.DEAD_LETTER), made(OnRefusal.DEAD_LETTER)
    execute(one, inputs(1, 0, given(-1)))
    execute(other, inputs(1, 0, given(-1)))
    [record_of] = other.sessions.streams.refused()
    mended = msgspec.structs.replace(record_of, message=given("much"))
    other.sessions.streams.restore(other.sessions.streams.snapshot()[0], [mended])
    frames = [ordered(shard, record_of.lsn)[0] for shard in (one, other)]
    assert frames[0].payload != frames[1].payload


def test_an_empty_table_lists_nothing() -> None:
    assert StreamTable().listed(1) is None


def test_a_stream_is_forgotten_once_nothing_of_it_is_kept_or_under_way() -> None:
    shard = gated()
    assert "are kept" in why_of(ordered(shard, SESSION, FORGET_STREAM)[1])
    for lsn in lsns(shard):
        ordered(shard, lsn, DROP_INPUT)
    assert ordered(shard, SESSION, FORGET_STREAM)[1] == Retried(SESSION)
    assert shard.sessions.streams.find(KEY) is None
    assert "no stream" in why_of(ordered(shard, SESSION, FORGET_STREAM)[1])
    execute(shard, inputs(4, 3, given(9)))  # of who does not know yet
    assert numbers(shard) == [0]


def test_a_stream_whose_input_waits_is_not_forgotten() -> None:
    shard = made()
    execute(shard, inputs(1, 0, given(1, method=b"later")))
    assert "are under way" in why_of(ordered(shard, SESSION, FORGET_STREAM)[1])
    execute(shard, [(SYSTEM, (encode_record(Order("kill", 2)),))])
    execute(shard, [(SYSTEM, (encode_record(Order(SKIP_INPUT, SESSION, 0)),))])
    assert ordered(shard, SESSION, FORGET_STREAM)[1] == Retried(SESSION)


def test_replicas_forget_alike_and_a_checkpoint_has_nothing_of_it() -> None:
    primary, follower = made(), made()
    frames = [execute(primary, inputs(1, 0, given(1))), ordered(primary, SESSION, FORGET_STREAM)[0]]
    for frame in frames:
        follower.apply(frame)
    assert taken(follower) == taken(primary)
    assert primary.sessions.streams.snapshot() == ([], [])

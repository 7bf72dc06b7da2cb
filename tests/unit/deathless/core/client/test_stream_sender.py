"""A stream at its source's end, joined to a primary that is played: what is offered arrives once, in order."""

from __future__ import annotations

from deathless.base.errors import OutOfSpace, StreamFenced
from deathless.codec.streams.packets import (
    StreamCommit,
    StreamHello,
    StreamRefused,
    StreamWelcome,
    decode_stream_batch,
)
from deathless.codec.streams.records import END_SEQ, StreamKey, encode_mark, seq_of
from deathless.codec.wire import PacketReader, Type, decode_struct
from deathless.core.client.stream_sender import State, StreamSender

KEY = StreamKey("flights", 7)
NONCE = b"a" * 16


def welcome(next_seq: int = 1, *, ended: bool = False, nonce: bytes = NONCE, term: int = 1) -> StreamWelcome:
    return StreamWelcome(*KEY, nonce, 5, term, next_seq, ended, b"n")


def opened(next_seq: int = 1, *, ended: bool = False) -> StreamSender:
    sender = StreamSender(KEY, NONCE)
    sender.hello()
    sender.welcomed(welcome(next_seq, ended=ended))
    return sender


def batches(sender: StreamSender, now: float = 0.0) -> list[tuple[int, int, int, int]]:
    """(first seq, what it follows, count, term) of each batch that is sent now."""
    found = []
    for data in sender.packets(now):
        [(kind, body)] = PacketReader(1 << 20).feed(data)
        assert kind == Type.STREAM_BATCH
        (run, _, _), term = decode_stream_batch(body)
        assert run.session == 5
        found.append((run.first_seq, run.acked, run.count, term))
    return found


def refused(code: str, wait_ms: int = -1, from_seq: int = 0) -> StreamRefused:
    return StreamRefused(*KEY, NONCE, code, "why", wait_ms, from_seq)


def hello_of(sender: StreamSender) -> StreamHello:
    [(kind, body)] = PacketReader(1 << 20).feed(sender.hello())
    assert kind == Type.STREAM_HELLO
    return decode_struct(StreamHello, body)


def test_ids_without_a_gap_go_in_one_batch_and_each_batch_says_what_it_follows() -> None:
    sender = opened()
    assert (sender.next_id, sender.ended, sender.note) == (0, False, b"n")
    for number in (3, 4, 9):
        sender.offer(number, encode_mark())
    sender.offer_end(encode_mark())
    assert batches(sender) == [(4, 0, 2, 1), (10, 5, 1, 1), (END_SEQ + 11, 10, 1, 1)]
    assert batches(sender) == []


def test_the_first_hello_takes_the_stream_and_later_ones_resume_it() -> None:
    sender = StreamSender(KEY, NONCE)
    assert not hello_of(sender).resume
    sender.lost()
    assert not hello_of(sender).resume, "nobody has said that it has it"
    sender.welcomed(welcome(nonce=b"b" * 16))
    assert sender.state is State.OPENING
    sender.welcomed(welcome())
    sender.lost()
    assert hello_of(sender).resume


def test_what_is_not_committed_is_sent_again_on_the_next_connection() -> None:
    sender = opened()
    for number in (0, 1, 2):
        sender.offer(number, encode_mark())
    batches(sender)
    sender.committed(StreamCommit(5, seq_of(1), ended=False))
    sender.lost()
    sender.hello()
    sender.welcomed(welcome(seq_of(2), term=2))
    assert batches(sender) == [(3, 2, 1, 2)]
    sender.committed(StreamCommit(5, seq_of(3), ended=False))
    assert len(sender) == 0


def test_an_end_is_sent_until_it_is_committed_as_such() -> None:
    sender = opened()
    sender.offer(0, encode_mark())
    sender.offer_end(encode_mark())
    batches(sender)
    sender.committed(StreamCommit(5, seq_of(1), ended=False))
    assert len(sender) == 1
    sender.lost()
    sender.hello()
    sender.welcomed(welcome(seq_of(1), ended=True))
    assert (len(sender), sender.ended, sender.next_id) == (0, True, 1)


def test_what_was_not_admitted_is_sent_again_from_there_after_a_while() -> None:
    sender = opened()
    for number in (0, 1):
        sender.offer(number, encode_mark())
        assert len(batches(sender)) == 1
    sender.offer_end(encode_mark())
    assert sender.refused(refused(OutOfSpace.code, 500, seq_of(1)), now=10.0) is None
    assert (batches(sender, 10.4), sender.deadline(10.4)) == ([], 10.5)
    assert batches(sender, 10.5) == [(2, 1, 1, 1), (END_SEQ + 3, 2, 1, 1)]
    assert sender.deadline(10.5) is None
    sender.refused(refused(OutOfSpace.code, 500, seq_of(2)), now=11.0)
    assert batches(sender, 12.0) == [(END_SEQ + 3, 2, 1, 1)]


def test_a_fenced_sender_never_opens_the_stream_again() -> None:
    sender = opened()
    assert sender.refused(refused(StreamFenced.code), now=0.0) is None
    sender.lost()
    assert sender.state is State.FENCED
    assert sender.why == f"{StreamFenced.code} why"


def test_a_refusal_of_a_hello_says_when_to_open_the_stream_again() -> None:
    sender = StreamSender(KEY, NONCE)
    assert sender.refused(refused("DL1001", 50), now=0.0) is None, "it asked for nothing"
    sender.hello()
    assert sender.refused(StreamRefused(*KEY, b"b" * 16, "DL1001", "", 50), now=0.0) is None, "another's"
    assert sender.refused(refused("DL1001", 50), now=0.0) == 0.05
    assert sender.state is State.CLOSED


def test_where_another_life_of_it_was_the_offer_begins_where_that_one_ended() -> None:
    sender = opened(seq_of(40), ended=True)
    assert (sender.next_id, sender.ended) == (40, True)
    sender.offer(44, encode_mark())
    assert (sender.ended, batches(sender)) == (False, [(45, 40, 1, 1)])


def test_what_was_refused_for_a_while_is_told_until_something_is_taken_in() -> None:
    sender = opened()
    sender.offer(0, encode_mark())
    sender.packets(0.0)
    sender.refused(refused(OutOfSpace.code, wait_ms=10, from_seq=1), 0.0)
    assert sender.why.startswith(OutOfSpace.code)
    sender.committed(StreamCommit(5, 2, ended=False))
    assert sender.why == ""


def test_what_is_known_to_be_taken_in_is_behind_nothing_that_is_offered() -> None:
    assert StreamSender(KEY, NONCE).committed_id == -1
    sender = opened(next_seq=5)
    assert sender.committed_id == 3
    for number in (7, 9):
        sender.offer(number, encode_mark())
    assert sender.committed_id == 3
    sender.committed(StreamCommit(5, seq_of(7) + 1, ended=False))
    assert sender.committed_id == 7
    sender.committed(StreamCommit(5, seq_of(9) + 1, ended=False))
    assert sender.committed_id == 9

"""A partition on its way into shards: each record once and in order at the shard of its key, whatever is lost when.

The primaries are played by the smallest thing that keeps their promise: ids that follow are taken in, others are not.
"""

from __future__ import annotations

import random

import msgspec
import pytest

from deathless.base.errors import InputRefused, SourceKeyChanged, StreamFenced
from deathless.base.shards import shard_of
from deathless.codec.messages import Kind, decode
from deathless.codec.streams.packets import (
    StreamCommit,
    StreamHello,
    StreamRefused,
    StreamWelcome,
    decode_stream_batch,
)
from deathless.codec.streams.records import OnRefusal, note_of
from deathless.codec.streams.rows import decode_row
from deathless.codec.wire import PREFIX_BYTES, PacketReader, Type, decode_struct, struct_packet
from deathless.core.client.stream_connection import AGAIN_S
from deathless.core.primary.admission import cut_messages
from deathless.sources.keys import FINGERPRINT_BYTES, Routing
from deathless.sources.machine import MARK_IDS, MARK_S, WINDOW_MESSAGES, PartitionMachine, State
from deathless.sources.port import Batch, Partition, Point, Record

KEYS = [f"k{at}" for at in range(8)]
NOTES = (b"first file", b"second file")


def routing(shards: int, key: str = "value.key") -> Routing:
    return Routing(key, input_name="rows", shards=shards, key_bytes_max=99, message_bytes_max=1 << 20)


def record(number: int, key: str | None = None) -> Record:
    value = msgspec.json.encode({"key": key or KEYS[number * 7 % 8], "number": number})
    return Record(number, value, note=NOTES[number >= 50])


class Primary:
    """One shard's: takes in what follows, and says so when it is asked to."""

    def __init__(self) -> None:
        self.next_seq = 1
        self.note = b""
        self.nonce = b""
        self.taken: list[int] = []  # numbers of rows
        self.marks = 0

    def answer(self, data: bytes) -> list[tuple[int, bytes]]:
        """Give the packets that are answered."""
        found: list[tuple[Type, msgspec.Struct]] = []
        for kind, body in PacketReader(1 << 20).feed(data):
            if kind == Type.STREAM_HELLO:
                hello = decode_struct(StreamHello, body)
                if hello.resume and hello.nonce != self.nonce:
                    refused = StreamRefused(hello.source, hello.stream, hello.nonce, StreamFenced.code, "taken", -1)
                    found.append((Type.STREAM_REFUSED, refused))
                    continue
                self.nonce = hello.nonce
                welcome = StreamWelcome(
                    hello.source, hello.stream, hello.nonce, 5, 1, self.next_seq, ended=False, note=self.note
                )
                found.append((Type.STREAM_WELCOME, welcome))
            else:
                self._take(body)
                found.append((Type.STREAM_COMMIT, StreamCommit(5, self.next_seq, ended=False)))
        return [(kind, struct_packet(kind, told)[PREFIX_BYTES:]) for kind, told in found]

    def _take(self, body: bytes) -> None:
        batch = decode_stream_batch(body).batch
        run = batch.run
        if run.acked + 1 > self.next_seq:
            return
        for seq, message in enumerate(cut_messages(batch), run.first_seq):
            if seq < self.next_seq:
                continue
            self.next_seq = seq + 1
            self.note = note_of(message) or self.note
            if message[0] == Kind.MARK:
                self.marks += 1
            else:
                self.taken.append(msgspec.json.decode(decode_row(decode(message).args).row)["number"])


def machine(shards: int, key: str = "value.key", life: int = 0) -> PartitionMachine:
    nonces = [bytes([life]) * 16 for _ in range(shards)]
    return PartitionMachine("rows", Partition(0, "rows"), routing(shards, key), nonces, OnRefusal.STOP)


def connect(of: PartitionMachine, primaries: list[Primary], shard: int, now: float = 0.0) -> None:
    deliver(of, primaries, shard, of.connected(shard), now)


def deliver(of: PartitionMachine, primaries: list[Primary], shard: int, packets: list[bytes], now: float = 0.0) -> None:
    """What is sent arrives and is answered, until nothing more is said."""
    while packets:
        data = packets.pop(0)
        for kind, body in primaries[shard].answer(data):
            packets += of.received(shard, kind, body, now)


def take(of: PartitionMachine, primaries: list[Primary], records: list[Record], now: float = 0.0) -> None:
    last = records[-1]
    of.take(Batch(records, last.id, last.note, end=100), now)
    for shard, packets in of.due(now):
        deliver(of, primaries, shard, packets, now)
    of.check_invariants()


def opened(primaries: list[Primary], key: str = "value.key", life: int = 0) -> PartitionMachine:
    of = machine(len(primaries), key, life)
    for shard in range(len(primaries)):
        connect(of, primaries, shard)
    assert of.state is State.READING
    return of


def whole(primaries: list[Primary], count: int) -> None:
    """Each row is at the shard of its key, once and in order."""
    for shard, primary in enumerate(primaries):
        mine = [n for n in range(count) if shard_of(KEYS[n * 7 % 8].encode(), len(primaries)) == shard]
        assert primary.taken == mine


def test_records_go_to_the_shards_of_their_keys_with_the_note_where_it_changes() -> None:
    primaries = [Primary(), Primary()]
    of = opened(primaries)
    assert of.points() == [Point(-1, b""), Point(-1, b"")]
    take(of, primaries, [record(n) for n in range(100)])
    whole(primaries, 100)
    assert (of.rows, of.end) == (100, 100)
    assert {primary.note[FINGERPRINT_BYTES:] for primary in primaries} == {NOTES[1]}
    assert of.taken_in == min(each.taken_in for each in of.views()) >= 90


def test_shards_without_records_get_a_mark_after_a_while_and_then_all_are_equally_far() -> None:
    primaries = [Primary(), Primary(), Primary()]
    of = opened(primaries)
    take(of, primaries, [record(n, "k0") for n in range(10)])
    assert of.taken_in == -1
    at = of.deadline(0.0)
    assert at == MARK_S
    for shard, packets in of.due(MARK_S):
        deliver(of, primaries, shard, packets, MARK_S)
    assert (of.taken_in, [each.marks for each in primaries].count(1)) == (9, 2)
    assert of.deadline(MARK_S) is None
    take(of, primaries, [record(10 + MARK_IDS, "k0")], MARK_S)
    assert of.taken_in == 10 + MARK_IDS, "so far behind that nobody waits"


@pytest.mark.parametrize("seed", range(30))
def test_whatever_is_lost_and_killed_each_record_is_taken_in_once(seed: int) -> None:
    chance = random.Random(seed)
    primaries = [Primary() for _ in range(chance.choice((1, 2, 3)))]
    of = opened(primaries)
    at, life = of.points()[0].last_id + 1, 0
    while of.taken_in < 99 or at < 100:
        what = chance.random()
        shard = chance.randrange(len(primaries))
        if what < 0.1:  # another process: all that this one knew is gone
            life += 1
            of = opened(primaries, life=life)
            at = of.points()[0].last_id + 1
        elif what < 0.3:
            of.lost(shard)
        elif what < 0.5:
            connect(of, primaries, shard)
        elif what < 0.6:  # reading failed, and is begun again
            at = of.points()[0].last_id + 1 if of.state is State.READING else at
        elif at < 100 and of.room:
            records = [record(n) for n in range(at, min(100, at + chance.randrange(1, 9)))]
            of.take(Batch(records, records[-1].id, records[-1].note), float(life))
            at = records[-1].id + 1
        for sent_to, packets in of.due(1e9):
            lost = chance.random() < 0.2
            deliver(of, primaries, sent_to, packets[: chance.randrange(len(packets) + 1)] if lost else packets)
            if lost:
                of.lost(sent_to)
        of.check_invariants()
    whole(primaries, 100)


def test_what_another_shard_lacks_is_not_read_by_another_key() -> None:
    primaries = [Primary(), Primary()]
    of = opened(primaries)
    take(of, primaries, [record(n) for n in range(10)])
    primaries[0].next_seq -= 2  # it never got the last rows
    assert min(each.next_seq for each in primaries) != max(each.next_seq for each in primaries)
    with pytest.raises(SourceKeyChanged, match="stream rows/0: key, or limits, were changed"):
        opened(primaries, "value.number", 1).points()
    opened(primaries, "value.key", 2).points()
    primaries[0].next_seq = primaries[1].next_seq = 11  # all are equally far
    assert opened(primaries, "value.number", 3).points()[0].last_id == 9


def test_after_a_change_of_the_key_the_shards_that_are_least_far_may_still_know_the_former_one() -> None:
    primaries = [Primary(), Primary()]
    take(opened(primaries), primaries, [record(n) for n in range(10)])
    primaries[0].next_seq = primaries[1].next_seq = 11
    of = opened(primaries, "value.number", 1)
    of.points()
    take(of, primaries, [record(10)])  # one shard has it, and the new fingerprint
    assert opened(primaries, "value.number", 2).points()[0].last_id == 9
    with pytest.raises(SourceKeyChanged):
        opened(primaries, "value.key", 3).points()


def test_with_too_much_under_way_nothing_is_read() -> None:
    of = opened([Primary()])
    of.points()
    assert of.room == 1024
    of.take(Batch([record(n) for n in range(WINDOW_MESSAGES)], WINDOW_MESSAGES - 1, b""), 0.0)
    assert of.room == 0
    of.check_invariants()


def refusal(code: str, nonce: bytes, wait_ms: int, *, stream: int = 0) -> tuple[int, bytes]:
    told = StreamRefused("rows", stream, nonce, code, "why", wait_ms)
    return Type.STREAM_REFUSED, struct_packet(Type.STREAM_REFUSED, told)[PREFIX_BYTES:]


def test_a_stream_that_stands_is_opened_again_and_one_that_was_taken_is_not() -> None:
    primaries = [Primary()]
    of = opened(primaries)
    of.received(0, *refusal("DL9999", bytes(16), 1000, stream=3), 0.0)  # another partition's
    assert of.views()[0].problem == ""
    of.received(0, *refusal(InputRefused.code, bytes(16), 1000), 5.0)
    assert of.views()[0].problem.startswith(InputRefused.code)
    assert (of.deadline(5.0), list(of.due(5.5))) == (6.0, [])
    for shard, packets in of.due(6.0):
        deliver(of, primaries, shard, packets, 6.0)
    assert of.views()[0].problem == ""
    of.received(0, *refusal("DL3005", bytes(16), -1), 6.0)  # for good: it is asked all the same, and not at once
    assert of.deadline(6.0) == 6.0 + AGAIN_S
    primaries[0].nonce = b"another's"
    of.lost(0)
    connect(of, primaries, 0)
    assert (of.state, of.room) == (State.FENCED, 0)

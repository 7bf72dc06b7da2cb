"""A stream that a client has: what its connection is told, once and when it is true of all shards."""

from __future__ import annotations

import pytest
from tests.unit.deathless.sources.gate.gate_world import Primary, S

from deathless.base.errors import InvalidArgument, ServiceRolledBack, SourceKeyChanged
from deathless.codec.streams.records import ID_MAX, OnRefusal
from deathless.protocols.connector.frames import Message, MessageId
from deathless.protocols.connector.source_events import (
    EndConfirmed,
    MessagesConfirmed,
    MessagesSettled,
    StreamAdmitted,
    StreamFenced,
)
from deathless.sources.gate.held import HeldStream
from deathless.sources.keys import Routing
from deathless.sources.machine import MARK_S, PartitionMachine
from deathless.sources.port import NOTE_BYTES_MAX, Partition


class Bench:
    """One stream, its shards, and how to get to them."""

    def __init__(
        self, shards: int = 1, *, nonce: int = 1, key: str = "key", primaries: list[Primary] | None = None
    ) -> None:
        self.primaries = primaries or [Primary() for _ in range(shards)]
        shards = len(self.primaries)
        routing = Routing(key, input_name="rows", shards=shards, key_bytes_max=99, message_bytes_max=1 << 20)
        nonces = [bytes([nonce]) * 16] * shards
        machine = PartitionMachine("lines", Partition(S, "flights"), routing, nonces, OnRefusal.STOP)
        self.held = HeldStream(machine, 1, b"n" * 100)
        for shard in range(shards):
            self.deliver(shard, machine.connected(shard))

    def deliver(self, shard: int, packets: list[bytes], now: float = 0.0) -> None:
        while packets:
            for kind, body in self.primaries[shard].answer(packets.pop(0)):
                packets += self.held.received(shard, kind, body, now)

    def send(self, *numbers: int, now: float = 0.0) -> None:
        self.held.take([Message(S, MessageId(n), 0, b"k%d" % (n % 5), b"%d" % n) for n in numbers], now)
        self.due(now)

    def due(self, now: float) -> None:
        for shard, packets in self.held.machine.due(now):
            self.deliver(shard, packets, now)


def test_it_is_admitted_once_every_shard_has_said_how_far_it_is() -> None:
    bench = Bench(2)
    assert bench.held.state == "opening"
    assert bench.held.news() == [StreamAdmitted(stream=S, last=None)]
    assert (bench.held.news(), bench.held.state) == ([], "open")


def test_messages_are_settled_by_their_shard_and_confirmed_by_all() -> None:
    bench = Bench(2)
    bench.held.news()
    bench.send(1)  # of one shard: the other one does not know of it yet
    assert bench.held.news() == [MessagesSettled(stream=S, through=MessageId(1))]
    bench.due(MARK_S)
    assert bench.held.news() == [MessagesConfirmed(stream=S, through=MessageId(1))]
    assert bench.held.news() == []


def test_an_end_is_confirmed_once_every_shard_has_it() -> None:
    bench = Bench(2)
    bench.held.news()
    bench.send(*range(6))
    bench.primaries[1].silent = True
    bench.held.end()
    bench.due(0.0)
    assert EndConfirmed(stream=S) not in bench.held.news()
    assert bench.held.state == "ending"
    bench.primaries[1].silent = False
    bench.held.machine.lost(1)
    bench.deliver(1, bench.held.machine.connected(1))
    assert bench.held.news()[-1] == EndConfirmed(stream=S)
    assert bench.held.over


def test_a_fenced_stream_says_so_once() -> None:
    bench = Bench()
    bench.held.news()
    Bench(nonce=2, primaries=bench.primaries)
    bench.held.machine.lost(0)
    bench.deliver(0, bench.held.machine.connected(0))
    assert bench.held.news() == [StreamFenced(stream=S)]
    assert bench.held.news() == []


def test_a_shard_that_lacks_what_it_had_confirmed_is_no_loss() -> None:
    bench = Bench()
    bench.held.news()
    bench.send(0, 1, 2)
    bench.primaries[0].logs[S].next_seq = 2
    bench.held.machine.lost(0)
    with pytest.raises(ServiceRolledBack, match="had confirmed message 2, and knows 0"):
        bench.deliver(0, bench.held.machine.connected(0))


def test_another_key_while_shards_are_not_equally_far_is_refused() -> None:
    bench = Bench(2)
    bench.held.news()
    bench.send(1)
    with pytest.raises(SourceKeyChanged):
        Bench(nonce=2, key="value.key", primaries=bench.primaries).held.news()


def test_ids_that_came_and_ids_that_can_not_be_are_not_sent() -> None:
    bench = Bench()
    bench.held.news()
    bench.send(3, 3, 1, 4)
    with pytest.raises(InvalidArgument):
        bench.send(5, ID_MAX + 1, 6)
    bench.due(0.0)
    assert bench.primaries[0].logs[S].taken == ["3", "4", "5"]
    assert len(bench.primaries[0].logs[S].note) == 8 + NOTE_BYTES_MAX, "a long name is cut"


def test_a_shard_that_takes_nothing_says_why() -> None:
    bench = Bench()
    bench.held.news()
    assert bench.held.refusal() == ""
    bench.primaries[0].full = True
    bench.send(0)
    assert bench.held.refusal() == "DL1003 full" or bench.held.refusal().endswith("full")

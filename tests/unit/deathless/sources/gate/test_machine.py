"""The gate: who has a stream, what clients are told and when, and what one client costs the others."""

from __future__ import annotations

import random

import pytest
from tests.unit.deathless.sources.gate.gate_world import Peer, S, World

from deathless.base.limits import FIRST_WORD_MAX_S
from deathless.codec.streams.records import ID_MAX
from deathless.protocols.connector.frames import EosMessage, Hello, Message, MessageId, Notify, StreamId, encode
from deathless.protocols.connector.source_events import (
    Acknowledged,
    CreditsGained,
    EndOffered,
    MessagesOffered,
    StreamDenied,
    StreamEnded,
)
from deathless.sources.gate.machine import (
    FRAME_S,
    MESSAGE_BYTES,
    REIGN_MIN_S,
    STREAM_ID_MAX,
    UNREAD_S,
    GateLimits,
    Known,
)

OTHER = StreamId(8)


def acknowledged(peer: Peer) -> list[int]:
    return [each.last for each in peer.heard if isinstance(each, Acknowledged)]


def opened(world: World, instance: str = "one") -> Peer:
    peer = world.connect(instance)
    peer.open()
    return peer


# ---- messages ------------------------------------------------------------------------------------------------------


def test_messages_go_to_the_shard_and_are_acknowledged_once_they_are_confirmed() -> None:
    world = World()
    peer = opened(world)
    assert peer.last() == -1
    peer.send(0, 1, 5)
    world.later(0.1)
    assert world.taken() == ["0", "1", "5"]
    assert acknowledged(peer) == [5]
    world.primaries[0].silent = True
    peer.send(6)
    world.later(10)
    assert acknowledged(peer) == [5], "nothing is acknowledged that is not confirmed"


@pytest.mark.parametrize("shards", [1, 3])
def test_who_connects_again_goes_on_behind_what_every_shard_has(shards: int) -> None:
    world = World(shards)
    peer = opened(world)
    peer.send(*range(10))
    world.later(2)
    world.carry(world.gate.lost(peer.number, world.now))
    again = opened(world)
    assert again.last() == 9
    again.send(10, 11)
    world.later(2)
    assert sorted(map(int, world.taken())) == list(range(12))


def test_a_shard_that_is_fresh_has_everything_sent_again() -> None:
    world = World(2)
    peer = opened(world)
    idle = world.primaries[1]
    idle.silent = True
    peer.send(*range(10))
    world.later(5)
    world.carry(world.gate.lost(peer.number, world.now))
    idle.silent = False
    again = opened(world)
    assert again.last() == -1, "the lowest of all shards"
    again.send(*range(10))
    world.later(2)
    assert sorted(map(int, world.taken())) == list(range(10))
    assert acknowledged(again)[-1] == 9


def test_credits_come_back_though_a_shard_without_messages_does_not_know_of_the_ids_yet() -> None:
    world = World(2)
    peer = opened(world)
    peer.do(MessagesOffered(messages=[Message(S, MessageId(n), 0, b"k1", b"%d" % n) for n in range(80)]))
    world.later(0.1)
    assert CreditsGained() in peer.heard
    assert acknowledged(peer) == [], "a successor might begin before them"
    world.later(2)
    assert acknowledged(peer) == [79]


def test_messages_that_a_connection_to_a_primary_lost_are_sent_again_and_the_client_stays() -> None:
    world = World()
    peer = opened(world)
    world.primaries[0].silent = True
    peer.send(0, 1, 2)
    world.primaries[0].silent = False
    world.cut()
    world.later(0.1)
    assert world.taken() == ["0", "1", "2"]
    assert acknowledged(peer) == [2]
    assert peer.ended == ""


def test_a_primary_that_lacks_what_it_had_confirmed_is_told_from_a_loss() -> None:
    world = World()
    peer = opened(world)
    peer.send(0, 1, 2)
    world.primaries[0].logs[S].next_seq = 2
    world.cut()
    assert "DL4016" in peer.ended


def test_ids_that_come_again_are_taken_in_once() -> None:
    world = World()
    peer = opened(world)
    world.primaries[0].silent = True
    frames = b"".join(encode(Message(S, MessageId(n), 0, b"", b"%d" % n)) for n in (0, 1, 1, 0, 2, 1))
    world.carry(world.gate.received(peer.number, frames, world.now))
    world.primaries[0].silent = False
    world.cut()
    world.later(1)
    assert world.taken() == ["0", "1", "2"]
    assert world.gate.kept == 0


def test_ids_and_streams_beyond_ours_end_their_connection() -> None:
    world = World()
    peer = opened(world)
    peer.send(0, ID_MAX + 1)
    assert "DL3003" in peer.ended
    assert world.taken() == ["0"], "what came before is taken in"
    beyond = world.connect("two")
    beyond.open(StreamId(STREAM_ID_MAX + 1))
    assert "DL3003" in beyond.ended


def test_the_highest_id_has_an_end_behind_it() -> None:
    world = World()
    peer = opened(world)
    peer.send(ID_MAX)
    peer.do(EndOffered(stream=S))
    world.later(1)
    assert world.taken() == [str(ID_MAX), "end"]
    assert acknowledged(peer) == [ID_MAX]


def test_the_name_of_a_stream_is_in_the_log() -> None:
    world = World()
    peer = opened(world)
    peer.send(0)
    assert world.primaries[0].logs[S].note[8:] == b"flights"
    assert [(each.stream, each.known.name) for each in world.gate.streams(0.0)] == [(S, "flights")]


# ---- ends ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shards", [1, 2])
def test_an_end_is_taken_in_once_by_every_shard_and_the_stream_may_go_on(shards: int) -> None:
    world = World(shards)
    peer = opened(world)
    peer.send(*range(4))
    peer.do(EndOffered(stream=S))
    world.later(3)
    assert StreamEnded(stream=S) in peer.heard
    assert world.taken().count("end") == shards
    peer.open()
    assert peer.last() == 3
    peer.do(EndOffered(stream=S))  # said again: nothing came behind the first one
    world.later(3)
    assert world.taken().count("end") == shards
    peer.open()
    peer.send(*range(4, 9))  # some for each shard
    peer.do(EndOffered(stream=S))
    world.later(3)
    assert world.taken().count("end") == 2 * shards


def test_an_end_that_is_said_again_is_acknowledged() -> None:
    world = World()
    peer = opened(world)
    peer.send(0)
    peer.do(EndOffered(stream=S))  # it does not hear what becomes of that
    world.later(1)
    world.carry(world.gate.lost(peer.number, world.now))
    again = opened(world)
    again.do(EndOffered(stream=S))
    world.later(1)
    assert StreamEnded(stream=S) in again.heard
    assert world.taken() == ["0", "end"]


def test_a_stream_whose_end_was_said_again_can_be_taken_by_another_client() -> None:
    world = World()
    peer = opened(world)
    for _ in range(2):
        peer.do(EndOffered(stream=S))
        world.later(1)
        peer.open()
    peer.do(EndOffered(stream=S))
    world.later(1)
    other = opened(world, "two")
    assert other.last() == -1


# ---- owners --------------------------------------------------------------------------------------------------------


def test_another_instance_waits_until_the_stream_is_free_and_hears_something_meanwhile() -> None:
    world = World()
    first, second = opened(world), opened(world, "two")
    assert StreamDenied(stream=S) in second.heard
    before = world.told[second.number]
    world.later(1.5)
    assert world.told[second.number] > before, "old programs ask again at an acknowledgement alone"
    world.carry(world.gate.lost(first.number, world.now))
    second.open()
    assert second.last() == -1


def test_the_same_instance_takes_its_stream_and_the_older_connection_is_fenced() -> None:
    world = World()
    first = opened(world)
    first.send(0)
    second = opened(world)
    assert "DL2001" in first.ended
    assert second.last() == 0


def test_two_programs_of_one_name_do_not_fence_each_other_without_end() -> None:
    world = World()
    opened(world)
    taken = 0
    for _ in range(100):
        peer = opened(world)
        if peer.last() is None:
            world.carry(world.gate.lost(peer.number, world.now))
        taken += peer.last() is not None
        world.later(REIGN_MIN_S / 2)
    assert 2 <= taken <= 7, "each time it stays twice as long"
    assert any(each.contended for each in world.gate.streams(world.now))


def test_a_gate_that_was_replaced_is_told_so_and_ends_its_clients() -> None:
    world = World()
    old, peer = world.gate, opened(world)
    world.primaries[0].silent = True
    peer.send(0, 1)
    world.primaries[0].silent = False
    new = world.new_gate()
    again = opened(world)
    again.send(0, 1, 2)
    world.gate = old
    world.cut()  # it resumes, and is fenced
    assert "DL2001" in peer.ended
    assert new is not old
    assert world.taken() == ["0", "1", "2"]


def test_a_source_knows_so_many_streams_and_no_more() -> None:
    limits = GateLimits(credits=100, streams_max=2, connections_max=10)
    world = World(limits=limits, known=[(1, Known("a", 5)), (2, Known("b", 7))])
    peer = world.connect()
    peer.open(StreamId(2))
    assert peer.last(StreamId(2)) == -1
    peer.open(StreamId(3))
    assert "DL3090" in peer.ended
    assert [each.known.taken_in for each in world.gate.streams(0.0)] == [5, 7]


# ---- what one costs the others -------------------------------------------------------------------------------------


def test_wrong_cookies_and_frames_that_can_not_be_read_end_one_connection_alone() -> None:
    world = World()
    good = opened(world)
    wrong = world.connect("two", cookie=b"no", expected=b"yes")
    assert wrong.ended
    assert "yes" not in wrong.ended
    bad = opened(world, "three")
    world.carry(world.gate.received(bad.number, b"\0\0\0\1\xff", world.now))
    assert bad.ended
    good.send(0)
    assert world.taken() == ["0"]
    assert world.gate.errors == 2


def test_what_came_before_a_frame_that_can_not_be_read_is_taken_in() -> None:
    world = World()
    peer = opened(world)
    frames = encode(Message(S, MessageId(0), 0, b"", b"0")) + encode(EosMessage(S))
    world.carry(world.gate.received(peer.number, frames + b"\0\0\0\1\xff", world.now))
    assert peer.number in world.hung
    assert world.taken() == ["0", "end"]
    world.gate.check_invariants()


def test_who_says_nothing_or_never_comes_to_the_end_of_a_frame_is_ended() -> None:
    world = World()
    world.gate.connected(50, b"", world.now)
    world.later(FIRST_WORD_MAX_S + 2)
    assert world.hung[50].code == "DL3092"
    slow, idle = opened(world), opened(world, "two")
    frame = encode(Message(S, MessageId(0), 0, b"", bytes(1000)))
    at = 0
    while slow.number not in world.hung and at < len(frame) - 1:
        world.carry(world.gate.received(slow.number, frame[at : at + 1], world.now))
        at += 1
        world.later(1)
    assert at <= FRAME_S + 2
    assert world.hung[slow.number].code == "DL3092"
    assert idle.number not in world.hung, "who is inside of no frame may be silent"


def test_who_does_not_take_what_it_is_told_is_not_read_and_is_ended() -> None:
    world = World()
    peer = opened(world)
    world.gate.unread(peer.number, world.now, full=True)
    assert not world.gate.wants(peer.number)
    world.later(UNREAD_S / 2)
    world.gate.unread(peer.number, world.now, full=False)
    assert world.gate.wants(peer.number)
    world.gate.unread(peer.number, world.now, full=True)
    world.later(UNREAD_S + 2)
    assert world.hung[peer.number].code == "DL3092"


def test_one_connection_is_read_up_to_its_part_and_others_up_to_their_share() -> None:
    limits = GateLimits(credits=100, streams_max=50, connections_max=10, kept_bytes_max=80 * MESSAGE_BYTES)
    world = World(limits=limits)
    world.primaries[0].silent = True
    greedy = []
    for at in range(5):
        peer = world.connect(f"greedy {at}")
        peer.open(StreamId(at))
        number = 0
        while world.gate.wants(peer.number):
            peer.send(number, stream=StreamId(at))
            number += 1
        greedy.append(number)
    assert greedy[0] <= 20, "a quarter of all"
    assert world.gate.kept <= limits.kept_bytes_max + 20 * MESSAGE_BYTES
    modest = world.connect("modest")
    modest.open(OTHER)
    assert world.gate.wants(modest.number)
    modest.send(0, stream=OTHER)
    assert world.gate.wants(modest.number), "it has less than its share"
    world.primaries[0].silent = False
    world.cut()
    world.later(1)
    assert world.gate.kept == 0
    assert all(world.gate.wants(each) for each in world.peers)


def test_what_is_kept_of_an_unfinished_frame_counts() -> None:
    world = World()
    peer = opened(world)
    frame = encode(Message(S, MessageId(0), 0, b"", bytes(1000)))
    world.carry(world.gate.received(peer.number, frame[:500], world.now))
    assert world.gate.kept == 500
    world.carry(world.gate.received(peer.number, frame[500:], world.now))
    world.later(1)
    assert world.gate.kept == 0


def test_credits_are_held_while_a_shard_has_no_room() -> None:
    world = World()
    peer = opened(world)
    world.later(1)
    before = peer.client.credits
    world.primaries[0].full = True
    peer.send(*range(60))
    world.later(1)
    assert peer.client.credits == before - 60
    world.primaries[0].full = False
    world.later(1)
    assert peer.client.credits >= before - 10
    assert world.taken() == [str(n) for n in range(60)]


def test_a_stream_that_stands_at_an_input_holds_the_credits_of_its_own_messages_alone() -> None:
    world = World()
    peer = opened(world)
    peer.open(OTHER)
    world.primaries[0].stands.add(S)
    peer.send(*range(10))
    for number in range(200):
        peer.send(number, stream=OTHER)
        world.later(0.1)
    assert world.taken(OTHER) == [str(number) for number in range(200)]
    assert world.taken() == []
    world.primaries[0].stands.clear()
    world.later(1)
    assert world.taken() == [str(number) for number in range(10)]


def test_a_drained_gate_ends_all_connections() -> None:
    world = World()
    first, second = opened(world), world.connect("two")
    world.carry(world.gate.drain(world.now))
    assert set(world.hung) == {first.number, second.number}
    assert {each.code for each in world.hung.values()} == {""}
    assert len(world.gate) == 0
    world.gate.check_invariants()


def test_the_version_of_sinks_is_spoken_as_well() -> None:
    world = World()
    world.gate.connected(9, b"", 0.0)
    data = encode(Hello("v0.0.1", b"", "p", "i")) + encode(Notify(S, b"n", MessageId(0)))
    world.carry(world.gate.received(9, data, 0.0))
    assert 9 not in world.hung
    assert S in world.primaries[0].logs


# ---- any order -----------------------------------------------------------------------------------------------------


class Sender:
    """A program that sends messages 0 to 59 and the end, over as many connections as it takes."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.peer: Peer | None = None
        self.sent: int | None = None
        self.done = False

    def step(self, chance: random.Random) -> None:
        """Connect, or send some."""
        peer = self.peer
        if peer is None or peer.ended or peer.number in self.world.hung:
            self.peer, self.sent = opened(self.world), None
            return
        self.done = self.done or StreamEnded(stream=S) in peer.heard
        last = peer.last()
        if last is None and StreamDenied(stream=S) in peer.heard:
            self.world.carry(self.world.gate.lost(peer.number, self.world.now))
            self.peer = None  # it asks again with the next one
        if last is None or self.done:
            return
        self.sent = last + 1 if self.sent is None else self.sent
        some = range(self.sent, min(60, self.sent + chance.randrange(1, 9), self.sent + peer.client.credits))
        if some:
            self.sent = some.stop
            peer.send(*some)
        elif self.sent == 60:
            self.sent = 61
            peer.do(EndOffered(stream=S))


def disturb(world: World, sender: Sender, chance: random.Random) -> None:
    """Break something, or mend it."""
    shard = chance.randrange(len(world.primaries))
    match chance.randrange(7):
        case 0 if sender.peer is not None:
            world.carry(world.gate.lost(sender.peer.number, world.now))
            sender.peer = None
        case 1:
            world.cut(shard)
        case 2:
            world.primaries[shard].silent = not world.primaries[shard].silent
        case 3:
            world.primaries[shard].full = not world.primaries[shard].full
        case 4:
            world.new_gate()
            sender.peer = None
        case _:
            world.later(chance.random() * 2)


@pytest.mark.parametrize("seed", range(20))
def test_each_message_is_taken_in_once_and_in_order_in_any_order_of_faults(seed: int) -> None:
    chance = random.Random(seed)
    world = World(shards=1 + seed % 3)
    sender = Sender(world)
    for _ in range(100):
        sender.step(chance)
        if chance.random() < 0.3:
            disturb(world, sender, chance)
    for primary in world.primaries:
        primary.silent = primary.full = False
    for shard in range(len(world.primaries)):
        world.cut(shard)
    for _ in range(200):
        if sender.done:
            break
        sender.step(chance)
        world.later(1)
    assert sender.done
    found = world.taken()
    assert sorted(int(each) for each in found if each != "end") == list(range(60))
    for primary in world.primaries:
        rows = [int(each) for each in primary.logs[S].taken if each != "end"]
        assert rows == sorted(rows)
        assert primary.logs[S].taken[-1:] == ["end"]


def test_acknowledgements_are_few_while_more_is_under_way() -> None:
    world = World()
    peer = opened(world)
    peer.open(OTHER)
    world.primaries[0].stands = {OTHER}
    peer.send(0, stream=OTHER)
    world.later(1)
    for number in range(40):
        peer.send(number)
        world.later(0.001)
    assert len(acknowledged(peer)) <= 4


def test_a_client_that_has_nothing_else_under_way_is_told_at_once() -> None:
    world = World()
    peer = opened(world)
    world.primaries[0].silent = True
    peer.send(0, 1, 2)
    world.primaries[0].silent = False
    world.cut()
    world.later(0)
    for number in range(3, 10):
        peer.send(number)
        world.later(0)
    assert acknowledged(peer) == [2, *range(3, 10)]


def hostile(chance: random.Random) -> bytes:
    """Frames in any order, some of them damaged."""
    number, stream = MessageId(chance.choice([0, 1, 2, ID_MAX, ID_MAX + 1, 2**64 - 1])), StreamId(chance.randrange(9))
    frames = [
        encode(Hello(chance.choice(["0.0.1", "9"]), chance.choice([b"", b"c"]), "deathless-x", chance.choice("ab"))),
        encode(Notify(stream, bytes(chance.randrange(99)), number)),
        *(encode(Message(stream, MessageId(number - at if number > at else at), 0, b"k", b"row")) for at in range(3)),
        encode(EosMessage(stream)),
    ]
    data = bytearray(b"".join(chance.choices(frames, k=chance.randrange(1, 9))))
    if chance.random() < 0.3:
        data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data[: chance.randrange(1, len(data) + 1)]) if chance.random() < 0.3 else bytes(data)


@pytest.mark.parametrize("seed", range(10))
def test_whatever_hostile_clients_send_a_good_one_is_served(seed: int) -> None:
    chance = random.Random(seed)
    world = World(shards=1 + seed % 2, limits=GateLimits(credits=100, streams_max=20, connections_max=10))
    good = opened(world, "good")
    bad = list(range(1000, 1008))  # connections; one that has ended makes room for another
    for number in range(60):
        at = chance.randrange(8)
        if number < 8 or bad[at] in world.hung or chance.random() < 0.2:
            world.carry(world.gate.lost(bad[at], world.now))
            bad[at] = 2000 + number
            world.gate.connected(bad[at], b"", world.now)
            hello = encode(Hello("0.0.1", b"", "p", chance.choice("ab")))
            world.carry(world.gate.received(bad[at], hello, world.now))
        world.carry(world.gate.received(bad[at], hostile(chance), world.now))
        world.gate.check_invariants()
        good.send(number)
        world.later(chance.random())
    world.later(2)
    assert not good.ended
    assert sorted(map(int, world.taken())) == list(range(60))
    assert acknowledged(good)[-1] == 59

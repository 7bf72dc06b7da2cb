"""Messaging in a shard: every replica holds the same outbox, peers and results; the primary is told (I2, I3)."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.encoded import chunk_reader, encode_fork
from tests.unit.deathless.engine.talker import SECOND, Talker

from deathless.base.errors import CorruptFrame, Diverged, Internal, Parked, SessionExpired
from deathless.base.ids import ChainHash, Epoch, Incarnation, Lsn
from deathless.base.limits import Limits
from deathless.base.times import Times
from deathless.codec.checkpoint import decode, encode
from deathless.codec.frames import Frame, FrameKind, Run, chain_after, decode_data
from deathless.codec.messages import Kind, encode_parked, encode_register, encode_time
from deathless.codec.messages import decode as decode_message
from deathless.codec.messages import encode as encode_message
from deathless.codec.peer_history import NOTHING, extended
from deathless.codec.peer_messages import (
    SELF,
    SELF_SESSION,
    Adopt,
    Attempt,
    Order,
    Outcome,
    PeerHello,
    Ran,
    Reference,
    Request,
    Target,
    Trim,
    decode_body,
    encode_record,
    encode_request,
    encode_response,
)
from deathless.codec.snapshot import Snapshot
from deathless.codec.wire import accepted_reply
from deathless.core.events import RunResult
from deathless.engine.shard import shard as shard_module
from deathless.engine.shard.assembly import shard_around
from deathless.engine.shard.messaging import describe
from deathless.engine.shard.shard import Executed, Shard

Runs = list[tuple[Run, Sequence[bytes]]]
LIMITS = Limits(results_kept_s=10, peers_max=2)
SHOP, BANK = Target("shop", 0), Target("bank", 0)
ID = bytes(range(16))
SHOP_HELLO = PeerHello("shop", 0, ID, 77)


def shard(mark: bytes = b"") -> Shard:
    return shard_around(Talker(mark), LIMITS)


def copy_of(of: Shard) -> Snapshot:
    return of.snapshot(service="s", service_id=bytes(16), incarnation=1, epoch=1, fingerprint=b"f")


def reloaded(of: Shard, make: Callable[[], Shard] = shard) -> Shard:
    """What a fresh process makes of a checkpoint, by way of its bytes."""
    other = make()
    other.restore(decode(chunk_reader(list(encode(copy_of(of))))))
    return other


class Pair:
    """A primary, and a follower that applies each of its frames."""

    def __init__(self, make: Callable[[], Shard] = shard) -> None:
        self.make = make
        self.primary, self.follower = make(), make()

    def frame(self, *runs: tuple[Run, Sequence[bytes]]) -> tuple[Executed, Frame]:
        place = self.primary.place
        first, prev = place.lsn + 1, ChainHash(place.chain)
        done = self.primary.execute(list(runs))
        place.chain = chain = chain_after(prev, first, done.payload)
        numbers = (FrameKind.DATA, Epoch(1), Lsn(first), Lsn(0), done.count, Incarnation(1))
        return done, Frame(*numbers, prev, chain, 0, done.payload)

    def run(self, *runs: tuple[Run, Sequence[bytes]]) -> Executed:
        """Run a frame on both; they hold the same afterwards."""
        done, frame = self.frame(*runs)
        assert self.follower.apply(frame) == [*done.results]
        assert copy_of(self.follower) == copy_of(self.primary)
        for each in (self.primary, self.follower):
            each._messaging.check_invariants()
            each.sessions.check_invariants()
        return done

    def records(self, *records: bytes) -> Executed:
        return self.run(*((Run(0, 0, 0, 1), (record,)) for record in records))

    def say(self, session: int, *messages: bytes) -> Executed:
        known = self.primary.sessions.get(session)
        first = 1 if known is None else known.next_seq
        return self.run((Run(session, first, 0, len(messages)), messages))

    def client(self) -> int:
        """Register a client; gives its session."""
        self.records(encode_register(bytes(16)))
        return self.primary.place.lsn

    def peer(self, hello: PeerHello = SHOP_HELLO) -> int:
        """Introduce a peer; gives its session."""
        self.records(encode_record(hello))
        return self.primary.place.lsn

    def held(self, target: Target) -> list[bytes]:
        """Arguments of the messages that the outbox holds for a target."""
        outbox = self.primary.outbox
        messages = outbox.messages_from(target, outbox.first_position(target), 1 << 20)
        return [decode_message(message).args for message in messages]


def call(words: str, method: bytes = b"do", key: bytes = b"k") -> bytes:
    return encode_message(Kind.CALL, method=method, key=key, args=words.encode())


def fork(words: str) -> bytes:
    return encode_fork(method=b"do", key=b"k", args=words.encode())


def request(words: str, invocation: int = 5) -> bytes:
    return encode_request(Request(invocation, 2), method=b"do", key=b"k", args=words.encode())


# ---- peers and their runs ------------------------------------------------------------------------------------------


def test_i3_a_peer_is_introduced_once_and_its_runs_move_its_session_on() -> None:
    pair = Pair()
    session = pair.peer()
    pair.records(encode_record(SHOP_HELLO), encode_record(PeerHello("shop", 0, ID, 78)))
    done = pair.say(session, fork("one"), fork("two"))
    history = extended(NOTHING, [fork("one"), fork("two")])
    assert done.results == [RunResult(Run(session, 1, 0, 2), (), history)]
    known = pair.primary.sessions.get(session)
    assert known is not None
    assert (known.next_seq, known.replies, pair.primary.sessions.get(session + 1)) == (3, {}, None)


def test_a_run_of_a_peer_without_messages_runs_nothing() -> None:
    pair = Pair()
    session = pair.peer()
    assert pair.run((Run(session, 1, 0, 0), ())).results == [RunResult(Run(session, 1, 0, 0), (), NOTHING)]


def test_an_executor_that_gives_too_few_digests_is_our_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair()
    session = pair.peer()
    monkeypatch.setattr(Talker, "execute_peer", lambda *_: [])
    with pytest.raises(Internal, match="0 digests for 1"):
        pair.frame((Run(session, 1, 0, 1), (fork("one"),)))


def test_i2_what_turns_send_stands_in_every_replicas_outbox_and_the_primary_is_told() -> None:
    pair = Pair()
    session = pair.client()
    done = pair.say(session, call("send shop"), call("send bank"), call("send shop"), call("start"), call("stop"))
    assert done.sent == [(SHOP, 3), (BANK, 2)]
    assert pair.held(SHOP) == [b"from 2", b"from 4"]
    assert ([start.key for start in done.starts], done.stops) == (["k5"], [Reference(6, 1)])
    assert pair.say(session, call("nothing")).sent == [], "of this frame alone"


def test_trimmed_messages_are_gone_from_every_replica_and_their_positions_stay() -> None:
    pair = Pair()
    pair.say(pair.client(), call("send shop"), call("send shop"))
    pair.records(encode_record(Trim("shop", 0, 1)), encode_record(Trim("other", 0, 7)))
    assert (pair.held(SHOP), pair.primary.outbox.first_position(SHOP)) == ([b"from 3"], 2)


def test_our_own_messages_come_back_as_a_run_that_trims_the_outbox() -> None:
    pair = Pair()
    done = pair.say(pair.client(), call("self send shop"), call("self self start"))
    assert done.sent == [(SELF, 3)]
    messages = pair.primary.outbox.messages_from(SELF, 1, 1 << 20)
    done = pair.say(SELF_SESSION, *messages)
    assert (done.sent, done.results) == ([(SHOP, 2), (SELF, 4)], [RunResult(Run(SELF_SESSION, 1, 0, 2), ())])
    assert (pair.primary.outbox.first_position(SELF), pair.held(SELF)) == (3, [b"start"])


def test_i6_a_run_of_ourselves_that_is_not_what_the_outbox_holds_is_our_bug() -> None:
    pair = Pair()
    pair.say(pair.client(), call("self"))
    with pytest.raises(Internal, match="from position 1 on"):
        pair.frame((Run(SELF_SESSION, 1, 0, 1), (fork("another"),)))
    with pytest.raises(Internal, match="from position 1 on"):
        Pair().frame((Run(SELF_SESSION, 1, 0, 1), (fork("another"),)))


def test_an_adopted_peer_begins_anew_in_both_directions() -> None:
    pair = Pair()
    former = pair.peer()
    pair.say(former, fork("send shop"))
    pair.records(encode_record(Adopt("shop", 0, ID, 78)))
    session = pair.primary.place.lsn
    assert (pair.held(SHOP), pair.primary.outbox.next_position(SHOP)) == ([b"welcome"], 2)
    assert pair.primary.peers.target_of(session) == SHOP
    assert pair.say(session, fork("one")).results[0].replies == ()
    (result,) = pair.say(former, fork("late")).results
    assert SessionExpired.code.encode() in result.replies[0]


def test_adopting_who_is_known_changes_nothing_and_who_is_not_known_is_introduced() -> None:
    pair = Pair()
    session = pair.peer()
    pair.say(session, fork("send shop"))
    pair.records(encode_record(Adopt("shop", 0, ID, 77)))
    assert pair.held(SHOP) == [b"from 2"]
    pair.records(encode_record(Adopt("bank", 0, ID, 1)))
    assert pair.primary.peers.target_of(pair.primary.place.lsn) == BANK
    pair.records(encode_record(Adopt("third", 0, ID, 1)))
    assert len(pair.primary.peers) == 2


# ---- invocations ---------------------------------------------------------------------------------------------------


def waiting(pair: Pair, words: str = "wait") -> int:
    """Have a call wait; gives its invocation."""
    session = pair.client()
    done = pair.say(session, call(words, b"pay", b"alice"))
    invocation = pair.primary.place.lsn
    assert done.results[0].replies == [accepted_reply(invocation)]
    return invocation


def test_i5_the_result_of_a_handler_that_waited_is_kept_and_told() -> None:
    pair = Pair()
    invocation = waiting(pair)
    session = pair.peer()
    done = pair.say(session, encode_response(Reference(invocation, 1), b"\x00yes"))
    assert done.finished == [(invocation, b"\x00yes")]
    assert pair.primary.results.get(invocation) == pair.follower.results.get(invocation) == b"\x00yes"
    pair.records(encode_time(Times.at(11 * SECOND)))
    assert pair.primary.results.get(invocation) is None, "and forgotten after its time"


OWN = {
    "outcome": encode_record(Outcome(2, 1, 1, b"\x00done")),
    "order": encode_record(Order("kill", 2)),
    "time": encode_time(Times.at(9 * SECOND)),
    "attempt": encode_record(Attempt(2, 1, 1)),
}


@pytest.mark.parametrize("name", OWN)
def test_i6_what_the_turns_of_a_record_write_is_in_its_digest(name: str) -> None:
    busy, idle = Pair(), Pair()
    waiting(busy, "timer 9" if name == "time" else "wait")
    idle.client()
    digests = []
    for pair in (busy, idle):
        _, frame = pair.frame((Run(0, 0, 0, 1), (OWN[name],)))
        pair.follower.apply(frame)
        digests.append(decode_data(frame).digests)
    assert digests[0] != digests[1] == (zlib.crc32(OWN[name]),), "where nothing waits it is that of the bytes alone"
    assert (name == "attempt") == (busy.primary.results.get(2) is None)


def test_time_is_told_to_the_executor_only_when_something_is_due() -> None:
    pair = Pair()
    invocation = waiting(pair, "timer 9")
    assert pair.primary.place.due.first_us == pair.follower.place.due.first_us == 9 * SECOND
    pair.records(encode_time(Times.at(9 * SECOND - 1)))  # the executor asserts that there is something to do
    assert pair.records(encode_time(Times.at(9 * SECOND))).finished == [(invocation, b"\x00time")]
    assert pair.primary.place.due.first_us == 0


def test_i6_a_divergence_names_handler_and_key_of_the_turns_that_a_record_caused() -> None:
    for record, what in (
        (OWN["outcome"], "handler 'pay' for key 'alice'"),
        (encode_record(Outcome(9, 1, 1, b"")), None),
        (encode_record(Adopt("shop", 0, ID, 78)), "handler 'record of kind 24' for key ''"),
    ):
        pair = Pair()
        waiting(pair)
        assert isinstance(pair.follower.executor, Talker)
        pair.follower.executor.mark = b"!"
        _, frame = pair.frame((Run(0, 0, 0, 1), (record,)))
        if what is None:
            pair.follower.apply(frame)
            continue
        with pytest.raises(Diverged, match=f"lsn 3: {what} gave another state or reply"):
            pair.follower.apply(frame)


def test_i6_a_divergence_in_what_a_peer_sent_names_its_message_or_whose_turn_it_caused() -> None:
    response = encode_response(Reference(2, 1), b"\x00yes")
    for message, what in ((fork("one"), "handler 'do' for key 'k'"), (response, "handler 'pay' for key 'alice'")):
        pair = Pair()
        waiting(pair)
        session = pair.peer()
        assert isinstance(pair.follower.executor, Talker)
        pair.follower.executor.mark = b"!"
        _, frame = pair.frame((Run(session, 1, 0, 1), (message,)))
        with pytest.raises(Diverged, match=f"lsn 4: {what} gave"):
            pair.follower.apply(frame)


def test_a_message_that_lets_others_run_is_named_with_them() -> None:
    turns = [Ran(5, "pay", "alice"), Ran(5, "pay", "bob"), Ran(5, "do", "k"), Ran(5, "pay", "bob")]
    assert describe(fork("x"), turns[2:3]) == "handler 'do' for key 'k'"
    whole = "handler 'do' for key 'k', handler 'pay' for key 'alice', handler 'pay' for key 'bob'"
    assert describe(fork("x"), turns) == whole
    assert describe(b"", turns) == "a malformed message"


def test_a_record_of_an_unknown_kind_or_with_another_body_stops_the_replica() -> None:
    for record in (encode_message(26), encode_message(Kind.TRIM, args=b"\x01")):
        with pytest.raises(CorruptFrame):
            Pair().records(record)


# ---- parked messages -----------------------------------------------------------------------------------------------


def test_i11_a_peers_request_that_is_set_aside_is_answered_with_a_typed_error() -> None:
    pair = Pair()
    session = pair.peer()
    done = pair.records(encode_parked(session, 1, request("send bank", invocation=5)))
    history = extended(NOTHING, [request("send bank", invocation=5)])
    assert (done.sent, done.results) == ([(SHOP, 2)], [RunResult(Run(session, 1, 0, 1), (), history)])
    (message,) = pair.primary.outbox.messages_from(SHOP, 1, 1 << 20)
    kind, _, _, envelope, reply = decode_message(message)
    assert (kind, decode_body(Reference, envelope)) == (Kind.RESPONSE, Reference(5, 2))
    assert Parked.code.encode() in reply
    assert pair.say(session, fork("next")).results[0].run.first_seq == 2


def test_i11_the_invocation_whose_turn_behind_a_response_ends_the_process_is_killed() -> None:
    pair = Pair()
    invocation = waiting(pair)
    session = pair.peer()
    done = pair.records(encode_parked(session, 1, encode_response(Reference(invocation, 1), b"\x00killer")))
    [(ended, reply)] = done.finished
    assert ended == invocation
    assert Parked.code.encode() in reply


def test_i11_the_invocation_whose_timer_ends_the_process_is_killed_by_a_record_of_its_own() -> None:
    pair = Pair()
    invocation = waiting(pair, "timer 9")
    done = pair.records(encode_parked(0, invocation, b""))
    [(ended, reply)] = done.finished
    assert ended == invocation
    assert Parked.code.encode() in reply
    assert (done.results, pair.primary.place.due.first_us) == ([], 0)
    assert [(parked.session, parked.seq) for parked in pair.primary.parked] == [(0, invocation)]


@pytest.mark.parametrize(
    "message",
    [
        fork("send bank"),
        b"\x03\x00",
        encode_message(Kind.REQUEST, idempotency_key=b"\xc1"),
        encode_message(Kind.CANCEL),
    ],
)
def test_i11_a_peers_message_that_nobody_waits_for_is_set_aside_in_silence(message: bytes) -> None:
    pair = Pair()
    session = pair.peer()
    done = pair.records(encode_parked(session, 1, message))
    assert (done.sent, done.finished, len(pair.primary.parked)) == ([], [], 1)


def test_i10_messages_set_aside_have_a_maximum_of_bytes_and_the_oldest_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_module, "PARKED_BYTES_MAX", 250)
    pair = Pair()
    session = pair.peer()
    for seq in (1, 2, 3):
        pair.records(encode_parked(session, seq, fork("x" * 80)))
    assert [parked.seq for parked in pair.primary.parked] == [2, 3]


def test_i11_a_message_to_ourselves_that_is_set_aside_leaves_the_outbox() -> None:
    pair = Pair()
    pair.say(pair.client(), call("self one"), call("self two"))
    one, two = pair.primary.outbox.messages_from(SELF, 1, 1 << 20)
    pair.run((Run(0, 0, 0, 1), (encode_parked(SELF_SESSION, 1, one),)), (Run(SELF_SESSION, 2, 0, 1), (two,)))
    assert pair.held(SELF) == []


# ---- checkpoints ---------------------------------------------------------------------------------------------------


def test_a_restored_shard_knows_when_its_next_timer_is_due() -> None:
    pair = Pair()
    waiting(pair, "timer 9")
    assert reloaded(pair.primary).place.due.first_us == 9 * SECOND


WORDS = st.sampled_from(
    ["x", "send shop", "send bank", "self", "self send shop", "self wait", "wait", "timer 3", "start"]
)
STEPS = st.one_of(
    st.tuples(st.just("call"), st.lists(WORDS, min_size=1, max_size=3), st.just(0)),
    st.tuples(st.sampled_from(["shop", "bank"]), st.lists(WORDS, min_size=1, max_size=3), st.booleans()),
    st.tuples(st.just("ourselves"), st.integers(1, 4), st.just(0)),
    st.tuples(st.sampled_from(["respond", "outcome", "order"]), st.integers(0, 3), st.just(0)),
    st.tuples(st.just("trim"), st.integers(0, 6), st.sampled_from(["shop", "bank"])),
    st.tuples(st.just("adopt"), st.sampled_from(["shop", "bank"]), st.integers(1, 2)),
    st.tuples(st.just("time"), st.integers(0, 6), st.just(0)),
    st.tuples(st.just("park"), st.integers(0, 2), st.just(0)),
)


class Life:
    """Turns drawn steps into frames of a pair."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.client = pair.client()

    def session_of(self, service: str) -> int:
        peer = self.pair.primary.peers.get(Target(service, 0))
        return self.pair.peer(PeerHello(service, 0, ID, 1)) if peer is None else peer.session

    def pick(self, number: int) -> int:
        """One of the invocations that wait, or one that never was."""
        executor = self.pair.primary.executor
        assert isinstance(executor, Talker)
        return [*sorted(executor.waiting), 1][number % (1 + len(executor.waiting))]

    def step(self, what: str, first: object, second: object) -> None:
        pair = self.pair
        match what, first:
            case "call", [*words]:
                pair.say(self.client, *(call(str(word)) for word in words))
            case "shop" | "bank", [*words]:
                make = request if second else fork
                pair.say(self.session_of(what), *(make(str(word)) for word in words))
            case "ourselves", int(count):
                outbox = pair.primary.outbox
                if messages := outbox.messages_from(SELF, outbox.first_position(SELF), 1 << 20)[:count]:
                    pair.say(SELF_SESSION, *messages)
            case "respond", int(number):
                pair.say(self.session_of("shop"), encode_response(Reference(self.pick(number), 1), b"\x00r"))
            case _:
                pair.records(self.record(what, first, second))

    def record(self, what: str, first: object, second: object) -> bytes:
        place = self.pair.primary.place
        match what, first, second:
            case "outcome", int(number), _:
                return encode_record(Outcome(self.pick(number), 1, 1, b"\x00o"))
            case "order", int(number), _:
                return encode_record(Order("kill", self.pick(number)))
            case "trim", int(through), str(service):
                return encode_record(Trim(service, 0, through))
            case "adopt", str(service), int(incarnation):
                return encode_record(Adopt(service, 0, ID, incarnation))
            case "time", int(seconds), _:
                return encode_time(Times.at(place.time_us + seconds * SECOND))
            case _:
                session = self.session_of("shop")
                known = self.pair.primary.sessions.get(session)
                assert known is not None
                return encode_parked(session, known.next_seq, [request("x"), fork("x"), b""][int(str(first))])


@given(st.lists(STEPS, max_size=20), st.data())
def test_i6_any_frames_give_every_replica_the_same_also_one_that_was_loaded_on_the_way(
    steps: list[tuple[str, object, object]], data: st.DataObject
) -> None:
    life = Life(Pair())
    loads = data.draw(st.sets(st.integers(0, 20), max_size=4))
    for index, (what, first, second) in enumerate(steps):
        life.step(what, first, second)
        if index in loads:
            life.pair.follower = reloaded(life.pair.primary)
            assert copy_of(life.pair.follower) == copy_of(life.pair.primary)

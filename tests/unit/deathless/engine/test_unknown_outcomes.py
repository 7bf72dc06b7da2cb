"""Activities that may have been done are listed in every replica, until an order settles them (I7)."""

from __future__ import annotations

from tests.unit.deathless.engine.shard.test_messaging import Pair, call, reloaded, waiting
from tests.unit.deathless.engine.talker import Talker

from deathless.base.limits import Limits
from deathless.codec.peer_messages import SETTLE, Order, Outcome, encode_record
from deathless.codec.snapshot import UnknownRecord
from deathless.engine.shard.assembly import shard_around


def test_i7_an_unknown_outcome_is_listed_in_every_replica_until_an_order_settles_it() -> None:
    pair = Pair()
    invocation = waiting(pair)
    done = pair.records(encode_record(Outcome(invocation, 1, 1, b"\x01unknown")))
    case = UnknownRecord(
        invocation, 1, "pay", b"alice", "activity", f"k{invocation}", pair.primary.place.lsn, pair.primary.place.time_us
    )
    assert pair.primary.unknown.snapshot() == [case] == done.unknown
    pair.follower = reloaded(pair.follower)
    assert pair.records(encode_record(Order(SETTLE, invocation, 2))).unknown == []
    assert pair.follower.unknown.snapshot() == [case], "another operation"
    pair.records(encode_record(Order(SETTLE, invocation, 1)))
    assert pair.follower.unknown.snapshot() == []
    pair.records(encode_record(Order(SETTLE, invocation, 1)))


def test_an_order_to_settle_is_nothing_to_a_handler() -> None:
    pair = Pair()
    invocation = waiting(pair)
    pair.records(encode_record(Order(SETTLE, invocation, 1)))
    assert pair.primary.executor.holds(invocation)


def test_i10_so_many_are_kept_everywhere() -> None:
    limits = Limits(unknown_outcomes_max=2)
    pair = Pair(lambda: shard_around(Talker(), limits))
    session = pair.client()
    first = pair.primary.place.lsn + 1
    pair.say(session, *3 * [call("wait", b"pay", b"alice")])
    pair.records(*(encode_record(Outcome(first + n, 1, 1, b"\x01unknown")) for n in range(3)))
    assert [case.invocation for case in pair.follower.unknown.snapshot()] == [first + 1, first + 2]

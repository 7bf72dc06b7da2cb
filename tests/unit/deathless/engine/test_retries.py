"""What was parked is run again by a logged order, once, in every replica and across checkpoints (I11)."""

from __future__ import annotations

from tests.unit.deathless.engine.shard.test_messaging import Pair, copy_of, reloaded

from deathless.base.errors import NotParked
from deathless.codec.frames import Run
from deathless.codec.messages import encode_parked
from deathless.codec.peer_messages import RETRY, Order, Retried, encode_record
from deathless.codec.wire import ReplyError, decode_struct, ok_reply
from deathless.engine.shard.shard import RETRIED_MAX, Executed


def parked(pair: Pair, message: bytes = b"poison") -> int:
    """Have a client's message set aside; gives the lsn of the record."""
    session = pair.client()
    pair.records(encode_parked(session, 1, message))
    return pair.primary.place.lsn


def retry(pair: Pair, lsn: int) -> tuple[Executed, Retried]:
    done = pair.records(encode_record(Order(RETRY, lsn)))
    told = pair.primary.take_retried(lsn)
    assert pair.follower.take_retried(lsn) == told
    return done, told


def code_of(told: Retried) -> str:
    assert told.invocation == 0
    return decode_struct(ReplyError, told.reason[1:]).code


def test_what_is_parked_is_run_as_the_invocation_of_the_order() -> None:
    pair = Pair()
    lsn = parked(pair)
    done, told = retry(pair, lsn)
    assert told == Retried(pair.primary.place.lsn)
    assert done.finished == [(told.invocation, ok_reply(b"\xc0"))]
    assert pair.primary.results.get(told.invocation) == ok_reply(b"\xc0")
    assert pair.primary.parked == []


def test_what_it_wrote_is_in_the_digest() -> None:
    one, other = Pair(), Pair()
    parked(other, b"another")
    lsn = parked(one)
    assert retry(one, lsn)[0].payload != retry(other, lsn)[0].payload


def test_it_is_run_once_in_all() -> None:
    pair = Pair()
    lsn = parked(pair)
    assert retry(pair, lsn)[1].invocation
    before = copy_of(pair.primary)
    done, told = retry(pair, lsn)
    assert code_of(told) == NotParked.code
    assert done.finished == []
    assert copy_of(pair.primary).state == before.state
    assert copy_of(pair.primary).results == before.results


def test_who_sent_it_keeps_the_reply_that_it_is_parked() -> None:
    pair = Pair()
    session = pair.client()
    pair.records(encode_parked(session, 1, b"poison"))
    known = pair.primary.sessions.get(session)
    assert known is not None
    before = dict(known.replies)
    assert before
    retry(pair, pair.primary.place.lsn)
    assert known.replies == before


def test_what_is_not_parked_is_refused() -> None:
    pair = Pair()
    parked(pair)
    assert code_of(retry(pair, 1)[1]) == NotParked.code
    assert len(pair.primary.parked) == 1


def test_what_the_executor_refuses_stays_parked() -> None:
    pair = Pair()
    lsn = parked(pair, b"refused")
    done, told = retry(pair, lsn)
    assert code_of(told) == NotParked.code
    assert [record.lsn for record in pair.primary.parked] == [lsn]
    assert done.finished == []


def test_a_replica_that_was_reloaded_runs_it_as_well() -> None:
    pair = Pair()
    lsn = parked(pair)
    pair.follower = reloaded(pair.follower)
    assert retry(pair, lsn)[1].invocation


def test_a_message_that_waited_for_its_key_is_kept_with_its_invocation_and_one_that_had_begun_is_not() -> None:
    pair = Pair()
    pair.records(encode_parked(0, 77, b""), encode_parked(0, 78, b""))
    assert [record.message for record in pair.primary.parked] == [b"not begun", b""]


def test_the_ends_of_orders_that_nobody_asks_for_are_forgotten() -> None:
    pair = Pair()
    records = [encode_record(Order(RETRY, number)) for number in range(1, RETRIED_MAX + 3)]
    pair.run(*((Run(0, 0, 0, 1), (record,)) for record in records))
    assert len(pair.primary.retried) == RETRIED_MAX

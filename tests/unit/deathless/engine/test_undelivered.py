"""What a driver gives up is listed in every replica before it is forgotten, and goes out again when it is ordered."""

from __future__ import annotations

import pytest
from tests.unit.deathless.engine.shard.test_messaging import ID, SHOP, Pair, call, reloaded

from deathless.codec.messages import decode
from deathless.codec.peer_messages import (
    DISCARD,
    REDELIVER,
    Order,
    PeerHello,
    RedeliveredFork,
    Reference,
    Trim,
    decode_body,
    encode_record,
    encode_response,
)
from deathless.codec.wire import error_reply, ok_reply

GIVEN_UP = error_reply("DL3044", "DeliveryGivenUp", "503 (given up after 9 attempts)")


class Driven(Pair):
    """A service that sent three forks to `shop`, which is a driver here."""

    def __init__(self) -> None:
        super().__init__()
        self.say(self.client(), *(call("send shop") for _ in range(3)))
        self.driver = self.peer(PeerHello("shop", 0, ID, 1))

    def give_up(self, position: int, reply: bytes = GIVEN_UP) -> int:
        """The driver says so; gives the id under which the message is listed."""
        self.say(self.driver, encode_response(Reference(0, position), reply))
        return self.primary.place.lsn

    def listed(self) -> list[int]:
        """Positions on the list, the same in both replicas and in what a checkpoint keeps."""
        found = [record for record in self.primary.undelivered.snapshot() if record.id]
        assert [record for record in self.follower.undelivered.snapshot() if record.id] == found
        assert reloaded(self.primary).undelivered.snapshot() == self.primary.undelivered.snapshot()
        return [record.position for record in found]


def test_a_message_that_is_given_up_is_listed_in_every_replica_with_its_reason() -> None:
    pair = Driven()
    number = pair.give_up(2)
    assert pair.listed() == [2]
    record = pair.follower.undelivered.get(number)
    assert record is not None
    assert (record.service, record.why) == ("shop", "503 (given up after 9 attempts)")
    assert record.message == pair.primary.outbox.messages_from(SHOP, 2, 1)[0]


@pytest.mark.parametrize("position", [0, 4, 2**40])
def test_a_position_that_the_outbox_does_not_hold_is_nothing(position: int) -> None:
    pair = Driven()
    pair.give_up(position)
    assert pair.listed() == []


def test_a_position_that_is_trimmed_is_nothing() -> None:
    pair = Driven()
    pair.records(encode_record(Trim("shop", 0, 2)))
    pair.give_up(2)
    assert pair.listed() == []


def test_a_driver_that_says_it_again_changes_nothing() -> None:
    pair = Driven()
    pair.give_up(2)
    pair.give_up(2)
    assert pair.listed() == [2]


@pytest.mark.parametrize("command", [DISCARD, REDELIVER])
def test_a_driver_that_says_again_what_somebody_has_seen_to_changes_nothing(command: str) -> None:
    pair = Driven()
    pair.records(encode_record(Order(command, pair.give_up(2))))
    pair.follower = reloaded(pair.follower)
    pair.give_up(2)
    assert pair.listed() == []
    pair.records(encode_record(Trim("shop", 0, 3)))
    assert pair.primary.undelivered.snapshot() == []


def test_an_order_sends_it_again_at_a_new_position_and_it_says_where_it_was_first() -> None:
    pair = Driven()
    pair.records(encode_record(Order(REDELIVER, pair.give_up(2))))
    again = pair.primary.outbox.messages_from(SHOP, 4, 1)[0]
    first = pair.primary.outbox.messages_from(SHOP, 2, 1)[0]
    assert decode(again)._replace(idempotency_key=b"") == decode(first)._replace(idempotency_key=b"")
    assert decode_body(RedeliveredFork, decode(again).idempotency_key).position == 2
    assert pair.listed() == []
    pair.records(encode_record(Order(REDELIVER, pair.give_up(4))))
    once_more = pair.primary.outbox.messages_from(SHOP, 5, 1)[0]
    assert decode_body(RedeliveredFork, decode(once_more).idempotency_key).position == 2


def test_what_is_sent_again_is_told_to_the_primary_like_any_other_message() -> None:
    pair = Driven()
    number = pair.give_up(2)
    assert pair.records(encode_record(Order(REDELIVER, number))).sent == [(SHOP, 5)]


def test_an_order_about_what_is_not_listed_changes_nothing() -> None:
    pair = Driven()
    pair.records(encode_record(Order(REDELIVER, 999)), encode_record(Order(DISCARD, 999)))
    assert pair.primary.outbox.next_position(SHOP) == 4


def test_an_answer_that_is_no_error_is_listed_without_a_reason() -> None:
    pair = Driven()
    number = pair.give_up(2, ok_reply(b"\xc0"))
    record = pair.primary.undelivered.get(number)
    assert record is not None
    assert record.why == "its driver gave no reason"

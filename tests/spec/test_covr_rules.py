"""COVR (HPL-2014-14): its six rules, the appendix's algorithm, and the five additional considerations.

Each rule is tested with a fault at every place of the story, and shown to be broken with its safeguard off.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.conformance import test_reference_peer as apart
from tests.sim import mutants
from tests.spec.faults import FAULTS, LED, UNANSWERED, cut_short, ended, places, shows, steps_in_all
from tests.spec.story import FORGOTTEN, NOT_ONCE, OTHER_ANSWER, RANG_TWICE, STRAY, TWICE
from tests.spec.town import Town

from deathless import Context
from deathless.codec.peer_messages import Target
from deathless.codec.wire import Status, Type, decode_peer_commit

CALLS = [(fault, service) for fault in ("kill", "lose_power") for service in ("shop", "bank")]
OF_ONE = [name for name in FAULTS if " " in name]


# ---- rule 1 --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OF_ONE)
def test_rule_1_restart_is_consistent_with_all_that_was_released(name: str) -> None:
    """COVR Rules, 1: messages, return values and outputs that left stand in the log of whoever comes next."""
    for story in places(name):
        assert story.strays() == []
        assert story.recorded
        assert story.differs == []


@pytest.mark.parametrize(("fault", "service"), CALLS)
def test_rule_1_also_when_it_crashes_inside_of_a_write(fault: str, service: str) -> None:
    """COVR Rules, 1: the crash is in the middle of the checkpoint, of the log's write, of a link of the lock."""
    assert [story.wrong() for story in cut_short(fault, service) if story.wrong()] == []


@pytest.mark.parametrize(
    ("safeguard", "at", "violation"),
    [
        ("send_confirmed_only", 45, STRAY),
        ("prove_before_release", 44, STRAY),
        ("prove_before_release", 37, OTHER_ANSWER),
    ],
)
def test_rule_1_is_broken_by_a_release_before_the_proof(safeguard: str, at: int, violation: str) -> None:
    shows(safeguard, "overtake shop", at, violation)


# ---- rule 2 --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAULTS)
def test_rule_2_every_message_reaches_its_recipient_and_nobody_is_told_that_one_failed(name: str) -> None:
    """COVR Rules, 2: eventually, at least once; no retry is given up, no handler ever hears of a connection."""
    for story in places(name):
        assert story.booked == [1, 2, 3]
        (settled,) = story.town.customer.results[5]
        assert settled[0] == Status.OK


@pytest.mark.parametrize(("minutes", "leap_s"), [(1, 5), (60, 300), (3 * 7 * 24 * 60, 6 * 3600)])
def test_rule_2_outlasts_a_partition_of_any_length(minutes: int, leap_s: int) -> None:
    """Rule 2: "we assume network partitions eventually heal": also after three weeks, beyond any budget of retries."""
    town = Town()
    town.steps_max = 5_000
    town.loses = lambda action: action.link is not None
    end = town.now + 60 * minutes
    while town.now < end:
        town.now += leap_s
        for _ in range(12):
            town.step()
    assert town.houses["shop"].now.engine.shard.outbox.bytes, "it keeps what it has, and nobody was told of anything"
    town.loses = lambda action: False
    assert ended(town).wrong() == []


def test_rule_2_is_broken_by_an_acknowledgement_before_processing_is_durable() -> None:
    shows("reack_confirmed_only", "overtake bank", 51, FORGOTTEN)


# ---- rule 3 --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAULTS)
def test_rule_3_a_message_is_there_for_processing_until_it_was_processed_and_no_longer(name: str) -> None:
    """COVR Rules, 3: with rule 2, exactly once."""
    assert all(story.once for story in places(name))


@pytest.mark.parametrize(
    ("safeguard", "fault", "at", "violation"),
    [("dedup", "double_packet", 49, TWICE), ("next_expected_only", "lose_packet", 62, NOT_ONCE)],
)
def test_rule_3_is_broken_by_taking_repetitions_or_what_comes_too_early(
    safeguard: str, fault: str, at: int, violation: str
) -> None:
    shows(safeguard, fault, at, violation)


# ---- rule 4 --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAULTS)
def test_rule_4_every_retry_has_the_same_return_value(name: str) -> None:
    """COVR Rules, 4: the replies count, draw and tell the time, so that one computed again differs."""
    for story in places(name):
        assert [len(answers) for answers in story.answers] == [1] * 6
        (failed,) = story.town.customer.replies[3]
        assert failed[0] == Status.ERROR, "an exception is a return value as well"


def test_rule_4_every_retry_has_the_same_return_value_however_late_it_comes() -> None:
    """Rule 4: the customer repeats everything from the start when all is over, at another primary."""
    town = Town()
    story = ended(town)
    seen = {seq: set(replies) for seq, replies in town.customer.replies.items()}
    for fault in ("kill shop", "lose_power shop", "depose shop"):
        FAULTS[fault](town)
        town.customer.replies.clear()
        town.customer.results.clear()
        unacknowledged = [5]  # what it acknowledged it has, and is never sent again (I5)
        town.customer.replies.update({seq: seen[seq] for seq in seen if seq not in unacknowledged})
        story = ended(town)
        assert town.customer.replies == seen
        assert story.wrong() == []


def test_rule_4_is_broken_where_replies_are_not_kept() -> None:
    shows("record_replies", "kill shop", 38, UNANSWERED)


def answered_twice() -> tuple[set[bytes], set[bytes]]:
    """What a customer is told that asks again for what it has."""
    town = Town(calls=[("pay", {"n": 1})]).run()
    first = town.customer.replies.pop(1)
    town.run()
    return first, town.customer.replies[1]


def test_rule_4_is_broken_by_computing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first, again = answered_twice()
    assert first == again
    mutants.replies_computed_again(monkeypatch)
    first, again = answered_twice()
    assert first != again


# ---- rule 5 --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in OF_ONE if name.endswith("shop")])
def test_rule_5_an_input_is_processed_at_most_once_and_never_lost_once_acknowledged(name: str) -> None:
    """COVR Rules, 5: a sender outside that never repeats loses what was under way, and nothing that was answered."""
    pays = [("pay", {"n": 1}), ("pay", {"n": 2})]
    for at in range(LED, Town(pays).run().steps):
        town = Town(pays).run(at)
        FAULTS[name](town)
        town.customer.calls = town.customer.calls[: town.customer.answered]  # it goes away
        story = ended(town)
        assert story.cart()["paid"] in ([], [1], [1, 2])
        assert len(story.cart()["paid"]) >= town.customer.answered
        assert story.booked == story.cart()["paid"]


def test_rule_5_is_broken_without_looking_for_repetitions() -> None:
    shows("dedup", "kill shop", 38, TWICE)


# ---- rule 6 --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAULTS)
def test_rule_6_at_least_one_attempt_is_made_for_each_output(name: str) -> None:
    """COVR Rules, 6: at least once with one key for all attempts; at most once where its driver says so."""
    unknown = 0
    for story in places(name):
        keys = {key for activity, key in story.town.begun if activity == "print_receipt"}
        assert len(keys) == 1
        assert story.attempts("ring") <= 1
        (step,) = story.cart()["steps"]
        assert (step == "nobody knows") or story.attempts("ring") == 1
        unknown += step == "nobody knows"
    assert not unknown or name.endswith("shop"), "a takeover between attempt and outcome, and nothing else"
    assert unknown or name != "kill shop"


def test_rule_6_is_broken_for_at_most_once_without_a_logged_attempt() -> None:
    shows("log_attempt_first", "kill shop", 82, RANG_TWICE)


# ---- appendix ------------------------------------------------------------------------------------------------------


def test_appendix_a_notification_follows_the_checkpoint_of_its_message() -> None:
    """Appendix, first operation: "a notification is not sent until the effects are in a checkpoint"."""
    looked = 0
    for at in range(LED, steps_in_all()):
        town = Town().run(at)
        commits = [
            decode_peer_commit(body)
            for link, _, kind, body in town.trail
            if kind == Type.PEER_COMMIT and link.target.service == "bank"
        ]
        house = town.houses["bank"]
        shard = house.make_shard()
        for frame in house.frames() if commits else ():
            shard.apply(frame)
        for session, through in commits:
            known = shard.sessions.get(session)
            assert known is not None
            assert known.next_seq > through
            looked += 1
    assert looked > 20


def pending(town: Town) -> list[bytes]:
    """What the shop has for the bank."""
    outbox = town.houses["shop"].now.engine.shard.outbox
    target = Target("bank", 0)
    return outbox.messages_from(target, outbox.first_position(target), 1 << 20)


def test_appendix_on_restart_the_pending_messages_are_those_of_the_recovery_state() -> None:
    """Appendix, restart: what was in the outbox of the one before is in that of the next, byte for byte."""
    compared = 0
    for at in range(LED, steps_in_all()):
        town = Town().run(at)
        house = town.houses["shop"]
        kept = pending(town)
        FAULTS["kill shop"](town)
        while not house.now.leads:
            town.step()
        assert pending(town)[: len(kept)] == kept
        compared += bool(kept)
    assert compared > 3


# ---- additional considerations -------------------------------------------------------------------------------------

TOLD_TO_HANDLERS = {
    "begun_in", "call", "complete", "continue_with", "emit", "fork", "gather", "key", "lsn", "now", "now_us", "promise",
    "race", "random", "reply_later", "run", "timer", "uuid",
}  # fmt: skip


def test_consideration_1_a_handler_can_not_learn_that_anything_crashed() -> None:
    """Reduce the chance that information about a crash appears in an output: no epoch, role, retry, clock, process."""
    assert {name for name in dir(Context) if not name.startswith("_")} <= TOLD_TO_HANDLERS


@pytest.mark.parametrize("name", FAULTS)
def test_consideration_1_the_replay_without_crashes_says_the_same(name: str) -> None:
    """The same: what the customer was told is what a run without any crash, in the logged order, says."""
    for story in places(name):
        assert story.recorded
        assert not any(b"onnection" in answer for answers in story.answers for answer in answers)


@pytest.mark.parametrize("name", [name for name in OF_ONE if name.endswith("shop")])
def test_consideration_2_the_way_in_is_highly_available(name: str) -> None:
    """Make in-COVR components highly available: each request is answered, by whoever leads, within a bounded time."""
    usual = Town().run().now
    for story in places(name):
        assert len(story.town.customer.replies) == 5
        assert story.town.now - usual < 10.0


def test_considerations_3_and_4_what_only_returns_values_needs_no_table() -> None:
    """Simplify out-COVR and in-COVR components: of activities and of clients nothing is kept once all is over."""
    for name in FAULTS:
        for story in places(name):
            shard = story.town.houses["shop"].now.engine.shard
            assert shard.executor.activities() == []
            assert shard.executor.suspended() == []
            assert [peer.target.service for peer in shard.peers.peers()] == ["bank"], "who sends messages, not values"


def test_considerations_3_and_4_one_that_crashes_again_and_again_delays_nobody_else() -> None:
    """The same: while the bank ends behind every few steps the shop's own callers have their answers as ever."""
    pays = [("pay", {"n": n}) for n in (1, 2, 3)]
    usual = Town(pays)
    while not usual.customer.served:
        usual.step()
    town = Town(pays)
    town.steps_max = 5_000
    served = 0.0
    for _ in range(300):
        town.kill(town.houses["bank"].now)
        for _ in range(4):
            town.step()
        town.now += 2.0  # ten minutes in all
        served = served or (town.steps if town.customer.served else 0)
    assert not any(house.now.leads for name, house in town.houses.items() if name == "bank")
    assert 0 < served < 4 * usual.steps
    assert len(pending(town)) == 3, "what it is owed, and nothing more"
    assert town.houses["shop"].now.engine.shard.executor.invocation_count() == 0
    assert ended(town).wrong() == []


@pytest.mark.parametrize("fault", apart.FAULTS)
def test_consideration_5_a_component_that_was_written_apart_obeys_the_same_rules(
    fault: Callable[[apart.Street], None],
) -> None:
    """Implement COVR in the infrastructure: whoever keeps to the pages of its protocol, at every place of a fault."""
    street = apart.Street()
    street.run()
    for at in range(apart.LED, street.steps):
        assert apart.told(fault, at).wrong() == []

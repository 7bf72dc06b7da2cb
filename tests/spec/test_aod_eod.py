"""Exactly-Once Delivery (AOD, EOD, with and without an intermediary), section by section.

The sender is a service's outbox, the question "have you received it?" is PEER_HELLO, the answer PEER_WELCOME with the
next expected position, the receiver is the other service's state. Between customer and state the shop's primary is the
intermediary. Faults are those of tests/spec/faults.py.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from tests.spec.customer import Customer
from tests.spec.faults import FAULTS, LED, ended, places, shows, steps_in_all, told
from tests.spec.process import Link
from tests.spec.story import NOT_ONCE, OTHER_ANSWER, TWICE, tell
from tests.spec.town import Action, Town

from deathless.base.ids import SessionId
from deathless.base.limits import Limits
from deathless.codec.peer_messages import SELF, PeerHello, Target
from deathless.codec.wire import PeerWelcome, Type, decode_batch, decode_struct
from deathless.core.tables.peer_table import PeerTable
from deathless.core.tables.sessions import SessionTable

ROUGH = [name for name in FAULTS if not name.startswith(("freeze", "overtake"))]
SENT = "packet 18 there"


def rough(seed: int, stop: int) -> Town:
    """Faults of all kinds, one in twelve steps, up to a step that nobody in the town knows."""
    chance = random.Random(seed)
    town = Town()
    while town.steps < stop:
        town.step()
        if chance.random() < 1 / 12:
            FAULTS[chance.choice(ROUGH)](town)
    return town


@pytest.mark.parametrize("seed", range(12))
def test_safety_holds_while_faults_come_and_liveness_once_they_stop(seed: int) -> None:
    """Safety and Liveness: safety under any faults; liveness if they stop for long enough, whenever that is."""
    for stop in (30, 90, 150):
        assert ended(rough(seed, stop)).wrong() == []


@pytest.mark.parametrize("seed", range(3))
def test_the_algorithm_does_not_use_that_faults_stop(seed: int) -> None:
    """Safety and Liveness: "the algorithm we design may never use that fact": two runs are one up to the stop."""
    early, late = rough(seed, 80), rough(seed, 140)
    assert early.wire == late.wire[: len(early.wire)]
    assert early.begun == late.begun[: len(early.begun)]


def no_answers(action: Action) -> bool:
    """Loses whatever a receiver says: the messenger who returns is captured."""
    return action.what == f"packet {int(Type.PEER_COMMIT)} back"


def test_two_generals_the_message_may_be_there_for_ever_without_its_sender_knowing() -> None:
    """Two Generals' Problem; EOD and TGP: no deadline: delivered, not known to be, and still exactly once."""
    town = Town(calls=[("pay", {"n": 1}), ("pay", {"n": 2})])
    town.loses = no_answers
    for _ in range(400):
        town.step()
    bank, shop = (town.houses[name].now.engine.shard for name in ("bank", "shop"))
    assert town.houses["bank"].till(bank)["booked"] == [1, 2]
    asked = [decode_struct(PeerWelcome, body) for _, _, kind, body in town.trail if kind == Type.PEER_WELCOME]
    assert len(asked) > 2, "its sender asks again and again"
    town.loses = lambda action: False
    story = ended(town)
    assert (story.wrong(), shop.outbox.bytes) == ([], 0)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
def test_at_least_once_the_sender_repeats_until_it_is_acknowledged(count: int) -> None:
    """At-Least-Once Delivery: however many of the first sends are lost."""
    lost: list[Action] = []

    def loses(action: Action) -> bool:
        if action.what != SENT or len(lost) == count:
            return False
        lost.append(action)
        return True

    town = Town(calls=[("pay", {"n": 1})])
    town.loses = loses
    assert ended(town).wrong() == []
    assert len(lost) == count


def told_nothing(*, arrives: bool) -> Town:
    """A message is delivered, or lost; either way its sender hears nothing of it."""
    town = Town(calls=[("pay", {"n": 1})])
    town.loses = lambda action: no_answers(action) or (not arrives and action.what == SENT)
    while not town.wire:
        town.step()
    for _ in range(6):
        town.step()
    return town


def test_a_sender_that_is_told_nothing_can_not_know_and_does_neither_of_the_two_wrong_things() -> None:
    """Exactly-Once Delivery, impossibility: E (delivered) and E' (lost) look the same; so it asks first."""
    one, other = told_nothing(arrives=True), told_nothing(arrives=False)
    kept = [town.houses["shop"].now.engine.shard.outbox.snapshot() for town in (one, other)]
    assert kept[0] == kept[1] != []
    booked = [town.houses["bank"].till(town.houses["bank"].now.engine.shard)["booked"] for town in (one, other)]
    assert booked == [[1], []]
    for town in (one, other):
        town.loses = lambda action: False
        assert ended(town).wrong() == []


def conversations(town: Town) -> dict[Link, list[tuple[int, int]]]:
    """Per connection what arrived: (kind, position), position of a batch or of an answer."""
    found: dict[Link, list[tuple[int, int]]] = {}
    for link, _, kind, body in town.trail:
        at = 0
        if kind == Type.BATCH:
            at = decode_batch(body).run.first_seq
        elif kind == Type.PEER_WELCOME:
            at = decode_struct(PeerWelcome, body).next_position
        found.setdefault(link, []).append((kind, at))
    return found


@pytest.mark.parametrize("name", ["break_connections", "leave_connections", "kill bank", "kill shop", "depose shop"])
def test_asking_the_receiver_nothing_is_sent_before_the_answer_and_then_from_where_it_says(name: str) -> None:
    """Asking the Receiver, solution 1 to 3: ask; on "no" send; on "yes" stop. Each connection is one question."""
    asked = 0
    for story in places(name):
        for heard in conversations(story.town).values():
            kinds = [kind for kind, _ in heard]
            assert kinds[0] == Type.PEER_HELLO, "the question comes first"
            if Type.BATCH not in kinds:
                continue
            assert Type.PEER_WELCOME in kinds[: kinds.index(Type.BATCH)]
            answer = next(at for kind, at in heard if kind == Type.PEER_WELCOME)
            assert next(at for kind, at in heard if kind == Type.BATCH) == answer
            asked += answer > 1
    assert asked, "answers that are a yes for some and a no for the rest"


def test_asking_the_receiver_a_late_answer_to_an_older_question_is_ignored() -> None:
    """Asking the Receiver: the sender ignores a "No" that is not to its last question: that of another connection."""
    late = 0
    for story in places("leave_connections"):
        assert story.wrong() == []
        late += len(conversations(story.town)) > 2
    assert late > 20


def test_requirement_1_the_receiver_never_forgets_what_was_delivered() -> None:
    """Asking the Receiver, requirement 1: not by time, not by number, not in a checkpoint; a client's session ends."""
    limits = Limits(sessions_max=2, session_idle_max_s=1)
    sessions, peers = SessionTable(limits), PeerTable(limits)
    hello = PeerHello("shop", 0, bytes(16), 1)
    session = peers.introduce(hello, 7)
    assert session is not None
    sessions.register_peer(session)
    for client in range(20, 30):
        sessions.register(SessionId(client), bytes([client]) * 16, 0)
    assert len(sessions.expire(1 << 50)) == 10
    copied, known = SessionTable(limits), PeerTable(limits)
    copied.restore(sessions.snapshot())
    known.restore(peers.snapshot())
    found = known.find(hello)
    assert found is not None
    assert copied.get(found.session) is not None


def test_requirement_2_what_overtakes_another_message_is_not_delivered() -> None:
    """Asking the Receiver, requirement 2: the channel may lose, not reorder; where it does, positions are the order."""
    assert [story.wrong() for story in places("delay_packet") if story.wrong()] == []
    shows("next_expected_only", "delay_packet", 62, NOT_ONCE)


@pytest.mark.parametrize("name", FAULTS)
def test_using_an_intermediary_acknowledges_what_the_state_has_and_nothing_else(name: str) -> None:
    """Using an Intermediary: it says yes to the sender once the receiver said yes: every answer stands in the log."""
    for story in places(name):
        assert story.recorded
        assert len(story.town.customer.replies) == 5


def test_using_an_intermediary_the_sender_only_repeats() -> None:
    """Using an Intermediary: every packet of the customer comes twice, and it asks again without being told why."""
    shows("dedup", "kill shop", 38, TWICE)
    for at in range(LED, steps_in_all()):
        town = Town().run(at)
        for action in [action for action in town.actions if action.what == "a packet of the customer"]:
            town.actions.append(action)
        town.customer.ask()
        assert ended(town).wrong() == []


def test_several_intermediaries_hold_one_request_at_once() -> None:
    """EOD in Practice: a deposed primary and its successor both have the request; one of them can confirm it."""
    assert [story.wrong() for story in places("overtake shop") if story.wrong()] == []
    shows("prove_before_release", "overtake shop", 58, OTHER_ANSWER)


PAID = ("pay", {"n": 5})


def two_senders(town: Town, *, key: bytes) -> Customer:
    """Another customer who brings the same requests in a session of its own."""
    other = Customer(town.customer.calls, town.to_shop, b"d" * 16)
    town.customer.idempotency_key = other.idempotency_key = key
    return other


@pytest.mark.parametrize("at", range(LED, Town([PAID]).run().steps))
def test_a_guid_names_a_request_whoever_brings_it(at: int) -> None:
    """EOD in Practice, explicit delivery checking: two gateways bring one request, its key names it."""
    town = Town(calls=[PAID])
    other = two_senders(town, key=b"order-77")
    town.run(at)
    FAULTS["kill shop"](town)
    story = ended(town)
    replies = dict(town.customer.replies)
    town.customer = other
    ended(town)
    assert other.replies == replies
    assert tell(town).booked == story.booked == [5]


def test_requests_of_the_same_content_are_not_the_same_request() -> None:
    """EOD in Practice: a hash of the content would merge three payments of five; positions do not."""
    for at in range(LED, Town([PAID, PAID, PAID]).run().steps):
        story = told(FAULTS["kill shop"], at, calls=[PAID, PAID, PAID])
        assert story.booked == [5, 5, 5]


def test_the_state_is_the_receiver_so_a_crash_of_the_server_loses_nothing_that_it_took() -> None:
    """EOD in Practice: "EOD with the state as the receiver": to the server alone would lose what it had not done."""
    stories: Sequence[object] = [story.wrong() for name in ("kill shop", "kill bank") for story in places(name)]
    assert not any(stories)
    assert SELF not in {target for story in places("kill shop") for _, target, _, _ in story.town.wire}
    assert Target("bank", 0) in {target for _, target, _, _ in places("kill shop")[0].town.wire}

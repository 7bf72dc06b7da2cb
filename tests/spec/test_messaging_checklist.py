"""What the tests of ocap-kernel's remote messaging look at, and what they leave out: each a named test of ours.

`WHERE` says for each behaviour which test shows it; that the test is there is looked up. What no other file tests, and
the gaps ("missing everywhere"), are tested here.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest
from tests.spec.customer import Customer
from tests.spec.faults import FAULTS, LED, cut_short, ended, places, shows, steps_in_all
from tests.spec.story import NOT_ONCE
from tests.spec.town import Town
from tests.unit.deathless.engine.shard.test_messaging import ID, SHOP_HELLO, Pair, fork, reloaded

from deathless.codec.messages import Kind, encode
from deathless.codec.peer_messages import PeerHello
from deathless.core.tables.peer_table import PeerTable

TESTS = Path(__file__).parents[1]
UNIT = "unit/deathless/"
CORE, ENGINE, RUN, SHELL = UNIT + "core/", UNIT + "engine/", UNIT + "execution/", UNIT + "shell/"
KEN, AOD, COVR, HERE = (
    f"spec/test_{name}.py::test_" for name in ("ken", "aod_eod", "covr_rules", "messaging_checklist")
)
MESSAGING, SENDING, RECEIVING = (
    CORE + f"primary/test_{name}.py::test_" for name in ("messaging", "sending", "receiving")
)
SHARD, ARRIVALS, LINKS, WIRE = (
    ENGINE + "shard/test_messaging.py::test_",
    RUN + "invocations/test_arrivals.py::test_",
    SHELL + "worker/test_peer_links.py::test_",
    UNIT + "codec/test_wire.py::test_",
)

WHERE = {
    # RemoteHandle: numbers, acknowledgements, what is durable when.
    "assigns sequential sequence numbers": CORE + "tables/test_outbox.py::test_positions_of_each_target_count_from_one",
    "includes ack field: confirmed receipts only": MESSAGING
    + "lower_ones_are_acknowledged_again_but_only_what_is_confirmed",
    "tracks the next expected, not the highest": SHARD
    + "i3_a_peer_is_introduced_once_and_its_runs_move_its_session_on",
    "standalone ACK: an idle link still acknowledges": MESSAGING
    + "messages_of_a_peer_run_and_are_acknowledged_once_confirmed",
    "ack is handled by itself and is idempotent": SENDING + "the_peer_says_from_where_and_what_it_has_is_trimmed",
    "out-queue durable before the wire": SENDING + "nothing_leaves_before_its_frame_is_confirmed",
    "[gap] a jump straight to seq 5 is refused": MESSAGING + "higher_ones_are_dropped",
    "deletes what is ACKed, cumulative": SHARD
    + "trimmed_messages_are_gone_from_every_replica_and_their_positions_stay",
    "restores pending messages on startup": COVR
    + "appendix_on_restart_the_pending_messages_are_those_of_the_recovery_state",
    "repairs after a crash between any two writes of the first enqueue, or of any": KEN
    + "property_3_a_turn_is_done_or_never_was",
    "cleans up orphans: crash between ack and delete": KEN
    + "property_6_the_sender_keeps_every_message_until_it_is_acknowledged",
    "fresh remote with no persisted state: seq 1": CORE
    + "tables/test_outbox.py::test_a_target_that_was_never_sent_to_begins_at_one_and_holds_nothing",
    "duplicates are dropped and acknowledged again": MESSAGING
    + "lower_ones_are_acknowledged_again_but_only_what_is_confirmed",
    "[gap] position and processing are atomic: kill inside": HERE + "gap_kill_at_each_io_point",
    "[gap] the same seq after a processing error: poison message policy": MESSAGING
    + "a_peers_message_that_killed_twice_is_parked_and_acknowledged",
    "order on retransmission": SENDING + "a_lost_connection_begins_again_from_where_the_peer_says",
    "[gap] a transient send error is the loss: gaps are refused": HERE + "gap_loss_inside_a_window",
    # RemoteHandle: another incarnation, giving up.
    "only a change of identity is terminal": RECEIVING + "another_incarnation_is_refused_and_shown_until_it_is_adopted",
    "no failure of the network is": LINKS + "a_service_that_is_nowhere_is_looked_for_again_and_told_to_operators",
    "restart resets both directions and both counters": MESSAGING + "an_adopted_peer_begins_anew_in_both_directions",
    "restart: durable and in memory agree": SHARD + "an_adopted_peer_begins_anew_in_both_directions",
    "restart: a reply to a dead incarnation completes no new call": ENGINE
    + "test_two_services.py::test_i3_a_service_created_anew_is_told_no_reply_to_what_the_one_before_it_asked",
    "restart: every flag of an incarnation is reset": SENDING
    + "an_adopted_peer_gets_everything_from_position_one_and_nothing_of_before",
    "restart: no reference survives": CORE
    + "tables/test_peer_table.py::test_an_adopted_peer_has_a_new_session_and_the_one_before_it_is_refused",
    "giving up: operators' channel only": SENDING
    + "a_peer_that_lost_what_it_confirmed_is_told_to_operators_and_tried_again_for_ever",
    # RemoteHandle: requests and their replies.
    "redeem: success": ARRIVALS + "response_resumes_who_asked",
    "redeem: failure": ARRIVALS + "error_of_the_callee_is_raised_in_the_caller",
    "redeem: unknown reply key": ARRIVALS + "second_response_and_one_for_nobody_change_nothing",
    "redeem: counter increments, concurrent ones are independent": ARRIVALS + "responses_may_come_in_any_order",
    "redeem timeout: it ends the wait": ARRIVALS + "deadline_cancels_the_call",
    "redeem timeout: a late reply is harmless": ARRIVALS
    + "reply_that_comes_behind_its_deadline_changes_nothing_of_a_handler_that_goes_on",
    "redeem timeout: cleaned up on success": ARRIVALS + "deadline_of_an_answered_call_is_nothing",
    "deliver and its kin are understood": RUN
    + "invocations/test_peer_intake.py::test_handler_sees_key_place_and_time_of_its_message",
    "bogus deliver, bogus type": HERE + "a_message_that_can_not_be_decoded_has_its_position_and_nothing_else",
    "request with an error": ARRIVALS + "response_that_cannot_be_read_fails_the_call",
    "control traffic obeys the same log": SENDING + "one_trim_per_target_and_frame",
    # RemoteManager.
    "restores established remotes": HERE + "a_peer_and_its_session_come_back_together",
    "reuses an existing remote": CORE
    + "tables/test_peer_table.py::test_the_first_observation_registers_a_peer_and_the_same_is_found_again",
    "dedup state is created in the same commit": RECEIVING + "an_unknown_peer_is_welcomed_once_its_record_is_confirmed",
    "incarnation: persisted differs from observed": CORE
    + "tables/test_peer_table.py::test_i3_a_peer_that_was_created_anew_is_refused_and_changes_nothing",
    "[gap] first observation with dedup state is suspicious": HERE
    + "gap_there_is_no_session_of_a_peer_whose_incarnation_is_not_known",
    "incarnation: the same does nothing": CORE
    + "tables/test_peer_table.py::test_adopting_the_peer_that_is_known_changes_nothing",
    "incarnation: persists even where nothing is connected": CORE
    + "tables/test_peer_table.py::test_a_peer_can_be_adopted_before_it_was_seen",
    "memory changes only after commit": CORE
    + "primary/test_own_records.py::test_records_leave_in_order_and_what_follows_waits_for_the_proof",
    "incarnation: promises that it should decide are rejected": ARRIVALS + "calls_of_a_peer_that_was_created_anew_fail",
    # Store.
    "store: set, get, delete, cleanup": CORE
    + "tables/test_outbox.py::test_a_message_is_kept_until_it_is_confirmed_and_its_position_is_never_given_again",
    "store: clear keeps the relationship": CORE
    + "tables/test_outbox.py::test_a_target_that_was_created_anew_begins_at_one_again",
    # Crank and queue.
    "crank: roll back clears the output buffer": KEN + "property_3_a_turn_that_fails_leaves_no_state_and_sends_nothing",
    "crank: one delivery for each, a later abort rolls back no earlier one": RUN
    + "invocations/test_invocation.py::test_exception_in_a_later_turn_rolls_that_turn_back",
    "crank: no await inside, nothing nests": RUN
    + "invocations/test_invocation.py::test_awaiting_what_is_no_operation_ends_it_without_trace",
    "persistence: state and messages in queue across restarts": "process/test_messaging.py::"
    "test_a_saga_waits_through_the_end_of_everything",
    "queue: terminate ends the caller": RUN
    + "invocations/test_invocation.py::test_what_finally_clauses_do_when_it_is_killed_is_lost",
    "queue: double resolve changes nothing": RUN
    + "invocations/test_all_invocations.py::test_completion_of_what_is_gone_changes_nothing",
    "queue: who is no decider resolves nothing": ARRIVALS + "response_of_another_than_was_asked_changes_nothing",
    # Handshake and peer state.
    "handshake: wrong first message": ENGINE + "replica/test_intake.py::test_anybody_else_is_refused",
    "handshake: inbound, before the channel counts": MESSAGING + "only_the_connection_that_was_welcomed_last_counts",
    "handshake: outbound": LINKS + "a_primary_in_the_folder_beside_ours_is_greeted_and_told_to_the_core",
    "handshake: the channel closes": RECEIVING + "nobody_is_answered_who_is_gone",
    "handshake: what is no packet": LINKS + "what_is_no_packet_of_ours_ends_the_connection",
    "[gap] removing a stale peer must not forget dedup state": AOD
    + "requirement_1_the_receiver_never_forgets_what_was_delivered",
    # Reconnection.
    "reconnection: back-off per peer": LINKS
    + "pauses_double_to_a_cap_with_jitter_and_stay_short_where_a_replica_answers",
    "reconnection: idempotent start": LINKS + "a_target_that_is_dialed_again_keeps_its_connection",
    "reconnection: abort during delay or dial": LINKS
    + "a_target_that_is_dropped_before_it_was_reached_is_not_looked_for_any_more",
    "reconnection: reset clears the error history": LINKS
    + "a_service_that_is_nowhere_is_looked_for_again_and_told_to_operators",
    "reconnection: never a permanent failure": COVR + "rule_2_outlasts_a_partition_of_any_length",
    "reconnection: a refusal for now burns no retry": LINKS
    + "a_batch_that_is_not_admitted_is_sent_again_from_where_the_peer_says",
    # Transport and framing.
    "transport: reset and EOF are loss": LINKS + "a_lost_connection_is_told_once_and_made_again",
    "transport: closes the previous channel": RECEIVING
    + "an_older_connection_ends_before_the_newer_is_told_from_where",
    "transport: dial race, one of two channels counts": MESSAGING + "only_the_connection_that_was_welcomed_last_counts",
    "transport: the incarnation is told on every connection, before anything else": AOD
    + "asking_the_receiver_nothing_is_sent_before_the_answer_and_then_from_where_it_says",
    "transport: what is to be sent is dropped where a restart is detected": SENDING
    + "an_adopted_peer_gets_everything_from_position_one_and_nothing_of_before",
    "transport: intentional close refuses inbound": RECEIVING + "a_primary_that_lets_go_sends_peers_away",
    "transport: intentional close refuses outbound": LINKS + "a_dropped_target_is_told_of_no_more",
    "transport: no sends after stop": LINKS + "a_dropped_target_is_told_of_no_more",
    "transport: write timeout, a slow reader": SHELL
    + "net/test_connections.py::test_peer_that_does_not_read_is_cut_off_at_the_maximum",
    "transport: limit of connections": SHELL
    + "worker/test_worker.py::test_i10_connection_beyond_the_maximum_is_refused_with_a_word",
    "framing: reassembles a split payload": WIRE + "a_stream_of_single_bytes_gives_the_same_packets",
    "framing: keeps boundaries back to back": WIRE + "all_packets_at_once_are_the_packets_one_by_one",
    "framing: refuses an oversize announcement": WIRE + "a_long_packet_is_refused_by_its_length_alone",
    # End to end.
    "e2e: both directions": KEN + "the_story_in_which_nothing_breaks_has_every_kind_of_message",
    "e2e: connection failure and recovery, order kept in the queue": KEN
    + "property_1_exactly_once_in_pairwise_fifo_order",
    "e2e: above the limit of the queue": MESSAGING + "a_full_outbox_stops_clients_but_not_peers",
    "e2e: several peers": CORE + "test_messaging_pairs.py::test_messages_arrive_once_and_in_order_whatever_breaks",
    "e2e: a peer of fresh state is detected": "process/test_shop.py::"
    "test_a_service_that_was_created_anew_is_refused_until_an_operator_adopts_it",
    "e2e: dedup kept when the receiver restarts": AOD + "requirement_1_the_receiver_never_forgets_what_was_delivered",
    "e2e: dedup kept when the receiver loses its memory of incarnations": HERE
    + "a_peer_and_its_session_come_back_together",
    "e2e: promises survive, whatever the number of retries": COVR
    + "rule_2_every_message_reaches_its_recipient_and_nobody_is_told_that_one_failed",
    # Missing everywhere.
    "[gap] out-of-order arrival": HERE + "gap_out_of_order_arrival",
    "[gap] loss inside a window": HERE + "gap_loss_inside_a_window",
    "[gap] kill -9 at each I/O point": HERE + "gap_kill_at_each_io_point",
    "[gap] sync loss": HERE + "gap_sync_loss",
    "[gap] reply lost, then the server crashed": HERE + "gap_a_reply_is_lost_and_then_the_server_crashes",
    "[gap] retry while the first attempt runs": HERE + "gap_a_retry_while_the_first_attempt_runs",
    "[gap] seq reuse with other content": HERE + "gap_a_seq_used_again_with_other_content_gets_the_recorded_reply",
    "[gap] two with the same identity": HERE + "gap_two_with_the_same_identity",
    "[gap] two services with the same identity": RECEIVING
    + "two_that_call_themselves_the_same_are_not_introduced_at_once",
    "[gap] one of them behind the other": SENDING + "a_peer_that_has_heard_of_a_successor_makes_us_ask_the_fence",
    # SwingSet.
    "swingset: embargo of output until its consequences are durable": COVR
    + "rule_1_is_broken_by_a_release_before_the_proof",
    "swingset: replay compares, the first difference halts": SHARD
    + "i6_a_divergence_in_what_a_peer_sent_names_its_message_or_whose_turn_it_caused",
    "swingset: acknowledgements in either order, replies that cross": CORE
    + "test_messaging_pairs.py::test_messages_arrive_once_and_in_order_whatever_breaks",
    "swingset: mailbox determinism, the same inbox twice": SHARD
    + "i6_any_frames_give_every_replica_the_same_also_one_that_was_loaded_on_the_way",
    "swingset: replay after an upgrade": "process/test_cli_log.py::"
    "test_other_code_that_gives_the_same_is_no_difference",
    "swingset: replay of a live store": "process/test_cli_log.py::test_replay_and_verify_change_nothing",
    "swingset: restarts of the host are no part of the transcript": COVR
    + "consideration_1_the_replay_without_crashes_says_the_same",
}

DOES_NOT_APPLY = {
    "transport: dial race, both ends dial and share a channel": "each dials for what it sends, so there are two; see "
    + MESSAGING + "messages_of_a_peer_run_and_are_acknowledged_once_confirmed",
    "reconnection: permanent failure after N identical codes": "there is none; see "
    + COVR + "rule_2_outlasts_a_partition_of_any_length",
    "redeem: promises rejected after so many retries": "retries have no number; see "
    + COVR + "rule_2_every_message_reaches_its_recipient_and_nobody_is_told_that_one_failed",
    "crank: throws if nested, savepoint by name, release, waitForCrank": "there is no public crank: the executor "
    "commits a turn or rolls it back as a whole, and nobody opens, names or awaits one; see "
    + RUN + "invocations/test_invocation.py::test_exception_in_a_later_turn_rolls_that_turn_back",
    "bringOutYourDead, DropExports, RetireImports: garbage of two services": "handlers hold no references to another "
    "service's objects; see " + KEN + "the_story_in_which_nothing_breaks_has_every_kind_of_message",
}  # fmt: skip
"""What we have in another way or not at all: why, and the test that shows how it is here."""


@cache
def tests_of(path: str) -> set[str]:
    """Names of the test functions of a file."""
    tree = ast.parse((TESTS / path).read_text())
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds) and node.name.startswith("test_")}


@pytest.mark.parametrize("behaviour", WHERE)
def test_the_behaviour_has_its_test(behaviour: str) -> None:
    path, _, name = WHERE[behaviour].partition("::")
    assert name in tests_of(path)


@pytest.mark.parametrize("behaviour", DOES_NOT_APPLY)
def test_what_does_not_apply_says_why_and_what_holds_here(behaviour: str) -> None:
    assert behaviour not in WHERE
    why, _, shown = DOES_NOT_APPLY[behaviour].partition("; see ")
    path, _, name = shown.partition("::")
    assert why
    assert name in tests_of(path)


# ---- what no other file tests --------------------------------------------------------------------------------------


def test_a_message_that_can_not_be_decoded_has_its_position_and_nothing_else() -> None:
    """Bogus deliver: it does not stop the ones behind it, and a replay gives the same."""
    pair = Pair()
    session = pair.peer()
    pair.say(session, b"\x02\x00\xff\xff", encode(Kind.FORK, idempotency_key=b"\xc1"), fork("send bank"))
    known = pair.primary.sessions.get(session)
    assert known is not None
    assert known.next_seq == 4
    assert len(pair.held(pair.primary.outbox.targets()[0])) == 1


def test_a_peer_and_its_session_come_back_together() -> None:
    pair = Pair()
    session = pair.peer()
    pair.say(session, fork("one"))
    again = reloaded(pair.primary)
    peer = again.peers.find(SHOP_HELLO)
    assert peer is not None
    known = again.sessions.get(peer.session)
    assert known is not None
    assert (peer.session, known.next_seq) == (session, 2)


def test_an_answer_that_is_lost_for_long_still_comes_and_once() -> None:
    """All that the bank sends is lost for some 200 steps, its answer to `total` among it; nobody hears of that."""
    town = Town()
    answers = "packet 18 there"
    town.loses = lambda action: action.what == answers and action.by is town.houses["bank"].now and town.steps < 200
    story = ended(town)
    assert story.wrong() == []
    assert town.steps > 200


def test_gap_there_is_no_session_of_a_peer_whose_incarnation_is_not_known() -> None:
    """One PEER record makes both; another incarnation never gets the session of the one before it."""
    pair = Pair()
    session = pair.peer()
    table: PeerTable = pair.primary.peers
    assert {peer.session for peer in table.peers()} == {session}
    assert table.find(PeerHello("shop", 0, ID, 78)) is None
    assert table.find(PeerHello("shop", 0, bytes(16), 77)) is None
    assert table.introduce(PeerHello("shop", 0, ID, 78), 99) is None


# ---- missing everywhere --------------------------------------------------------------------------------------------


def test_gap_out_of_order_arrival() -> None:
    assert [story.wrong() for story in places("delay_packet") if story.wrong()] == []
    shows("next_expected_only", "delay_packet", 51, NOT_ONCE)


def test_gap_loss_inside_a_window() -> None:
    assert [story.wrong() for story in places("lose_packet") if story.wrong()] == []
    shows("next_expected_only", "lose_packet", 51, NOT_ONCE)


@pytest.mark.parametrize("service", ["shop", "bank"])
def test_gap_kill_at_each_io_point(service: str) -> None:
    assert [story.wrong() for story in cut_short("kill", service) if story.wrong()] == []


@pytest.mark.parametrize("service", ["shop", "bank"])
def test_gap_sync_loss(service: str) -> None:
    """The power goes before each call that changes the disk, and behind each step; what was not synced is lost."""
    stories = [*cut_short("lose_power", service), *places(f"lose_power {service}")]
    assert [story.wrong() for story in stories if story.wrong()] == []


def test_gap_a_reply_is_lost_and_then_the_server_crashes() -> None:
    lost = 0
    for at in range(LED, steps_in_all()):
        town = Town().run(at)
        answers = [action for action in town.actions if action.what == "a packet to the customer"]
        for action in answers:
            town.actions.remove(action)
        if answers:
            FAULTS["kill shop"](town)
            assert ended(town).wrong() == []
            lost += 1
    assert lost > 4


def test_gap_a_retry_while_the_first_attempt_runs() -> None:
    """At every place: also while the handler waits for the bank, or for an activity."""
    for at in range(LED, steps_in_all()):
        town = Town().run(at)
        town.customer.ask()
        assert ended(town).wrong() == []


def test_gap_a_seq_used_again_with_other_content_gets_the_recorded_reply() -> None:
    """What a seq was is decided once; a sender that changes its mind hears the answer to what it sent first."""
    town = Town(calls=[("pay", {"n": 1})])
    town.run()
    first = dict(town.customer.replies)
    FAULTS["kill shop"](town)
    town.customer.calls = [("pay", {"n": 9})]
    town.customer.replies.clear()
    town.run()
    assert town.customer.replies == first
    town.customer.calls = [("pay", {"n": 1})]
    assert ended(town).wrong() == []


def test_gap_two_with_the_same_identity() -> None:
    """Two customers with one nonce have one session: each seq is what came first, and both hear the same."""
    town = Town(calls=[("pay", {"n": 1}), ("pay", {"n": 2})])
    other = Customer([("pay", {"n": 1}), ("pay", {"n": 7})], town.to_shop)
    town.run(30)
    other.session = town.customer.session
    town.run()
    seen = dict(town.customer.replies)
    town.customer, first = other, town.customer
    town.customer.session = first.session
    FAULTS["depose shop"](town)
    town.run()
    assert seen.keys() == {1, 2}
    assert other.replies == seen
    town.customer = first
    assert ended(town).wrong() == []

"""A primary's peers, own work, results, activities and timers, as one: what is logged, what leaves, and when."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.deathless.core.messaging_world import PEER, TOOL, A, B, Place, start
from tests.unit.deathless.core.primary_world import SMALL, WALL_US, batch

from deathless.base.errors import (
    InvalidArgument,
    InvocationUnknown,
    NotPrimary,
    NotUndelivered,
    NotUnsettled,
    OutboxFull,
    Overloaded,
    TooLarge,
)
from deathless.base.limits import Limits
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.base.times import Times
from deathless.codec.messages import Kind, decode, encode
from deathless.codec.peer_history import NOTHING
from deathless.codec.peer_messages import (
    DISCARD,
    REDELIVER,
    SELF_SESSION,
    SETTLE,
    Adopt,
    Order,
    Outputs,
    PeerHello,
    Reference,
    Target,
)
from deathless.codec.snapshot import UndeliveredRecord, UnknownRecord
from deathless.codec.traces import Span, begun
from deathless.codec.wire import (
    PeerIntroduction,
    PeerWelcome,
    Refused,
    Type,
    decode_results,
    decode_struct,
    ok_reply,
)
from deathless.core import effects as fx
from deathless.core import events as ev
from deathless.core.events import SwitchoverOrdered
from deathless.core.primary.frame_size import RUN_S
from deathless.core.primary.messaging import Tables
from deathless.core.primary.sending import TRIM_S

# ---- peers that send ---------------------------------------------------------------------------------------------


def test_a_peer_is_registered_confirmed_and_then_welcomed() -> None:
    place = Place()
    place.tell(ev.PeerHelloReceived(PEER, PeerIntroduction(A, 1)))
    assert place.records() == [Kind.PEER]
    place.sync()
    assert place.welcomes() == []
    place.prove()
    assert place.welcomes() == [PeerWelcome(2, 1, NOTHING)]


def test_messages_of_a_peer_run_and_are_acknowledged_once_confirmed() -> None:
    place = Place()
    session = place.introduce()
    place.peer_sends(session, 1, b"one", b"two")
    place.sync()
    assert place.script.got == [("a", b"one"), ("a", b"two")]
    assert place.commits() == []
    place.prove()
    assert place.commits() == [2]


def test_lower_ones_are_acknowledged_again_but_only_what_is_confirmed() -> None:
    place = Place()
    session = place.introduce()
    place.peer_sends(session, 1, b"one")
    place.peer_sends(session, 1, b"one")
    assert place.commits() == []
    place.sync()
    place.peer_sends(session, 1, b"one", b"two")
    assert place.commits() == []
    place.settle()
    assert place.commits() == [1, 2]
    place.peer_sends(session, 1, b"one", b"two")
    assert place.commits() == [1, 2, 2]
    assert [text for _, text in place.script.got] == [b"one", b"two"]


def test_without_that_a_peer_forgets_what_a_successor_never_had() -> None:
    place = Place(safeguards=Safeguards(reack_confirmed_only=False))
    session = place.introduce()
    place.peer_sends(session, 1, b"one")
    place.peer_sends(session, 1, b"one")
    assert place.commits() == [1]  # no proof covers it: the frame may be lost with this primary


def test_higher_ones_are_dropped() -> None:
    place = Place()
    session = place.introduce()
    place.peer_sends(session, 2, b"two")
    assert place.owes(fx.RunFrame) == 0
    assert place.primary.counters.dropped == 1


def test_without_that_a_message_that_was_refused_is_lost() -> None:
    place = Place(safeguards=Safeguards(next_expected_only=False))
    session = place.introduce()
    place.peer_sends(session, 2, b"two")  # the first was refused, this was under way behind it
    place.settle()
    place.peer_sends(session, 1, b"one")  # the sender begins again from the first
    place.settle()
    assert place.script.got == [("a", b"two")]
    assert place.commits() == [1, 1]


def test_only_the_connection_that_was_welcomed_last_counts() -> None:
    place = Place()
    session = place.introduce()
    newer = ev.Conn(32)
    place.tell(ev.PeerHelloReceived(newer, PeerIntroduction(A, 2)))
    assert place.effects(fx.Disconnect) == [fx.Disconnect(PEER)]
    place.peer_sends(session, 1, b"late", conn=PEER)
    assert place.owes(fx.RunFrame) == 0
    place.peer_sends(session, 1, b"one", conn=newer)
    place.settle()
    assert (place.commits(PEER), place.commits(newer)) == ([], [1])


def test_without_the_fence_a_deposed_sender_hears_what_its_successor_should() -> None:
    place = Place(safeguards=Safeguards(fence_peer_connections=False))
    session = place.introduce()
    newer = ev.Conn(32)
    place.tell(ev.PeerHelloReceived(newer, PeerIntroduction(A, 2)))
    assert place.effects(fx.Disconnect) == []
    place.peer_sends(session, 1, b"one", conn=newer)
    place.peer_sends(session, 1, b"one", conn=PEER)
    place.settle()
    assert (place.commits(PEER), place.commits(newer)) == ([1], [])


def test_a_stranger_can_not_send_as_a_peer_and_a_client_can_not_send_what_peers_send() -> None:
    place = Place()
    session = place.introduce()
    place.peer_sends(session, 1, b"one", conn=ev.Conn(1))
    place.peer_sends(SELF_SESSION, 1, b"one", conn=ev.Conn(1))
    assert place.owes(fx.RunFrame) == 0
    place.peer_sends(place.session, 1, b"one", conn=ev.Conn(1))
    assert [refused.code for refused in place.refusals()] == [InvalidArgument.code]


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (encode(Kind.CALL), InvalidArgument.code),
        (encode(Kind.TIME), InvalidArgument.code),
        (b"short", InvalidArgument.code),
        (encode(Kind.FORK, args=b"x" * 2000), TooLarge.code),
    ],
)
def test_what_peers_do_not_send_is_refused(message: bytes, code: str) -> None:
    place = Place(Limits(clock_step_us=1 << 62, message_bytes_max=1000, frame_bytes_max=1500))
    session = place.introduce()
    place.do(place.primary.batches_received([(PEER, batch(session, 1, [message]))]))
    assert [refused.code for refused in place.refusals()] == [code]


def test_peer_whose_messages_may_be_longer_than_ours_is_served() -> None:
    """It logged what it sends: refused, it would stand before everything that comes later, for ever."""
    place = Place(Limits(clock_step_us=1 << 62, message_bytes_max=1000))
    session = place.introduce()
    place.peer_sends(session, 1, bytes(2000), b"next")
    place.settle()
    assert [len(args) for _, args in place.script.got] == [2000, 4]
    assert place.commits() == [2]


def test_a_peers_message_that_killed_twice_is_parked_and_acknowledged() -> None:
    place = Place(deaths={})
    session = place.introduce()
    place.deaths[session, 1] = 2
    place.peer_sends(session, 1, b"killer", b"good")
    place.settle()
    assert place.script.got == [("a", b"good")]
    assert place.commits() == [1, 2]
    assert [(record.session, record.seq) for record in place.shard.parked] == [(session, 1)]


def test_a_parked_request_is_answered_with_an_error() -> None:
    place = Place(deaths={})
    session = place.introduce()
    place.deaths[session, 1] = 2
    message = encode(Kind.REQUEST, idempotency_key=msgspec.msgpack.encode([5, 1, 0, []]))
    place.do(place.primary.batches_received([(PEER, batch(session, 1, [message]))]))
    place.settle()
    (answer,) = place.shard.outbox.messages_from(Target("a", 0), 1, 1000)
    assert decode(answer).kind == Kind.RESPONSE
    assert place.effects(fx.DialPeer) == [fx.DialPeer(Target("a", 0))]


def test_a_full_disk_sends_the_peer_away_and_it_begins_again() -> None:
    place = Place()
    session = place.introduce()
    place.peer_sends(session, 1, b"one")
    place.refuse()
    assert [refused.session for refused in place.refusals()] == [session]
    place.do(place.primary.space_found(place.now, place.wall_us))
    place.peer_sends(session, 1, b"one")
    place.settle()
    assert place.commits() == [1]


# ---- peers that are sent to --------------------------------------------------------------------------------------


def test_what_turns_send_leaves_once_confirmed_and_is_trimmed_when_the_peer_confirms() -> None:
    place = Place()
    place.send(place.session, 1, b"b>hello")
    place.drained()
    place.sync()
    assert place.owes(fx.DialPeer) == 0
    place.prove()
    assert place.effects(fx.DialPeer) == [fx.DialPeer(B)]
    place.tell(ev.PeerReady(B, 5, 1))
    assert len(place.effects(fx.SendPeer)) == 1
    place.tell(ev.PeerCommitted(B, 1))
    assert place.owes(fx.RunFrame) == 0
    assert place.primary.deadline() == place.now + TRIM_S
    place.fire(TRIM_S)
    assert place.records() == [Kind.TIME, Kind.TRIM] or place.records() == [Kind.TRIM]
    place.settle()
    assert place.shard.outbox.bytes == 0


def test_a_trim_rides_on_a_frame_that_is_written_anyway() -> None:
    place = Place()
    place.send(place.session, 1, b"b>hello")
    place.settle()
    place.tell(ev.PeerReady(B, 5, 2))
    place.send(place.session, 2, b"x")
    place.drained()
    assert place.records() == [Kind.TRIM, Kind.CALL]
    place.refuse()
    place.do(place.primary.space_found(place.now, place.wall_us))
    place.fire(TRIM_S)
    assert Kind.TRIM in place.records()


def test_frames_with_records_that_run_no_turn_show_that_messages_are_quick_again() -> None:
    """A stall makes frames small; that a peer confirms something in each of them is no reason to leave them so."""
    place = Place()
    place.run_s = 2 * RUN_S
    place.send(place.session, 1, b"b>x")
    place.settle()
    place.tell(ev.PeerReady(B, 5, 1))
    place.run_s = RUN_S / 1000
    for number in range(2, 42):
        place.tell(ev.PeerCommitted(B, number - 1))
        place.send(place.session, number, b"b>x")
        place.drained()
        assert place.records() == [Kind.TRIM, Kind.CALL]
        place.settle()
        place.fire()
    place.send(place.session, 42, *[b"y"] * 100)
    place.drained()
    assert len(place.records()) == 100


def test_a_peer_that_knows_of_a_successor_makes_the_primary_ask_its_fence() -> None:
    place = Place()
    place.send(place.session, 1, b"b>hello")
    place.settle()
    place.tell(ev.PeerReady(B, 5, 7))
    assert place.owes(fx.Prove) == 1
    place.prove(owned=False)
    assert place.primary.closed
    place.tell(ev.PeerLost(B))
    place.tell(ev.PeerReady(B, 5, 1))
    assert place.effects(fx.SendPeer) == []


def is_crowded(place: Place) -> bool:
    """Does the primary say that its outbox is full?"""
    return place.primary.outbox_full


def test_i10_messages_that_no_file_takes_stop_clients_before_they_fill_the_memory() -> None:
    limits = Limits(clock_step_us=1 << 62, message_bytes_max=200, peer_window_bytes_max=200, outbox_memory_bytes_max=25)
    place = Place(limits)
    session = place.introduce()
    place.send(place.session, 1, b"b>" + b"x" * 95)
    place.settle()
    assert is_crowded(place)
    place.send(place.session, 2, b"more")
    assert [refused.code for refused in place.refusals()] == [OutboxFull.code]
    place.peer_sends(session, 1, b"what may empty it", kind=Kind.RESPONSE)
    place.settle()
    assert place.commits() == [1]


def test_a_full_outbox_stops_clients_but_not_peers() -> None:
    limits = Limits(clock_step_us=1 << 62, message_bytes_max=200, peer_window_bytes_max=200, outbox_bytes_max=100)
    place = Place(limits)
    session = place.introduce()
    assert not is_crowded(place)
    place.send(place.session, 1, b"b>" + b"x" * 95)
    place.settle()
    assert is_crowded(place)
    place.send(place.session, 2, b"more")
    assert [refused.code for refused in place.refusals()] == [OutboxFull.code]
    place.peer_sends(session, 1, b"what may empty it", kind=Kind.RESPONSE)
    place.settle()
    assert place.commits() == [1]
    place.tell(ev.PeerLost(B))
    place.tell(ev.PeerReady(B, 5, 2))
    place.fire(TRIM_S)
    place.settle()
    assert not is_crowded(place)
    place.send(place.session, 2, b"more")
    place.settle()
    assert [seq for seq, _ in place.replies(place.session)] == [1, 2]


def test_a_new_primary_goes_on_with_what_the_log_leaves_to_be_done() -> None:
    place = Place()
    place.shard.outbox.append(B, encode(Kind.FORK, args=b"x"))
    place.script.pending = [start(1)]
    successor = type(place.primary)(
        replica="r1", epoch=2, sessions=place.sessions, limits=SMALL, safeguards=ALL_SAFEGUARDS,
        lsn=place.place.lsn, chain=place.place.chain, times=Times.at(WALL_US), wall_us=WALL_US, now=place.now,
        deaths={}, tables=place.primary.messaging._tables,
    )  # fmt: skip
    assert successor.begin(place.now, WALL_US)[1:] == [fx.DialPeer(B), fx.StartActivity(start(1))], "behind the witness"


# ---- results -----------------------------------------------------------------------------------------------------


def results(place: Place, conn: int = 1) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    for c, kind, body in place.sent:
        if (c, kind) == (conn, Type.RESULTS):
            found += zip(*decode_results(body), strict=True)
    return found


def test_a_result_is_told_when_its_frame_is_confirmed() -> None:
    place = Place()
    place.script.held = {9}
    place.tell(ev.AttachReceived(ev.Conn(1), [4], [9]))
    place.script.give = Outputs([], [(9, ok_reply(b"r"))], [], [], [])
    place.send(place.session, 1, b"x")
    place.drained()
    place.sync()
    assert results(place) == []
    place.prove()
    assert results(place) == [(4, ok_reply(b"r"))]
    place.tell(ev.AttachReceived(ev.Conn(1), [5], [9]))
    assert results(place)[1:] == [(5, ok_reply(b"r"))]


def test_that_nobody_knows_an_invocation_takes_a_proof() -> None:
    place = Place()
    place.tell(ev.AttachReceived(ev.Conn(1), [4], [9]))
    assert results(place) == []
    place.prove()
    assert [number for number, _ in results(place)] == [4]


def test_who_waits_is_forgotten_with_its_connection() -> None:
    place = Place()
    place.script.held = {9}
    place.tell(ev.AttachReceived(ev.Conn(1), [4], [9]))
    place.do(place.primary.connection_lost(ev.Conn(1), place.now, place.wall_us))
    place.script.give = Outputs([], [(9, b"\x00")], [], [], [])
    place.send(place.session, 1, b"x")
    place.settle()
    assert results(place) == []


# ---- activities --------------------------------------------------------------------------------------------------


def test_an_activity_begins_when_its_frame_is_confirmed_and_its_outcome_is_logged() -> None:
    place = Place()
    place.script.give = Outputs([], [], [start(1)], [], [])
    place.send(place.session, 1, b"x")
    place.drained()
    place.sync()
    assert place.effects(fx.StartActivity) == []
    place.prove()
    assert place.effects(fx.StartActivity) == [fx.StartActivity(start(1))]
    place.tell(ev.ActivityEnded(9, 1, 1, b"\x00done"))
    assert place.records() == [Kind.OUTCOME]
    place.settle()
    assert b"outcome" in place.script.ran


def test_an_activity_is_ended_when_nobody_wants_it() -> None:
    place = Place()
    place.script.give = Outputs([], [], [start(1)], [], [])
    place.send(place.session, 1, b"x")
    place.settle()
    place.script.give = Outputs([], [], [], [Reference(9, 1)], [])
    place.send(place.session, 2, b"x")
    place.settle()
    assert place.effects(fx.StopActivity) == [fx.StopActivity(Reference(9, 1))]


def test_spans_are_exported_when_their_frame_is_confirmed() -> None:
    place = Place()
    span = Span(1, begun(b"\x01" * 16, sampled=True), b"\x02" * 8, "svc", "add", "a", 1, 0, 0, 5, b"")
    place.script.give = Outputs([], [], [], [], [], [span])
    place.send(place.session, 1, b"x")
    place.drained()
    place.sync()
    assert place.effects(fx.ExportSpans) == []
    place.prove()
    assert place.effects(fx.ExportSpans) == [fx.ExportSpans([span])]


CASE = UnknownRecord(9, 1, "place", b"a", "mail", "k", 5, 0)


def test_unknown_outcomes_are_reported_when_their_frame_is_confirmed() -> None:
    place = Place()
    place.script.give = Outputs([], [], [], [], [], [], [CASE])
    place.send(place.session, 1, b"x")
    place.drained()
    place.sync()
    assert place.effects(fx.ReportUnknown) == []
    place.prove()
    assert place.effects(fx.ReportUnknown) == [fx.ReportUnknown([CASE])]


def test_an_unknown_outcome_is_settled_once_the_order_is_confirmed_and_only_one_that_is_listed() -> None:
    place = Place()
    place.shard.unknown.add(CASE)
    for request, operation in ((1, 1), (2, 2)):
        place.tell(ev.OrderReceived(TOOL, request, Order(SETTLE, 9, operation)))
    assert place.shard.unknown.holds(9, 1)
    place.drained()
    place.sync()
    assert place.order_answers() == []
    place.prove()
    place.settle()
    assert place.order_answers() == ["", NotUnsettled.code]
    assert len(place.shard.unknown) == 0


def test_an_order_about_an_undelivered_message_is_refused_unless_the_message_is_listed() -> None:
    place = Place()
    place.shard.undelivered.add(UndeliveredRecord(9, "mail", 0, 1, 7, "503", b"four"))
    for request, command, number in ((1, DISCARD, 9), (2, DISCARD, 8), (3, REDELIVER, 8)):
        place.tell(ev.OrderReceived(TOOL, request, Order(command, number, 0)))
    place.drained()
    place.sync()
    place.prove()
    place.settle()
    assert place.order_answers() == ["", NotUndelivered.code, NotUndelivered.code]


def test_outcomes_of_a_primary_that_lets_go_are_left_to_the_next() -> None:
    place = Place()
    place.script.give = Outputs([], [], [start(1)], [], [])
    place.send(place.session, 1, b"x")
    place.settle()
    place.do(place.primary.stop_ordered(place.now, place.wall_us))
    place.tell(ev.ActivityEnded(9, 1, 1, b"\x00done"))
    assert place.owes(fx.RunFrame) == 0


def test_outcomes_that_come_while_a_switchover_is_tried_are_logged_when_it_is_called_off() -> None:
    place = Place(Limits(clock_step_us=1 << 62, activities_max=1))
    place.script.give = Outputs([], [], [start(1)], [], [])
    place.send(place.session, 1, b"x")
    place.settle()
    place.follow("r1", 51, place.place.lsn, place.place.chain)
    place.do(place.primary.switchover_ordered(SwitchoverOrdered(TOOL, 1, "r1"), place.now, place.wall_us))
    place.tell(ev.ActivityEnded(9, 1, 1, b"\x00done"))
    place.tell(ev.ActivityEnded(9, 2, 1, b"\x00of nobody"))
    assert place.owes(fx.RunFrame) == 0
    place.do(place.primary.connection_lost(ev.Conn(51), place.now, place.wall_us))
    if place.owes(fx.WriteControl):
        place.close_frame()
    place.fire(0.1)
    assert place.records() == [Kind.OUTCOME]


def test_what_is_tried_again_later_wakes_an_idle_primary() -> None:
    place = Place()
    later = msgspec.structs.replace(start(1), not_before_us=WALL_US + 200_000)
    place.script.give = Outputs([], [], [later], [], [])
    place.send(place.session, 1, b"x")
    place.settle()
    assert place.primary.messaging.deadline() == place.now + 0.2
    place.fire(0.2)
    assert place.effects(fx.StartActivity) == [fx.StartActivity(later)]


# ---- timers ------------------------------------------------------------------------------------------------------


def test_a_timer_that_is_due_writes_a_time_record_also_when_idle() -> None:
    place = Place()
    place.script.due_us = WALL_US + 30_000
    place.send(place.session, 1, b"x")
    place.settle()
    assert place.primary.deadline() == pytest.approx(place.now + 0.03)
    place.fire(0.02)
    assert place.script.advanced == []
    place.wall_us += 30_000
    place.fire(0.01)
    assert place.records() == [Kind.TIME]
    place.settle()
    assert place.script.advanced == [WALL_US + 30_000]
    assert place.primary._due_at is None


def test_a_timer_far_beyond_the_step_of_logical_time_is_reached_step_by_step() -> None:
    place = Place(Limits(clock_step_us=1 << 62, time_jump_max_s=1))
    place.script.due_us = WALL_US + 2_500_000
    place.send(place.session, 1, b"x")
    place.settle()
    place.pass_us(3_000_000)
    place.fire()
    place.settle()
    assert place.script.advanced == [WALL_US + 3_000_000]
    assert place.place.time_us == WALL_US + 3_000_000


def test_a_timer_waits_for_room_and_for_whoever_comes() -> None:
    place = Place()
    place.script.due_us = WALL_US + 30_000
    place.send(place.session, 1, b"x")
    place.settle()
    place.pass_us(30_000)
    place.primary.admission.full = True
    place.primary._space_probe_at = place.now + 0.5
    place.fire()
    assert place.owes(fx.RunFrame) == 0
    deadline = place.primary.deadline()
    assert deadline is not None
    assert deadline > place.now
    place.do(place.primary.space_found(place.now, place.wall_us))
    assert place.records() == [Kind.TIME]


def test_a_timer_fires_by_the_time_that_passed_where_the_wall_clock_fell_behind() -> None:
    place = Place()
    place.script.due_us = WALL_US + 100_000
    place.send(place.session, 1, b"x")
    place.settle()
    place.wall_us -= 3_600_000_000  # an hour: it would wait as long
    fired_at = place.now
    while not place.script.advanced:
        place.fire(0.01)
        if place.owes(fx.WriteControl):
            place.close_frame()
        place.settle()
    assert place.now - fired_at == pytest.approx(0.1, abs=0.02)
    assert place.script.advanced == [place.place.times.elapsed_us]
    assert place.place.times.elapsed_us >= WALL_US + 100_000


def test_a_primary_that_lets_go_fires_no_timers() -> None:
    place = Place()
    place.script.due_us = WALL_US + 30_000
    place.send(place.session, 1, b"x")
    place.settle()
    place.do(place.primary.stop_ordered(place.now, place.wall_us))
    place.pass_us(30_000)
    place.fire()
    assert place.owes(fx.RunFrame) == 0


# ---- operators ---------------------------------------------------------------------------------------------------


def test_an_order_is_answered_once_its_record_is_confirmed() -> None:
    place = Place()
    place.script.held = {9}
    place.tell(ev.OrderReceived(TOOL, 1, Order("cancel", 9)))
    assert place.records() == [Kind.ORDER]
    place.sync()
    assert place.order_answers() == []
    place.prove()
    assert place.order_answers() == [""]
    assert b"order" in place.script.ran


def test_an_order_for_nobody_says_so() -> None:
    place = Place()
    place.tell(ev.OrderReceived(TOOL, 1, Order("kill", 9)))
    place.settle()
    assert place.order_answers() == [InvocationUnknown.code]


def test_a_primary_that_lets_go_takes_no_orders_and_no_peers() -> None:
    place = Place()
    place.do(place.primary.stop_ordered(place.now, place.wall_us))
    place.tell(ev.OrderReceived(TOOL, 1, Order("kill", 9)))
    assert place.order_answers() == [NotPrimary.code]
    place.tell(ev.PeerHelloReceived(PEER, PeerIntroduction(A, 1)))
    assert [decode_struct(Refused, b).code for c, k, b in place.sent if k == Type.PEER_REFUSED] == [NotPrimary.code]


def test_an_adopted_peer_begins_anew_in_both_directions() -> None:
    place = Place()
    session = place.introduce()
    place.send(place.session, 1, b"a>old")
    place.settle()
    place.tell(ev.PeerReady(Target("a", 0), 5, 1))
    anew = Adopt("a", 0, b"n" * 16, 1)
    place.tell(ev.OrderReceived(TOOL, 1, anew))
    place.tell(ev.OrderReceived(TOOL, 2, anew))
    assert place.order_answers() == [Overloaded.code]  # one at a time
    assert place.effects(fx.DropPeer) == [fx.DropPeer(Target("a", 0))]
    place.settle()
    assert place.order_answers() == [Overloaded.code, ""]
    assert place.effects(fx.Disconnect) == [fx.Disconnect(PEER)]
    place.effects(fx.DialPeer)
    place.peer_sends(session, 1, b"late of the old one")
    assert place.owes(fx.RunFrame) == 0
    newer = place.introduce(PeerHello("a", 0, b"n" * 16, 1), ev.Conn(33))
    assert newer != session
    place.send(place.session, 2, b"a>new")
    place.settle()
    place.tell(ev.PeerReady(Target("a", 0), 6, 1))
    assert len(place.effects(fx.SendPeer)) == 2  # to the old one before, to the new one now


def test_a_core_without_a_shard_has_nothing_to_send_and_nobody_waits() -> None:
    tables = Tables()
    assert (list(tables.activities()), tables.holds(1), tables.due().first_us, tables.outbox.bytes) == ([], False, 0, 0)

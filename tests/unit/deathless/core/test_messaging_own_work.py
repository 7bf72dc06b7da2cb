"""What a service sends to itself: it runs behind clients, in frames that they share."""

from __future__ import annotations

from tests.unit.deathless.core.messaging_world import Place

from deathless.base.limits import Limits
from deathless.base.times import Due
from deathless.codec.messages import Kind
from deathless.codec.peer_messages import (
    SELF,
    SELF_SESSION,
)
from deathless.core import effects as fx
from deathless.core.primary.frame_size import PEERS_S, RUN_S
from deathless.core.primary.handover import Stage


def test_what_a_turn_sends_to_its_own_service_is_in_the_next_frame() -> None:
    place = Place()
    place.send(place.session, 1, b"self>self>x")
    place.settle()
    assert place.script.got == [("", b"self>x"), ("", b"x")]
    assert place.shard.outbox.first_position(SELF) == 3
    assert not place.primary.messaging.own.waiting


def test_own_work_waits_behind_clients_and_gets_half_of_a_frame() -> None:
    place = Place(Limits(clock_step_us=1 << 62, frame_messages_max=4))
    place.send(place.session, 1, b"self>1;self>2;self>3;self>4;self>5")
    place.drained()
    place.send(place.session, 2, b"a", b"b")
    place.send(place.session, 4, b"c", b"d")
    place.sync()
    assert place.records() == [Kind.CALL, Kind.CALL, Kind.FORK, Kind.FORK]
    place.sync()
    assert place.records() == [Kind.CALL, Kind.CALL, Kind.FORK, Kind.FORK]
    place.settle()
    assert [text for _, text in place.script.got] == [b"1", b"2", b"3", b"4", b"5"]


def test_slow_own_work_and_clients_share_frames_that_run_in_some_milliseconds() -> None:
    place = Place()
    place.run_s = RUN_S / 4
    place.send(place.session, 1, b";".join(b"self>%d" % number for number in range(20)))
    place.drained()
    place.sync()
    place.prove()
    place.send(place.session, 2, *[b"c%d" % number for number in range(20)])
    place.drained()
    frames = []
    while place.owes(fx.RunFrame):
        kinds = place.records()
        frames.append((kinds.count(Kind.CALL), kinds.count(Kind.FORK)))
        place.sync()
        place.prove()
        place.drained()
    assert frames[:5] == [(2, 2)] * 5
    assert [sum(kind) for kind in zip(*frames, strict=True)] == [20, 20]


def test_a_large_message_of_ours_that_found_no_room_begins_the_next_frame() -> None:
    place = Place(Limits(clock_step_us=1 << 62, frame_bytes_max=100, message_bytes_max=100, segment_bytes_max=1000))
    place.send(place.session, 1, b"self>" + b"x" * 80)
    place.drained()
    place.send(place.session, 2, b"y" * 30)
    place.sync()
    assert place.records() == [Kind.CALL]
    place.send(place.session, 3, b"z" * 30)
    place.sync()
    assert place.records() == [Kind.FORK]
    place.settle()
    assert [reply[:1] for _, reply in place.replies(place.session)] == [b"s", b"y", b"z"]


def test_what_peers_send_is_run_in_frames_that_take_some_milliseconds() -> None:
    """So the peer works on the first replies while we run the rest, and does not wait for all."""
    place = Place(Limits(clock_step_us=1 << 62))
    session = place.introduce()
    texts = [b"%d" % number for number in range(512)]
    place.peer_sends(session, 1, *texts)
    place.now += 512 * PEERS_S / 200
    place.sync()
    place.prove()
    place.peer_sends(session, 513, *texts[:450])
    place.send(place.session, 1, b"a")
    place.send(place.session, 2, b"b")
    sizes = []
    while place.owes(fx.RunFrame):
        sizes.append(len(place.records()))
        place.now += sizes[-1] * PEERS_S / 200
        place.sync()
        place.prove()
    assert sizes == [200, 200, 50 + 2]  # two clients' calls behind what came before them
    assert place.commits() == [512, 712, 912, 962]
    assert [text for _, text in place.script.got] == texts + texts[:450]


def test_own_work_that_killed_twice_is_parked_and_the_next_goes_on() -> None:
    place = Place(deaths={(SELF_SESSION, 1): 2})
    place.send(place.session, 1, b"self>killer;self>good")
    place.settle()
    assert place.script.got == [("", b"good")]
    assert [record.session for record in place.shard.parked] == [SELF_SESSION]
    assert place.shard.outbox.first_position(SELF) == 3


def test_i11_an_invocation_whose_timer_killed_twice_is_set_aside_before_time_goes_on() -> None:
    place = Place(deaths={(0, 9): 2, (0, 8): 1, (0, 7): 2, (5, 9): 2})
    place.script.held, place.script.due_us = {8, 9}, place.wall_us
    place.shard.place.due = Due(place.wall_us)
    place.script.order = lambda lsn, now_us, order: place.script.held.discard(order.invocation)  # type: ignore[method-assign]
    place.do(place.primary.begin(place.now, place.wall_us))
    assert place.records() == [Kind.PARKED, Kind.TIME]
    place.settle()
    assert [(record.session, record.seq) for record in place.shard.parked] == [(0, 9)]
    assert (place.script.held, len(place.script.advanced)) == ({8}, 1)
    assert not place.primary.messaging.waiting(staying=True, now=place.now)


def test_i11_deaths_that_are_told_to_a_primary_count_for_the_next_one_alone() -> None:
    deaths: dict[tuple[int, int], int] = {}
    place = Place(deaths=deaths)
    place.script.held = {9}
    place.do(place.primary.begin(place.now, place.wall_us))
    deaths[0, 9] = 2
    place.send(place.session, 1, b"x")
    place.settle()
    assert place.shard.parked == []


def test_a_primary_that_lets_go_leaves_its_own_work_to_the_next() -> None:
    place = Place()
    place.send(place.session, 1, b"self>x")
    place.drained()
    place.do(place.primary.stop_ordered(place.now, place.wall_us))
    place.sync()
    place.prove()
    assert place.owes(fx.RunFrame) == 0
    place.close_frame()
    assert place.primary.drained
    assert place.primary.departure.stage is Stage.ALONE
    assert place.shard.outbox.next_position(SELF) == 2

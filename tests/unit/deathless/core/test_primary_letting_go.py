"""A primary's checkpoints and collection (I6, I9), and how it lets go: switchover and orderly stop."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.deathless.core.primary_world import SMALL, World, followed, serving, stop_of

from deathless.codec.messages import Kind, decode
from deathless.codec.wire import Handover, Type, decode_struct
from deathless.core import effects as fx
from deathless.core import events as ev
from deathless.core.events import SwitchoverOrdered
from deathless.core.primary.checkpoint_plan import REBASE_RETRY_S
from deathless.core.primary.handover import HANDOVER_MAX_S
from deathless.core.primary.primary import ASK_AGAIN_S

OPERATOR = ev.Conn(90)


# ---- I9: checkpoints and collection ------------------------------------------------------------------------------

EAGER = replace(SMALL, checkpoint_every_messages=2)


def test_i9_primary_alone_takes_a_checkpoint_when_due_even_with_the_next_frame_on_its_way() -> None:
    world, session = serving(EAGER)
    world.send(session, 1, b"a")
    world.drained()
    world.send(session, 2, b"b")
    world.sync()
    assert world.owes(fx.RunFrame) == 1
    world.prove()
    assert world.owes(fx.TakeCheckpoint) == 1


def test_i9_with_a_checkpointer_alive_the_primary_takes_none_and_when_it_dies_takes_over_that_too() -> None:
    world, session = followed(EAGER)
    world.send(session, 1, b"a", b"b", b"c")
    world.settle()
    assert world.owes(fx.TakeCheckpoint) == 0
    for conn in (51, 52):
        world.do(world.primary.connection_lost(ev.Conn(conn), world.now, world.wall_us))
    world.fire()
    assert world.owes(fx.TakeCheckpoint) == 1


def test_collection_waits_for_two_that_read_back_well_a_header_and_a_proof() -> None:
    world, session = serving()
    primary = world.primary
    for seq in range(1, 5):
        world.send(session, seq, b"a")
        world.settle()
    assert primary.header_confirmed_lsn == 4
    for lsn in (3, 5):
        world.do(primary.checkpoint_written(lsn, f"c{lsn}", world.now))
        world.take(fx.VerifyCheckpoint)
        assert world.owes(fx.Prove) == 0
        world.do(primary.checkpoint_verified(lsn, True, world.now, world.wall_us))
    assert world.owes(fx.Collect) == 0
    world.prove()
    assert world.take(fx.Collect) == fx.Collect(3, 3)
    world.settle()
    assert world.owes(fx.Collect) == 0


def test_checkpoints_of_a_former_epoch_count_once_another_is_verified() -> None:
    world, session = serving()
    world.standing = [2, 4]
    for seq in range(1, 5):
        world.send(session, seq, b"a")
        world.settle()
    world.do(world.primary.checkpoint_verified(4, True, world.now, world.wall_us))
    world.prove()
    assert world.take(fx.Collect) == fx.Collect(2, 2)


def test_collection_is_carried_out_also_while_calls_keep_coming() -> None:
    world, session = serving()
    primary = world.primary
    for seq in range(1, 4):
        world.send(session, seq, b"a")
        world.settle()
    world.send(session, 4, b"a")
    world.drained()
    world.sync()  # a proof is under way
    for lsn in (2, 3):
        world.do(primary.checkpoint_verified(lsn, True, world.now, world.wall_us))
    world.prove()
    assert world.owes(fx.Collect) == 0  # begun before it was owed
    world.send(session, 5, b"a")
    world.settle()
    assert world.owes(fx.Collect) == 1


def test_never_collected_below_a_follower_a_header_or_without_a_good_checkpoint() -> None:
    world, session = followed()
    primary = world.primary
    for seq in range(1, 5):
        world.send(session, seq, b"a")
        world.settle()
    world.applied(51)
    for lsn, good in ((3, True), (4, False), (5, True)):
        world.do(primary.checkpoint_verified(lsn, good, world.now, world.wall_us))
    world.prove()
    assert world.take(fx.Collect) == fx.Collect(1, 3)  # what r2 has applied
    assert world.todo == []


def test_newer_floor_that_comes_during_the_proof_of_an_older_one_waits_for_the_next() -> None:
    world, session = serving()
    for seq in range(1, 6):
        world.send(session, seq, b"a")
        world.settle()
    for lsn in (2, 3, 4):
        world.do(world.primary.checkpoint_verified(lsn, True, world.now, world.wall_us))
    world.prove()
    assert world.take(fx.Collect) == fx.Collect(2, 3)
    world.prove()
    assert world.take(fx.Collect) == fx.Collect(3, 3)


def test_checkpoint_announced_by_a_follower_is_read_back_and_by_anybody_else_is_not_believed() -> None:
    world, _ = followed()
    world.do(world.primary.checkpoint_announced(ev.Conn(1), 1, "liar"))
    assert world.todo == []
    world.do(world.primary.checkpoint_announced(ev.Conn(51), 1, "c1"))
    assert world.todo == [fx.VerifyCheckpoint(1, "c1")]


def test_i6_difference_is_answered_by_a_checkpoint_at_once_and_a_rebased_record_at_once() -> None:
    world, session = followed()
    world.send(session, 1, b"a")
    world.settle()
    world.do(world.primary.rebase(world.now))
    world.take(fx.TakeCheckpoint)
    world.do(world.primary.checkpoint_written(2, "c2", world.now))
    world.do(world.primary.checkpoint_verified(2, True, world.now, world.wall_us))
    frame = world.take(fx.RunFrame)
    assert [decode(message).kind for _, messages in frame.runs for message in messages] == [Kind.REBASED]


def test_i6_checkpoint_for_a_difference_that_fails_is_tried_again_by_the_timer() -> None:
    world, _ = followed()
    world.do(world.primary.rebase(world.now))
    world.take(fx.TakeCheckpoint)
    world.do(world.primary.checkpoint_written(1, "", world.now))
    world.fire(REBASE_RETRY_S / 2)
    assert world.owes(fx.TakeCheckpoint) == 0
    world.fire(REBASE_RETRY_S)
    assert world.owes(fx.TakeCheckpoint) == 1


# ---- letting go --------------------------------------------------------------------------------------------------


def switch_over(world: World, target: str = "") -> None:
    world.do(world.primary.switchover_ordered(SwitchoverOrdered(OPERATOR, 4, target), world.now, world.wall_us))


def test_switchover_ends_what_was_admitted_closes_and_hands_over_once_the_target_has_it_all() -> None:
    world, session = followed()
    world.send(session, 1, b"a")
    world.drained()
    world.send(session, 2, b"b")
    switch_over(world)
    world.send(session, 3, b"c")  # for the next primary
    world.do(world.primary.register_received(ev.Conn(3), bytes(range(16))))
    while world.owes(fx.RunFrame) or world.owes(fx.Prove):
        world.settle()
    world.close_frame()
    assert world.replies(session) == [(1, b"a"), (2, b"b")]
    assert world.owes(fx.StopReplica) == 0
    world.applied(52)
    handovers = [decode_struct(Handover, body) for at, kind, body in world.sent if (at, kind) == (52, Type.HANDOVER)]
    assert handovers == [Handover(1, 3)]
    assert "r2" in str(stop_of(world))
    assert world.primary.closed


def test_switchover_of_an_idle_primary_hands_over_at_once() -> None:
    world, _ = followed()
    world.fire(ASK_AGAIN_S / 2)
    world.close_frame()
    switch_over(world, "r1")
    assert Type.HANDOVER in world.to(51)


def test_switchover_on_a_full_disk_hands_over_without_the_closing_frame() -> None:
    world, session = followed()
    world.send(session, 1, b"a")
    world.drained()
    world.refuse()
    switch_over(world)
    world.take(fx.WriteControl)
    world.do(world.primary.control_refused(world.now))
    assert Type.HANDOVER in world.to(52)


def test_target_that_is_lost_or_too_slow_calls_the_switchover_off_and_calls_are_taken_again() -> None:
    world, session = followed()
    for lost in (True, False):
        world.send(session, 1, b"a")
        world.drained()
        switch_over(world, "r2")
        if lost:
            world.do(world.primary.connection_lost(ev.Conn(52), world.now, world.wall_us))
        else:
            world.fire(HANDOVER_MAX_S)
        assert world.primary.switchover_failed is not None
        world.primary.switchover_failed = None
        world.follow("r2", 52, world.primary.confirmed_lsn, world.primary.stream._chain)
    world.settle()
    world.send(session, 2, b"b")
    world.settle()
    assert len(world.replies(session)) == 2


def test_target_that_reads_the_log_again_is_not_handed_to_until_it_streams() -> None:
    world, _ = followed()
    world.fire(ASK_AGAIN_S / 2)
    world.close_frame()
    world.follow("r2", 52, 1, b"x" * 16)
    world.follow("r2", 53, 1, world.place.chain)
    world.follow("r1", 51, 1, b"x" * 16)
    world.primary.departure.target, world.primary.departure._deadline = "r1", 1e9
    world.primary.departure.enter(type(world.primary.departure.stage).HANDING_OVER)
    world.applied(51)
    assert Type.HANDOVER not in world.to(51)
    world.follow("r1", 51, 1, world.place.chain)
    world.applied(51)
    assert Type.HANDOVER in world.to(51)


def test_stop_with_followers_hands_over_and_without_goes_alone() -> None:
    world, _ = followed()
    world.do(world.primary.stop_ordered(world.now, world.wall_us))
    world.close_frame()
    assert Type.HANDOVER in world.to(52)
    world, _ = serving()
    world.do(world.primary.stop_ordered(world.now, world.wall_us))
    assert world.primary.alone
    ends = []
    for step in (world.primary.check_invariants, world.close_frame, world.primary.close):
        step()
        ends.append((world.primary.drained, world.primary.closed))
    assert ends == [(False, False), (True, False), (True, True)]


def test_stop_on_a_full_disk_drains_and_does_not_wait_for_ever() -> None:
    world, session = serving()
    world.send(session, 1, b"a")
    world.drained()
    world.refuse()
    world.do(world.primary.stop_ordered(world.now, world.wall_us))
    world.take(fx.WriteControl)
    world.do(world.primary.control_refused(world.now))
    assert world.primary.drained


def test_follower_on_the_way_changes_nothing_for_a_connection_that_is_lost() -> None:
    world, session = serving()
    world.send(session, 1, b"a")
    assert world.do(world.primary.connection_lost(ev.Conn(1), world.now, world.wall_us)) == []
    assert world.primary.followers == {}
    assert world.primary.checkpointer == ""

"""The engine carries effects out in their order, over a real log on a simulated disk, and stops at any failure (I8)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.deathless.core.primary_world import Echo
from tests.unit.deathless.engine.replica_world import CLIENT, Node, World

from deathless.base.errors import (
    CorruptFrame,
    Deposed,
    Diverged,
    ForeignDirectory,
    Internal,
    LockUnavailable,
    LogTruncated,
    OutOfSpace,
    StorageFailed,
    StoreOlderThanLog,
)
from deathless.base.safeguards import Safeguards
from deathless.codec.frames import Cut, FrameKind
from deathless.codec.messages import Kind, encode
from deathless.codec.peer_messages import ActivityStart, Outputs, Reference, Target
from deathless.codec.snapshot import UnknownRecord
from deathless.codec.wire import Follow, PacketReader, Type, struct_packet
from deathless.core import effects as fx
from deathless.core import events as ev
from deathless.core.replica.replica import Replica, State
from deathless.engine.log.overview import frames_of
from deathless.engine.ports import Holder, LockView
from deathless.engine.replica.takeover_steps import READ_AGAIN_S
from deathless.simulation.models.log_driver import LIMITS


def served(world: World, calls: int = 3, **settings: Any) -> tuple[Node, int]:
    """A primary with a session and that many calls answered."""
    node = world.primary(**settings)
    session = node.register()
    for seq in range(1, calls + 1):
        node.call(session, seq, b"%d" % seq)
    return node, session


# ---- the whole way -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fence", ["seal", "etcd"])
def test_calls_are_answered_and_a_successor_has_every_one(fence: str) -> None:
    world = World(fence=fence)
    node, session = served(world, fence=fence)
    assert node.replies() == [(1, b"1"), (2, b"2"), (3, b"3")]
    successor = world.primary("r1", fence=fence)
    assert successor.engine.place == node.engine.place
    successor.call(session, 3, b"3")
    successor.call(session, 4, b"4")
    assert successor.replies() == [(3, b"3"), (4, b"4")]


@pytest.mark.parametrize("fence", ["seal", "etcd"])
def test_i2_deposed_primary_releases_nothing_and_ends(fence: str) -> None:
    world = World(fence=fence)
    old, session = served(world, fence=fence)
    world.primary("r1", fence=fence)
    old.call(session, 4, b"late")
    assert (4, b"late") not in old.replies()
    assert isinstance(old.error(), Deposed)
    old.call(session, 5, b"later")
    assert len(old.stopped) == 1


def test_i1_lock_without_an_answer_holds_release_until_there_is_one() -> None:
    world = World(fence="etcd")
    node, session = served(world, 1, fence="etcd")
    seen = [node.engine.unproved_since]
    node.held = []
    node.call(session, 2, b"b")
    seen.append(node.engine.unproved_since)
    assert seen == [None, world.now]
    assert node.replies() == [(1, b"1")]
    held, node.held = node.held, None
    for answer in held:
        answer()
    assert node.replies() == [(1, b"1"), (2, b"b")]
    assert node.engine.unproved_since is None


@pytest.mark.parametrize("fence", ["seal", "etcd"])
def test_time_of_the_last_proof_is_known_and_stands_still_once_the_epoch_is_stolen(fence: str) -> None:
    world = World(fence=fence)
    old, session = served(world, fence=fence)
    proved = old.engine.proved_at
    assert proved == world.now
    world.now += 7.0
    old.call(session, 4, b"more")
    assert old.engine.proved_at == world.now
    world.primary("r1", fence=fence)
    stolen, world.now = world.now, world.now + 9.0
    old.call(session, 5, b"late")
    assert old.engine.proved_at == stolen


def test_without_hold_without_answer_a_frame_leaves_that_a_successor_may_not_have() -> None:
    world = World(fence="etcd")
    node, session = served(world, 1, fence="etcd", safeguards=Safeguards(hold_without_answer=False))

    def silent(holder: Holder) -> bool:
        raise LockUnavailable("no answer")

    owns, node.lock_store.owns = node.lock_store.owns, silent  # type: ignore[method-assign]  # planted
    node.call(session, 2, b"b")
    assert node.replies() == [(1, b"1"), (2, b"b")]  # nobody has said that no successor took over
    node.lock_store.owns = owns  # type: ignore[method-assign]  # planted
    node.call(session, 3, b"c")
    assert len(node.replies()) == 3


def test_followers_apply_the_stream_and_one_that_comes_later_reads_the_log() -> None:
    world = World()
    node, session = served(world)
    node.idle()
    follower = world.follower("r1", node)
    node.call(session, 4, b"4")
    world.pump(node)
    assert follower.engine.place == node.engine.place
    assert follower.state is State.FOLLOWING
    assert follower.roles[-1] == "checkpointer"


def test_gap_in_the_stream_is_healed_from_the_log() -> None:
    world = World()
    node, session = served(world, 0)
    follower = world.follower("r1", node)
    node.call(session, 1, b"1")
    node.sent.clear()  # the frame is lost
    node.call(session, 2, b"2")
    node.idle()
    world.pump(node)
    follower.idle()
    world.pump(node)
    assert follower.engine.place == node.engine.place


@pytest.mark.parametrize("broken", ["bytes", "twice"])
def test_frame_that_is_broken_is_a_gap_and_one_that_comes_twice_is_nothing(broken: str) -> None:
    world = World()
    node, session = served(world, 0)
    follower = world.follower("r1", node)
    node.call(session, 1, b"1")
    node.idle()
    frames = [body for conn, kind, body in node.sent if (conn, kind) == (follower.conn, Type.FRAME)]
    node.sent.clear()
    if broken == "bytes":
        follower.engine.frames_received([frames[0][:-1]])
    else:
        follower.engine.frames_received(frames + frames)
    assert follower.engine.place == node.engine.place


def test_follower_takes_over_from_a_primary_whose_last_frame_nobody_confirmed() -> None:
    world = World(fence="etcd")
    node, session = served(world, 1, fence="etcd")
    follower = world.follower("r1", node, fence="etcd")
    node.held = []
    node.call(session, 2, b"2")  # durable, never proved
    follower.take_over(1)
    assert follower.state is State.PRIMARY
    assert follower.engine.place == node.engine.place
    follower.call(session, 2, b"2")
    assert follower.replies() == [(2, b"2")]


def test_two_that_try_at_once_end_as_one_primary() -> None:
    world = World()
    first, second = world.node("r0").begin(), world.node("r1").begin()
    second.take_fails = True
    second.take_over()
    assert second.state is State.FOLLOWING
    first.take_over()
    assert first.state is State.PRIMARY


def test_switchover_hands_over_with_nothing_lost() -> None:
    world = World()
    node, session = served(world)
    target = world.follower("r1", node)
    node.engine.post(ev.SwitchoverOrdered(CLIENT, 1, "r1"))
    world.pump(node)
    assert isinstance(node.error(), Deposed)
    assert target.state is State.PRIMARY
    target.call(session, 4, b"4")
    assert target.replies() == [(4, b"4")]


def test_orderly_stop_alone_leaves_a_checkpoint_and_a_free_lock() -> None:
    world = World()
    node, _ = served(world)
    node.engine.post(ev.StopOrdered())
    assert node.stopped == [None]
    assert node.lock_store.view().holder is None
    assert [snapshot.lsn for snapshot in world.checkpoints] == [node.engine.place.lsn]


def test_queries_are_answered_on_the_last_completed_turn() -> None:
    world = World()
    node, _ = served(world)
    node.engine.post(ev.QueriesReceived(CLIENT, False, [7], [b"q"]))
    node.intake.drained()
    assert Type.ANSWERS in [kind for _, kind, _ in node.sent]


def test_second_stream_of_a_replica_disconnects_the_first() -> None:
    world = World()
    node, _ = served(world)
    for conn in (50, 51):
        packets = list(PacketReader(1 << 20).feed(struct_packet(Type.FOLLOW, Follow("r2", 0, bytes(16), False))))
        node.intake.packets(ev.Conn(conn), packets)
    assert node.disconnected == [50]


# ---- checkpoints -------------------------------------------------------------------------------------------------


def test_i9_primary_alone_takes_checkpoints_and_collects_below_the_older_of_two() -> None:
    world = World(replace(LIMITS, checkpoint_every_messages=4))
    node, session = served(world, 12)
    node.call(session, 13, b"x")
    assert len(world.checkpoints) >= 2
    assert world.pruned
    assert max(world.pruned) <= world.checkpoints[-2].lsn


def test_follower_that_finds_the_log_collected_goes_on_from_a_checkpoint() -> None:
    world = World(replace(LIMITS, stream_buffer_bytes_max=8192))
    node, session = served(world, 0)
    late = world.node("r1").begin()
    for seq in range(1, 20):
        node.call(session, seq, bytes(3000))
    node.idle()
    node.engine.take_checkpoint()
    assert node.log.collect(18)
    late.engine.post(ev.PrimarySeen(1, "r0", ""))
    world.pump(node)
    assert late.stopped == []
    assert late.engine.place == node.engine.place


def test_follower_that_finds_the_log_collected_without_a_checkpoint_stops() -> None:
    world = World(replace(LIMITS, stream_buffer_bytes_max=8192))
    node, session = served(world, 0)
    late = world.node("r1").begin()
    for seq in range(1, 20):
        node.call(session, seq, bytes(3000))
    node.idle()
    node.log.collect(18)
    late.engine.post(ev.PrimarySeen(1, "r0", ""))
    world.pump(node)
    assert isinstance(late.error(), LogTruncated)


@pytest.mark.parametrize("always_old", [False, True])
def test_follower_whose_look_at_the_lock_is_older_than_a_collection_looks_again(always_old: bool) -> None:
    world = World(replace(LIMITS, stream_buffer_bytes_max=8192))
    served(world)
    late = world.node("r1").begin()
    old = late.lock_store.view()
    successor = world.primary("r2")
    session = successor.register()
    for seq in range(1, 20):
        successor.call(session, seq, bytes(3000))
    successor.idle()
    successor.engine.take_checkpoint()
    assert any(name.startswith("e000000000001") for name in successor.log.collect(20))
    real, shown = late.lock_store.view, [old]
    late.lock_store.view = lambda: old if always_old else shown.pop() if shown else real()  # type: ignore[method-assign]
    late.engine.post(ev.PrimarySeen(2, "r2", ""))
    world.pump(successor)
    if always_old:
        assert isinstance(late.error(), LogTruncated)
    else:
        assert late.stopped == []
        assert late.engine.place == successor.engine.place


# ---- I6: divergence ----------------------------------------------------------------------------------------------


def test_i6_follower_that_computes_something_else_stops_at_once() -> None:
    class Liar(Echo):
        def rolling_update(self) -> bytes:
            return b"?"

    world = World()
    node, session = served(world, 0)
    follower = world.follower("r1", node, executor=Liar())
    node.call(session, 1, b"a")
    world.pump(node)
    assert isinstance(follower.error(), Diverged)


# ---- I8: failures ------------------------------------------------------------------------------------------------


def test_i8_sync_error_stops_the_replica_and_nothing_of_that_frame_leaves() -> None:
    world = World()
    node, session = served(world, 1)
    world.disk.fail("sync", "log/")
    node.call(session, 2, b"b")
    assert node.replies() == [(1, b"1")]
    assert node.error().code == StorageFailed.code
    world.disk.heal()
    assert world.primary("r1").stopped == []


def test_i8_full_disk_refuses_calls_and_takes_them_again_with_room() -> None:
    world = World()
    node, session = served(world, 1)
    world.disk.capacity_bytes = world.disk.used_bytes()
    seq = 2
    while Type.BATCH_REFUSED not in [kind for _, kind, _ in node.sent]:
        node.call(session, seq, bytes(3000))
        seq += 1
    assert node.stopped == []
    node.idle()
    node.idle()
    world.disk.capacity_bytes = None
    node.idle()
    node.call(session, seq - 1, b"again")
    assert node.replies()[-1] == (seq - 1, b"again")


def test_without_reserve_before_run_a_full_disk_stops_the_replica_with_turns_run_and_not_logged() -> None:
    world = World()
    node, session = served(world, 1, safeguards=Safeguards(reserve_before_run=False))
    world.disk.capacity_bytes = world.disk.used_bytes()
    for seq in range(2, 40):
        node.call(session, seq, bytes(3000))
    assert isinstance(node.error(), OutOfSpace)


def test_i8_full_disk_has_room_for_closing_frames_until_it_has_none_and_goes_on() -> None:
    world = World()
    node, session = served(world, 1)
    world.disk.capacity_bytes = world.disk.used_bytes()
    for seq in range(2, 40):
        node.call(session, seq, b"x")
        node.idle()
    assert node.stopped == []
    assert node.engine.core.primary is not None
    assert node.engine.core.primary.drained


def test_i8_closing_frame_without_room_is_left_out_and_calls_are_refused_until_there_is_room() -> None:
    world = World()
    node, session = served(world, 1)
    append = node.log.append

    def full(*args: object, **kwargs: object) -> None:
        raise OutOfSpace("full")

    node.log.append = full  # type: ignore[assignment]  # planted
    node.idle()
    node.log.append = append  # planted
    node.call(session, 2, b"b")
    assert node.sent[-1][1] == Type.BATCH_REFUSED
    node.idle()  # finds room
    node.call(session, 2, b"b")
    assert node.replies() == [(1, b"1"), (2, b"b")]


@pytest.mark.parametrize("store", ["old", "caught up"])
def test_lock_store_that_seems_older_than_the_log_is_asked_again_before_it_is_judged(store: str) -> None:
    """A successor may open between a look at the lock and one at the log."""
    world = World()
    served(world)
    node = world.node("r1")
    check, asked = node.log.check_store, []

    def older(head: int, epoch: int, revision: int) -> Cut | None:
        asked.append(revision)
        if store == "old" or len(asked) == 1:
            raise StoreOlderThanLog("epoch 9 has opened")
        return check(head, epoch, revision)

    node.log.check_store = older  # type: ignore[method-assign]  # planted
    node.begin()
    assert len(asked) == 2
    assert [type(error) for error in node.stopped] == ([StoreOlderThanLog] if store == "old" else [])


def test_a_lock_store_in_which_others_write_is_not_asked_for_ever() -> None:
    world = World()
    served(world)
    node = world.node("r1")
    view = node.lock_store.view
    asked: list[int] = []

    def busy() -> LockView:
        asked.append(len(asked))
        assert len(asked) < 50, "asked again and again, and nobody is told"
        return view()._replace(revision=1000 + len(asked))

    def older(head: int, epoch: int, revision: int) -> Cut | None:
        raise StoreOlderThanLog("epoch 9 has opened")

    node.lock_store.view = busy  # type: ignore[method-assign]  # planted
    node.log.check_store = older  # type: ignore[method-assign]  # planted
    node.begin()
    assert [type(error) for error in node.stopped] == [StoreOlderThanLog]
    assert len(asked) == 2


def test_takeover_without_room_for_its_opening_frame_stops() -> None:
    world = World()
    node = world.node("r0").begin()

    def full(*args: object, **kwargs: object) -> None:
        raise OutOfSpace("full")

    node.log.append = full  # type: ignore[assignment]  # planted
    node.take_over()
    assert isinstance(node.error(), OutOfSpace)


def test_i8_broken_invariant_of_the_core_stops_the_replica_whatever_it_raises() -> None:
    world = World()
    node, _ = served(world)
    node.engine.post(ev.ControlSynced(5, 1))  # of nothing that was begun
    assert "ControlSynced" in node.error().message
    assert node.error().code == Internal.code


@pytest.mark.parametrize("where", ["effect", "stream", "reading", "recovering"])
def test_i8_anything_that_is_raised_while_effects_are_carried_out_stops_the_replica(where: str) -> None:
    world = World()
    node, session = served(world, 1)

    def broken(*args: object, **kwargs: object) -> None:
        raise ZeroDivisionError

    if where == "effect":
        node.engine.shard.execute = broken  # type: ignore[method-assign, assignment]  # planted
        node.call(session, 2, b"b")
        stopped = node
    elif where == "recovering":
        stopped = world.node("r1")
        stopped.log.check_store = broken  # type: ignore[method-assign]  # planted
        stopped.begin()
    else:
        stopped = world.follower("r1", node)
        if where == "stream":
            stopped.engine.shard.apply = broken  # type: ignore[method-assign, assignment]  # planted
            node.call(session, 2, b"b")
        else:
            stopped.log.read = broken  # type: ignore[method-assign, assignment]  # planted
            stopped.engine.post(ev.FramesApplied(0, 0, 0, True))
        world.pump(node)
    assert "ZeroDivisionError" in stopped.error().message
    stopped.engine.fail(Internal("again"))
    assert len(stopped.stopped) == 1


def test_frames_after_the_end_are_not_applied() -> None:
    world = World()
    node, _ = served(world)
    node.engine.frames_received([b"x"])
    assert node.stopped == []


@pytest.mark.parametrize("deposed", [True, False])
def test_log_that_looks_broken_in_a_takeover_is_judged_only_by_who_still_owns_the_lock(*, deposed: bool) -> None:
    """A successor that opened since we took the lock is no older store."""
    served(world := World())
    node = world.node("r1").begin()

    def older(head: int, epoch: int, revision: int) -> Cut | None:
        raise StoreOlderThanLog("epoch 9 has opened")

    node.log.check_store = older  # type: ignore[method-assign]
    node.lock_store.owns = lambda holder: not deposed  # type: ignore[method-assign]
    node.take_over(1)
    assert [type(error) for error in node.stopped] == [Deposed if deposed else StoreOlderThanLog]


def test_lock_store_of_another_log_is_refused() -> None:
    world = World()
    node = world.node("r0", store_id="another").begin()
    node.take_over()
    assert isinstance(node.error(), ForeignDirectory)


def test_replica_deposed_before_the_service_went_live_ends() -> None:
    world = World()
    node = world.node("r0").begin()
    node.lock_store.go_live = lambda holder: False  # type: ignore[method-assign]  # planted
    node.take_over()
    assert isinstance(node.error(), Deposed)


def test_log_that_is_read_when_a_takeover_has_begun_is_left_alone() -> None:
    world = World()
    node = world.node("r0").begin()
    node.held = []
    node.engine._perform(fx.ReadLog())
    node.engine.core.state = State.TAKING_OVER
    before = node.engine.core.handle
    node.held.pop()()
    assert node.engine.core.handle == before
    assert node.stopped == []


def test_effect_that_is_no_step_of_a_takeover_is_our_bug() -> None:
    node = World().node("r0")
    with pytest.raises(Internal, match="not a step"):
        node.engine.takeover.perform(fx.ProbeSpace())


def test_release_of_a_lock_that_was_never_taken_is_nothing() -> None:
    node = World().node("r0").begin()
    node.engine._perform(fx.ReleaseLock())
    assert node.stopped == []


def test_events_posted_while_effects_are_carried_out_wait_for_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    node, session = served(world, 0, short_way=False)
    order: list[str] = []
    inner = Replica.handle

    def handle(core: Replica, event: ev.Event, now: float, wall_us: int) -> Sequence[fx.Effect]:
        order.append(type(event).__name__)
        return inner(core, event, now, wall_us)

    monkeypatch.setattr(Replica, "handle", handle)
    node.call(session, 1, b"a")
    assert order == ["BatchesReceived", "BuffersDrained", "FrameSynced", "ProofAnswered"]
    assert node.engine.deadline() is not None


def test_what_a_proof_releases_leaves_before_the_next_frame_is_run() -> None:
    answered: list[int] = []

    class Watches(Echo):
        def execute(
            self, session: int, first_seq: int, first_lsn: int, now_us: int, messages: Sequence[bytes]
        ) -> tuple[list[bytes], list[int]]:
            answered.append(len(node.replies()))
            return super().execute(session, first_seq, first_lsn, now_us, messages)

    world = World(limits=replace(LIMITS, frame_messages_max=2))
    node = world.primary(executor=Watches())
    node.call(node.register(), 1, *(b"%d" % seq for seq in range(6)))
    assert answered == [0, 0, 2, 2, 4, 4], "two messages in a frame"
    assert len(node.replies()) == 6


# ---- messaging -----------------------------------------------------------------------------------------------------


class Sends(Echo):
    """Executor whose calls send `args` to service b, where they are not empty."""

    def __init__(self) -> None:
        super().__init__()
        self.fresh: list[bytes] = []

    def execute(
        self, session: int, first_seq: int, first_lsn: int, now_us: int, messages: Sequence[bytes]
    ) -> tuple[list[bytes], list[int]]:
        self.fresh += [encode(Kind.FORK, args=message[8:]) for message in messages if message[8:]]
        return super().execute(session, first_seq, first_lsn, now_us, messages)

    def take_outputs(self) -> Outputs | None:
        fresh, self.fresh = self.fresh, []
        return Outputs([(B, message) for message in fresh], [], [], []) if fresh else None


B = Target("b", 0)


def test_what_a_turn_sends_reaches_the_outside_once_its_frame_is_confirmed() -> None:
    world = World()
    node = world.primary(executor=Sends())
    session = node.register()
    node.call(session, 1, b"hello")
    assert node.reached == [fx.DialPeer(B)]
    node.engine.post(ev.PeerReady(B, 4, 1))
    sent = node.reached[1]
    assert isinstance(sent, fx.SendPeer)
    assert b"hello" in sent.data
    assert node.engine.core.tables.outbox is node.engine.shard.outbox


def test_a_successor_has_everything_that_was_to_be_sent() -> None:
    world = World()
    node = world.primary(executor=Sends())
    node.call(node.register(), 1, b"hello")
    successor = world.node("r1", executor=Sends()).begin().take_over(node.engine.core.known_epoch)
    assert successor.reached == [fx.DialPeer(B)]
    assert successor.engine.shard.outbox.next_position(B) == 2


class Acts(Echo):
    """Executor whose calls ask for an activity that must run at most once, where `args` are not empty."""

    def __init__(self) -> None:
        super().__init__()
        self.fresh: list[ActivityStart] = []

    def execute(
        self, session: int, first_seq: int, first_lsn: int, now_us: int, messages: Sequence[bytes]
    ) -> tuple[list[bytes], list[int]]:
        self.fresh += [
            ActivityStart(first_lsn + index, 1, 1, "charge", b"", "k", at_most_once=True, attempted=False)
            for index, message in enumerate(messages)
            if message[8:]
        ]
        return super().execute(session, first_seq, first_lsn, now_us, messages)

    def take_outputs(self) -> Outputs | None:
        fresh, self.fresh = self.fresh, []
        return Outputs([], [], fresh, [], []) if fresh else None


@pytest.mark.parametrize("order", [ev.SwitchoverOrdered(CLIENT, 1, "r1"), ev.StopOrdered()])
def test_a_planned_hand_over_waits_for_what_must_run_at_most_once_and_serves(order: ev.Event) -> None:
    world = World()
    node = world.primary(executor=Acts())
    target = world.follower("r1", node)
    session = node.register()
    node.call(session, 1, b"x")
    (charge,) = node.reached
    assert isinstance(charge, fx.StartActivity)
    node.engine.post(order)
    world.pump(node)
    node.call(session, 2, b"")
    node.call(session, 3, b"y")
    assert [seq for seq, _ in node.replies()] == [1, 2, 3]
    assert node.reached == [charge], "what was asked for meanwhile is the successor's"
    node.engine.post(ev.ActivityEnded(charge.start.invocation, 1, 1, b"\x00done"))
    world.pump(node)
    assert isinstance(node.error(), Deposed)
    assert target.state is State.PRIMARY


def test_every_effect_of_messaging_is_carried_out() -> None:
    node = World().primary()
    start = ActivityStart(1, 1, 1, "mail", b"", "k", at_most_once=False, attempted=False)
    wanted: list[fx.Effect] = [
        fx.DialPeer(B), fx.SendPeer(B, b"x"), fx.DropPeer(B), fx.StartActivity(start), fx.StopActivity(Reference(1, 1)),
        fx.ReportUnknown([UnknownRecord(1, 1, "place", b"a", "mail", "k", 5, 0)]),
    ]  # fmt: skip
    node.engine._carry_out(wanted)
    assert node.reached == wanted


# ---- the end of the log ------------------------------------------------------------------------------------------


def rot_of_the_last_frame(world: World) -> str:
    """Flip a bit in the frame that was answered last; gives its file."""
    path = "log/e000000000001.r000000.seg"
    last = max(found.offset for found in frames_of(world.disk.view("look"), 1, 0) if found.frame.kind == FrameKind.DATA)
    world.disk.flip_bit(path, last + 130, 2)
    return path


def test_an_answered_frame_that_rots_at_the_end_of_the_log_is_refused_after_a_second_look() -> None:
    world = World()
    served(world)
    path = rot_of_the_last_frame(world)
    late = world.node("r1").begin()
    late.take_over(1)
    error = late.error()
    assert isinstance(error, CorruptFrame)
    assert path in error.message
    assert "lsn 5" in error.message
    assert late.paused == [READ_AGAIN_S]


def test_a_frame_that_reads_well_at_the_second_look_is_served() -> None:
    world = World()
    _, session = served(world)
    path = rot_of_the_last_frame(world)
    late = world.node("r1").begin()

    def settled(seconds: float, done: Callable[[], None]) -> None:
        last = max(found.end for found in frames_of(world.disk.view("look"), 1, 0))
        world.disk.flip_bit(path, last + 130, 2)
        done()

    late.pause = settled  # type: ignore[method-assign]  # the storage shows what was written meanwhile
    late.take_over(1)
    assert late.engine.core.state is State.PRIMARY
    late.call(session, 3, b"3")
    assert late.replies() == [(3, b"3")]


def test_without_judging_the_tail_by_its_bytes_an_answered_call_is_gone() -> None:
    safeguards = Safeguards(judge_tail_by_bytes=False, witness_checked=False)
    world = World()
    node, _ = served(world)
    rot_of_the_last_frame(world)
    late = world.node("r1", safeguards=safeguards).begin()
    late.take_over(1)
    assert late.engine.core.state is State.PRIMARY
    assert late.engine.place.lsn < node.engine.place.lsn


# ---- sleep ---------------------------------------------------------------------------------------------------------


def sleeps_told(node: Node, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How long the core is told that the machine slept, from now on."""
    told: list[int] = []
    handle = node.engine.core.handle

    def listen(event: ev.Event, now: float, wall_us: int) -> list[fx.Effect]:
        if isinstance(event, ev.MachineSlept):
            told.append(event.us)
        return handle(event, now, wall_us)

    monkeypatch.setattr(node.engine.core, "handle", listen)
    return told


def test_sleep_of_the_machine_is_told_once_before_what_follows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    node, session = served(world)
    told = sleeps_told(node, monkeypatch)
    monkeypatch.setattr(node, "boot_us", lambda: round(world.now * 1e6) + 60_000_000)
    node.call(session, 4, b"x")
    node.call(session, 5, b"x")
    assert told == [60_000_000]


def test_pause_of_the_process_between_two_readings_of_its_clocks_is_no_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    node, session = served(world)
    told = sleeps_told(node, monkeypatch)

    def paused(read: Callable[[], float]) -> Callable[[], float]:
        def late() -> float:
            world.now += 2.0
            return read()

        return late

    monkeypatch.setattr(node, "now", paused(node.now))
    monkeypatch.setattr(node, "boot_us", paused(node.boot_us))
    node.call(session, 4, b"x")
    node.call(session, 5, b"x")
    assert told == []

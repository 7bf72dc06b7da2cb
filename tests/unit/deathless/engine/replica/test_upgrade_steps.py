"""An upgrader: it follows by the former code; head is set once what the new code begins with stands (design 0026)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from tests.unit.deathless.core.primary_world import Echo
from tests.unit.deathless.engine.replica_world import (
    CLIENT,
    FINGERPRINT,
    OTHER_FINGERPRINT,
    UPGRADE_ID,
    FormerShard,
    Node,
    World,
)

from deathless.base.errors import CorruptFrame, Diverged, GenerationEnded, NewerLevel, UpgradeCalledOff, UpgradeRequired
from deathless.base.ids import ChainHash, Epoch, Incarnation, Lsn
from deathless.base.safeguards import Safeguards
from deathless.codec.frames import ORIGIN, Cut, Frame, FrameKind, chain_after, decode_data
from deathless.codec.generations import FIRST, NEWEST, Generation, Level, Upgraded, decode_upgraded, encode_upgraded
from deathless.codec.messages import decode
from deathless.codec.snapshot import Begun, Since, Snapshot
from deathless.core import events as ev
from deathless.core.replica.replica import UPGRADER, ShardPlace, State
from deathless.engine.ports import LockView
from deathless.engine.replica.upgrade_steps import FormerRunner, Upgrade, begin_generation, to_be_made
from deathless.engine.shard.assembly import shard_around
from deathless.simulation.models.log_driver import LIMITS


def served(world: World, **settings: Any) -> tuple[Node, int]:
    """A primary that answered two calls, and the session."""
    node = world.primary(**settings)
    session = node.register()
    node.call(session, 1, b"one")
    node.call(session, 2, b"two")
    return node, session


def former_of(node: Node) -> FormerShard:
    steps = node.engine.takeover._upgrade
    assert steps is not None
    former = steps._upgrade.former
    assert isinstance(former, FormerShard)
    return former


def order(node: Node, target: str = "u9") -> None:
    """Have a primary hand over to an upgrader, and carry over what it sends."""
    node.engine.post(ev.SwitchoverOrdered(CLIENT, 1, target, UPGRADE_ID))
    node.world.pump(node)
    node.idle()
    node.world.pump(node)


def view_of(node: Node) -> LockView:
    return node.lock_store.view()


def test_an_upgrader_follows_by_the_former_code_and_leads_with_the_new_one() -> None:
    world = World()
    node, session = served(world)
    upgrader = world.upgrader(node)
    assert upgrader.engine.core.role == UPGRADER
    assert upgrader.engine.fingerprint == FINGERPRINT
    node.call(session, 3, b"three")
    world.pump(node)
    at = node.engine.place.lsn
    assert (upgrader.engine.place.lsn, upgrader.engine.place.chain) == (at, node.engine.place.chain)
    assert upgrader.engine.shard.sessions.get(session) is None, "the new code's shard holds nothing yet"
    order(node)
    assert upgrader.state.name == "PRIMARY"
    place = upgrader.engine.place
    assert place.generation == Generation(2, at + 1, world.first[0].chain, NEWEST)
    assert upgrader.engine.fingerprint == OTHER_FINGERPRINT
    upgrader.call(session, 3, b"three")
    upgrader.call(session, 4, b"four")
    assert upgrader.replies() == [(3, b"three"), (4, b"four")], "a recorded reply, and one of the new code"


def test_the_log_says_which_upgrade_was_made_and_each_later_cut_of_which_generation_it_is() -> None:
    world = World()
    node, _ = served(world)
    at, before = node.engine.place.lsn, node.engine.place.chain
    upgrader = world.upgrader(node)
    order(node)
    head = view_of(upgrader).head
    cut = upgrader.log.check_head(head)
    assert (cut.fingerprint, cut.of_generation()) == (OTHER_FINGERPRINT, upgrader.engine.place.generation)
    assert (cut.base.lsn, cut.base.chain, cut.copies) == (at, before, 1)
    ((frame, _),) = (
        upgrader.log.read_tail(head, at, before, 0).unconfirmed or upgrader.log.read_tail(head, at, before, 0).confirmed
    )
    (message,) = [decode_data(frame).blob]
    assert decode_upgraded(decode(message).args) == Upgraded(
        2, head, UPGRADE_ID, 1, FINGERPRINT, 2, OTHER_FINGERPRINT, 5, NEWEST
    )
    successor = world.node("r1", fingerprint=OTHER_FINGERPRINT).begin()
    assert successor.engine.place.lsn == at + 1
    successor.take_over(head)
    assert successor.state.name == "PRIMARY"
    later = successor.log.check_head(view_of(successor).head)
    assert later.of_generation() == cut.of_generation()


def test_the_first_checkpoint_stands_before_head_is_set() -> None:
    world = World()
    node, _ = served(world)
    upgrader = world.upgrader(node)
    upgrader.first_held = []
    before = view_of(node).head
    order(node)
    assert (upgrader.state, view_of(node).head) == (State.TAKING_OVER, before)
    upgrader.first_held[0]()
    assert upgrader.state.name == "PRIMARY"
    assert upgrader.first_at_head == [before]
    first = world.first[0]
    assert (first.lsn, first.fingerprint, first.generation) == (
        upgrader.engine.place.generation.lsn,
        OTHER_FINGERPRINT,
        upgrader.engine.place.generation,
    )


def test_without_that_order_head_leads_to_a_generation_that_nobody_can_begin() -> None:
    world = World()
    node, _ = served(world)
    upgrader = world.upgrader(node, safeguards=Safeguards(checkpoint_before_head=False))
    upgrader.first_held = []
    order(node)
    assert upgrader.state.name == "PRIMARY"
    assert world.first == []


def _behind(snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, lsn=Lsn(snapshot.lsn - 1))


def _unfit(snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, keys=[None])  # type: ignore[list-item]  # what no shard restores


FAILURES: dict[str, tuple[Callable[[Node], None], type[Exception], str]] = {
    "the former code differs": (
        lambda node: setattr(former_of(node), "failure", Diverged("lsn 4: deposit")), Diverged, "lsn 4: deposit"
    ),
    "it can't be migrated": (
        lambda node: setattr(former_of(node), "failure", UpgradeCalledOff("key carol")), UpgradeCalledOff, "key carol"
    ),
    "it stands elsewhere": (
        lambda node: setattr(former_of(node), "change", _behind), UpgradeCalledOff, "the former code stands at lsn"
    ),
    "it can't be restored": (
        lambda node: setattr(former_of(node), "change", _unfit), UpgradeCalledOff, "the new code can't go on with"
    ),
    "its checkpoint does not read back": (
        lambda node: setattr(node, "first_fails", "bad sector"), UpgradeCalledOff, "not good: bad sector"
    ),
}  # fmt: skip


@pytest.mark.parametrize("failure", FAILURES)
def test_whatever_fails_before_head_lets_go_of_the_lock_and_the_former_code_goes_on(failure: str) -> None:
    arrange, error, text = FAILURES[failure]
    world = World()
    node, session = served(world)
    upgrader = world.upgrader(node)
    arrange(upgrader)
    head, at = view_of(node).head, node.engine.place.lsn
    order(node)
    assert isinstance(upgrader.error(), error)
    assert text in str(upgrader.error())
    assert (view_of(upgrader).head, view_of(upgrader).holder) == (head, None)
    standby = world.node("r1").begin().take_over(view_of(upgrader).epoch)
    assert standby.state.name == "PRIMARY"
    assert standby.engine.place.generation == FIRST._replace(level=NEWEST)
    standby.call(session, 3, b"three")
    assert standby.replies() == [(3, b"three")]
    assert standby.engine.place.lsn > at


def test_without_comparing_where_the_former_code_stands_a_state_is_taken_for_another() -> None:
    world = World()
    node, _ = served(world)
    upgrader = world.upgrader(node, safeguards=Safeguards(compare_former=False))
    former_of(upgrader).change = _behind
    at = node.engine.place.lsn
    order(node)
    assert [snapshot.lsn for snapshot in world.first] == [at], "and not behind the last message"


def test_what_is_made_late_changes_nothing_for_who_was_deposed_meanwhile() -> None:
    world = World()
    node, session = served(world)
    upgrader = world.upgrader(node)
    former_of(upgrader).held = True
    order(node)
    assert upgrader.state.name == "TAKING_OVER"
    standby = world.node("r1").begin().take_over(view_of(upgrader).epoch)
    standby.call(session, 3, b"three")
    head = view_of(standby).head
    answer = former_of(upgrader).answer
    assert answer is not None
    answer()
    assert upgrader.state.name == "STOPPED"
    assert view_of(standby).head == head
    standby.call(session, 4, b"four")
    assert standby.replies() == [(3, b"three"), (4, b"four")]


def test_a_second_upgrader_begins_again_once_the_first_one_made_the_upgrade() -> None:
    world = World()
    node, _ = served(world)
    first, second = world.upgrader(node), world.upgrader(node, name="u8")
    order(node)
    assert first.state.name == "PRIMARY"
    second.engine.post(ev.PrimarySeen(first.engine.core.known_epoch, "u9", ""))
    world.pump(first)
    assert isinstance(second.error(), GenerationEnded)
    again = world.node("u8", fingerprint=OTHER_FINGERPRINT).begin()
    assert (again.state, again.engine.place.generation.number) == (State.FOLLOWING, 2)


def test_a_second_upgrader_begins_again_also_where_nobody_lives_who_made_the_upgrade() -> None:
    world = World()
    node, _ = served(world)
    first, second = world.upgrader(node), world.upgrader(node, name="u8")
    second.engine.takeover.look_for_upgrade()
    assert second.engine.core.role == UPGRADER, "nothing is made yet"
    order(node)
    assert first.state.name == "PRIMARY"
    first.engine.takeover.look_for_upgrade()
    assert first.state.name == "PRIMARY", "it has no upgrade to make any more"
    second.engine.takeover.look_for_upgrade()
    assert isinstance(second.error(), GenerationEnded)


class FakeReady:
    """Something that is made ready in two steps."""

    def __init__(self, name: bytes) -> None:
        self.name, self.steps, self.told = name, 2, list[str]()

    def make_some(self, *_: object) -> bool:
        self.steps -= 1
        return self.steps >= 0

    def restore(self, *_: object) -> None:
        self.told.append("restored")

    def drop(self, *_: object) -> None:
        self.told.append("dropped")


@pytest.mark.parametrize("since", [b"name", b"other", None])
def test_what_was_made_ready_is_gone_on_with_where_it_is_of_the_states_that_were_written_ahead(
    since: bytes | None,
) -> None:
    world = World()
    node, session = served(world)
    upgrader = world.upgrader(node)
    takeover = upgrader.engine.takeover
    before, ready = FakeReady(b"name"), FakeReady(b"name")
    for each in (before, ready):
        assert list(takeover.make_ready(each)) == [None, None]  # type: ignore[arg-type]  # it is as good as one
    assert (before.told, ready.told, takeover.is_ready) == (["dropped"], [], True), "the last one counts"
    begun = None if since is None else Since(Begun(1, 1, 1, since), {}, [])
    former_of(upgrader).change = lambda made: replace(made, since=begun)
    order(node)
    assert upgrader.state.name == "PRIMARY"
    assert ready.told == (["restored"] if since == b"name" else ["dropped"])
    assert not takeover.is_ready
    first, leads = world.first[0], upgrader.engine.snapshot()
    assert first == replace(leads, since=begun, state=first.state), "the checkpoint is what it leads with"
    upgrader.call(session, 3, b"three")
    assert upgrader.replies() == [(3, b"three")]


# ---- what the former code is told ---------------------------------------------------------------------------------


class Kept:
    """A former code that keeps what it is told."""

    level = NEWEST

    def __init__(self) -> None:
        self.restored: list[Snapshot] = []
        self.frames: list[Frame] = []
        self.restore, self.apply = self.restored.append, self.frames.append

    def migrated(self, done: object) -> None:
        raise AssertionError(done)


def frames_of(world: World, node: Node) -> list[Frame]:
    """Every frame of messages that the log holds."""
    view = view_of(node)
    tail = node.log.read_tail(view.head, 0, bytes(16), 0)
    return [frame for frame, _ in [*tail.confirmed, *tail.unconfirmed]]


def test_where_the_former_code_stands_is_known_from_its_frames_and_the_time_too() -> None:
    world = World()
    node, _ = served(world)
    kept, place = Kept(), ShardPlace()
    runner = FormerRunner(kept, place)
    frames = frames_of(world, node)
    for frame in frames:
        runner.apply(frame)
    assert kept.frames == frames
    real = node.engine.place
    assert (place.lsn, place.chain, place.digest, place.times) == (real.lsn, real.chain, real.digest, real.times)
    assert place.times.time_us > 0
    snapshot = node.engine.snapshot()
    other = ShardPlace()
    FormerRunner(kept, other).restore(snapshot, same_code=True)
    assert kept.restored == [snapshot]
    assert (other.lsn, other.chain, other.times, other.generation) == (
        real.lsn,
        real.chain,
        real.times,
        real.generation,
    )


def test_a_frame_that_does_not_follow_is_not_passed_on() -> None:
    world = World()
    node, _ = served(world)
    kept = Kept()
    with pytest.raises(CorruptFrame, match="does not follow lsn 0"):
        FormerRunner(kept, ShardPlace()).apply(frames_of(world, node)[1])
    assert kept.frames == []


def test_the_record_of_another_upgrade_is_not_run_across() -> None:
    world = World()
    node, _ = served(world)
    upgrader = world.upgrader(node)
    order(node)
    frames = frames_of(world, upgrader)
    record = next(at for at, frame in enumerate(frames) if frame.epoch == view_of(upgrader).head)
    kept, place = Kept(), ShardPlace()
    runner = FormerRunner(kept, place)
    for frame in frames[:record]:
        runner.apply(frame)
    with pytest.raises(UpgradeRequired, match=f"at lsn {frames[record].first_lsn}"):
        runner.apply(frames[record])
    assert kept.frames == frames[:record]
    assert place.lsn == frames[record].first_lsn - 1


# ---- the format level ---------------------------------------------------------------------------------------------


def levels_of(node: Node) -> tuple[int, int]:
    """The level of head's cut, and of the checkpoint that is taken now."""
    cut = node.log.check_head(view_of(node).head)
    return cut.level, node.engine.snapshot().head().of_generation().level


RAISED = [(Level.FIRST, Level.FIRST, Level.FIRST), (Level.FIRST, NEWEST, NEWEST), (NEWEST, Level.FIRST, NEWEST)]


@pytest.mark.parametrize(("begun", "former", "behind"), RAISED)
def test_an_upgrade_raises_the_level_where_the_former_build_knows_it(begun: int, former: int, behind: int) -> None:
    world = World()
    node, session = served(world, level=begun)
    assert levels_of(node) == (begun, begun)
    upgrader = world.upgrader(node, former_level=former)
    order(node)
    assert upgrader.state.name == "PRIMARY"
    assert levels_of(upgrader) == (behind, behind)
    assert world.first[0].generation.level == behind
    successor = world.node("r1", fingerprint=OTHER_FINGERPRINT).begin().take_over(view_of(upgrader).epoch)
    successor.call(session, 3, b"three")
    assert successor.replies() == [(3, b"three")]
    assert levels_of(successor) == (behind, behind)


def test_a_newer_build_that_takes_over_keeps_the_level() -> None:
    world = World()
    node, _ = served(world, level=Level.FIRST)
    standby = world.follower("r1", node)
    standby.take_over(view_of(node).epoch)
    assert levels_of(standby) == (Level.FIRST, Level.FIRST)
    world.checkpoints.append(standby.engine.snapshot())
    later = world.node("r2").begin().take_over(view_of(standby).epoch)
    assert levels_of(later) == (Level.FIRST, Level.FIRST)


@pytest.mark.parametrize("frames_come", ["by the log", "by the stream"])
def test_who_has_run_nothing_learns_the_level_before_its_first_frame(frames_come: str) -> None:
    world = World()
    if frames_come == "by the stream":
        standby = world.node("r1").begin()  # there is no epoch yet
        node, session = served(world)
        frames = frames_of(world, node)
        standby.engine.applying.apply([(frame, b"") for frame in frames if frame.count])
    else:
        node, session = served(world)
        standby = world.node("r1").begin()
    assert standby.engine.place.generation.level == NEWEST
    assert standby.engine.place.lsn > 0
    standby.take_over(view_of(node).epoch)
    standby.call(session, 3, b"three")
    assert standby.replies() == [(3, b"three")]


@pytest.mark.parametrize("on", [True, False])
def test_a_build_that_is_too_old_refuses_before_it_applies_anything(on: bool) -> None:
    world = World()
    node, _ = served(world)
    holder = view_of(node).holder
    older = world.node("r1", level=Level.FIRST, safeguards=Safeguards(refuse_newer_level=on)).begin()
    if on:
        assert isinstance(older.error(), NewerLevel)
        assert older.engine.place.lsn == 0
    else:
        assert older.engine.place.lsn > 0, "it runs what it can't read"
    assert view_of(node).holder == holder


# ---- the parts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("generation", "made"), [(None, True), (1, True), (2, False), (3, False)])
def test_an_upgrade_is_to_be_made_of_the_generation_that_it_was_prepared_for(
    generation: int | None, made: bool
) -> None:
    cut = (
        None if generation is None else Cut(ORIGIN, "bank", b"", 7, "seal", "", b"", "r0", 0, generation, 9, bytes(16))
    )
    upgrade = Upgrade(UPGRADE_ID, 1, Kept(), None, 1, 2, 5)  # type: ignore[arg-type]  # its code is not asked for
    assert to_be_made(cut, upgrade) is made


def test_a_generation_begins_at_a_place_that_no_other_attempt_has() -> None:
    places = []
    for epoch in (4, 5):
        shard = shard_around(Echo(), LIMITS)
        before = shard.place.chain
        record = Upgraded(2, epoch, UPGRADE_ID, 1, FINGERPRINT, 2, OTHER_FINGERPRINT, 5)
        payload = begin_generation(shard, record)
        assert shard.place.lsn == 1
        assert shard.place.chain == chain_after(ChainHash(before), Lsn(1), payload)
        assert shard.place.generation == Generation(2, 1, shard.place.chain)
        frame = Frame(
            FrameKind.DATA, Epoch(epoch), Lsn(1), Lsn(0), 1, Incarnation(7), ChainHash(before),
            ChainHash(shard.place.chain), 0, payload,
        )  # fmt: skip
        assert decode_data(frame).blob == encode_upgraded(record)
        places.append(shard.place.chain)
    assert len(set(places)) == 2


# ---- checkpoints of before ----------------------------------------------------------------------------------------


def collected_behind_an_upgrade(safeguards: Safeguards) -> list[int]:
    """Below what checkpoints go after the first of the new code that counts, with two of the former code."""
    world = World()
    node, session = served(world)
    for number in (3, 4):
        node.engine.take_checkpoint()
        node.call(session, number, b"x")
    node.idle()
    world.pruned.clear()
    upgrader = world.upgrader(node, safeguards=safeguards)
    order(node)
    upgrader.call(session, 5, b"x")
    upgrader.engine.take_checkpoint()
    upgrader.call(session, 6, b"x")
    upgrader.idle()
    upgrader.idle()
    return world.pruned


def test_everything_of_the_former_code_is_kept_until_enough_checkpoints_of_the_new_one_stand() -> None:
    assert collected_behind_an_upgrade(Safeguards()) == []


def test_without_that_the_former_code_can_not_be_run_again_should_the_first_checkpoint_rot() -> None:
    assert collected_behind_an_upgrade(Safeguards(checkpoints_of_this_generation=False))


def test_nothing_before_an_upgrade_is_another_version_of_the_records() -> None:
    """What a service of the first level writes without upgrades is what older releases read."""
    world = World()
    node, _ = served(world, level=Level.FIRST)
    cut = node.log.check_head(view_of(node).head)
    assert cut.encode() == msgspec.msgpack.encode(msgspec.structs.astuple(cut)[:-4])

"""The steps of a takeover, carried out on a real log and lock; what each found out is there for a later one."""

from __future__ import annotations

import errno

import pytest
from tests.unit.deathless.core.primary_world import Echo
from tests.unit.deathless.engine.replica.test_upgrade_steps import order, served, view_of
from tests.unit.deathless.engine.replica_world import World

from deathless.base.errors import ForeignDirectory, Internal
from deathless.codec.frames import FrameKind
from deathless.codec.generations import FIRST, NEWEST
from deathless.core import effects as fx
from deathless.core import events as ev
from deathless.engine.log.segment_scan import segment_path

BEGUN = FIRST._replace(level=NEWEST)
"""The generation that a log begins with under this build."""


def test_a_takeover_seals_reads_cuts_and_sets_head_before_it_serves() -> None:
    world = World()
    node, session = served(world)
    successor = world.node("r1").begin().take_over(1)
    assert successor.state.name == "PRIMARY"
    assert successor.log.sealed(1)
    view = view_of(successor)
    assert (view.head, view.holder) == (2, successor.engine.holder)
    cut = successor.log.check_head(2)
    assert (cut.base.epoch, cut.base.lsn + cut.copies, cut.of_generation()) == (1, node.engine.place.lsn, BEGUN)
    successor.call(session, 3, b"three")
    assert successor.replies() == [(3, b"three")]


def test_heads_cut_is_looked_at_between_the_look_at_the_lock_and_the_take() -> None:
    world = World()
    node, _ = served(world)
    successor = world.node("r1").begin()
    holder = view_of(node).holder
    world.disk.fail("open", segment_path(1, 0), number=errno.EIO, view="r1")
    successor.take_over(1)
    assert successor.state.name == "STOPPED"
    assert segment_path(1, 0) in str(successor.error())
    assert view_of(node).holder == holder, "who can't read the log deposes nobody"


def test_a_lock_of_another_store_is_not_taken() -> None:
    world = World()
    node, _ = served(world)
    holder = view_of(node).holder
    stranger = world.node("r1", store_id="another").begin()
    stranger.take_over(1)
    assert isinstance(stranger.error(), ForeignDirectory)
    assert view_of(node).holder == holder


@pytest.mark.parametrize(
    ("effect", "text"),
    [
        (fx.Migrate(4), "only who was started for an upgrade"),
        (fx.ProbeSpace(), "is not a step of the takeover"),
    ],
)
def test_what_is_no_step_of_this_replica_is_our_bug(effect: fx.Effect, text: str) -> None:
    node = World().primary()
    with pytest.raises(Internal, match=text):
        node.engine.takeover.perform(effect)


def test_who_never_took_the_lock_lets_go_of_nothing() -> None:
    world = World()
    node, _ = served(world)
    follower = world.follower("r1", node)
    holder = view_of(node).holder
    follower.engine.takeover.perform(fx.ReleaseLock())
    assert view_of(node).holder == holder
    assert not follower.engine.takeover.releasing


def test_the_lock_is_being_let_go_of_until_it_has_answered() -> None:
    node = World().primary()
    node.held = []
    takeover = node.engine.takeover
    takeover.perform(fx.ReleaseLock())
    releasing = [takeover.releasing]
    node.held[0]()
    assert [*releasing, takeover.releasing] == [True, False]
    assert view_of(node).holder is None


def test_an_upgrader_that_lets_go_leaves_no_witness_of_what_it_did_not_confirm() -> None:
    world = World()
    node, _ = served(world)
    upgrader = world.upgrader(node)
    upgrader.first_fails = "no room"
    at = node.engine.place.lsn
    order(node)
    assert upgrader.state.name == "STOPPED"
    assert upgrader.engine.place.lsn == at + 1, "it had run the record"
    assert {point.lsn for point in world.pages.values()} <= set(range(at + 1))
    assert world.node("r1").begin().take_over(view_of(upgrader).epoch).state.name == "PRIMARY"


def test_the_record_of_an_upgrade_goes_behind_the_cut_as_copies_do_and_is_not_run_twice() -> None:
    world = World()
    node, _ = served(world)
    executor = Echo()
    upgrader = world.upgrader(node, executor=executor)
    order(node)
    place = upgrader.engine.place
    assert place.lsn == node.engine.place.lsn + 1
    assert upgrader.engine.takeover.log_end == place.lsn
    upgrader.engine.post(ev.TimerFired())
    found = upgrader.log.read_tail(2, 0, bytes(16), 0)
    data = [frame for frame, _ in [*found.confirmed, *found.unconfirmed] if frame.kind == FrameKind.DATA]
    assert [frame.last_lsn for frame in data if frame.epoch == 2] == [place.lsn]

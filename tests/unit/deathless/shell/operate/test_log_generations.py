"""From which checkpoints a log may be run that has an upgrade in it, and which code wrote what of it."""

from __future__ import annotations

import dataclasses

import pytest
from tests.unit.deathless.engine.replica.test_upgrade_steps import order as hand_over
from tests.unit.deathless.engine.replica_world import FINGERPRINT, OTHER_FINGERPRINT, Node, World

from deathless.base.config import ReplicaConfig
from deathless.base.errors import InvalidArgument, LogTruncated
from deathless.base.ids import ChainHash, Lsn
from deathless.codec.generations import FIRST
from deathless.engine.log.segment_scan import segment_path
from deathless.engine.ports import FileSystem
from deathless.shell.lock_stores.inspection import Inspection
from deathless.shell.operate.log_generations import cut_at, cuts_of, loadable, newest_of_head
from deathless.shell.operate.replay import ReplayOrder, _code_for, _plan, survey
from deathless.shell.operate.verification import Verification, _check_checkpoints, _read_chain
from deathless.shell.service_code.description import Description

CONFIG = ReplicaConfig(service="bank", module="m:a", directory="nowhere", replica="r0")
CODE = Description(parts={}, former={}, files={})


def looked(node: Node) -> Inspection:
    filesystem: FileSystem = node.world.disk.view(node.name)
    return Inspection(CONFIG, filesystem, node.lock_store.view(), node.engine.service)


def upgraded() -> tuple[World, Node, int]:
    """Two calls, an upgrade, two calls more, and the first checkpoint on the disk; gives the lsn of the record."""
    world = World()
    node = world.primary()
    session = node.register()
    node.call(session, 1, b"one")
    node.call(session, 2, b"two")
    upgrader = world.upgrader(node)
    hand_over(node)
    upgrader.call(session, 3, b"three")
    upgrader.call(session, 4, b"four")
    (first,) = world.first
    looked(upgrader).checkpoints.write_first(first)
    return world, upgrader, int(first.lsn)


def test_the_checkpoint_that_a_generation_begins_with_may_be_loaded_without_a_mark() -> None:
    world, node, at = upgraded()
    look = looked(node)
    assert look.checkpoints.names() == []
    assert [(each.lsn, each.chain) for each in loadable(look)] == [(at, world.first[0].chain)]


def test_one_that_an_attempt_left_at_the_same_place_is_none() -> None:
    world, node, at = upgraded()
    look = looked(node)
    look.checkpoints.write(dataclasses.replace(world.first[0], chain=ChainHash(b"of an attempt...")))
    assert [(each.lsn, each.chain) for each in loadable(look)] == [(at, world.first[0].chain)]
    report = Verification()
    chains: dict[int, bytes] = {}
    assert _read_chain(look, report, chains) is not None
    _check_checkpoints(look, chains, report)
    assert report.problems == []
    (note,) = report.notes
    assert "is of an attempt that was let go" in note
    assert len(report.checkpoints) == 1


def test_the_newest_of_the_code_that_serves_is_none_of_the_former_code() -> None:
    world, node, at = upgraded()
    look = looked(node)
    former = dataclasses.replace(world.first[0], lsn=Lsn(at - 1), generation=FIRST)
    look.checkpoints.announce(look.checkpoints.write(former))
    found = newest_of_head(look)
    assert found is not None
    assert found.lsn == at
    look.checkpoints.remove([each.name for each in loadable(look) if each.lsn == at])
    assert newest_of_head(look) is None


def test_the_cuts_tell_who_wrote_a_message() -> None:
    _, node, at = upgraded()
    look = looked(node)
    for lsn, generation, fingerprint in ((at - 1, 1, FINGERPRINT), (at, 2, OTHER_FINGERPRINT)):
        cut = cut_at(look, lsn)
        assert cut is not None
        assert (cut.generation, cut.fingerprint) == (generation, fingerprint)
    assert cut_at(look, 0) is None
    assert [cut.generation for cut in cuts_of(look)] == [2, 1]


def test_what_was_collected_is_passed_over_but_not_heads_own() -> None:
    _, node, at = upgraded()
    look = looked(node)
    look.filesystem.unlink(segment_path(1, 0))
    assert [cut.generation for cut in cuts_of(look)] == [2]
    assert cut_at(look, at - 1) is None
    look.filesystem.unlink(segment_path(look.view.head, 0))
    with pytest.raises(LogTruncated):
        list(cuts_of(look))


@pytest.mark.parametrize("order", [ReplayOrder(), ReplayOrder(start=0), ReplayOrder(recent=100)])
def test_a_run_of_all_of_it_begins_at_that_checkpoint(order: ReplayOrder) -> None:
    _, node, at = upgraded()
    order.written_by = OTHER_FINGERPRINT
    notes: list[str] = []
    plan = _plan(looked(node), order, CODE, notes)
    assert plan.snapshot is not None
    assert (plan.snapshot.lsn, plan.base) == (at, at)
    assert len(notes) == (order.start == 0)


def test_a_run_that_ends_before_the_upgrade_is_one_of_the_former_code() -> None:
    _, node, at = upgraded()
    look = looked(node)
    plan = _plan(look, ReplayOrder(start=0, to=at - 1, written_by=FINGERPRINT), CODE, [])
    assert (plan.snapshot, plan.to) == (None, at - 1)
    assert (survey(look, {FINGERPRINT}, at - 1).foreign_head, survey(look, {FINGERPRINT}).foreign_head) == (
        b"",
        OTHER_FINGERPRINT,
    )
    assert _code_for(look, CONFIG, ReplayOrder(to=at))[1] is CONFIG


def test_without_that_checkpoint_the_place_is_named_behind_which_a_run_may_begin() -> None:
    world, node, at = upgraded()
    look = looked(node)
    look.checkpoints.remove([each.name for each in loadable(look)])
    assert world.first
    with pytest.raises(InvalidArgument, match=f"behind lsn {at}, where a run may begin"):
        _plan(look, ReplayOrder(written_by=OTHER_FINGERPRINT), CODE, [])

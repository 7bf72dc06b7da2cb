"""I6: other code never replays a log; where an operator lets it go on from a checkpoint, the executor is told so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.unit.deathless.core.primary_world import Echo
from tests.unit.deathless.engine.replica_world import Node, World

from deathless.base.errors import UpgradeRequired
from deathless.base.ids import Fingerprint
from deathless.base.safeguards import Safeguards
from deathless.engine.log.reader import LogReader

OTHER_CODE = b"other code 12345"


def served(world: World) -> Node:
    """A primary that has answered three calls and has nothing to do."""
    node = world.primary()
    session = node.register()
    for seq in range(1, 4):
        node.call(session, seq, b"%d" % seq)
    node.idle()
    return node


class Told(Echo):
    """One that writes down whether what it is restored from is of its code."""

    def __init__(self) -> None:
        super().__init__()
        self.same_code: list[bool] = []

    def restore(self, state: dict[bytes, bytes], suspended: Sequence[bytes] = (), *, same_code: bool = True) -> None:
        super().restore(state, suspended, same_code=same_code)
        self.same_code.append(same_code)


def test_i6_checkpoint_of_the_same_code_is_told_to_be_so() -> None:
    world = World()
    node = served(world)
    node.engine.take_checkpoint()
    executor = Told()
    world.node("r1", executor=executor).begin()
    assert executor.same_code == [True]


@pytest.mark.parametrize("accepted", [True, False])
def test_i6_other_code_never_replays_unless_an_operator_accepts_it_at_just_this_lsn(accepted: bool) -> None:
    world = World()
    node = served(world)
    node.engine.take_checkpoint()
    lsn = node.engine.place.lsn if accepted else node.engine.place.lsn - 1
    executor = Told()
    adopted = frozenset({(bytes(16), lsn)})
    other = world.node("r1", fingerprint=OTHER_CODE, adopted=adopted, executor=executor).begin()
    if accepted:
        assert other.stopped == []
        assert executor.same_code == [False]
        assert other.engine.place == node.engine.place
    else:
        assert isinstance(other.error(), UpgradeRequired)
        assert other.error().message.endswith(f": it was {bytes(16).hex()[:4]}")


def test_a_checkpoint_of_other_code_is_passed_over_where_the_log_is_of_ours() -> None:
    world = World()
    node = served(world)
    node.engine.take_checkpoint()
    world.checkpoints[-1] = replace(world.checkpoints[-1], fingerprint=Fingerprint(OTHER_CODE), state={b"no": b"one's"})
    other = world.node("r1").begin()
    assert other.stopped == []
    assert other.engine.place == node.engine.place
    assert b"no" not in other.engine.shard.executor.state()


@pytest.mark.parametrize("checkpoint", [True, False])
def test_i6_code_goes_on_under_the_fingerprint_by_which_its_log_knows_it(checkpoint: bool) -> None:
    world = World()
    node = served(world)
    if checkpoint:
        node.engine.take_checkpoint()
    former = node.engine.fingerprint
    newer = world.node("r1", fingerprint=OTHER_CODE, spellings=frozenset({former})).begin()
    assert newer.stopped == []
    assert newer.engine.place == node.engine.place
    assert newer.engine.fingerprint == former, "it says and writes what an older release beside it knows"
    newer.engine.take_checkpoint()
    assert world.checkpoints[-1].fingerprint == former
    assert newer.engine.applying.follower_refusal(former) is None
    assert newer.engine.applying.follower_refusal(OTHER_CODE) is None
    assert isinstance(newer.engine.applying.follower_refusal(b"third code"), UpgradeRequired)


def test_i6_successor_that_knows_two_fingerprints_writes_the_one_of_the_log() -> None:
    world = World()
    node = served(world)
    former = node.engine.fingerprint
    newer = world.primary("r1", fingerprint=OTHER_CODE, spellings=frozenset({former}))
    head = newer.lock_store.view().head
    assert LogReader(world.disk.view("x"), None).routes.cut(head).fingerprint == former
    older = world.node("r2", fingerprint=former).begin()
    assert older.stopped == []


def test_without_check_fingerprint_other_code_replays_and_nobody_notices() -> None:
    world = World()
    served(world)
    other = world.node("r1", fingerprint=OTHER_CODE, safeguards=Safeguards(check_fingerprint=False)).begin()
    assert other.stopped == []

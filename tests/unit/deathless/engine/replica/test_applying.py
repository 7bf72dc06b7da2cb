"""Whose code may run what: head's cut, checkpoints and frames, compared with our code and our state's generation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.deathless.core.primary_world import Echo
from tests.unit.deathless.engine.replica.test_upgrade_steps import frames_of, order, served, view_of
from tests.unit.deathless.engine.replica_world import FINGERPRINT, OTHER_FINGERPRINT, Node, World

from deathless.base.errors import (
    CorruptFrame,
    DeathlessError,
    ForeignDirectory,
    GenerationEnded,
    LogTruncated,
    UpgradeRequired,
)
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.codec.frames import ORIGIN, Cut
from deathless.codec.generations import FIRST, Generation
from deathless.codec.snapshot import Snapshot
from deathless.codec.wire import Following
from deathless.core import events as ev
from deathless.core.replica.replica import ShardPlace, State
from deathless.engine.ports import LockView
from deathless.engine.replica.applying import Applying, Code
from deathless.engine.shard.assembly import shard_around
from deathless.simulation.models.log_driver import LIMITS

SECOND = Generation(2, 9, b"x" * 16)
THIRD = Generation(3, 20, b"y" * 16)
OURS, THEIRS = FINGERPRINT, OTHER_FINGERPRINT
OUR_CODE = Code(OURS)


def cut_of(fingerprint: bytes, generation: Generation) -> Cut:
    return Cut(ORIGIN, "bank", b"", 7, "seal", "", fingerprint, "r0", 0, *generation)


class Log:
    """A log whose head's cut is known."""

    def __init__(self, found: Cut | DeathlessError) -> None:
        self._found = found

    def check_head(self, _head: int) -> Cut:
        if isinstance(self._found, DeathlessError):
            raise self._found
        return self._found


class Shelf:
    """Checkpoints: announced ones, and the one at a place."""

    def __init__(self, *announced: Snapshot, first: Snapshot | None = None) -> None:
        self._announced, self._first = announced, first

    def load_newest(self, fits: Any) -> Snapshot | None:
        return max((each for each in self._announced if fits(each.head())), key=lambda s: s.lsn, default=None)

    def load_at(self, lsn: int, chain: bytes) -> Snapshot | None:
        first = self._first
        return first if first is not None and (first.lsn, first.chain) == (lsn, chain) else None


class Witness:
    """A keeper that nothing is kept by."""

    def restored(self, lsn: int, chain: bytes) -> None:
        """See WitnessKeeper."""


def applying(
    generation: Generation = FIRST,
    *,
    found: Cut | DeathlessError | None = None,
    shelf: Shelf | None = None,
    code: Code = OUR_CODE,
    safeguards: Safeguards = ALL_SAFEGUARDS,
    upgrades_from: int | None = None,
) -> tuple[Applying, ShardPlace]:
    """One over a shard that stands at the beginning of a generation."""
    shard = shard_around(Echo(), LIMITS)
    shard.place.generation = generation
    made = Applying(
        place=shard.place,
        runner=shard,
        log=Log(found or cut_of(OURS, FIRST)),  # type: ignore[arg-type]  # what of a log is asked for here
        checkpoints=shelf or Shelf(),  # type: ignore[arg-type]  # likewise
        witness=Witness(),  # type: ignore[arg-type]  # likewise
        replica="r1",
        code=code,
        safeguards=safeguards,
        upgrades_from=upgrades_from,
    )
    return made, shard.place


def snapshot_at(lsn: int, generation: Generation, fingerprint: bytes = OURS) -> Snapshot:
    shard = shard_around(Echo(), LIMITS)
    shard.place.lsn, shard.place.chain, shard.place.generation = lsn, bytes([lsn]) * 16, generation
    if lsn == generation.lsn:
        shard.place.chain = generation.chain
    return shard.snapshot(service="bank", service_id=b"", incarnation=7, epoch=4, fingerprint=fingerprint)


# ---- whose code ---------------------------------------------------------------------------------------------------

Case = tuple[Cut | None, Generation, int | None, type[DeathlessError] | None]
CASES: dict[str, Case] = {
    "no log yet": (None, FIRST, None, None),
    "our code and generation": (cut_of(OURS, SECOND), SECOND, None, None),
    "our code, a later generation": (cut_of(OURS, THIRD), FIRST, None, GenerationEnded),
    "our code, an attempt of that generation that was let go": (
        cut_of(OURS, SECOND), Generation(2, 9, b"z" * 16), None, GenerationEnded
    ),
    "other code": (cut_of(THEIRS, FIRST), FIRST, None, UpgradeRequired),
    "other code, a later generation": (cut_of(THEIRS, SECOND), FIRST, None, UpgradeRequired),
    "an upgrader, of the generation that it upgrades": (cut_of(OURS, FIRST), FIRST, 1, None),
    "an upgrader, and the upgrade is made": (cut_of(THEIRS, SECOND), FIRST, 1, GenerationEnded),
    "an upgrader, and the former code is back": (cut_of(OURS, THIRD), FIRST, 1, GenerationEnded),
    "an upgrader whose former code is not that of the log": (cut_of(THEIRS, FIRST), FIRST, 1, UpgradeRequired),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_code_and_generation_of_the_log_decide_whether_we_go_on(case: str) -> None:
    cut, generation, upgrades_from, error = CASES[case]
    made, _ = applying(generation, found=cut, upgrades_from=upgrades_from)
    view = LockView(None, 5, 0 if cut is None else 5, None, 1, "")
    checks: list[Callable[[], None]] = [lambda: made.check_code(cut), lambda: made.check_head(view)]
    for check in checks:
        if error is None:
            check()
            continue
        with pytest.raises(error) as raised:
            check()
        assert type(raised.value) is error


def test_what_is_told_names_both_generations_and_what_to_do() -> None:
    made, _ = applying(FIRST)
    with pytest.raises(GenerationEnded, match=r"of generation 3 of the code since lsn 20, .* of generation 1"):
        made.check_code(cut_of(OURS, THIRD))
    made, _ = applying(FIRST, code=Code(OURS, what_differs=lambda theirs: f"not {theirs.hex()[:4]}"))
    with pytest.raises(UpgradeRequired, match=r"\(generation 2, since lsn 9\): not 6f66"):
        made.check_code(cut_of(THEIRS, SECOND))


@pytest.mark.parametrize("error", [LogTruncated("gone"), CorruptFrame("a cache is filling")])
def test_a_log_that_looks_broken_before_the_lock_is_ours_is_judged_once_it_is(error: DeathlessError) -> None:
    made, _ = applying(found=error)
    made.check_head(LockView(None, 5, 5, None, 1, ""))


def test_the_directory_of_another_service_takes_no_lock() -> None:
    made, _ = applying(found=ForeignDirectory("of shop"))
    with pytest.raises(ForeignDirectory):
        made.check_head(LockView(None, 5, 5, None, 1, ""))


def test_without_comparing_before_the_take_who_can_not_lead_deposes_who_can() -> None:
    made, _ = applying(found=cut_of(THEIRS, SECOND), safeguards=Safeguards(compare_before_take=False))
    made.check_head(LockView(None, 5, 5, None, 1, ""))


def test_without_comparing_generations_a_state_of_another_one_is_gone_on_with() -> None:
    made, _ = applying(FIRST, safeguards=Safeguards(compare_generation=False))
    made.check_code(cut_of(OURS, THIRD))


def test_a_follower_of_other_code_is_refused_by_name_and_an_upgrader_begins_again_for_it() -> None:
    primary, _ = applying(SECOND)
    refusal = primary.follower_refusal(THEIRS)
    assert refusal is not None
    assert "primary r1 runs other code" in refusal.message
    assert primary.follower_refusal(OURS) is None
    assert type(applying()[0].refused("x")) is UpgradeRequired
    assert type(applying(upgrades_from=1)[0].refused("x")) is GenerationEnded


def test_who_has_made_its_upgrade_is_a_replica_like_others() -> None:
    made, _ = applying(upgrades_from=1)
    shard = shard_around(Echo(), LIMITS)
    made.goes_on(Code(THEIRS), shard)
    assert made.code.fingerprint == THEIRS
    assert type(made.refused("x")) is UpgradeRequired


# ---- checkpoints --------------------------------------------------------------------------------------------------


def test_the_newest_checkpoint_of_our_code_and_generation_is_loaded_and_a_newer_one_of_another_passed_over() -> None:
    shelf = Shelf(
        snapshot_at(12, SECOND), snapshot_at(14, SECOND), snapshot_at(30, FIRST), snapshot_at(31, SECOND, THEIRS)
    )
    made, place = applying(shelf=shelf)
    assert made.load(cut_of(OURS, SECOND))
    assert (place.lsn, place.generation, made.log_epoch) == (14, SECOND, 4)


def test_a_generation_without_a_checkpoint_of_its_own_begins_with_its_first_one() -> None:
    made, place = applying(shelf=Shelf(snapshot_at(30, FIRST), first=snapshot_at(9, SECOND)))
    assert made.load(cut_of(OURS, SECOND))
    assert (place.lsn, place.generation) == (9, SECOND)


@pytest.mark.parametrize("first", [None, snapshot_at(9, SECOND, THEIRS), snapshot_at(9, FIRST)])
def test_a_generation_whose_first_checkpoint_is_gone_or_is_not_ours_is_not_begun(first: Snapshot | None) -> None:
    if first is not None:
        first = replace(first, chain=type(first.chain)(SECOND.chain))
    made, place = applying(shelf=Shelf(snapshot_at(30, FIRST), first=first))
    with pytest.raises(LogTruncated, match="lsn 9, with which generation 2 of the code begins"):
        made.load(cut_of(OURS, SECOND))
    assert place.lsn == 0


@pytest.mark.parametrize("cut", [None, cut_of(OURS, FIRST)])
def test_a_service_without_upgrades_begins_with_its_log(cut: Cut | None) -> None:
    made, place = applying()
    assert not made.load(cut)
    assert place.lsn == 0


def test_a_checkpoint_that_is_not_above_us_is_not_loaded() -> None:
    made, place = applying(SECOND, shelf=Shelf(snapshot_at(14, SECOND)))
    place.lsn = 14
    assert not made.load(cut_of(OURS, SECOND), 14)
    assert made.load(cut_of(OURS, SECOND), 13)


def test_other_code_loads_nothing_but_what_an_operator_let_it_go_on_from() -> None:
    made, _ = applying(shelf=Shelf(snapshot_at(14, FIRST, THEIRS)))
    with pytest.raises(UpgradeRequired):
        made.load(cut_of(THEIRS, FIRST))
    adopted = Code(OURS, frozenset({(THEIRS, 14)}))
    made, place = applying(shelf=Shelf(snapshot_at(13, FIRST, THEIRS), snapshot_at(14, FIRST, THEIRS)), code=adopted)
    assert made.load(cut_of(THEIRS, FIRST))
    assert place.lsn == 14
    made.check_code(cut_of(THEIRS, FIRST))


@pytest.mark.parametrize("cut", [cut_of(OURS, THIRD), cut_of(THEIRS, SECOND)])
def test_an_upgrader_loads_nothing_of_a_later_generation_though_its_former_code_may_be_back(cut: Cut) -> None:
    shelf = Shelf(snapshot_at(21, THIRD), snapshot_at(10, SECOND, THEIRS))
    made, place = applying(shelf=shelf, upgrades_from=1)
    place.lsn = 5
    with pytest.raises(GenerationEnded):
        made.load(cut, 5)
    assert place.lsn == 5


def test_what_was_adopted_before_an_upgrade_is_no_leave_behind_it() -> None:
    adopted = Code(OURS, frozenset({(THEIRS, 4)}))
    made, place = applying(
        shelf=Shelf(snapshot_at(4, FIRST, THEIRS), first=snapshot_at(9, SECOND, THEIRS)), code=adopted
    )
    with pytest.raises(LogTruncated):
        made.load(cut_of(THEIRS, SECOND))
    assert place.lsn == 0


def test_without_looking_at_fingerprints_any_checkpoint_fits() -> None:
    made, place = applying(shelf=Shelf(snapshot_at(14, FIRST, THEIRS)), safeguards=Safeguards(check_fingerprint=False))
    assert made.load(cut_of(THEIRS, SECOND))
    assert place.lsn == 14


# ---- the log ------------------------------------------------------------------------------------------------------


def upgraded() -> tuple[World, Node, Node]:
    """A log that was upgraded behind a standby of the former code."""
    world = World()
    node, _ = served(world)
    standby = world.follower("r1", node)
    upgrader = world.upgrader(node)
    order(node)
    assert upgrader.state is State.PRIMARY
    return world, standby, upgrader


def test_a_standby_that_reads_on_into_the_next_generation_begins_again() -> None:
    _, standby, upgrader = upgraded()
    upgrader.idle()  # what says in the log that the upgrade is confirmed
    standby.engine.post(ev.UpstreamAnswered(Following(False, 2, 0, "")))
    assert isinstance(standby.error(), GenerationEnded)
    assert standby.engine.place.generation.number == 1


def test_a_first_frame_whose_epoch_was_collected_has_the_process_begin_again() -> None:
    world = World()
    node, _ = served(world)
    frame = next(each for each in frames_of(world, node) if each.count)
    made, place = applying(found=LogTruncated("log/e000000000001.r000000.seg is missing"))
    with pytest.raises(GenerationEnded, match="is missing"):
        made.apply_one(frame)
    assert place.lsn == 0


def test_a_standby_that_would_take_over_looks_at_heads_cut_first_and_leaves_the_lock_alone() -> None:
    _, standby, upgrader = upgraded()
    holder = view_of(upgrader).holder
    standby.take_over(view_of(upgrader).epoch)
    assert isinstance(standby.error(), UpgradeRequired)
    assert view_of(upgrader).holder == holder


def test_frames_of_the_next_generation_are_not_run_though_they_come_one_by_one() -> None:
    _, standby, upgrader = upgraded()
    record = next(f for f in frames_of(upgrader.world, upgrader) if f.epoch == view_of(upgrader).head)
    with pytest.raises(GenerationEnded):
        standby.engine.applying.apply_one(record)
    assert standby.engine.place.lsn == record.first_lsn - 1

"""The takeover: the order of its steps is the safety argument; a table of every step and event.

What each step is there for stands in design 0003, "Takeover".
"""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless.base.errors import CorruptCheckpoint, Deposed, UpgradeCalledOff
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.codec.frames import ORIGIN, FrameKind, Opening
from deathless.core import effects as fx
from deathless.core import events as ev
from deathless.core.replica.takeover import OPENING_PROOF, REFUSALS_MAX, Step, Takeover

TAIL = ev.TailSummary(ORIGIN, 40, 47, 2)


def seen(holder_epoch: int, epoch: int | None = None) -> ev.LockSeen:
    return ev.LockSeen(ev.LockState(epoch or holder_epoch, 3, holder_epoch, "r9", 11, True))


# Each step's good answer, in order, and what it leads to.
PATH: list[tuple[Step, ev.Event, list[fx.Effect]]] = [
    (Step.LOOKING, seen(5), [fx.TakeLock()]),
    (Step.TAKING, ev.LockTaken(6, 3), [fx.LinkSeals(3, 5)]),
    (Step.SEALING, ev.SealsLinked(), [fx.ReadTail(3, 41)]),
    (Step.READING, ev.TailRead(TAIL), [fx.WriteCut(6)]),
    (Step.CUTTING, ev.CutWritten(), [fx.SetHead()]),
    (
        Step.SETTING_HEAD,
        ev.HeadSet(77),
        [fx.WriteControl(FrameKind.OPENING, msgspec.msgpack.encode(Opening(47, 77, 3)), 47)],
    ),
    (Step.OPENING, ev.ControlSynced(FrameKind.OPENING, 47), [fx.Prove(OPENING_PROOF)]),
    (Step.PROVING, ev.ProofAnswered(OPENING_PROOF, True), [fx.RemoveUnread(), fx.ApplyCopies()]),
    (Step.APPLYING, ev.CopiesApplied(47), []),
]
ENDS_AT = 47  # of an upgrade: where the primary handed over
WHOLE_TAIL = ev.TailSummary(ORIGIN, ENDS_AT, ENDS_AT, 0)
UPGRADE_PATH: list[tuple[Step, ev.Event, list[fx.Effect]]] = [
    *PATH[:3],
    (Step.READING, ev.TailRead(WHOLE_TAIL), [fx.Migrate(6)]),
    (Step.MIGRATING, ev.Migrated(48), [fx.WriteCut(6)]),
    PATH[4],
    (
        Step.SETTING_HEAD,
        ev.HeadSet(77),
        [fx.WriteControl(FrameKind.OPENING, msgspec.msgpack.encode(Opening(48, 77, 3)), 48)],
    ),
    *PATH[6:],
]
FAILED = ev.UpgradeFailed(CorruptCheckpoint("x"))
ANSWERS: list[ev.Event] = [
    *(event for _, event, _ in PATH),
    ev.Migrated(48),
    FAILED,
    ev.LockRefused(),
    ev.HeadSet(None),
    ev.ProofAnswered(OPENING_PROOF, False),
]
BELONGS = {
    **{type(event): step for step, event, _ in UPGRADE_PATH},
    ev.LockRefused: Step.TAKING,
    ev.UpgradeFailed: Step.MIGRATING,
}


def at(step: Step, safeguards: Safeguards = ALL_SAFEGUARDS, *, upgrades: bool | None = None) -> Takeover:
    """A takeover from epoch 5 that stands at a step; None: that of an upgrade where no other has the step."""
    upgrades = step is Step.MIGRATING if upgrades is None else upgrades
    ends_at = ENDS_AT if upgrades else None
    takeover = Takeover(suspected_epoch=5, confirmed_lsn=41, safeguards=safeguards, upgrade_at=ends_at)
    assert takeover.begin() == [fx.ReadLock()]
    for here, event, _ in UPGRADE_PATH if upgrades else PATH:
        if here is step:
            break
        takeover.handle(event)  # type: ignore[arg-type]  # all of PATH are takeover events
    assert takeover.step is step
    return takeover


def test_steps_come_in_the_order_that_the_safety_argument_needs() -> None:
    takeover = at(Step.LOOKING)
    for step, event, effects in PATH:
        assert takeover.step is step
        assert takeover.handle(event) == effects  # type: ignore[arg-type]  # as above
    assert takeover.step is Step.DONE
    assert (takeover.epoch, takeover.head, takeover.last_lsn) == (6, 3, 47)


def test_an_upgrade_is_made_behind_the_log_that_was_read_under_the_lock_and_before_the_cut() -> None:
    takeover = at(Step.LOOKING, upgrades=True)
    for step, event, effects in UPGRADE_PATH:
        assert takeover.step is step
        assert takeover.handle(event) == effects  # type: ignore[arg-type]  # as above
    assert takeover.step is Step.DONE
    assert takeover.last_lsn == 48


ODD_TAILS = {
    "somebody led meanwhile": ev.TailSummary(ORIGIN, 49, 49, 0),
    "the primary went on, and what it wrote is not confirmed": ev.TailSummary(ORIGIN, ENDS_AT, 48, 1),
    "something is lost": ev.TailSummary(ORIGIN, 46, 46, 0),
}


@pytest.mark.parametrize("tail", ODD_TAILS.values(), ids=ODD_TAILS)
def test_a_log_that_does_not_end_confirmed_where_the_primary_handed_over_is_left_to_the_former_code(
    tail: ev.TailSummary,
) -> None:
    takeover = at(Step.READING, upgrades=True)
    release, stop = takeover.handle(ev.TailRead(tail))
    assert release == fx.ReleaseLock()
    assert isinstance(stop, fx.StopReplica)
    assert isinstance(stop.error, UpgradeCalledOff)
    assert f"handed over at lsn {ENDS_AT}" in str(stop.error)
    assert (takeover.step, takeover.holds_epoch) == (Step.LOST, True)


@pytest.mark.parametrize("tail", ODD_TAILS.values(), ids=ODD_TAILS)
def test_without_looking_at_what_is_confirmed_other_code_goes_on_with_whatever_was_read(tail: ev.TailSummary) -> None:
    takeover = at(Step.READING, Safeguards(upgrade_confirmed_only=False), upgrades=True)
    assert takeover.handle(ev.TailRead(tail)) == [fx.Migrate(6)]


def test_an_upgrade_that_can_not_be_made_lets_go_of_the_lock_before_anybody_can_read_it() -> None:
    takeover = at(Step.MIGRATING)
    assert takeover.handle(FAILED) == [fx.ReleaseLock(), fx.StopReplica(FAILED.error)]
    assert takeover.step is Step.LOST


@pytest.mark.parametrize("event", ANSWERS, ids=str)
@pytest.mark.parametrize("step", list(Step), ids=lambda step: step.name)
def test_answer_to_another_step_is_our_bug(step: Step, event: ev.Event) -> None:
    takeover = at(step) if step is not Step.LOST else at(Step.LOOKING)
    if step is Step.LOST:
        takeover.handle(seen(9))
    if BELONGS[type(event)] is step:
        takeover.handle(event)  # type: ignore[arg-type]  # as above
        assert takeover.step is not step
    else:
        with pytest.raises(AssertionError):
            takeover.handle(event)  # type: ignore[arg-type]  # as above
        assert takeover.step in (step, Step.LOST)


@pytest.mark.parametrize(
    ("holder_epoch", "epoch", "then"), [(5, 5, Step.TAKING), (0, 8, Step.TAKING), (6, 6, Step.LOST)]
)
def test_newer_holder_than_the_one_suspected_is_followed_not_deposed(holder_epoch: int, epoch: int, then: Step) -> None:
    takeover = at(Step.LOOKING)
    takeover.handle(seen(holder_epoch, epoch))
    assert takeover.step is then
    assert takeover.seen_epoch == max(holder_epoch, epoch)
    assert not takeover.holds_epoch


def test_lock_that_somebody_else_took_first_ends_the_attempt_without_an_epoch_spent() -> None:
    takeover = at(Step.TAKING)
    assert takeover.handle(ev.LockRefused()) == [fx.ReadLock()]
    assert takeover.handle(seen(6)) == []
    assert takeover.step is Step.LOST
    assert not takeover.holds_epoch


def test_lock_that_its_holder_let_go_of_between_look_and_take_is_taken_all_the_same() -> None:
    takeover = at(Step.TAKING)
    assert takeover.handle(ev.LockRefused()) == [fx.ReadLock()]
    assert takeover.handle(seen(0, 5)) == [fx.TakeLock()]
    takeover.handle(ev.LockTaken(6, 3))
    assert takeover.holds_epoch


def test_lock_that_changes_again_and_again_ends_the_attempt() -> None:
    takeover = at(Step.TAKING)
    for _ in range(REFUSALS_MAX):
        assert takeover.handle(ev.LockRefused()) == [fx.ReadLock()]
        takeover.handle(seen(0, 5))
    assert takeover.handle(ev.LockRefused()) == []
    assert takeover.step is Step.LOST


@pytest.mark.parametrize(
    ("step", "event"),
    [(Step.SETTING_HEAD, ev.HeadSet(None)), (Step.PROVING, ev.ProofAnswered(OPENING_PROOF, False))],
)
def test_i2_successor_that_was_deposed_itself_ends_its_process(
    step: Step, event: ev.HeadSet | ev.ProofAnswered
) -> None:
    takeover = at(step)
    assert takeover.holds_epoch
    (stop,) = takeover.handle(event)
    assert isinstance(stop, fx.StopReplica)
    assert isinstance(stop.error, Deposed)
    assert takeover.step is Step.LOST


def test_first_epoch_seals_nothing_below_one() -> None:
    takeover = at(Step.TAKING)
    assert takeover.handle(ev.LockTaken(1, 0)) == [fx.LinkSeals(1, 0)]


def test_lock_that_gives_an_epoch_not_above_head_is_a_broken_invariant() -> None:
    with pytest.raises(AssertionError):
        at(Step.TAKING).handle(ev.LockTaken(3, 3))


def test_without_seal_every_epoch_only_the_last_one_is_closed() -> None:
    takeover = at(Step.TAKING, Safeguards(seal_every_epoch=False))
    assert takeover.handle(ev.LockTaken(6, 3)) == [fx.LinkSeals(5, 5)]


def test_without_cut_before_head_the_head_names_a_file_that_is_not_there_yet() -> None:
    takeover = at(Step.READING, Safeguards(cut_before_head=False))
    assert takeover.handle(ev.TailRead(TAIL)) == [fx.SetHead()]
    assert takeover.handle(ev.HeadSet(77)) == [fx.WriteCut(6)]
    assert takeover.handle(ev.CutWritten()) == PATH[5][2]


def test_without_an_opening_frame_nothing_says_that_an_epoch_was_served() -> None:
    takeover = at(Step.SETTING_HEAD, Safeguards(opening_frame=False))
    assert takeover.handle(ev.HeadSet(77)) == [fx.Prove(OPENING_PROOF)]


def test_without_seal_before_read_the_predecessor_can_confirm_a_frame_behind_what_was_read() -> None:
    takeover = at(Step.TAKING, Safeguards(seal_before_read=False))
    assert takeover.handle(ev.LockTaken(6, 3)) == [fx.ReadTail(3, 41)]  # the predecessor's fence still says yes
    assert takeover.step is Step.READING


@given(st.booleans(), st.lists(st.sampled_from([*ANSWERS, ev.TailRead(WHOLE_TAIL)]), max_size=14))
def test_no_order_of_answers_skips_a_step(upgrades: bool, events: list[ev.Event]) -> None:
    takeover = at(Step.LOOKING, upgrades=upgrades)
    steps = [step for step in Step if step is not Step.MIGRATING or upgrades]
    for event in events:
        before = takeover.step
        try:
            takeover.handle(event)  # type: ignore[arg-type]  # as above
        except AssertionError:
            assert takeover.step in (before, Step.LOST)
            break
        looks_again = before is Step.TAKING and takeover.step is Step.LOOKING
        assert looks_again or takeover.step is Step.LOST or steps.index(takeover.step) == steps.index(before) + 1

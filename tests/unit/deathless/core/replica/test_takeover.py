"""The takeover: the order of its steps is the safety argument; a table of every step and event.

What each step is there for stands in design 0003, "Takeover".
"""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless.base.errors import Deposed
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
ANSWERS: list[ev.Event] = [
    *(event for _, event, _ in PATH),
    ev.LockRefused(),
    ev.HeadSet(None),
    ev.ProofAnswered(OPENING_PROOF, False),
]
BELONGS = {
    **{type(event): step for step, event, _ in PATH},
    ev.LockRefused: Step.TAKING,
}


def at(step: Step, safeguards: Safeguards = ALL_SAFEGUARDS) -> Takeover:
    """A takeover from epoch 5 that stands at a step."""
    takeover = Takeover(suspected_epoch=5, confirmed_lsn=41, safeguards=safeguards)
    assert takeover.begin() == [fx.ReadLock()]
    for here, event, _ in PATH:
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


@given(st.lists(st.sampled_from(ANSWERS), max_size=14))
def test_no_order_of_answers_skips_a_step(events: list[ev.Event]) -> None:
    takeover = at(Step.LOOKING)
    steps = list(Step)
    for event in events:
        before = takeover.step
        try:
            takeover.handle(event)  # type: ignore[arg-type]  # as above
        except AssertionError:
            assert takeover.step in (before, Step.LOST)
            break
        looks_again = before is Step.TAKING and takeover.step is Step.LOOKING
        assert looks_again or takeover.step is Step.LOST or steps.index(takeover.step) == steps.index(before) + 1

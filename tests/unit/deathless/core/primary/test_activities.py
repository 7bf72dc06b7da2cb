"""Activities: begun for confirmed frames, so many at a time, at most once where asked for, again after a takeover."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from deathless.base.errors import NotRetryable, OutcomeUnknown
from deathless.base.limits import Limits
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.codec.messages import Kind, decode
from deathless.codec.peer_messages import ActivityStart, Attempt, Outcome, Reference, decode_body
from deathless.codec.wire import ReplyError, decode_struct
from deathless.core import effects as fx
from deathless.core.primary.activities import Activities
from deathless.core.primary.own_records import OwnRecords

WALL_US = 1_000_000_000


def start(
    operation: int, *, once: bool = False, attempted: bool = False, attempt: int = 1, after_s: float = 0
) -> ActivityStart:
    return ActivityStart(
        invocation=7,
        operation=operation,
        attempt=attempt,
        name="mail",
        arguments=b"",
        key=f"7/{operation}",
        at_most_once=once,
        attempted=attempted,
        not_before_us=WALL_US + int(after_s * 1e6) if after_s else 0,
    )


class Desk:
    """The activities of one primary, and what it logs."""

    def __init__(
        self, *, at_most: int = 10, processes: int | None = None, safeguards: Safeguards = ALL_SAFEGUARDS
    ) -> None:
        self.now = 50.0
        self.records = OwnRecords()
        limits = Limits(activities_max=at_most, message_bytes_max=100)
        self.activities = Activities(limits=limits, safeguards=safeguards, records=self.records, processes=processes)
        self.lsn = 0

    def begin(self, *pending: ActivityStart) -> list[str]:
        return self.said(self.activities.begin(pending, self.now, WALL_US))

    def confirm(self, *starts: ActivityStart, stops: Sequence[int] = ()) -> list[str]:
        references = [Reference(7, operation) for operation in stops]
        return self.said(self.activities.frame_confirmed(starts, references, self.now, WALL_US))

    def ended(self, operation: int, attempt: int = 1, reply: bytes = b"\x00ok") -> list[str]:
        return self.said(self.activities.ended(7, operation, attempt, reply))

    def log(self) -> list[str]:
        """Write a frame with what waits to be logged; gives what that is."""
        words: list[str] = []
        for _, (message,) in self.records.take(100, 10_000):
            kind, _, _, _, body = decode(message)
            if kind == Kind.ATTEMPT:
                attempt = decode_body(Attempt, body)
                words.append(f"attempt {attempt.operation}.{attempt.attempt}")
            else:
                assert kind == Kind.OUTCOME
                outcome = decode_body(Outcome, body)
                reply = outcome.reply
                said = "ok" if reply[0] == 0 else decode_struct(ReplyError, reply[1:]).code
                words.append(f"outcome {outcome.operation}.{outcome.attempt} {said}")
        self.lsn += 1
        self.records.frame_synced(self.lsn)
        return words

    def proved(self) -> list[str]:
        return self.said(self.records.frame_confirmed(self.lsn))

    def fire(self, after_s: float) -> list[str]:
        self.now += after_s
        return self.said(self.activities.timer_fired(self.now))

    def said(self, effects: Sequence[fx.Effect]) -> list[str]:
        self.activities.check_invariants()
        words: list[str] = []
        for effect in effects:
            if isinstance(effect, fx.StartActivity):
                assert effect.start.attempted == effect.start.at_most_once
                words.append(f"start {effect.start.operation}.{effect.start.attempt}")
            else:
                assert isinstance(effect, fx.StopActivity)
                words.append(f"stop {effect.reference.operation}")
        return words


def test_an_activity_runs_and_its_outcome_is_logged_once() -> None:
    desk = Desk()
    assert desk.confirm(start(1)) == ["start 1.1"]
    assert desk.activities.running == 1
    assert desk.ended(1) == []
    assert desk.ended(1) == []
    assert desk.activities.running == 0
    assert desk.log() == ["outcome 1.1 ok"]
    assert desk.proved() == []


def test_an_outcome_that_nobody_waits_for_is_not_logged() -> None:
    desk = Desk()
    assert desk.ended(9) == []
    desk.confirm(start(1, attempt=2))
    assert desk.ended(1, attempt=1) == []
    assert desk.log() == []
    assert desk.ended(1, attempt=2) == []
    assert desk.log() == ["outcome 1.2 ok"]


def test_an_outcome_that_is_too_large_for_a_message_becomes_an_error() -> None:
    desk = Desk()
    desk.confirm(start(1))
    desk.ended(1, reply=b"\x00" + b"x" * 100)
    assert desk.log() == [f"outcome 1.1 {NotRetryable.code}"]


def test_no_more_run_than_the_maximum_and_the_rest_waits_in_order() -> None:
    desk = Desk(at_most=2)
    assert desk.confirm(start(1), start(2), start(3)) == ["start 1.1", "start 2.1"]
    assert desk.confirm(start(4)) == []
    assert desk.ended(2) == []
    assert desk.log() == ["outcome 2.1 ok"]
    assert desk.proved() == ["start 3.1"]
    assert desk.ended(1) == []
    assert desk.log() == ["outcome 1.1 ok"]
    assert desk.proved() == ["start 4.1"]


def test_i10_while_outcomes_can_not_be_logged_nothing_takes_their_places() -> None:
    desk = Desk(at_most=2)
    desk.confirm(*(start(operation) for operation in range(1, 8)))
    for operation in (1, 2):
        assert desk.ended(operation) == []
        desk.records.take(100, 10_000)
        desk.records.frame_refused()  # the disk is full
    assert desk.confirm(start(8)) == []
    assert desk.fire(1) == []
    assert desk.log() == ["outcome 1.1 ok", "outcome 2.1 ok"]
    assert desk.fire(1) == []
    assert desk.proved() == ["start 3.1", "start 4.1"]


def test_one_that_must_run_at_most_once_begins_behind_its_attempt_record() -> None:
    desk = Desk(at_most=1)
    assert desk.confirm(start(1, once=True), start(2)) == []
    assert desk.log() == ["attempt 1.1"]
    assert desk.ended(1) == []
    assert desk.proved() == ["start 1.1"]
    assert desk.ended(1) == []
    assert desk.log() == ["outcome 1.1 ok"]
    assert desk.proved() == ["start 2.1"]


def test_without_that_it_would_run_a_second_time_after_a_takeover() -> None:
    desk = Desk(safeguards=Safeguards(log_attempt_first=False))
    effects = desk.activities.frame_confirmed([start(1, once=True)], (), desk.now, WALL_US)
    assert [type(effect) for effect in effects] == [fx.StartActivity]
    assert desk.log() == []
    # What a successor finds in the log says that it was never attempted.
    successor = Desk()
    assert successor.begin(start(1, once=True)) == []
    assert successor.log() == ["attempt 1.1"]
    assert successor.proved() == ["start 1.1"]


def test_a_new_primary_begins_what_is_pending_again_but_not_what_may_have_begun() -> None:
    desk = Desk()
    pending = [start(1), start(2, once=True, attempted=True), start(3, once=True)]
    assert desk.begin(*pending) == ["start 1.1"]
    assert desk.log() == [f"outcome 2.1 {OutcomeUnknown.code}", "attempt 3.1"]
    assert desk.proved() == ["start 3.1"]


def test_one_that_is_tried_again_later_waits_for_its_time() -> None:
    desk = Desk()
    assert desk.activities.deadline() is None
    assert desk.confirm(start(1, after_s=3), start(2, after_s=1)) == []
    assert desk.activities.deadline() == desk.now + 1
    assert desk.fire(1) == ["start 2.1"]
    assert desk.activities.deadline() == desk.now + 2
    assert desk.fire(5) == ["start 1.1"]
    assert desk.activities.deadline() is None


def test_one_that_is_not_wanted_any_more_is_ended_or_never_begun() -> None:
    desk = Desk(at_most=2)
    desk.confirm(start(1), start(2, once=True), start(3), start(4, after_s=1))
    assert desk.confirm(stops=[1, 2, 3, 4, 5]) == ["stop 1"]
    assert desk.log() == ["attempt 2.1"]
    assert desk.proved() == []
    assert desk.fire(2) == []
    assert desk.ended(1) == []
    assert desk.log() == []


def test_a_further_attempt_replaces_the_one_before() -> None:
    desk = Desk(at_most=1)
    desk.confirm(start(1), start(2))
    assert desk.confirm(start(2, attempt=2)) == []
    assert desk.ended(1) == []
    assert desk.log() == ["outcome 1.1 ok"]
    assert desk.proved() == ["start 2.2"]
    desk.confirm(start(3))
    assert desk.ended(2, attempt=2) == []
    assert desk.log() == ["outcome 2.2 ok"]
    assert desk.proved() == ["start 3.1"]


def test_an_attempt_that_was_replaced_before_its_record_was_confirmed_is_not_begun() -> None:
    desk = Desk()
    first = start(1, once=True)
    desk.confirm(first)
    assert desk.log() == ["attempt 1.1"]
    desk.confirm(stops=[1])
    desk.confirm(msgspec.structs.replace(first, attempt=2))
    assert desk.log() == []
    assert desk.proved() == []
    assert desk.log() == ["attempt 1.2"]
    assert desk.proved() == ["start 1.2"]


def test_while_its_primary_lets_go_none_begins_that_must_run_at_most_once() -> None:
    desk = Desk()
    assert desk.said(desk.activities.hold(True)) == []
    assert desk.confirm(start(1, once=True), start(2), start(3, once=True)) == ["start 2.1"]
    assert desk.log() == []
    assert desk.activities.under_way == 0
    assert desk.said(desk.activities.hold(True)) == []


def test_what_was_held_begins_in_its_order_when_the_primary_stays_and_what_was_stopped_meanwhile_does_not() -> None:
    desk = Desk(at_most=2)
    desk.activities.hold(True)
    desk.confirm(start(1, once=True), start(2, once=True), start(3, once=True), start(4, once=True))
    desk.confirm(stops=[2])
    assert desk.said(desk.activities.hold(False)) == []
    assert desk.log() == ["attempt 1.1", "attempt 3.1"]
    assert desk.proved() == ["start 1.1", "start 3.1"]
    assert desk.said(desk.activities.hold(False)) == []
    desk.ended(1)
    desk.log()
    desk.proved()
    assert desk.log() == ["attempt 4.1"]


def test_one_that_must_run_at_most_once_is_under_way_from_its_attempt_to_its_confirmed_outcome() -> None:
    desk = Desk()
    desk.confirm(start(1, once=True), start(2))
    seen = [desk.activities.under_way]
    desk.activities.hold(True)
    for step in (desk.log, desk.proved, lambda: desk.ended(2), lambda: desk.ended(1), desk.log, desk.proved):
        step()
        seen.append(desk.activities.under_way)
    assert seen == [1, 1, 1, 1, 1, 1, 0]


def test_one_that_was_stopped_is_not_under_way_any_more() -> None:
    desk = Desk()
    desk.confirm(start(1, once=True))
    desk.log()
    desk.proved()
    assert desk.confirm(stops=[1]) == ["stop 1"]
    assert desk.activities.under_way == 0


def test_no_more_have_an_attempt_in_the_log_than_there_are_processes_and_others_pass_them() -> None:
    desk = Desk(processes=2)
    assert desk.confirm(*(start(operation, once=True) for operation in (1, 2, 3, 4)), start(5)) == ["start 5.1"]
    assert desk.log() == ["attempt 1.1", "attempt 2.1"]
    assert desk.confirm(start(6, once=True)) == []
    assert desk.proved() == ["start 1.1", "start 2.1"]
    assert desk.ended(5) == []
    assert desk.ended(2) == []
    assert desk.log() == ["outcome 5.1 ok", "outcome 2.1 ok", "attempt 3.1"], "in one frame"
    assert desk.proved() == ["start 3.1"]
    assert desk.confirm(stops=[4, 1]) == ["stop 1"]
    assert desk.log() == ["attempt 6.1"]


def test_of_those_that_no_process_was_free_for_a_primary_that_lets_go_has_none_under_way() -> None:
    desk = Desk(processes=1)
    desk.confirm(*(start(operation, once=True) for operation in (1, 2, 3)))
    desk.log()
    desk.proved()
    desk.activities.hold(True)
    desk.ended(1)
    assert desk.log() == ["outcome 1.1 ok"]
    desk.proved()
    assert desk.activities.under_way == 0
    assert desk.said(desk.activities.hold(False)) == []
    assert desk.log() == ["attempt 2.1"]

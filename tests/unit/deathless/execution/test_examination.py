"""What of a checkpoint would not fit a code is told by name and count, and nothing changes by being asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from tests.unit.deathless.execution.executor_bench import SEED
from tests.unit.deathless.execution.messaging_bench import Hub
from tests.unit.deathless.execution.saga_versions import begun, make

from deathless.base.limits import Limits
from deathless.execution.examination import Examination, OpenOperation, meet
from deathless.execution.invocations.translation import Translation


class Stranger(msgspec.Struct, forbid_unknown_fields=True):
    label: str = ""


def kept() -> Hub:
    hub = begun()
    for number in range(3):
        hub.begin("saga", f"k{number}", parcel={"name": "box"})
        hub.send("take", f"k{number}", parcel={"name": "box"})
    return hub


KEPT = kept()
STATE, SUSPENDED = dict(KEPT.executor.state()), KEPT.executor.suspended()


def look(translation: Translation | None = None, **version: Any) -> Examination:
    before = dict(STATE), list(SUSPENDED)
    found = meet(
        make(**version), Limits(), SEED, STATE, SUSPENDED, translation=translation or Translation()
    ).examination
    assert before == (STATE, SUSPENDED)
    return found


def test_code_that_fits_has_no_misfit_and_its_open_operations_are_told() -> None:
    found = look()
    assert (found.invocations, found.messages, list(found.misfits), found.counts()) == (5, 4, [], {})
    assert found.schedules == []
    first = found.operations[:3]
    assert first == [
        OpenOperation(3, 3, "shop", "take", int),
        OpenOperation(3, 4, "", "charge", str),
        OpenOperation(3, 5, "stock", "reserve", int),
    ]
    assert found.operations[3:] == [OpenOperation(number, 2, "stock", "take", int) for number in (7, 9, 11)]


def test_handlers_are_run_again_within_the_guards_of_turns() -> None:
    seen: list[str] = []

    def hide() -> Callable[[], object]:
        seen.append("begin")
        return lambda: seen.append("end")

    class Noting(Translation):
        def handler(self, method: str) -> str:
            seen.append("turn")
            return method

    meet(make(), Limits(), SEED, STATE, SUSPENDED, translation=Noting(), hide=hide)
    assert (seen[0], seen[-1], {*seen[1:-1]}) == ("begin", "end", {"turn"})


def test_all_that_does_not_fit_is_counted_by_kind_and_handler() -> None:
    found = look(second="take", without=("quick", "later"), parcel=Stranger, schedules=(("*/5 * * * *", "tick"),))
    assert dict(found.counts()) == {
        ("InFlightDiffers", "saga"): 4,
        ("ArgumentsDiffer", "take"): 3,
        ("HandlerGone", "quick"): 1,
        ("HandlerGone", "later"): 1,
    }
    assert [misfit.invocation for misfit in found.misfits] == sorted(misfit.invocation for misfit in found.misfits)
    assert [(change.name, change.kind) for change in found.schedules] == [("tick/ticks", "changed")]
    assert found.operations == []


def test_messages_are_met_as_they_are_translated() -> None:
    class Renamed(Translation):
        def handler(self, method: str) -> str:
            return {"quick": "swift"}.get(method, method)

    misfits = look(Renamed()).misfits
    assert [(misfit.code, misfit.handler) for misfit in misfits] == [("HandlerGone", "swift")]

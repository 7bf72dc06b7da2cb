"""The pairs of tests/samples/upgrades: each that must be caught is, by the check or by a rehearsal, and no other is.

Their state and what the check says of each stand in the table of `migration/test_samples.py`. Here a log is made of the
old code, and rehearsed by the new one.
"""

from __future__ import annotations

from typing import Final

import pytest
from tests.unit.deathless.execution.migration.test_samples import CAUGHT, PASSING, judge, load, stored
from tests.unit.deathless.execution.rehearsal.rehearsed import Found, Log

ARGUMENTS: Final[dict[str, object]] = {"amount": 1.5, "money": {"amount": 10.0}, "article": "nut", "count": 2}
REFUSED: Final = {"key_renamed": ["KeysRenamed"]}
"""What the check lets pass, and neither an upgrade nor a rehearsal does."""
BY_THE_CHECK: Final = {
    "awaiting_handler_became_plain",  # it waits for nothing here, and does the same
    "migration_goes_by_the_order_of_a_set",  # a single process has one order
    "way_down_loses_a_field",
}
"""What the check alone finds."""


SAME: Final = {
    "activity_with_another_policy_and_body",
    "class_under_another_name",
    "comments",
    "handler_added",
    "optional_argument_added",
    "query_added",
    "schedule_added",
}
"""What gives the log's own digests, so that no former code is needed to let it pass."""


def rehearsed(kind: str, name: str) -> tuple[Found, bool]:
    """Every handler is called for every key, and rehearsed; gives as well whether the digests are the same."""
    case = {**CAUGHT, **PASSING}[name]
    old = load(kind, name, "old")
    log = Log(old)
    log.begin_with(stored(case))
    for key in case.states:
        for spec in old.specs.values():
            if spec.kind == "handler":
                log.call(spec.name, key, **{each: ARGUMENTS[each] for each in spec.args_type.__struct_fields__})
    new = load(kind, name, "new")
    same = log.same_by_digests(new)
    return log.found(new), same


@pytest.mark.parametrize("name", CAUGHT)
def test_sample_is_caught_by_the_check_and_not_run_or_differs(name: str) -> None:
    said, _, _ = judge("caught", name, CAUGHT[name])
    assert said
    found, same = rehearsed("caught", name)
    assert not (same and found.words)
    assert bool(found.words or found.misfits) == (name not in BY_THE_CHECK)


@pytest.mark.parametrize("name", PASSING)
def test_sample_passes_the_check_and_its_rehearsal(name: str) -> None:
    said, _, _ = judge("passing", name, PASSING[name])
    assert said == set()
    found, same = rehearsed("passing", name)
    assert same == (name in SAME)
    assert (found.words, found.misfits) == (set(), REFUSED.get(name, []))
    assert REFUSED.get(name) or sum(found.turns.values()) >= len(PASSING[name].states)

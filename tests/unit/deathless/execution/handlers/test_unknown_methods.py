"""What is noted of methods that are not there: counts by number, bounded."""

from __future__ import annotations

from typing import cast

import msgspec

from deathless.execution.author.foreign_methods import SERIES
from deathless.execution.handlers.probe import SPECS, Series
from deathless.execution.handlers.unknown_methods import NOTE, NUMBERS_MAX, READ, Unknown, note, read_unknown
from deathless.execution.turn.context import QueryContext

NO_CONTEXT = cast("QueryContext", None)


def test_each_number_has_its_count_in_order() -> None:
    held = Series()
    for number in (5, -3, 5, 2**31 - 1, 5):
        note(held, NO_CONTEXT, SERIES, number)
    assert read_unknown(held, NO_CONTEXT, SERIES) == Unknown(5, [(-3, 1), (5, 3), (2**31 - 1, 1)])
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(held), type=Series) == held


def test_numbers_beyond_the_most_are_counted_in_all_alone() -> None:
    held = Series()
    for number in range(NUMBERS_MAX + 10):
        note(held, NO_CONTEXT, SERIES, number)
    note(held, NO_CONTEXT, SERIES, 0)
    told = read_unknown(held, NO_CONTEXT, SERIES)
    assert (told.count, len(told.methods), told.methods[0]) == (NUMBERS_MAX + 11, NUMBERS_MAX, (0, 2))


def test_every_service_has_both_beside_its_own() -> None:
    assert SPECS[NOTE].kind == "handler"
    assert SPECS[READ].kind == "query"

"""What operators are shown of sinks."""

from __future__ import annotations

from deathless.base.listings.sinks import COLUMNS, PROBLEM_MAX, sink_rows


def test_sinks_are_a_table_with_sizes_as_people_read_them_and_problems_cut_to_fit() -> None:
    entry = {"sink": "facts", "shard": 1, "topic": "t", "state": "storing", "position": 5, "lagRows": 2}
    (row,) = sink_rows([{**entry, "lagSeconds": 0.5, "heldBytes": 1536, "problem": "p" * 500}])
    assert len(row) == len(COLUMNS)
    assert row == ("facts", 1, "t", "storing", 5, 2, 0.5, "1.5 KiB", "p" * PROBLEM_MAX)

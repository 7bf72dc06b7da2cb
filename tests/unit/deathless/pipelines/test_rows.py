"""Blocks hold the rows they were made of, and stay within what a message may be."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as some

from deathless.base.errors import InvalidArgument
from deathless.pipelines.ledger import BLOCK_BYTES_MAX, ROWS_MAX
from deathless.pipelines.rows import ROW_BYTES_MAX, Row, blocks_of, decode_rows

VALUES = some.none() | some.booleans() | some.integers(-(2**63), 2**63 - 1) | some.text(max_size=20) | some.binary()


@given(some.lists(some.tuples(some.text(min_size=1, max_size=9), some.dictionaries(some.text(max_size=5), VALUES))))
def test_rows_come_back_in_their_order(rows: list[Row]) -> None:
    """Whatever they hold."""
    found = [decode_rows(data) for _, data in blocks_of("carriers", "late", "stop", rows)]
    assert [row for block in found for row in block.rows] == rows
    assert {(block.service, block.method, block.policy) for block in found} <= {("carriers", "late", "stop")}


def test_a_block_is_full_by_rows_and_by_bytes() -> None:
    """No block is above either limit, and none is cut early."""
    small = list(blocks_of("s", "m", "skip", [("k", {"n": 1})] * (2 * ROWS_MAX + 1)))
    assert [count for count, _ in small] == [ROWS_MAX, ROWS_MAX, 1]
    large = list(blocks_of("s", "m", "skip", [("k", {"n": "x" * 100_000})] * 5))
    assert [count for count, _ in large] == [2, 2, 1]
    assert max(len(data) for _, data in large) <= BLOCK_BYTES_MAX


def test_the_largest_row_fits_into_a_block() -> None:
    """A row is refused by its own size alone, never for what is around it."""
    room = ROW_BYTES_MAX - len(b"\x92\xa1k\x81\xa1n\xc6....")
    [(_, data)] = blocks_of("s" * 40, "m" * 200, "deadLetter", [("k", {"n": b"x" * room})])
    assert len(data) <= BLOCK_BYTES_MAX
    with pytest.raises(InvalidArgument, match="row of key 'k'"):
        list(blocks_of("s", "m", "stop", [("k", {"n": b"x" * (room + 1)})]))


def test_values_of_other_types_are_what_a_handler_takes() -> None:
    """Times and decimals travel as they do in any message; what no message holds is refused with its key."""
    at = datetime(2026, 1, 2, tzinfo=UTC)
    [(_, data)] = blocks_of("s", "m", "stop", [("k", {"at": at, "cost": Decimal("1.20")})])
    assert decode_rows(data).rows == [("k", {"at": at, "cost": "1.20"})]
    with pytest.raises(InvalidArgument, match="row of key 'k'"):
        list(blocks_of("s", "m", "stop", [("k", {"n": 2**70})]))
    with pytest.raises(InvalidArgument, match="row of key 'k'"):
        list(blocks_of("s", "m", "stop", [("k", {"n": object()})]))

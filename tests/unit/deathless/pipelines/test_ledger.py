"""Which batches are decided, and what is kept of them. Each rule is shown by what would go wrong without it."""

import msgspec
import pytest

from deathless.pipelines import ledger
from deathless.pipelines.ledger import (
    Batch,
    BlockMissing,
    DriverDeposed,
    PositionTaken,
    Query,
    QueryStopped,
    Refused,
    StageFull,
)
from deathless.sdk import CallRefused


def batch(number: int, start: str, end: str, blocks: list[tuple[str, int]], attempt: int = 1) -> Batch:
    """A batch of one driver."""
    return Batch(number, attempt, start, end, blocks, 0, "q", "v1")


def staged(number: int = 1, attempt: int = 1, blocks: int = 2, query: Query | None = None) -> Query:
    """A query with blocks of three rows each."""
    query = query or Query()
    ledger.open_query(query, number)
    for block in range(blocks):
        ledger.stage_block(query, number, attempt, str(block), 3, b"rows")
    return query


BLOCKS = [("0", 3), ("1", 3)]


def test_a_driver_that_has_not_opened_the_query_is_not_listened_to() -> None:
    """Whatever its number is; else one that nobody gave would shut out those that follow."""
    query = staged()
    with pytest.raises(CallRefused, match="driver 7 has not opened the query, whose driver is 1"):
        ledger.stage_block(query, 7, 1, "2", 3, b"rows")
    with pytest.raises(CallRefused, match="driver 7 has not opened"):
        ledger.commit_batch(query, batch(7, "", "a", BLOCKS), 9)
    with pytest.raises(CallRefused, match="driver 7 has not opened"):
        ledger.stop_query(query, 7, "mine")
    assert ledger.commit_batch(query, batch(1, "", "a", BLOCKS), 9)


def test_a_batch_is_decided_whole_and_once() -> None:
    """The same batch again is told to be decided, whatever its rows are then."""
    query = staged()
    assert ledger.commit_batch(query, batch(1, "", "a", BLOCKS), 9)
    assert query.tip is not None
    assert (query.tip.position, query.tip.rows, [block.rows for block in query.decided]) == ("a", 6, [3, 3])
    ledger.stage_block(query, 1, 2, "0", 1, b"other")
    assert not ledger.commit_batch(query, batch(1, "", "a", [("0", 1)], attempt=2), 10)
    assert [block.rows for block in query.decided] == [3, 3]


def test_a_batch_that_begins_elsewhere_is_refused() -> None:
    """A driver that goes on from an old checkpoint decides nothing."""
    query = staged()
    ledger.commit_batch(query, batch(1, "", "a", BLOCKS), 9)
    staged(1, 2, query=query)
    with pytest.raises(PositionTaken, match="stands at a"):
        ledger.commit_batch(query, batch(1, "", "b", BLOCKS, 2), 10)
    assert ledger.commit_batch(query, batch(1, "a", "b", BLOCKS, 2), 10)


def test_a_driver_that_was_replaced_is_not_listened_to() -> None:
    """From the moment on at which its successor opened the query."""
    query = staged(1)
    ledger.open_query(query, 2)
    assert (query.staged, query.size, len(query.blocks)) == ([], 0, 0)
    for act in (
        lambda: ledger.open_query(query, 1),
        lambda: ledger.stage_block(query, 1, 9, "0", 1, b"x"),
        lambda: ledger.commit_batch(query, batch(1, "", "a", []), 9),
        lambda: ledger.stop_query(query, 1, "x"),
    ):
        with pytest.raises(DriverDeposed, match="driver 1 was replaced by driver 2"):
            act()


def test_decided_blocks_stay_whoever_opens_the_query() -> None:
    """Only their application lets go of them."""
    query = staged(1)
    ledger.commit_batch(query, batch(1, "", "a", BLOCKS), 9)
    ledger.open_query(query, 2)
    ledger.stage_block(query, 2, 1, "0", 1, b"x")
    assert [query.blocks[block.id] for block in query.decided] == [b"rows", b"rows"]
    ledger.finish_block(query)
    assert ([block.id for block in query.decided], query.size) == (["1/1/1"], 5)


def test_a_batch_names_what_was_staged() -> None:
    """Blocks of another attempt, of another size, and such as never came are no rows of it."""
    query = staged(blocks=1)
    for blocks in ([("1", 3)], [("0", 2)]):
        with pytest.raises(BlockMissing, match="is not staged"):
            ledger.commit_batch(query, batch(1, "", "a", blocks), 9)
    with pytest.raises(BlockMissing, match="is not staged"):
        ledger.commit_batch(query, batch(1, "", "a", [("0", 3)], attempt=2), 9)
    assert query.tip is None


def test_a_newer_attempt_lets_go_of_what_an_older_one_staged() -> None:
    """An older one that comes late adds nothing to it, and the same block again is the same block."""
    query = staged(attempt=1)
    ledger.stage_block(query, 1, 2, "0", 1, b"new")
    ledger.stage_block(query, 1, 2, "0", 1, b"new")
    assert ([block.id for block in query.staged], query.size) == (["1/2/0"], 3)
    with pytest.raises(CallRefused, match="attempt 1 is over"):
        ledger.stage_block(query, 1, 1, "2", 1, b"old")


def test_rows_that_no_batch_names_are_let_go() -> None:
    """What an attempt staged and its batch does not name is gone with the decision."""
    query = staged(blocks=2)
    ledger.commit_batch(query, batch(1, "", "a", [("1", 3)]), 9)
    assert ([block.id for block in query.decided], query.size, len(query.blocks)) == (["1/1/1"], 4, 1)


def test_an_empty_batch_moves_the_query_on() -> None:
    """It has no block, and is decided as any other."""
    query = staged(blocks=0)
    assert ledger.commit_batch(query, batch(1, "", "a", []), 9)
    with pytest.raises(PositionTaken):
        ledger.commit_batch(query, batch(1, "", "b", []), 9)


def test_no_more_is_kept_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until decided rows are applied; rows of an attempt that is over make room at once."""
    monkeypatch.setattr(ledger, "STAGED_BYTES_MAX", 8)
    query = staged(blocks=2)
    with pytest.raises(StageFull, match="8 bytes"):
        ledger.stage_block(query, 1, 1, "2", 1, b"x")
    ledger.stage_block(query, 1, 2, "0", 1, b"1234")
    ledger.stage_block(query, 1, 2, "1", 1, b"5678")
    ledger.commit_batch(query, batch(1, "", "a", [("0", 1), ("1", 1)], 2), 9)
    with pytest.raises(StageFull):
        ledger.stage_block(query, 1, 3, "0", 1, b"x")
    ledger.finish_block(query)
    ledger.stage_block(query, 1, 3, "0", 1, b"x")


@pytest.mark.parametrize(
    ("rows", "data"), [(0, b""), (ledger.ROWS_MAX + 1, b""), (1, bytes(ledger.BLOCK_BYTES_MAX + 1))]
)
def test_a_block_has_a_size(rows: int, data: bytes) -> None:
    """What is larger, or holds nothing, is refused."""
    with pytest.raises(CallRefused, match="a block holds"):
        ledger.stage_block(Query(number=1), 1, 1, "0", rows, data)


def test_what_a_refused_row_does_is_the_querys_policy() -> None:
    """`stop` stops it, `deadLetter` lists the row, and `skip` only counts it."""
    query, row = Query(number=1), Refused("k", {}, "carriers", "late", "DL3048", "no")
    ledger.refuse_row(query, row, "skip")
    assert (query.refusals, len(query.refused), query.stopped) == (1, 0, "")
    ledger.refuse_row(query, row, "deadLetter")
    assert (query.refusals, dict(query.refused), query.stopped) == (2, {2: row}, "")
    ledger.refuse_row(query, row, "stop")
    assert query.stopped == "carriers refused a row of key 'k': no"
    with pytest.raises(QueryStopped, match="refused a row"):
        ledger.stage_block(query, 1, 1, "0", 1, b"x")
    with pytest.raises(QueryStopped, match="refused a row"):
        ledger.commit_batch(query, batch(1, "", "a", []), 9)


def test_refused_rows_that_nobody_looks_at_stop_the_query(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them is let go, nor one that was on its way when the query stopped."""
    monkeypatch.setattr(ledger, "REFUSED_MAX", 2)
    query, row = Query(), Refused("k", {}, "carriers", "late", "DL3048", "no")
    ledger.refuse_row(query, row, "deadLetter")
    assert query.stopped == ""
    ledger.refuse_row(query, row, "deadLetter")
    assert "2 refused rows are listed" in query.stopped
    ledger.refuse_row(query, row, "deadLetter")
    assert len(query.refused) == 3


def test_a_batch_of_a_table_is_planned_and_then_decided() -> None:
    """The newest plan is kept, and the decision is counted with its rows."""
    query = staged(blocks=0)
    first, second = (batch(1, "", end, []) for end in "ab")
    assert ledger.plan_batch(query, first)
    assert ledger.plan_batch(query, second)
    assert (query.planned, query.batches) == (second, 0)
    assert ledger.commit_batch(query, msgspec.structs.replace(second, rows=5), 9)
    assert query.tip is not None
    assert (query.planned, query.batches, query.tip.rows, query.tip.position) == (None, 1, 5, "b")
    assert not ledger.plan_batch(query, second), "it was decided before"


def test_a_batch_of_a_table_is_planned_where_the_query_stands() -> None:
    """By the driver that is assigned, while the query runs."""
    query = staged(2, blocks=0)
    with pytest.raises(PositionTaken):
        ledger.plan_batch(query, batch(2, "a", "b", []))
    with pytest.raises(DriverDeposed):
        ledger.plan_batch(query, batch(1, "", "a", []))
    ledger.stop_query(query, 2, "no disk")
    with pytest.raises(QueryStopped):
        ledger.plan_batch(query, batch(2, "", "a", []))
    assert query.planned is None


def test_rows_are_ordered_to_be_sent_again_once_and_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are not listed are left out, and there are at most so many."""
    query = staged()
    for _ in range(3):
        ledger.refuse_row(query, Refused("k", {}, "carriers", "late", "DL3014", "no"), "deadLetter")
    ledger.order_again(query, [3, 7])
    ledger.order_again(query, [1, 3, 1])
    assert query.again == [3, 1]
    monkeypatch.setattr(ledger, "AGAIN_MAX", 2)
    with pytest.raises(CallRefused, match="at most 2 can be"):
        ledger.order_again(query, [2])
    assert query.again == [3, 1]


def test_a_row_that_is_refused_again_is_listed_with_the_reason_of_now() -> None:
    query = Query()
    ledger.refuse_row(query, Refused("UA", {"n": 1}, "carriers", "late", "DL3014", "x" * 100), "deadLetter")
    ledger.refused_again(query, 1, "DL3048", "not yet")
    ledger.refused_again(query, 7, "DL3048", "it is not listed")
    assert (query.refused[1].code, query.refused[1].text) == ("DL3048", "not yet")
    assert query.refused_bytes == ledger.size_of(query.refused[1])
    assert ledger.let_go(query, 1)
    assert query.refused_bytes == 0


def test_refused_rows_are_bounded_in_bytes_and_make_room_when_they_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "REFUSED_BYTES_MAX", 1000)
    query = Query()
    for _ in range(2):
        ledger.refuse_row(query, Refused("k", {"text": "x" * 400}, "carriers", "late", "DL3048", "no"), "deadLetter")
    assert not query.stopped
    ledger.refuse_row(query, Refused("k", {"text": "x" * 400}, "carriers", "late", "DL3048", "no"), "deadLetter")
    assert query.stopped == f"3 refused rows are listed, {query.refused_bytes} bytes; retry or drop them"
    assert [ledger.let_go(query, each) for each in (1, 2, 3, 3)] == [True, True, True, False]
    assert query.refused_bytes == 0

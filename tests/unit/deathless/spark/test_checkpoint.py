"""A checkpoint is laid from where the query stands, and its batches begin there."""

from pathlib import Path

import pytest

from deathless.base.errors import InvalidArgument
from deathless.pipelines.ledger import Tip
from deathless.pipelines.position import position_of
from deathless.spark.checkpoint import lay, read_batch

OFFSETS = 'v1\n{{"batchWatermarkMs":0,"batchTimestampMs":{0}}}\n{{"at":{0}}}'


def tip(batch: int) -> Tip:
    """Where a query stands behind a batch."""
    text = OFFSETS.format(batch)
    return Tip(position_of(text), batch, "some-id", text, 1, 0, 0)


def test_a_new_query_has_an_id_and_no_batch(tmp_path: Path) -> None:
    """Spark begins with batch 0."""
    query_id = lay(tmp_path / "new", None)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["metadata"]
    assert query_id in (tmp_path / "new" / "metadata").read_text(encoding="utf-8")


@pytest.mark.parametrize(("batch", "laid"), [(0, {"0"}), (7, {"6", "7"})])
def test_a_query_goes_on_behind_its_last_decided_batch(tmp_path: Path, batch: int, laid: set[str]) -> None:
    """The batch before it is there as well, as Spark wants it."""
    folder = tmp_path / "laid"
    assert lay(folder, tip(batch)) == "some-id"
    assert {path.name for path in (folder / "offsets").iterdir()} == laid
    assert {path.name for path in (folder / "commits").iterdir()} == laid
    assert (folder / "offsets" / str(batch)).read_text(encoding="utf-8") == OFFSETS.format(batch)


def test_a_batch_begins_where_the_one_before_ends(tmp_path: Path) -> None:
    """The first one behind a tip begins at the tip, whatever a copy of its file says; the very first at nothing."""
    lay(tmp_path / "q", tip(7))
    offsets = tmp_path / "q" / "offsets"
    (offsets / "8").write_text(OFFSETS.format(8), encoding="utf-8")
    (offsets / "9").write_text(OFFSETS.format(9), encoding="utf-8")
    first, second = (read_batch(tmp_path / "q", batch, tip(7)) for batch in (8, 9))
    assert (first.start, first.end) == (tip(7).position, tip(8).position)
    assert (second.start, second.offsets) == (first.end, OFFSETS.format(9))
    (offsets / "0").write_text(OFFSETS.format(0), encoding="utf-8")
    assert read_batch(tmp_path / "q", 0, None).start == ""


def test_a_batch_whose_beginning_is_not_known_is_refused(tmp_path: Path) -> None:
    """It is never taken for one that begins at the beginning."""
    lay(tmp_path / "q", None)
    (tmp_path / "q" / "offsets").mkdir()
    (tmp_path / "q" / "offsets" / "3").write_text(OFFSETS.format(3), encoding="utf-8")
    with pytest.raises(InvalidArgument, match="says nothing of batch 2"):
        read_batch(tmp_path / "q", 3, None)

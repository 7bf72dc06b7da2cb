"""Positions are equal where Spark would do the same, and differ where it would not."""

import pytest

from deathless.base.errors import InvalidArgument
from deathless.pipelines.position import position_of

TIMES = '{"batchWatermarkMs":0,"batchTimestampMs":7,"conf":{"a":"b"}}'


def test_spelling_and_configuration_are_no_part_of_a_position() -> None:
    """A conf that changed, or another order of fields, is the same place."""
    one = position_of('v1\n{"batchWatermarkMs":0,"batchTimestampMs":7,"conf":{"a":"b"}}\n{"x":1,"y":2}')
    other = position_of('v1\n{"batchTimestampMs":7, "conf":{}, "batchWatermarkMs":0}\n{"y": 2, "x": 1}\n')
    assert one == other == '[0,7,[{"x":1,"y":2}]]'


@pytest.mark.parametrize(
    "other",
    [
        'v1\n{"batchWatermarkMs":0,"batchTimestampMs":8}\n{"x":1}',
        'v1\n{"batchWatermarkMs":1,"batchTimestampMs":7}\n{"x":1}',
        f'v1\n{TIMES}\n{{"x":2}}',
        f'v1\n{TIMES}\n{{"x":1}}\n-',
    ],
)
def test_a_source_that_moved_and_times_make_another_position(other: str) -> None:
    """Each part counts: rows, watermark, the batch's time, the number of sources."""
    assert position_of(other) != position_of(f'v1\n{TIMES}\n{{"x":1}}')


@pytest.mark.parametrize("text", ["", "v2\n{}\n{}", "v1\n{}", "v1\n{}\n{", "v1\nx\n{}"])
def test_another_form_is_refused(text: str) -> None:
    """What can't be read is not guessed."""
    with pytest.raises(InvalidArgument, match="offsets"):
        position_of(text)

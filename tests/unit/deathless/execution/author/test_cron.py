"""When the times of an expression are, where clocks change too."""

import datetime as dt
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deathless.base.errors import InvalidService
from deathless.execution.author.cron import Cron

MINUTE_US = 60_000_000


def us(*moment: int) -> int:
    return int(dt.datetime(*moment, tzinfo=dt.UTC).timestamp()) * 1_000_000  # type: ignore[misc,arg-type]  # all ints


def shown(times: list[int]) -> list[str]:
    return [f"{dt.datetime.fromtimestamp(at // 1_000_000, tz=dt.UTC):%d. %H:%M}" for at in times]


def following(expression: str, zone: str, after_us: int, count: int) -> list[str]:
    cron, found = Cron(expression, zone), [after_us]
    for _ in range(count):
        found.append(cron.next_after(found[-1]))
    return shown(found[1:])


def test_time_that_the_clock_leaves_out_is_moved_to_the_end_of_the_gap() -> None:
    begin = us(2026, 3, 27, 12)  # on the 29th Berlin's clocks go from 2:00 to 3:00, which is 1:00 UTC
    assert following("30 2 * * *", "Europe/Berlin", begin, 3) == ["28. 01:30", "29. 01:00", "30. 00:30"]


def test_times_that_fall_together_at_the_end_of_a_gap_are_one() -> None:
    begin = us(2026, 3, 28, 12)
    assert following("0,30 2,3 * * *", "Europe/Berlin", begin, 3) == ["29. 01:00", "29. 01:30", "30. 00:00"]


def test_time_that_comes_twice_counts_the_first_time() -> None:
    begin = us(2026, 10, 24, 12)  # on the 25th Berlin's clocks go from 3:00 to 2:00, which is 1:00 UTC
    assert following("30 2 * * *", "Europe/Berlin", begin, 2) == ["25. 00:30", "26. 01:30"]
    between = us(2026, 10, 25, 1, 10)  # 2:10 for the second time
    assert following("30 2 * * *", "Europe/Berlin", between, 1) == ["26. 01:30"]


def test_times_of_every_hour_follow_the_seconds_as_they_pass() -> None:
    assert following("0 * * * *", "Europe/Berlin", us(2026, 10, 24, 23, 30), 3) == [
        "25. 00:00", "25. 01:00", "25. 02:00"
    ]  # fmt: skip
    assert following("0 * * * *", "Europe/Berlin", us(2026, 3, 29, 0, 30), 2) == ["29. 01:00", "29. 02:00"]


def test_next_time_is_behind_the_moment_itself() -> None:
    cron = Cron("*/5 * * * *", "UTC")
    assert cron.next_after(us(2026, 1, 1)) == us(2026, 1, 1, 0, 5)
    assert cron.next_after(us(2026, 1, 1) - 1) == us(2026, 1, 1)


def test_latest_times_are_found_however_long_ago_one_begins() -> None:
    yearly = Cron("0 0 29 2 *", "Europe/Berlin")
    assert yearly.latest(0, us(2026, 1, 1), 1) == [us(2024, 2, 28, 23)]
    assert yearly.latest(us(2024, 2, 28, 23), us(2026, 1, 1), 1) == []
    often = Cron("* * * * *", "UTC")
    end = us(2026, 1, 1)
    assert often.latest(0, end, 3) == [end - 2 * MINUTE_US, end - MINUTE_US, end]
    assert often.latest(end - 2 * MINUTE_US, end, 3) == [end - MINUTE_US, end]


@pytest.mark.parametrize("moment", [us(9999, 12, 31, 23, 59), 2**62])
def test_behind_the_calendar_there_are_no_times(moment: int) -> None:
    assert Cron("* * * * *", "Europe/Berlin").next_after(moment) == 0


def test_latest_times_before_the_end_of_the_calendar_are_found() -> None:
    cron = Cron("0 0 29 2 *", "UTC")
    assert cron.latest(us(9990, 1, 1), us(9999, 12, 31), 1) == [us(9996, 2, 29)]
    assert cron.latest(us(9997, 1, 1), us(9999, 12, 31), 1) == []


@pytest.mark.parametrize(
    ("expression", "zone", "text"),
    [
        ("* * * *", "UTC", "five fields"),
        ("0 * * * * *", "UTC", "five fields"),
        ("60 * * * *", "UTC", "no cron expression"),
        ("0 0 30 2 *", "UTC", "no cron expression"),
        ("0 0 */14 2 0#4", "UTC", "names no time"),
        ("0 0 * 2 MON#6", "UTC", "no cron expression"),
        ("0 0 31 2,4 1#5,#", "UTC", "no cron expression"),
        ("0 0 29-30 2 1#5,2#1", "Mars/Olympus", "not known"),
        ("0 0 1 1 *", "../etc/passwd", "not known"),
        ("0 0 1 1 *", "", "not known"),
    ],
)
def test_what_is_no_schedule_is_refused(expression: str, zone: str, text: str) -> None:
    with pytest.raises(InvalidService, match=text):
        Cron(expression, zone)


FIELDS = st.tuples(
    st.sampled_from(("*", "0", "30", "*/20", "15-45/15")),
    st.sampled_from(("*", "2", "0,1,2,3", "*/3")),
    st.sampled_from(("*", "29", "L")),
    st.sampled_from(("*", "3,10")),
    st.sampled_from(("*", "SUN", "1-5")),
)
ZONES = st.sampled_from(("UTC", "Europe/Berlin", "America/Santiago", "Australia/Lord_Howe", "Asia/Kathmandu"))


@given(FIELDS, ZONES, st.integers(us(2024, 1, 1), us(2027, 1, 1)), st.lists(st.integers(1, 90_000 * 1_000_000)))
@settings(deadline=None, max_examples=60)
def test_times_ascend_and_no_cut_loses_or_doubles_one(
    fields: tuple[str, ...], zone: str, begin: int, steps: list[int]
) -> None:
    cron = Cron(" ".join(fields), zone)
    cuts = [begin]
    for step in steps[:20]:
        cuts.append(cuts[-1] + step)
    parts = [at for a, b in pairwise(cuts) for at in cron.latest(a, b, 10_000)]
    assert parts == sorted(set(parts))
    assert parts == cron.latest(cuts[0], cuts[-1], 200_000)
    assert parts[-1:] == cron.latest(cuts[0], cuts[-1], 1)

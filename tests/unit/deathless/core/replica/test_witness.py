"""What a log must pass through, line by line, and that each rule matters."""

from __future__ import annotations

import msgspec
import pytest

from deathless.base.errors import LogTruncated
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.codec.witness import Point
from deathless.core.replica.witness import (
    Owner,
    Sighting,
    Trail,
    WitnessPace,
    another_point,
    check_epoch,
    check_point,
    concerns,
    exact_end,
)

SERVICE = bytes(range(16))
OWNER = Owner(SERVICE, 7, frozenset({5, 6}))
CHAINS = {500: b"A" * 16, 1000: b"B" * 16}
AT_US = 1_764_058_203_000_000


def point(lsn: int = 1000, chain: bytes = CHAINS[1000], *, incarnation: int = 7, epoch: int = 4) -> Point:
    return Point(SERVICE, incarnation, epoch, lsn, chain, AT_US, "r1")


def check(seen: Point, *, end_lsn: int = 1000, safeguards: Safeguards = ALL_SAFEGUARDS) -> bool:
    """Against a log that begins behind lsn 100 and has frames that end at 500 and 1000."""

    def chain_at(lsn: int) -> bytes | None:
        return None if lsn < 100 else CHAINS.get(lsn, b"")

    return check_point(
        Sighting(seen, "lock store"), OWNER, end_lsn=end_lsn, epoch=4, chain_at=chain_at, safeguards=safeguards
    )


def test_a_log_that_passes_through_the_point_is_served() -> None:
    assert check(point())
    assert check(point(500, CHAINS[500]))
    assert check(point(0, bytes(16)))


def test_a_log_that_ends_below_the_point_is_refused_with_lsn_time_and_writer() -> None:
    with pytest.raises(LogTruncated) as caught:
        check(point(), end_lsn=500)
    text = str(caught.value)
    assert "the log ends at lsn 500 (epoch 4), but lsn 1000 was confirmed 2025-11-25 08:10:03 UTC by r1" in text
    assert "(lock store)" in text
    assert "deathless adopt --restored" in text
    with pytest.raises(LogTruncated, match="was confirmed before"):
        check(msgspec.structs.replace(point(), at_us=0, by=""), end_lsn=500)
    with pytest.raises(LogTruncated, match="9999-12-31"):
        check(msgspec.structs.replace(point(), at_us=2**63), end_lsn=500)


@pytest.mark.parametrize("seen", [point(1000, b"x" * 16), point(700)], ids=["other chain", "within a frame"])
def test_another_history_is_refused(seen: Point) -> None:
    with pytest.raises(LogTruncated, match="another history"):
        check(seen)
    assert check(seen, safeguards=Safeguards(witness_chain=False)), "an lsn alone is regrown"


def test_a_point_below_what_still_stands_can_not_be_compared_and_refuses_nothing() -> None:
    assert not check(point(50))


def test_another_service_and_an_incarnation_that_was_given_up_are_not_concerned() -> None:
    assert check(msgspec.structs.replace(point(5000), service_id=bytes(16)))
    assert check(point(5000, incarnation=5))
    assert not concerns(point(incarnation=6), OWNER)


def test_an_incarnation_that_nobody_gave_up_means_that_this_log_is_the_older_one() -> None:
    with pytest.raises(LogTruncated, match="older than a restore"):
        check(point(10, incarnation=8))
    assert check(point(10, incarnation=8), safeguards=Safeguards(witness_of_unknown_incarnation=False))


def test_without_the_check_a_rolled_back_log_is_served() -> None:
    off = Safeguards(witness_checked=False)
    assert check(point(), end_lsn=500, safeguards=off)
    check_epoch([Sighting(point(), "page")], OWNER, 3, off)


def test_a_lock_that_never_gave_the_points_epoch_was_rolled_back_with_its_directory() -> None:
    seen = [Sighting(point(), "page"), Sighting(point(9, incarnation=5, epoch=99), "page")]
    check_epoch(seen, OWNER, 4)
    check_epoch(seen, OWNER, None)
    with pytest.raises(LogTruncated, match="the lock gave epoch 3 last, but lsn 1000 was confirmed in epoch 4"):
        check_epoch(seen, OWNER, 3)
    with pytest.raises(LogTruncated, match="older than a restore"):
        check_epoch([Sighting(point(incarnation=8), "page")], OWNER, 9)


def test_the_end_is_exact_with_an_orderly_stop_or_a_page_of_this_boot_of_the_last_primary() -> None:
    final = msgspec.structs.replace(point(), final=True)
    page = msgspec.structs.replace(point(), boot=3)
    assert exact_end([Sighting(final, "lock store")], OWNER, 4, 0) == 1000
    assert exact_end([Sighting(page, "page")], OWNER, 4, 3) == 1000
    assert exact_end([Sighting(page, "page")], OWNER, 4, 2) is None, "of another boot it may lag"
    assert exact_end([Sighting(point(), "lock store")], OWNER, 4, 0) is None, "it lags by seconds"
    assert exact_end([Sighting(final, "lock store")], OWNER, 5, 0) is None, "somebody has led after it"
    assert exact_end([Sighting(msgspec.structs.replace(page, boot=0), "page")], OWNER, 4, 0) is None


def test_the_error_of_a_primary_that_was_put_back_while_it_ran_names_what_stands() -> None:
    assert "lsn 1000" in another_point(point()).message
    assert "nothing" in another_point(None).message


def test_a_trail_remembers_the_last_places_and_forgets_the_oldest() -> None:
    trail = Trail(2)
    for lsn in (1, 2, 3):
        trail.note(lsn, bytes([lsn]))
    assert [trail.chain_at(lsn) for lsn in (1, 2, 3)] == [None, b"\2", b"\3"]
    trail.clear()
    assert trail.chain_at(3) is None


def test_points_are_written_at_most_once_an_interval_and_only_while_something_is_confirmed() -> None:
    pace = WitnessPace(5.0)
    assert pace.due(10, 100.0)
    pace.began(100.0)
    assert not pace.due(11, 106.0), "one write is under way"
    pace.written(10, 106.5)
    assert pace.due(11, 107.0)
    pace.began(107.0)
    pace.written(11, 107.1)
    assert not pace.due(12, 108.0)
    assert pace.behind_since == 107.1
    assert pace.due(12, 112.0)
    assert not pace.due(11, 200.0), "nothing moved"
    assert pace.behind_since is None

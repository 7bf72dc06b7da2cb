"""A process that reads nothing is frozen after a while, and nobody else is."""

from deathless.core.supervisor.side_watch import LOOK_MAX_S, START_S, STILL_S, SideWatch


def frozen_after(watch: SideWatch, sent: int, unread: int, *, step: float = 1.0, most: float = 300.0) -> float | None:
    """Look at it again and again; gives when it counts as frozen, in seconds; None: never."""
    now = 0.0
    while now < most:
        if watch.is_frozen(now, sent, unread):
            return now
        now += step
    return None


def begun() -> SideWatch:
    """One that has read all that it was told, when it was looked at a second ago."""
    watch = SideWatch()
    assert not watch.is_frozen(-1.0, sent=500, unread=0)
    return watch


def test_one_that_reads_nothing_is_frozen_and_one_that_starts_has_longer() -> None:
    """It has read all once it has started."""
    assert frozen_after(begun(), sent=900, unread=768) == STILL_S - 1.0
    assert frozen_after(SideWatch(), sent=500, unread=768) == START_S


def test_one_for_which_nothing_waits_is_not_frozen() -> None:
    """However long that is."""
    assert frozen_after(SideWatch(), sent=500, unread=0) is None


def test_one_that_reads_slowly_is_not_frozen() -> None:
    """Though something always waits."""
    watch = begun()
    for second in range(200):
        assert not watch.is_frozen(float(second), sent=1000 + second, unread=900)


def test_supervisor_that_stood_still_itself_blames_nobody() -> None:
    """A look counts for LOOK_MAX_S at most, however long ago the last one was."""
    watch = begun()
    assert not watch.is_frozen(3600.0, sent=900, unread=768)
    assert not watch.is_frozen(7200.0, sent=900, unread=768)
    assert frozen_after(begun(), sent=900, unread=768, step=100.0, most=5000.0) == 100.0 * STILL_S / LOOK_MAX_S


def test_what_was_read_meanwhile_begins_the_time_anew() -> None:
    """So two short stops are none."""
    watch = begun()
    for second in range(int(STILL_S) - 1):
        assert not watch.is_frozen(float(second), sent=900, unread=768)
    assert not watch.is_frozen(STILL_S, sent=1300, unread=700)
    assert not watch.is_frozen(STILL_S + 1.0, sent=1300, unread=700)

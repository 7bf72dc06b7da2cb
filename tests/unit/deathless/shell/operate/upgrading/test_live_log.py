"""A log that is followed: confirmed frames alone, across rolls and epochs, and honest about what was not compared."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from deathless.base.errors import LockUnavailable, LogTruncated
from deathless.codec.frames import ORIGIN, Cut, Frame
from deathless.engine.log.route import RouteFinder
from deathless.engine.safeguards import ALL_SAFEGUARDS
from deathless.shell.operate.upgrading import live_log as module
from deathless.shell.operate.upgrading.live_log import Followed, Following, LiveLog, Source
from deathless.simulation.models.log_driver import LogDriver, messages_of
from deathless.simulation.world.disk import SimDisk


class Lab:
    """A disk, its primaries, and a shadow with a clock that the test moves."""

    def __init__(self) -> None:
        self.disk = SimDisk(random.Random(1))
        self.released: list[bytes] = []
        self.now = 0.0
        self.asked = 0  # how often the lock store was
        self.away = False  # it does not answer
        self.stopped = False
        self.count = 0

    def primary(self) -> LogDriver:
        self.count += 1
        driver = LogDriver(self.disk.view(f"r{self.count}"), f"r{self.count}", self.released)
        driver.start()
        driver.take_over()
        self.driver = driver
        return driver

    def head(self) -> int:
        self.asked += 1
        if self.away:
            raise LockUnavailable("no answer")
        return self.driver.lock.view().head

    def follow(self, seconds: float = 10.0, lsn: int = 0, chain: bytes = ORIGIN.chain) -> LiveLog:
        source = Source(fs=self.disk.view("shadow"), head_of=self.head, clock=lambda: self.now, pause=self.wait)
        following = Following(seconds=seconds, stopped=lambda: self.stopped)
        return LiveLog(source, self.driver.lock.view().head, lsn, chain, following)

    def wait(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def lab() -> Lab:
    return Lab()


def nothing(log: LiveLog) -> str:
    """Say why nothing is given."""
    assert log.ready() is None
    return "over" if log.over else "not yet"


def compare(log: LiveLog) -> list[bytes]:
    """Compare what there is; gives its messages."""
    messages = []
    while (frame := log.ready()) is not None:
        messages += messages_of(frame)
        log.compared(frame)
    return messages


def watch(lab: Lab, log: LiveLog, until: Callable[[], bool] = bool) -> list[bytes]:
    """Follow to the end, or until something is so."""
    messages: list[bytes] = []
    while not log.over and not until():
        messages += compare(log)
        log.pause()
    return messages


def test_frames_are_given_once_they_are_confirmed(lab: Lab) -> None:
    primary = lab.primary()
    primary.call(b"one")
    primary.call(b"two")
    log = lab.follow()
    assert compare(log) == [b"one"]
    primary.idle()
    assert compare(log) == [b"two"]
    primary.call_unsynced(b"three")
    assert compare(log) == []


def test_a_frame_that_a_successor_replaces_is_never_given(lab: Lab) -> None:
    former = lab.primary()
    former.call(b"one")
    former.idle()
    log = lab.follow()
    successor = lab.primary()
    former.call_unsynced(b"lost")
    assert compare(log) == [b"one"], "it stands where the shadow reads: the head that it knows is the former one"
    successor.call(b"two")
    successor.idle()
    lab.wait(module.LOOK_S)
    assert watch(lab, log) == [b"two"]


def test_it_goes_on_across_rolls_and_epochs(lab: Lab) -> None:
    wanted, got = [], []
    log = None
    for number in range(3):
        primary = lab.primary()
        log = log or lab.follow()
        for call in range(10):
            message = b"%d.%d" % (number, call) * 900
            assert primary.call(message)
            wanted.append(message)
            got += compare(log)
        primary.idle()
        lab.wait(module.LOOK_S)
    assert log is not None
    got += watch(lab, log)
    assert got == wanted
    told = log.followed()
    assert (told.complete, told.caught_up, told.behind) == (True, True, 0)


def test_time_counts_from_when_everything_was_compared(lab: Lab) -> None:
    primary = lab.primary()
    primary.call(b"one")
    primary.idle()
    log = lab.follow(seconds=5.0)
    frame = log.ready()
    lab.wait(100.0)
    assert nothing(log) == "not yet"
    assert frame is not None
    log.compared(frame)
    lab.wait(4.9)
    assert nothing(log) == "not yet"
    lab.wait(0.2)
    assert nothing(log) == "over"
    told = log.followed()
    assert told.seconds == pytest.approx(5.1)
    assert told == Followed(seconds=told.seconds, caught_up=True, from_lsn=1)


def fill(primary: LogDriver, count: int) -> None:
    for number in range(count):
        primary.call(b"%d" % number)
    primary.idle()


def test_what_came_in_the_time_is_compared_behind_it_and_nothing_is_left_out(lab: Lab) -> None:
    primary = lab.primary()
    log = lab.follow(seconds=5.0)
    compare(log)
    compare(log)
    fill(primary, 4)
    lab.wait(6.0)
    first = log.ready()
    assert first is not None and not log.over
    fill(primary, 2)  # behind the time
    log.compared(first)
    watch(lab, log)
    told = log.followed()
    assert (told.messages, told.compared, told.behind, told.complete) == (4, 4, 0, True)


def test_one_that_lags_tells_what_it_did_not_compare(lab: Lab) -> None:
    primary = lab.primary()
    log = lab.follow(seconds=5.0)
    compare(log)
    compare(log)
    fill(primary, 4)
    for _ in range(2):
        frame = log.ready()
        assert frame is not None
        lab.wait(5.0)
        log.compared(frame)
    assert nothing(log) == "over"
    told = log.followed()
    assert (told.messages, told.compared, told.behind, told.behind_max) == (4, 2, 2, 4)


def test_behind_is_counted_without_being_read_for_the_comparison(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "READ_BYTES", 1)
    primary = lab.primary()
    fill(primary, 5)
    log = lab.follow()
    frame = log.ready()
    assert frame is not None
    log.compared(frame)
    assert log.behind() == 4
    fill(primary, 2)
    assert log.behind() == 4, "it is not counted at each frame"
    lab.wait(module.COUNT_S)
    assert log.behind() == 6


def test_who_started_it_ends_it_and_what_is_open_is_told(lab: Lab) -> None:
    primary = lab.primary()
    log = lab.follow()
    compare(log)
    compare(log)
    fill(primary, 3)
    frame = log.ready()
    assert frame is not None
    lab.stopped = True
    assert nothing(log) == "over"
    log.compared(frame)
    told = log.followed()
    assert (told.interrupted, told.complete, told.messages, told.compared) == (True, False, 3, 1)


def test_what_nobody_can_compare_ends_it_and_is_told(lab: Lab) -> None:
    lab.primary()
    log = lab.follow()
    watch(lab, log, lambda: log.caught_up)
    log.stop("the process of the new code ended")
    log.stop("it is told once")
    assert nothing(log) == "over"
    assert (log.followed().ended, log.followed().complete) == ("the process of the new code ended", False)


def test_a_lock_store_that_is_away_is_asked_again(lab: Lab) -> None:
    primary = lab.primary()
    log = lab.follow()
    fill(primary, 1)
    assert compare(log) == [b"0"]
    fill(lab.primary(), 1)
    lab.away = True
    watch(lab, log, lambda: lab.asked >= 3)
    lab.away = False
    assert watch(lab, log) == [b"0"]
    assert log.followed().complete


def test_where_the_log_ends_nobody_knows_without_the_lock_store(lab: Lab) -> None:
    lab.primary()
    log = lab.follow()
    lab.away = True
    watch(lab, log)
    assert "does not answer" in log.followed().ended


def test_an_idle_log_is_looked_at_without_asking_the_lock_store_each_time(lab: Lab) -> None:
    lab.primary()
    log = lab.follow(seconds=60.0)
    watch(lab, log)
    assert 5 <= lab.asked <= 7


def other_code(monkeypatch: pytest.MonkeyPatch, epoch: int, **changed: object) -> None:
    """Have an epoch's cut name another code."""
    cut = RouteFinder.cut

    def patched(self: RouteFinder, of: int) -> Cut:
        found = cut(self, of)
        return msgspec.structs.replace(found, **changed) if of == epoch else found

    monkeypatch.setattr(RouteFinder, "cut", patched)


@pytest.mark.parametrize("changed", [{"generation": 2}, {"fingerprint": b"\1" * 16}])
def test_it_ends_where_other_code_serves(lab: Lab, monkeypatch: pytest.MonkeyPatch, changed: dict[str, object]) -> None:
    other_code(monkeypatch, 2, **changed)
    fill(lab.primary(), 2)
    log = lab.follow()
    fill(lab.primary(), 2)
    fill(lab.primary(), 2)  # the code of before is back, but what is in between is not its own
    lab.wait(module.LOOK_S)
    assert watch(lab, log) == [b"0", b"1"]
    told = log.followed()
    assert told.ended.startswith("other code serves behind lsn 2")
    assert (told.messages, told.complete) == (0, False)


def test_an_upgrade_that_is_found_at_the_end_of_the_time_is_told(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    other_code(monkeypatch, 2, generation=2)
    fill(lab.primary(), 2)
    log = lab.follow(seconds=0.5)
    compare(log)
    compare(log)
    fill(lab.primary(), 2)
    lab.wait(0.6)
    watch(lab, log)
    assert log.followed().ended.startswith("other code serves")


def rolled(lab: Lab) -> LogDriver:
    """A log of several files whose first ones are collected."""
    primary = lab.primary()
    for number in range(30):
        primary.call(b"%d" % number * 2000)
    for _ in range(3):
        primary.call(b"more")
        primary.idle()
        primary.checkpoint()
    assert primary.collect()
    return primary


def test_a_log_that_is_collected_first_ends_it_and_is_told(lab: Lab) -> None:
    lab.primary()
    log = lab.follow()
    rolled(lab)
    lab.wait(module.LOOK_S)
    watch(lab, log)
    assert "was collected" in log.followed().ended
    assert not log.followed().complete


def test_a_missing_file_that_was_not_collected_is_an_error(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(lab.primary(), 3)
    log = lab.follow()

    def gone(*_: object, **__: object) -> tuple[list[tuple[Frame, bytes]], bool]:
        raise LogTruncated("a file is missing")

    monkeypatch.setattr(log._reader, "read", gone)
    with pytest.raises(LogTruncated):
        compare(log)


def test_without_the_safeguard_it_would_compare_what_is_not_confirmed(lab: Lab) -> None:
    lab.primary().call(b"one")
    log = lab.follow()
    log._reader = type(log._reader)(lab.disk.view("shadow"), None, replace(ALL_SAFEGUARDS, confirmed_only=False))
    assert compare(log) == [b"one"]

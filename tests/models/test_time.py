"""Worlds of clocks against the rules of time: what is forgotten, refused, fired and followed, judged by the true time.

The rules are the real ones (`core.tables.logical_time`, `core.tables.keys`); the world around them is drawn: wall
clocks that are off, step and come back; idle nights; machines that sleep; takeovers by followers, starts on the same
boot and on another, after stops of days; callers whose clocks are ahead. Everything is judged by the true time, which
nothing but the world knows:

    forgotten   an opaque key that was called within the window of served time is answered, not run again
    doubled     a UUIDv7 runs at most once, ever
    early       no timer by a duration fires before it has passed
    followed    time never passes the true time by more than wall clocks were off that stood for BELIEVE_S

Each safeguard is switched off in turn, and then the judge must find what it is there for.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import pytest

from deathless.base.limits import Limits
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.base.times import BUILT_US, Times
from deathless.core.tables.keys import KeyTable
from deathless.core.tables.logical_time import BELIEVE_S, FOLLOW_US, Anchor, LogicalTime, gap_us

SECOND: Final = 1_000_000
HOUR, DAY = 3600 * SECOND, 86_400 * SECOND
LIMITS: Final = Limits()
WINDOW_US: Final = LIMITS.idempotency_window_s * SECOND
HASH: Final = bytes(16)
WORLDS: Final = 400


def v7(us: int, number: int) -> bytes:
    return (us // 1000).to_bytes(6, "big") + b"\x7a\xbc\x80" + number.to_bytes(7, "big")


@dataclass
class World:
    """One service and its machines; `true_us` is the true time, `served_us` how much of it somebody led."""

    chance: random.Random
    safeguards: Safeguards
    true_us: int = BUILT_US + 300 * DAY
    served_us: int = 0
    slept_us: int = 0  # of the machine that leads
    off_us: int = 0  # of its wall clock
    stood_since_us: int = 0
    seen: tuple[int, int] = (0, 0)  # both, at the last record: what leaves and returns between two is never seen
    believable_us: int = 0  # the farthest ahead that a wall clock stood for long enough
    anchor: Anchor | None = None
    opaque: list[tuple[bytes, int]] = field(default_factory=list)  # (key, served time of its first call)
    timed: list[bytes] = field(default_factory=list)
    runs: Counter[bytes] = field(default_factory=Counter)
    timers: list[tuple[int, int]] = field(default_factory=list)  # (true time when it may fire, elapsed when it does)
    found: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.keys = KeyTable(LIMITS, self.safeguards)
        self.times = Times()
        self.seen = 0, self.true_us
        self.stood_since_us = self.true_us
        self.lead()
        self.record()  # the first one of a shard says what the wall clock says

    @property
    def now(self) -> float:
        return (self.true_us - self.slept_us) / SECOND

    @property
    def wall_us(self) -> int:
        return self.true_us + self.off_us

    def lead(self) -> None:
        gap = gap_us(
            self.times, self.anchor, boot_us=self.true_us, wall_us=self.wall_us, safeguards=self.safeguards
        )  # fmt: skip
        self.logical = LogicalTime(
            limits=LIMITS,
            safeguards=self.safeguards,
            times=self.times,
            gap_us=gap,
            now=self.now,
            wall_us=self.wall_us,
        )

    def record(self) -> None:
        self.seen = self.off_us, self.stood_since_us
        times = self.logical.draw(self.now, self.wall_us)
        self.times = self.times.later(times)
        self.logical.moved(self.times)
        self.anchor = Anchor(self.times.elapsed_us, self.true_us)
        self.keys.moved(self.times)
        self.keys.expire()
        if self.true_us - self.stood_since_us >= BELIEVE_S * SECOND:
            self.believable_us = max(self.believable_us, self.off_us)
        if self.times.time_us > self.true_us + max(0, self.believable_us) + 2 * FOLLOW_US:
            self.found["followed"] += 1
        for timer in [timer for timer in self.timers if self.times.elapsed_us >= timer[1]]:
            self.timers.remove(timer)
            if self.true_us < timer[0]:
                self.found["early"] += 1

    def call(self, key: bytes) -> bytes | None:
        """Make a call; gives the reply that it got instead of running."""
        self.record()
        reply = self.keys.check(key, (HASH,))
        if reply is None:
            self.keys.remember(key, HASH, b"\x00ran")
            self.runs[key] += 1
        return reply

    # ---- what happens ----------------------------------------------------------------------------------------

    def passes(self, us: int) -> None:
        self.true_us += us
        self.served_us += us

    def idle(self) -> None:
        self.passes(self.chance.choice([10_000, SECOND, 60 * SECOND, self.chance.randrange(10 * HOUR)]))

    def sleep(self) -> None:
        us = self.chance.randrange(10 * HOUR)
        self.true_us += us
        self.slept_us += us
        self.logical.slept(us)

    def step(self) -> None:
        self.set_clock(self.chance.choice([0, 0, 0, self.near(), 300_000 * SECOND, 30 * DAY, -5 * HOUR, 2 * HOUR]))

    def near(self) -> int:
        return self.chance.randrange(-300 * SECOND, 300 * SECOND)

    def set_clock(self, off_us: int) -> None:
        if off_us == self.seen[0]:
            self.off_us, self.stood_since_us = self.seen
        elif off_us != self.off_us:
            self.off_us, self.stood_since_us = off_us, self.true_us

    def takeover(self) -> None:
        """A follower takes over, or the replica is started again on the same boot; or nobody was there, and boots."""
        self.record()
        kind = self.chance.choice(["follower", "follower", "same boot", "boot"])
        self.true_us += self.chance.choice([SECOND // 3, 5 * SECOND] if kind == "follower" else [5 * SECOND, 72 * HOUR])
        if kind != "same boot":
            self.set_clock(self.chance.choice([0, self.near(), HOUR, -HOUR, self.off_us]))
        if kind == "boot":  # its wall clock is believed then, whatever it says: judged no more
            self.anchor = None
            self.timers.clear()
            self.believable_us = max(self.believable_us, self.off_us)
        self.lead()

    def calls(self) -> None:
        number = len(self.runs)
        match self.chance.randrange(4):
            case 0:
                key = b"opaque %d" % number
                self.call(key)
                self.opaque.append((key, self.served_us))
            case 1:
                key = v7(self.true_us + self.near(), number)
                if self.call(key) is None:
                    self.timed.append(key)
            case 2:
                key = v7(self.true_us + self.chance.choice([HOUR * 9 // 10, 2 * HOUR, 30 * DAY]), number)
                if self.call(key) is None:
                    self.timed.append(key)
            case _:
                self.record()
                us = self.chance.choice([60 * SECOND, HOUR // 2, 24 * HOUR])
                # A record is drawn and the call is run in one moment here, so nothing is lost by rounding but this.
                self.timers.append((self.true_us + us - 1000, self.times.elapsed_us + us))

    def retries(self) -> None:
        """Whoever has no answer calls again, within the window or days later."""
        for key, served_us in self.opaque:
            if self.served_us - served_us < WINDOW_US - SECOND and self.call(key) is None:
                self.found["forgotten"] += 1
        self.opaque = [each for each in self.opaque if self.served_us - each[1] < WINDOW_US - SECOND]
        for key in self.timed:
            self.call(key)
        self.found["doubled"] += sum(1 for key in self.timed if self.runs[key] > 1)

    def run(self) -> Counter[str]:
        acts = [self.idle, self.idle, self.calls, self.calls, self.calls, self.step, self.sleep, self.takeover]
        for _ in range(self.chance.randrange(20, 120)):
            self.chance.choice(acts)()
            if self.chance.random() < 0.5:
                self.record()
            if self.chance.random() < 0.1:
                self.retries()
        self.retries()
        return +self.found


def judged(safeguards: Safeguards = ALL_SAFEGUARDS) -> Counter[str]:
    """Give what the judge finds in all worlds."""
    found: Counter[str] = Counter()
    for seed in range(WORLDS):
        found += World(random.Random(seed), safeguards).run()
    return found


def test_whatever_clocks_do_nothing_is_forgotten_doubled_early_or_followed_too_soon() -> None:
    assert judged() == Counter()


@pytest.mark.parametrize(
    ("safeguards", "finds"),
    [
        (Safeguards(age_without_clock=False), "forgotten"),
        (Safeguards(floor_for_every_key=False), "doubled"),
        (Safeguards(believe_late=False), "followed"),
        (Safeguards(gap_by_own_clock=False), "early"),
    ],
    ids=["age_without_clock", "floor_for_every_key", "believe_late", "gap_by_own_clock"],
)
def test_without_the_safeguard_the_judge_finds_what_it_is_there_for(safeguards: Safeguards, finds: str) -> None:
    assert judged(safeguards)[finds]

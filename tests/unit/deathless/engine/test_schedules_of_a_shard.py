"""Ticks of schedules through the log: time records decide, followers and whoever starts from a checkpoint agree."""

from __future__ import annotations

import datetime as dt

import msgspec
import pytest

from deathless.base.ids import ChainHash, Epoch, Incarnation, Lsn
from deathless.base.limits import Limits
from deathless.codec.frames import Frame, FrameKind, Run, chain_after
from deathless.codec.messages import U64, Kind, encode
from deathless.codec.peer_messages import SELF, SELF_SESSION
from deathless.engine.shard.assembly import open_shard
from deathless.engine.shard.shard import Shard
from deathless.execution.author.schedule import Missed
from deathless.execution.author.service import Service
from deathless.execution.turn.context import Context

LIMITS = Limits()
MINUTE = 60_000_000
BEGIN = 1_800_000_000_000_000 // MINUTE * MINUTE


class State(msgspec.Struct):
    ticks: list[int] = []


def make(missed: Missed) -> Service:
    service = Service("svc", state=State, single=True)

    @service.schedule("0 3 * * *", zone="Europe/Berlin", missed=missed)
    def nightly(state: State, ctx: Context, tick: dt.datetime) -> None:
        state.ticks.append(int(tick.timestamp()) * 1_000_000)

    return service


class Line:
    """A primary, a follower, and one that starts anew from a checkpoint before each frame."""

    def __init__(self, missed: Missed) -> None:
        self.service = make(missed)
        self.primary, self.follower, self.restarted = self.shard(), self.shard(), self.shard()

    def shard(self) -> Shard:
        return open_shard(self.service, LIMITS, bytes(32))

    def log(self, run: Run, messages: list[bytes]) -> None:
        place = self.primary.place
        first, prev = place.lsn + 1, ChainHash(place.chain)
        done = self.primary.execute([(run, messages)])
        place.chain = chain_after(prev, first, done.payload)
        numbers = (FrameKind.DATA, Epoch(1), Lsn(first), Lsn(0), done.count, Incarnation(1))
        frame = Frame(*numbers, prev, place.chain, 0, done.payload)
        self.follower.apply(frame)
        snapshot = self.restarted.snapshot(
            service="svc", service_id=bytes(16), incarnation=1, epoch=1, fingerprint=bytes(16)
        )
        self.restarted = self.shard()
        self.restarted.restore(snapshot)
        self.restarted.apply(frame)

    def move(self, to_us: int) -> None:
        """Move logical time as a primary does: by bounded steps, and again while something is due."""
        while True:
            place, jump_us = self.primary.place, LIMITS.time_jump_max_s * 1_000_000
            now_us = min(to_us, place.time_us + jump_us) if place.time_us else to_us
            self.log(Run(0, 0, 0, 1), [encode(Kind.TIME, args=U64.pack(now_us))])
            self.deliver()
            if now_us == to_us and not 0 < place.due.first_us <= to_us:
                return

    def deliver(self) -> None:
        outbox = self.primary.outbox
        first = outbox.first_position(SELF)
        if messages := outbox.messages_from(SELF, first, 1 << 20):
            self.log(Run(SELF_SESSION, first, 0, len(messages)), messages)

    @property
    def ticks(self) -> list[str]:
        shards = (self.primary, self.follower, self.restarted)
        states = [shard.executor.state().get(b"", b"\x90") for shard in shards]
        assert states[0] == states[1] == states[2]
        assert self.primary.executor.suspended() == self.restarted.executor.suspended()
        found = msgspec.msgpack.decode(states[0], type=State).ticks if states[0] != b"\x90" else []
        return [f"{dt.datetime.fromtimestamp(tick // 1_000_000, tz=dt.UTC):%d. %H:%M}" for tick in found]


def us(day: int, hour: int, minute: int = 0) -> int:
    return int(dt.datetime(2026, 3, day, hour, minute, tzinfo=dt.UTC).timestamp()) * 1_000_000


def test_each_night_has_its_tick_once_also_the_short_one() -> None:
    line = Line("one")
    line.move(us(27, 12))
    for day in (28, 29, 30):
        for hour in (0, 1, 2, 3):
            line.move(us(day, hour))
    assert line.ticks == ["28. 02:00", "29. 01:00", "30. 01:00"]


@pytest.mark.parametrize(
    ("missed", "ticks"),
    [("one", ["29. 01:00"]), ("all", ["27. 02:00", "28. 02:00", "29. 01:00"]), ("skip", [])],
)
def test_what_was_missed_is_told_once_time_has_caught_up(missed: Missed, ticks: list[str]) -> None:
    line = Line(missed)
    line.move(us(26, 12))
    line.move(us(29, 5, 7))  # in steps of an hour, each of which passes three o'clock at most once
    assert line.ticks == ticks


def test_jump_as_long_as_one_may_be_is_followed_by_one_more_record() -> None:
    line = Line("one")
    line.move(us(26, 1, 30))
    before = line.primary.place.lsn
    line.move(us(26, 2, 30))
    assert line.ticks == ["26. 02:00"]
    assert line.primary.place.lsn == before + 3  # two time records and the tick


def test_new_schedule_has_a_time_record_written_though_nothing_else_happens() -> None:
    line = Line("one")
    assert line.primary.place.due.first_us == 1
    line.move(us(26, 12))
    assert line.primary.place.due.first_us == us(27, 2)

"""Wall clocks that jump under running replicas, differently on each: logical time never goes back, nothing is lost.

Machines that sleep bring the minutes of a schedule near, so that primaries can be killed around each of them.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from replica_set import Load, ReplicaSet, check_exactly_once, client_of, wait_for

from deathless.shell.ingress.uuid7 import uuid7
from deathless.shell.operate.status import look_now, parts_of

DAY_US = 86_400_000_000
MINUTE_US = 60_000_000
BELL = Path(__file__).with_name("cron_service.py")


class ShiftedSet(ReplicaSet):
    """Each replica has a wall clock of its own."""

    def start(self, name: str) -> None:
        """See the base class."""
        path = [str(Path(__file__).with_name("shifted_clock")), os.environ.get("PYTHONPATH", "")]
        self.environment = {
            "PYTHONPATH": os.pathsep.join(filter(None, path)),
            "SHIFTED_CLOCK": str(self.folder / f"{name}.clock"),
        }
        super().start(name)

    def shift(self, name: str, offset_us: int, slept_us: int = 0) -> None:
        """Set a replica's clock to so many microseconds beside the true time, and that by how long machines slept."""
        new = self.folder / f"{name}.clock.new"
        new.write_text(f"{offset_us} {slept_us}")
        new.replace(self.folder / f"{name}.clock")

    def sleep(self, slept_us: int) -> None:
        """All machines have slept for so long, since the beginning."""
        for name in self.names:
            self.shift(name, 0, slept_us)


def in_session(replicas: ReplicaSet, work: Callable[[Any], Any]) -> Any:
    """Do something with a client of its own."""

    async def run() -> Any:
        async with client_of(replicas) as client:
            return await work(client)

    return asyncio.run(run())


@pytest.mark.parametrize("offset_us", [-400 * DAY_US, 400 * DAY_US], ids=["back", "ahead"])
def test_clock_that_jumps_moves_logical_time_never_back_and_only_so_far_ahead(tmp_path: Path, offset_us: int) -> None:
    with ShiftedSet(tmp_path) as replicas:
        replicas.wait_roles(primary=1, checkpointer=1, standby=1)

        async def moment(client: Any) -> int:
            return int(await client.call("moment", "k0"))

        before = in_session(replicas, moment)
        with Load(replicas) as load:
            load.wait_more()
            replicas.shift(replicas.primary(), offset_us)
            load.wait_more()
            after = in_session(replicas, moment)
            assert before <= after <= before + DAY_US * 30
            old = replicas.primary()
            replicas.kill_worker(old)  # the next primary's clock is another one
            replicas.primary(besides=old)
            load.wait_more()
            assert in_session(replicas, moment) >= after
        check_exactly_once(load, replicas)
        replicas.wait_same_lsn()


def fresh_key(ahead_us: int = 0) -> str:
    """A UUIDv7 of an honest caller, whose clock is right: the true time is so far ahead of this machine's."""
    return uuid7(time.time_ns() + 1000 * ahead_us)


def clocks_of(replicas: ReplicaSet) -> list[str]:
    """What `deathless status` shows of each replica's clock."""
    view = look_now(parts_of([replicas.config(name) for name in replicas.names]))
    return [told.clock for told in view.replicas]


@pytest.mark.parametrize("step_us", [300_000_000_000, -300_000_000_000], ids=["ahead", "back"])
def test_step_of_days_forgets_no_key_and_refuses_no_fresh_one(tmp_path: Path, step_us: int) -> None:
    with ShiftedSet(tmp_path) as replicas:
        replicas.wait_roles(primary=1, checkpointer=1, standby=1)
        leader = replicas.primary()

        async def through_a_step(client: Any) -> None:
            timed = fresh_key()
            for key in ("order 7", timed):
                assert await client.call("note", key, tag="once", idempotency_key=key) == 1
            before = int(await client.call("moment", "k1"))
            replicas.shift(leader, step_us)
            for number in range(80):
                await client.call("note", "k1", tag=f"{number}")
            for key in ("order 7", timed):
                assert await client.call("note", key, tag="once", idempotency_key=key) == 1
            assert await client.call("note", "k2", tag="once", idempotency_key=fresh_key()) == 1
            assert 0 <= int(await client.call("moment", "k1")) - before < DAY_US, "a step that has not stood"

        in_session(replicas, through_a_step)
        clock = "ahead" if step_us > 0 else "behind"
        wait_for(lambda: clock in clocks_of(replicas), "a word about the clock", replicas.describe)


def test_fresh_key_is_taken_at_once_after_a_quiet_night_a_long_stop_and_a_takeover(tmp_path: Path) -> None:
    with ShiftedSet(tmp_path) as replicas:
        replicas.wait_roles(primary=1, checkpointer=1, standby=1)
        calls = 0

        def call(ahead_us: int) -> None:
            nonlocal calls
            calls += 1
            key = fresh_key(ahead_us)

            async def note(client: Any) -> None:
                assert await client.call("note", "k0", tag=key, idempotency_key=key) == calls
                assert await client.call("note", "k0", tag=key, idempotency_key=key) == calls

            in_session(replicas, note)

        call(0)
        night_us = 14 * 3600 * 1_000_000
        replicas.sleep(night_us)
        call(night_us)
        replicas.stop()
        stop_us = night_us + 30 * 3600 * 1_000_000
        replicas.sleep(stop_us)
        for name in replicas.names:
            replicas.start(name)
        replicas.wait_roles(primary=1, checkpointer=1, standby=1)
        call(stop_us)
        old = replicas.primary()
        for name in replicas.names:
            if name != old:
                replicas.shift(name, 3600 * 1_000_000, stop_us)  # an hour ahead of who led
        before = in_session(replicas, lambda client: client.call("moment", "k1"))
        replicas.kill_worker(old)
        replicas.primary(besides=old)
        call(stop_us)
        after = in_session(replicas, lambda client: client.call("moment", "k1"))
        assert 0 <= after - before < 1800 * 1_000_000


def test_session_and_opaque_key_survive_a_small_jump(tmp_path: Path) -> None:
    with ShiftedSet(tmp_path, replicas=1) as replicas:

        async def through_a_jump(client: Any) -> None:
            assert await client.call("note", "k0", tag="once", idempotency_key="order 7") == 1
            for offset_us in (3_600_000_000, -3_600_000_000):
                replicas.shift("r0", offset_us)
                assert await client.call("note", "k1", tag=f"at {offset_us}")
                assert await client.call("note", "k0", tag="once", idempotency_key="order 7") == 1

        in_session(replicas, through_a_jump)


def test_each_minute_of_a_schedule_comes_once_though_its_primary_is_killed_around_it(tmp_path: Path) -> None:
    with ShiftedSet(tmp_path, replicas=2, service="bell", module=f"{BELL}:bell") as replicas:

        def heard() -> list[int]:
            found: list[int] = in_session(replicas, lambda client: client.call("heard", "tower"))
            return found

        def at_least(minute: int) -> Callable[[], bool]:
            return lambda: bool((minutes := heard()) and minutes[-1] >= minute)

        heard()  # the schedule begins with the first minute after this
        for ahead in (1, 2, 4, 5):
            replicas.sleep(ahead * MINUTE_US)
            now_us = time.time_ns() // 1000 + ahead * MINUTE_US
            primary = replicas.primary()
            if ahead % 2:  # it may have sent the message of the minute, or not
                in_session(replicas, lambda client: client.call("heard", "tower"))
            replicas.kill_worker(primary)
            wait_for(at_least(now_us // MINUTE_US), "the minute", replicas.describe)
        minutes = heard()
        assert len(minutes) >= 5
        assert minutes == list(range(minutes[0], minutes[-1] + 1)), "each once, in order, none left out"

"""Virtual time is ordered and repeatable; processes die, freeze and wake up where they are blocked."""

import subprocess
import sys

import pytest

from deathless.simulation.world.clock import SimClock
from deathless.simulation.world.scheduler import Process, ProcessKilled, ProcessState, Scheduler, draw


class Bench:
    """A scheduler, one process, and what was seen."""

    def __init__(self, seed: int = 1) -> None:
        self.scheduler = Scheduler(seed, keep_trace=True)
        self.seen: list[str] = []
        self.exits: list[BaseException | None] = []
        self.process = self.scheduler.process("p", "host", lambda _, error: self.exits.append(error))

    def say(self, what: str) -> None:
        self.seen.append(f"{self.scheduler.now_us} {what}")

    def blocking(self, what: str, delay_us: int) -> None:
        self.say(f"{what} begins")
        self.process.pause(delay_us)
        self.say(f"{what} ends")


def nothing() -> None:
    pass


def test_timers_run_by_time_and_ties_in_the_order_they_were_made() -> None:
    bench = Bench()
    for name, at in (("b", 20), ("a", 10), ("c", 20)):
        bench.scheduler.call_at(at, lambda name=name: bench.say(name))  # type: ignore[misc]
    assert not bench.scheduler.run_until(15)
    assert bench.seen == ["10 a"]
    assert bench.scheduler.now_us == 15
    bench.scheduler.run_until(100)
    assert bench.seen == ["10 a", "20 b", "20 c"]


def test_a_cancelled_timer_does_not_run_and_a_stop_ends_the_run() -> None:
    bench = Bench()
    bench.scheduler.call_at(10, lambda: bench.say("a")).cancel()
    bench.scheduler.call_at(20, lambda: bench.say("b"))
    bench.scheduler.call_at(30, lambda: bench.say("c"))
    assert bench.scheduler.run_until(100, stop=lambda: bool(bench.seen))
    assert bench.seen == ["20 b"]


def test_callbacks_that_arrive_while_a_process_is_blocked_wait() -> None:
    bench = Bench()
    bench.process.start(lambda: bench.blocking("main", 100))
    bench.scheduler.call_at(50, lambda: bench.process.post(lambda: bench.say("posted")))
    bench.process.call_later(60, lambda: bench.say("timer"))
    bench.scheduler.run_until(200)
    assert bench.seen == ["0 main begins", "100 main ends", "100 posted", "100 timer"]


def test_two_processes_interleave_where_they_block() -> None:
    bench = Bench()
    other = bench.scheduler.process("q", "host", lambda *_: None)

    def first() -> None:
        bench.say("p1")
        bench.process.pause(10)
        bench.say("p2")

    def second() -> None:
        bench.say("q1")
        other.pause(5)
        bench.say("q2")

    bench.process.start(first)
    other.start(second)
    bench.scheduler.run_until(100)
    assert bench.seen == ["0 p1", "0 q1", "5 q2", "10 p2"]


def test_a_killed_process_unwinds_where_it_is_blocked_and_does_nothing_more() -> None:
    bench = Bench()

    def main() -> None:
        try:
            bench.blocking("main", 100)
        finally:
            bench.say("finally")
            with pytest.raises(ProcessKilled):
                bench.process.pause(1)

    bench.process.start(main)
    bench.process.call_later(10, lambda: bench.say("never"))
    bench.scheduler.call_at(50, bench.process.kill)
    bench.scheduler.run_until(500)
    assert bench.seen == ["0 main begins", "50 finally"]
    assert bench.exits == [None]
    assert bench.process.state is ProcessState.DEAD


def test_timers_of_a_dead_generation_are_dropped() -> None:
    bench = Bench()
    bench.process.start(nothing)
    bench.process.call_later(100, lambda: bench.say("old"))
    bench.scheduler.call_at(10, bench.process.kill)
    bench.scheduler.call_at(20, lambda: bench.process.start(lambda: bench.say("new")))
    bench.scheduler.run_until(500)
    assert bench.seen == ["20 new"]
    assert bench.process.generation == 2


def test_a_process_may_kill_itself() -> None:
    bench = Bench()

    def main() -> None:
        bench.process.kill()
        bench.say("never")

    bench.process.start(main)
    bench.scheduler.run_until(10)
    assert bench.seen == []
    assert bench.exits == [None]


def test_a_process_that_kills_another_goes_on_itself() -> None:
    bench = Bench()
    other = bench.scheduler.process("q", "host", lambda *_: bench.say("q died"))
    other.start(nothing)

    def main() -> None:
        other.kill()
        bench.say("p goes on")

    bench.process.start(main)
    bench.scheduler.run_until(10)
    assert bench.seen == ["0 p goes on", "0 q died"]


def test_an_exception_ends_the_process_and_is_handed_to_its_owner() -> None:
    bench = Bench()

    def main() -> None:
        raise ValueError("broken")

    bench.process.start(main)
    bench.scheduler.run_until(10)
    (error,) = bench.exits
    assert isinstance(error, ValueError)


def test_a_frozen_process_stays_where_it_is_blocked_until_thawed() -> None:
    bench = Bench()
    bench.process.start(lambda: bench.blocking("main", 10))
    bench.process.call_later(20, lambda: bench.say("timer"))
    bench.scheduler.call_at(5, bench.process.freeze)
    bench.scheduler.call_at(300, bench.process.thaw)
    bench.scheduler.run_until(299)
    assert bench.seen == ["0 main begins"]
    bench.scheduler.run_until(500)
    assert bench.seen == ["0 main begins", "300 main ends", "300 timer"]


def test_a_process_thawed_before_its_pause_is_over_goes_on_pausing() -> None:
    bench = Bench()
    bench.process.start(lambda: bench.blocking("main", 100))
    bench.scheduler.call_at(5, bench.process.freeze)
    bench.scheduler.call_at(10, bench.process.thaw)
    bench.scheduler.call_at(20, lambda: bench.process.post(lambda: bench.say("posted")))
    bench.scheduler.run_until(500)
    assert bench.seen == ["0 main begins", "100 main ends", "100 posted"]


def test_a_frozen_process_can_be_killed_and_started_again() -> None:
    bench = Bench()
    bench.process.start(lambda: bench.blocking("main", 10))
    bench.scheduler.call_at(5, bench.process.freeze)
    bench.scheduler.call_at(20, bench.process.kill)
    bench.scheduler.call_at(30, bench.process.thaw)
    bench.scheduler.call_at(40, lambda: bench.process.start(lambda: bench.say("again")))
    bench.scheduler.run_until(500)
    assert bench.seen == ["0 main begins", "40 again"]


def test_close_kills_everything_without_telling_anybody() -> None:
    bench = Bench()
    bench.process.start(lambda: bench.blocking("main", 10))
    bench.scheduler.close()
    assert not bench.process.alive
    assert bench.exits == []


def test_forks_of_chance_do_not_shift_each_other() -> None:
    alone = [draw(7, "disk").random() for _ in range(3)]
    assert alone[0] == alone[1]
    assert draw(7, "disk").random() != draw(7, "network").random()
    assert draw(7, "disk").random() != draw(8, "disk").random()


def test_clocks_jump_only_where_a_wall_hangs() -> None:
    bench = Bench()
    clock = SimClock(bench.scheduler)
    before = clock.wall_us()
    bench.scheduler.run_until(1_000)
    clock.jump(-5_000)
    assert clock.wall_us() == before - 4_000
    assert clock.steady_us() == 1_000


PROGRAM = """
from deathless.simulation.world.scheduler import Scheduler
s = Scheduler(5)
chance = s.fork("x")
p = s.process("p", "h", lambda *_: None)
def main():
    for _ in range(500):
        s.note("p", f"draw {chance.random()}")
        p.pause(chance.randrange(100))
p.start(main)
s.run_until(10**9)
print(s.trace.hexdigest(), s.events)
"""


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_the_same_seed_gives_the_same_trace_in_another_process(hash_seed: str) -> None:
    runs = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("0", hash_seed)
    ]
    assert runs[0] == runs[1]
    assert runs[0].split()[1] == "500"


def test_process_names_are_unique() -> None:
    bench = Bench()
    with pytest.raises(AssertionError):
        bench.scheduler.process("p", "host", lambda *_: None)


def test_a_post_from_another_process_runs_after_that_one_is_done() -> None:
    bench = Bench()
    other: Process = bench.scheduler.process("q", "host", lambda *_: None)
    other.start(nothing)

    def main() -> None:
        other.post(lambda: bench.say("posted"))
        bench.say("main")

    bench.process.start(main)
    bench.scheduler.run_until(10)
    assert bench.seen == ["0 main", "0 posted"]

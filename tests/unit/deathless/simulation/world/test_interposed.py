"""Every call of a port is a place where its caller can be stopped, and a refusal has no effect."""

import errno

import pytest

from deathless.engine.ports import Handle
from deathless.simulation.world.disk import SimDisk
from deathless.simulation.world.interposed import DiskWeather, InterposedFileSystem
from deathless.simulation.world.scheduler import Scheduler


class Bench:
    """A process that writes through an interposed file system, and a plain view beside it."""

    def __init__(self, weather: DiskWeather) -> None:
        self.scheduler = Scheduler(1)
        self.process = self.scheduler.process("p", "h", lambda *_: None)
        disk = SimDisk(self.scheduler.fork("disk"))
        self.plain = disk.view("plain")
        self.weather = weather
        self.errors: list[OSError] = []
        self.done: list[str] = []
        self.view = disk.view("p")

    def start(self) -> None:
        self.process.start(self.main)

    def main(self) -> None:
        fs = InterposedFileSystem(self.view, self.process, self.scheduler.fork("fs"), self.weather)
        try:
            handle = fs.create("a")
            fs.write(handle, 0, bytes(range(256)) * 32)
            self.done.append("written")
            fs.sync(handle)
            self.done.append("synced")
        except OSError as error:
            self.errors.append(error)

    def content(self) -> bytes:
        handle: Handle = self.plain.open("a")
        data = self.plain.read(handle, 0, 1 << 20)
        self.plain.close(handle)
        return data


def test_a_caller_is_stopped_between_write_and_sync() -> None:
    bench = Bench(DiskWeather(halves_share=0.0))
    bench.start()
    bench.scheduler.run_until(50, stop=lambda: bench.done == ["written"])
    assert bench.done == ["written"]
    bench.process.freeze()
    bench.scheduler.run_until(1_000_000)
    assert bench.done == ["written"]
    bench.process.thaw()
    bench.scheduler.run_until(2_000_000)
    assert bench.done == ["written", "synced"]


def test_others_see_a_write_half_done() -> None:
    bench = Bench(DiskWeather(halves_share=1.0))
    bench.start()
    seen: list[int] = []

    def look() -> bool:
        seen.append(len(bench.content()))
        return False

    for at in range(100, 1_000, 20):
        bench.scheduler.call_at(at, lambda: None)
    bench.scheduler.run_until(40)
    bench.scheduler.run_until(2_000, stop=look)
    assert any(0 < size < 8192 for size in seen)
    assert len(bench.content()) == 8192


def test_a_full_disk_refuses_what_grows_a_file() -> None:
    bench = Bench(DiskWeather(full=True))
    bench.start()
    bench.scheduler.run_until(1_000_000)
    assert [error.errno for error in bench.errors] == [errno.ENOSPC]
    assert bench.content() == b""


def test_a_dead_process_can_do_nothing_more() -> None:
    bench = Bench(DiskWeather(halves_share=0.0))
    bench.start()
    bench.scheduler.run_until(50, stop=lambda: bench.done == ["written"])
    bench.process.kill()
    bench.scheduler.run_until(1_000_000)
    assert bench.done == ["written"]


@pytest.mark.parametrize("slow_us", [0, 500_000])
def test_a_slow_disk_holds_its_caller(slow_us: int) -> None:
    bench = Bench(DiskWeather(slow_us=slow_us))
    bench.start()
    bench.scheduler.run_until(400_000)
    assert ("synced" in bench.done) == (slow_us == 0)

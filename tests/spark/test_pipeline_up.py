"""The example with a real Spark: one manifest starts a pipeline, and its rows arrive once while drivers are killed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cli_tool import run
from replica_set import send_signal

from deathless.sdk.client import SyncClient
from deathless.shell.operate.agents import DriverView, look_at_drivers, running_agents
from deathless.shell.operate.runner import running_runner, running_supervisor

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SERVICES = ("airports", "carriers", "delays")
WAIT_S = 240.0  # a driver on a busy machine starts in a minute


@contextlib.contextmanager
def example(folder: Path) -> Iterator[Path]:
    """A copy of it that runs; whatever it leaves running is ended."""
    for name in ("airports", "delays"):
        ignored = shutil.ignore_patterns(".deathless", "__pycache__")
        shutil.copytree(EXAMPLES / name, folder / name, ignore=ignored)
    place = folder / "delays"
    try:
        for name in SERVICES:
            done = run("up", "--detach", f"{name}.yaml", cwd=place)
            assert done.returncode == 0, done.stderr
        yield place
    finally:
        for name in SERVICES:
            run("down", "-f", f"{name}.yaml", cwd=place)
        for name in SERVICES:
            directory = place / ".deathless" / name
            left = [running_runner(directory), *running_agents(directory).values()]
            left += [running_supervisor(path) for path in (directory / "replicas").glob("*")]
            for pid in filter(None, left):
                send_signal(pid, signal.SIGKILL)


def wait_until(place: Path, done: Callable[[], Any], what: str) -> Any:
    """Wait for something, and give it. Raises: AssertionError."""
    ends_at, pause = time.monotonic() + WAIT_S, threading.Event()
    while not (found := done()):
        logs = sorted((place / ".deathless" / "delays" / "agents").glob("*/agent.log"))
        said = "\n".join(path.read_text(errors="replace")[-4000:] for path in logs)
        assert time.monotonic() < ends_at, f"no {what} within {WAIT_S} s\n{said}"
        pause.wait(0.1)
    return found


def driver_in(place: Path, role: str) -> DriverView | None:
    """The driver in this role, once Spark's pages are there."""
    found = look_at_drivers(place / ".deathless" / "delays")
    return next((each for each in found if each.role == role and each.ui), None)


def depart(place: Path, flights: list[str]) -> None:
    """Tell an airport of flights that are late."""
    with SyncClient("airports", [f"dir:{place / '.deathless' / 'airports'}"]) as airports:
        for flight in flights:
            airports.call("depart", "JFK", flight=flight, minutes_late=20)


def late_flights(place: Path) -> int:
    """How many the carrier was told of."""
    with SyncClient("carriers", [f"dir:{place / '.deathless' / 'carriers'}"]) as carriers:
        told: Any = carriers.query("total", "UA")
    return int(told["late"])


def test_one_manifest_runs_a_pipeline_and_a_killed_driver_loses_and_doubles_nothing(tmp_path: Path) -> None:
    with example(tmp_path) as place:
        depart(place, [f"UA{number}" for number in range(20)])
        drives = wait_until(place, lambda: driver_in(place, "driver"), "driver")
        wait_until(place, lambda: late_flights(place) == 20, "rows")
        with urllib.request.urlopen(drives.ui) as page:
            assert page.status == 200
        wait_until(place, lambda: driver_in(place, "warm"), "warm standby")
        os.kill(drives.driver_pid, signal.SIGKILL)
        depart(place, [f"UA{number}" for number in range(20, 40)])
        after = wait_until(
            place, lambda: (one := driver_in(place, "driver")) and one.number > 1 and one, "other driver"
        )
        assert after.driver_pid != drives.driver_pid
        wait_until(place, lambda: late_flights(place) >= 40, "rows of another driver")
        assert late_flights(place) == 40
        shown = run("status", "-f", "delays.yaml", cwd=place).stdout
        assert f"{after.name} drives, number {after.number}" in shown
    assert running_agents(place / ".deathless" / "delays") == {}

"""A pipeline between two services and into a table, while drivers, agents, services and the database are killed.

`DEATHLESS_KILLS_SEED=n` chooses the same faults again.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
from background_callers import BackgroundCallers
from lab.postgresql import Server
from postgresql_server import started
from replica_set import ReplicaSet, children_of, client_of, send_signal

from deathless.base.topics.settings import Topic, topic_configs
from deathless.pipelines.client import PipelineClient
from deathless.pipelines.service import DriversView
from deathless.sdk.client import SyncClient

HERE = Path(__file__).parent
AIRPORTS = HERE.parents[1] / "examples" / "airports" / "service.py"
SEED_VARIABLE = "DEATHLESS_KILLS_SEED"
WAIT_S = 240.0  # a driver on a busy machine starts in a minute
FAULTS = ("driver", "frozen", "agent", "pipeline", "carriers", "database")
CARRIERS = ("UA", "DL", "B6")
TOKEN = "what the pipeline's callers show"


class Flights(BackgroundCallers):
    """Departures that are told by several callers, as many as they may: every third one is late."""

    def __init__(self, replicas: ReplicaSet) -> None:
        super().__init__(3, replicas.describe)
        self.told: list[str] = []
        self._replicas = replicas
        self._may = threading.Condition()
        self._budget = 0  # of each caller

    async def call(self, number: int) -> None:
        """See BackgroundCallers."""
        async with client_of(self._replicas) as client:
            for count in itertools.count():
                await asyncio.to_thread(self._wait, count)
                if self.stopping:
                    return
                flight = f"{number}.{count}"
                await client.call("depart", CARRIERS[number], flight=flight, minutes_late=0 if count % 3 else 30)
                self.told.append(flight)

    def _wait(self, count: int) -> None:
        with self._may:
            self._may.wait_for(lambda: self.stopping or count < self._budget)

    def tell_more(self, count: int) -> None:
        """Let each caller tell so many more."""
        with self._may:
            self._budget += count
            self._may.notify_all()

    def finish(self) -> int:
        """Wait until all that may be told is told; gives how many these are."""
        goal = self._budget * len(CARRIERS)
        self.wait_until(lambda: len(self.told) == goal, f"{goal} departures")
        return goal

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._stop.set()
        self.tell_more(0)
        super().__exit__(kind, error, trace)


class World:
    """Three services, a database and two agents."""

    def __init__(self, folder: Path, database: Server) -> None:
        self.folder = folder
        self.database = database
        for name in ("airports", "carriers", "delays"):
            (folder / name).mkdir()
        topics = topic_configs([Topic(name="departures")], str(folder / "airports" / "data"))
        self.airports = ReplicaSet(
            folder / "airports", replicas=2, service="airports", module=f"{AIRPORTS}:airports", drivers=topics
        )
        carriers = f"{HERE / 'carriers.py'}:carriers"
        back = [{"name": "delays", "directory": str(folder / "delays" / "data"), "token": TOKEN}]  # where answers go
        self.carriers = ReplicaSet(folder / "carriers", replicas=2, service="carriers", module=carriers, peers=back)
        peers = [{"name": "carriers", "directory": str(self.carriers.directory)}]
        module = "deathless.pipelines.service:pipeline"
        self.delays = ReplicaSet(
            folder / "delays", replicas=2, service="delays", module=module, peers=peers, token=TOKEN
        )
        self.agents: list[subprocess.Popen[bytes]] = []

    @contextlib.contextmanager
    def running(self, agents: int) -> Iterator[World]:
        """Everything, until the block ends."""
        with contextlib.ExitStack() as stack:
            for service in (self.airports, self.carriers, self.delays):
                stack.enter_context(service)
                service.primary()
            stack.callback(self._end)
            for _ in range(agents):
                self.start_agent()
            yield self

    def start_agent(self) -> None:
        """Start one more."""
        command = [sys.executable, "-m", "deathless.cli.main", "pipelines", "drive", f"{HERE / 'delays.py'}:build"]
        command += ["-f", str(self.folder / "delays" / "r0.json"), "--service", f"airports={self.airports.directory}"]
        with (self.folder / f"agent{len(self.agents)}.log").open("wb") as log:
            given = {**os.environ, "FACTS_DSN": self.database.dsn}
            self.agents.append(subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=given))

    def _end(self) -> None:
        for agent in self.agents:
            for pid in [agent.pid, *children_of(agent.pid, "deathless.spark.driver")]:
                send_signal(pid, signal.SIGCONT)
            agent.terminate()
        for agent in self.agents:
            agent.wait(30)

    def client(self) -> PipelineClient:
        """Of the pipeline."""
        return PipelineClient("delays", [f"dir:{self.delays.directory}"], token=TOKEN)

    def agent_of(self, view: DriversView) -> subprocess.Popen[bytes]:
        """The one that is assigned."""
        return next(agent for agent in self.agents if f".{agent.pid}." in view.agent)

    def describe(self) -> str:
        """What the agents said, for a test that fails."""
        return "\n".join(path.read_text(errors="replace")[-4000:] for path in sorted(self.folder.glob("agent*.log")))


def wait_until(world: World, done: Callable[[], bool], what: str) -> None:
    """Wait for something. Raises: AssertionError."""
    ends_at = time.monotonic() + WAIT_S
    pause = threading.Event()
    while not done():
        assert time.monotonic() < ends_at, f"no {what} within {WAIT_S} s\n{world.describe()}"
        pause.wait(0.1)


def break_something(world: World, client: PipelineClient, what: str) -> list[int]:
    """Kill or freeze something; gives the pids of what was frozen."""
    agent = world.agent_of(client.drivers())
    [driver] = children_of(agent.pid, "deathless.spark.driver")
    if what == "driver":
        send_signal(driver, signal.SIGKILL)
    elif what == "agent":
        send_signal(agent.pid, signal.SIGKILL)
        agent.wait()
        world.start_agent()
    elif what == "pipeline":
        world.delays.kill_primary()
    elif what == "carriers":
        world.carriers.kill_primary()
    elif what == "database":
        world.database.kill()
        world.database.start()
    else:
        frozen = [agent.pid, *(pid for pid in processes_of(driver))]
        for pid in frozen:
            send_signal(pid, signal.SIGSTOP)
        return frozen
    return []


def processes_of(group: int) -> list[int]:
    """A driver, and Java with it."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.getpgid(int(each.name)) == group:
                found.append(int(each.name))
    return found


def carriers_told(world: World, which: str) -> dict[str, int]:
    """What the carriers were told, by flight: how often."""
    with SyncClient("carriers", [f"dir:{world.carriers.directory}"]) as client:
        told: list[Any] = [client.query("told", carrier) for carrier in CARRIERS]
    return {flight: count for each in told for flight, count in each[which].items()}


def test_each_row_reaches_its_handler_once_whatever_is_killed_or_frozen(tmp_path: Path) -> None:
    seed = int(os.environ.get(SEED_VARIABLE) or random.SystemRandom().randrange(1 << 32))
    print(f"{SEED_VARIABLE}={seed}")
    frozen: list[int] = []
    with contextlib.ExitStack() as stack:
        world = World(tmp_path, stack.enter_context(started()))
        stack.enter_context(world.running(agents=2))
        client = stack.enter_context(world.client())
        flights = stack.enter_context(Flights(world.airports))
        flights.tell_more(100)
        wait_until(world, lambda: client.show("log").applied > 0, "first row")
        for what in random.Random(seed).sample(FAULTS, len(FAULTS)):
            wait_until(world, lambda: sum(a.warm for a in client.drivers().agents.values()) > 1, "warm standby")
            number, applied = client.drivers().number, client.show("log").applied
            print(what, number, applied)
            flights.tell_more(50)
            frozen += break_something(world, client, what)
            flights.tell_more(50)
            wait_for_more(world, client, number + (what in ("driver", "frozen", "agent")), applied)
            for pid in frozen:  # it computes what it had begun, and decides nothing
                send_signal(pid, signal.SIGCONT)
            frozen.clear()
        count = flights.finish()
        wait_until(world, lambda: client.show("log").applied + client.show("log").refusals == count, "rows")
        wait_until(world, lambda: client.show("alarms").applied == late_of(flights.told), "late rows")
        wait_until(world, lambda: len(stored(world)) >= count, "rows of the table")
        check_counts(world, flights.told)
        facts = stored(world)
        refused = [each.row.arguments["flight"] for each in client.refused("log", 0, 10_000)]
        seen, late = carriers_told(world, "seen"), carriers_told(world, "late")
    assert set(seen.values()) | set(late.values()) == {1}, "none twice"
    assert sorted([*seen, *refused]) == sorted(flights.told), "each once, and nothing else"
    assert sorted(late) == sorted(flight for flight in flights.told if not int(flight.partition(".")[2]) % 3)
    assert sorted(facts) == sorted(flights.told), "each once in the table"
    assert sorted(refused) == sorted(flight for flight in flights.told if flight.endswith("13"))


def check_counts(world: World, flights: list[str]) -> None:
    """See that what Spark has counted in its own state is ever more, each count once, up to all flights there were."""
    wanted = Counter(CARRIERS[int(flight.partition(".")[0])] for flight in flights)
    with SyncClient("carriers", [f"dir:{world.carriers.directory}"]) as client:

        def counts(carrier: str) -> list[int]:
            told: Any = client.query("told", carrier)
            return list(told["counts"])

        wait_until(world, lambda: all(counts(each)[-1:] == [wanted[each]] for each in CARRIERS), "all counts")
        assert all(counts(each) == sorted(set(counts(each))) for each in CARRIERS)


def wait_for_more(world: World, client: PipelineClient, number: int, applied: int) -> None:
    """Wait for a batch that was decided under this number at least, and for more rows."""

    def done() -> bool:
        view = client.show("log")
        return view.applied > applied and view.tip is not None and view.tip.number >= number

    wait_until(world, done, f"batch of driver {number}")


def stored(world: World) -> list[str]:
    """Flights in the table, while the database answers."""
    try:
        with psycopg.connect(world.database.dsn, connect_timeout=5) as connection:
            return [row[0] for row in connection.execute("SELECT flight FROM facts")]
    except psycopg.Error:
        return []


def late_of(flights: list[str]) -> int:
    """How many of them are late."""
    return sum(not int(flight.partition(".")[2]) % 3 for flight in flights)

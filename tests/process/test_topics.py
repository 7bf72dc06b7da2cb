"""A service that publishes rows, while primaries and the processes that write its topic are killed.

`DEATHLESS_KILLS_SEED=n` chooses the same faults again.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
from pathlib import Path

import pytest
from background_callers import BackgroundCallers
from replica_set import ReplicaSet, children_of, client_of, send_signal, wait_for

from deathless.base.topics.settings import FOLDER, Topic, topic_configs
from deathless.topics.reader import TopicReader

pytest.importorskip("pyarrow", reason="rows are read with pyarrow: pip install deathless[topics]")

MODULE = Path(__file__).resolve().parents[2] / "examples" / "airports" / "service.py"
SEED_VARIABLE = "DEATHLESS_KILLS_SEED"
FAULTS = ("writers", "worker", "frozen writers", "replica", "worker")
CALLERS = 4


class Flights(BackgroundCallers):
    """Departures that are told by several callers."""

    def __init__(self, replicas: ReplicaSet) -> None:
        super().__init__(CALLERS, replicas.describe)
        self.acknowledged: list[str] = []
        self._replicas = replicas

    async def call(self, number: int) -> None:
        """See BackgroundCallers."""
        async with client_of(self._replicas) as client:
            for count in itertools.count():
                if self.stopping:
                    return
                flight = f"{number}.{count}"
                await client.call("depart", f"k{number % 3}", flight=flight, minutes_late=count)
                self.acknowledged.append(flight)

    def wait_more(self, count: int) -> None:
        """Wait until so many more are acknowledged."""
        goal = len(self.acknowledged) + count
        self.wait_until(lambda: len(self.acknowledged) >= goal, f"{count} more calls")


def writers(replicas: ReplicaSet, name: str) -> list[int]:
    """Processes of a topic beside one replica."""
    found = children_of(replicas.processes[name].pid, "deathless.drivers.host")
    return wait_for(lambda: found, "the topic's process", replicas.describe)


def break_something(replicas: ReplicaSet, what: str) -> list[int]:
    """Kill or freeze something of the primary's replica; gives what was frozen."""
    name = replicas.primary()
    if what == "worker":
        replicas.kill_worker(name)
    elif what == "replica":
        replicas.kill_replica(name)
        replicas.start(name)
    elif what == "writers":
        for pid in writers(replicas, name):
            send_signal(pid, signal.SIGKILL)
    else:
        frozen = writers(replicas, name)
        for pid in frozen:
            send_signal(pid, signal.SIGSTOP)
        replicas.kill_worker(name)
        return frozen
    return []


def test_each_row_is_read_once_and_in_order_whatever_is_killed_or_frozen(tmp_path: Path) -> None:
    seed = int(os.environ.get(SEED_VARIABLE) or random.SystemRandom().randrange(1 << 32))
    print(f"{SEED_VARIABLE}={seed}")
    chance = random.Random(seed)
    directory = str(tmp_path / "data")
    drivers = topic_configs([Topic(name="departures")], directory)
    frozen: list[int] = []
    with ReplicaSet(tmp_path, service="airports", module=f"{MODULE}:airports", drivers=drivers) as replicas:
        replicas.primary()
        with Flights(replicas) as flights:
            flights.wait_more(10)
            for what in chance.sample(FAULTS, len(FAULTS)):
                print(what, len(flights.acknowledged))
                frozen += break_something(replicas, what)
                flights.wait_more(chance.randrange(20, 80))
            for pid in frozen:  # they write what they had begun, as nobody's rows
                send_signal(pid, signal.SIGCONT)
            flights.wait_more(20)
        reader = TopicReader(Path(directory) / FOLDER / "departures")
        wait_for(reader.sources, "the first rows", replicas.describe)
        count = len(flights.acknowledged)
        wait_for(lambda: reader.bounds().next > count, f"{count} rows", replicas.describe)
        rows = [row for batch in reader.read(1, count + 1) for row in batch.to_pylist()]
    assert [row["_position"] for row in rows] == list(range(1, count + 1))
    assert sorted(row["flight"] for row in rows) == sorted(flights.acknowledged), "each once, and nothing else"
    for number in range(CALLERS):
        late = [row["minutes_late"] for row in rows if row["flight"].startswith(f"{number}.")]
        assert late == sorted(late), "in the order of the calls"

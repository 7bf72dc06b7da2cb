"""A service whose rows go into a table, while the sink, the primary and the database are killed and frozen.

`DEATHLESS_KILLS_SEED=n` chooses the same faults again.
"""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import psycopg
import pytest
from lab.postgresql import Server
from postgresql_server import started
from replica_set import ReplicaSet, children_of, send_signal, wait_for
from test_topics import MODULE, SEED_VARIABLE, Flights

from deathless.base.config import SinkConfig
from deathless.base.topics.settings import FOLDER, Topic, topic_configs
from deathless.shell.link.sink_status import SinkStatus, read_status
from deathless.topics.keeping import Hold
from deathless.topics.reader import TopicReader

pytest.importorskip("pyarrow", reason="rows are read with pyarrow: pip install deathless[topics]")

FAULTS = ("sink", "worker", "frozen sink", "database", "replica", "sink and database", "frozen sink")


def sink_of(directory: str, server: Server, **changes: object) -> SinkConfig:
    given = {
        "name": "facts", "topic": "departures", "topic_directory": f"{directory}/{FOLDER}/departures",
        "store": "postgresql", "table": "facts", "dsn": server.dsn, "create": True, "block_rows": 25, "block_s": 0.2,
        "columns": {"flight": "flight", "late": "minutes_late", "at": "_position"},
    }  # fmt: skip
    return SinkConfig(**{**given, **changes})  # type: ignore[arg-type]


def airports(folder: Path, sink: SinkConfig) -> ReplicaSet:
    directory = str(folder / "data")
    drivers = topic_configs([Topic(name="departures")], directory)
    return ReplicaSet(folder, service="airports", module=f"{MODULE}:airports", drivers=drivers, sinks=(sink,))


def stored(server: Server) -> list[tuple[int, str]]:
    """Positions and flights in the table, while the database answers."""
    try:
        with psycopg.connect(server.dsn, connect_timeout=5) as connection:
            return [(row[0], row[1]) for row in connection.execute("SELECT at, flight FROM facts ORDER BY at")]
    except psycopg.Error:
        return []


def sinks_beside(replicas: ReplicaSet, name: str) -> list[int]:
    """Processes of sinks beside one replica."""

    def look() -> list[int]:
        return children_of(replicas.processes[name].pid, "deathless.sinks.host")

    return wait_for(look, "the sink's process", replicas.describe)


def break_something(replicas: ReplicaSet, server: Server, what: str) -> list[int]:
    """Kill or freeze something; gives what was frozen."""
    name = replicas.primary()
    frozen: list[int] = []
    if what == "worker":
        replicas.kill_worker(name)
    elif what == "replica":
        replicas.kill_replica(name)
        replicas.start(name)
    elif what == "frozen sink":
        frozen = sinks_beside(replicas, name)
        for pid in frozen:
            send_signal(pid, signal.SIGSTOP)
        replicas.kill_worker(name)
    else:
        if "sink" in what:
            for pid in sinks_beside(replicas, name):
                send_signal(pid, signal.SIGKILL)
        if "database" in what:
            server.kill()
    return frozen


def status_of(folder: Path) -> SinkStatus | None:
    return read_status(str(folder / "data"), "facts")


def test_each_row_is_in_the_table_once_whatever_is_killed_or_frozen(tmp_path: Path) -> None:
    seed = int(os.environ.get(SEED_VARIABLE) or random.SystemRandom().randrange(1 << 32))
    print(f"{SEED_VARIABLE}={seed}")
    chance = random.Random(seed)
    frozen: list[int] = []
    with started() as server, airports(tmp_path, sink_of(str(tmp_path / "data"), server)) as replicas:
        replicas.primary()
        with Flights(replicas) as flights:
            flights.wait_more(30)
            wait_for(lambda: stored(server), "rows in the table", replicas.describe)
            for what in chance.sample(FAULTS, len(FAULTS)):
                print(what, len(flights.acknowledged), len(stored(server)))
                frozen += break_something(replicas, server, what)
                flights.wait_more(chance.randrange(20, 80))  # also while the database is down
                server.revive()
            for pid in frozen:  # they go on where they stopped, and find that they are deposed
                send_signal(pid, signal.SIGCONT)
            flights.wait_more(20)
        wanted = sorted(flights.acknowledged)
        wait_for(lambda: len(stored(server)) >= len(wanted), f"{len(wanted)} rows", replicas.describe)
        found = stored(server)
    assert [position for position, _ in found] == [*range(1, len(wanted) + 1)]
    assert sorted(flight for _, flight in found) == wanted, "each once, and nothing else"


def test_database_that_is_down_stops_no_service_and_lets_go_of_rows_by_name(tmp_path: Path) -> None:
    directory = str(tmp_path / "data")
    reader = TopicReader(f"{directory}/{FOLDER}/departures")

    def hold() -> Hold | None:
        found = [each.hold for each in reader.holds() if each.name == "sink.facts"]
        return found[0] if found else None

    with started() as server, airports(tmp_path, sink_of(directory, server, hold_bytes_max=100_000)) as replicas:
        replicas.primary()
        with Flights(replicas) as flights:
            wait_for(lambda: stored(server), "rows in the table", replicas.describe)
            wait_for(hold, "its hold", replicas.describe)
            server.kill()

            def told() -> bool:
                status = status_of(tmp_path)
                return status is not None and status.code == "DL1020" and status.hold_dropped

            wait_for(told, "the hold to be dropped", replicas.describe)
            assert hold() is None
            flights.wait_more(50)
            server.revive()
            wait_for(lambda: hold() is not None or len(stored(server)) > 50, "the sink to go on", replicas.describe)
        wanted = len(flights.acknowledged)
        wait_for(lambda: len(stored(server)) == wanted, f"{wanted} rows", replicas.describe)


def test_row_that_is_refused_stops_the_sink_by_name_until_the_table_takes_it(tmp_path: Path) -> None:
    with started() as server, airports(tmp_path, sink_of(str(tmp_path / "data"), server)) as replicas:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute("CREATE TABLE facts (flight text, late bigint, at bigint, CHECK (at <> 13))")
        replicas.primary()
        with Flights(replicas) as flights:
            flights.wait_more(40)

            def stopped() -> bool:
                status = status_of(tmp_path)
                return status is not None and status.code == "DL3070" and status.position == 13

            wait_for(stopped, "the sink to stop at position 13", replicas.describe)
            assert [at for at, _ in stored(server)] == [*range(1, 13)], "all before it are stored"
            flights.wait_more(10)
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute("ALTER TABLE facts DROP CONSTRAINT facts_at_check")
        wanted = len(flights.acknowledged)
        wait_for(lambda: len(stored(server)) == wanted, f"{wanted} rows", replicas.describe)

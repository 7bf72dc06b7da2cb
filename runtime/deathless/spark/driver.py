"""The process of a Spark driver: it starts Spark, warms it up, and runs the queries once its agent says so.

    agent --(socket pair)--> Order   drive under this number
    agent <--(socket pair)-- Fact    ready to drive; so many batches were decided; where Spark's pages are

A session that was only started takes seconds for its first batch: code is generated, classes are loaded and Python
workers start one after the other. So a driver that waits runs its queries on the last rows that there are, and throws
away what they give; these runs move no hold of a topic. When it is to drive, it lays each query's checkpoint from where
the query stands, and starts it.

A query that ends with an error is started again from where it stands, after a pause; after FAILURES_MAX errors without
a batch in between it is stopped with its reason, and the others go on. A driver that was replaced ends at once, and so
does one whose agent is gone.

Guarantees: nothing of this process has to be kept but the state of queries that keep some (see state). Imports the
rest of this package.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from deathless.base.backoff import pause_after
from deathless.base.errors import DeathlessError, RetryLater
from deathless.base.pipelines.agents import AgentConfig
from deathless.pipelines.client import PipelineClient
from deathless.pipelines.ledger import DriverDeposed, QueryStopped
from deathless.shell.operate.agents import read_agent_config
from deathless.shell.operate.target import Target, find_target
from deathless.shell.process.forked import die_with_parent
from deathless.shell.process.logs import configure
from deathless.shell.service_code.loading import load_attribute
from deathless.spark import session
from deathless.spark.holds import Holds
from deathless.spark.line import Ended, Fact, Line, Order
from deathless.spark.queries import Query, check
from deathless.spark.sink import QuerySink, ServiceSink
from deathless.spark.source import Deathless, Driven, Recent
from deathless.spark.state import FOLDER
from deathless.spark.table import TableSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FAILURES_MAX: Final = 5
AGAIN_S: Final = 1.0
AGAIN_MAX_S: Final = 60.0
LOOK_S: Final = 0.1  # between two looks at the queries
STOPPED_LOOK_S: Final = 2.0  # between two looks whether a stopped query was resumed
BUILD_PAUSE_S: Final = 2.0  # before the queries are built again
WARM_S: Final = 60.0  # a warm-up takes no longer
WARM_LOOK_S: Final = 0.5  # between two looks, while warming up, whether there is an order
STARVED: Final = "Python worker failed to connect back"
DEPOSED: Final = 3  # exit code
AGENT_GONE: Final = 4
_LOG: Final = logging.getLogger("deathless.spark")

Build = Callable[["SparkSession"], object]


class Control:
    """The line to the agent, without which this process ends."""

    def __init__(self, line: Line[Order]) -> None:
        self._line = line

    def tell(self, fact: Fact) -> None:
        """Tell the agent something."""
        try:
            self._line.send(fact)
        except Ended:
            _end(AGENT_GONE)

    def order(self, wait_s: float) -> int:
        """Give the number under which to drive; 0: none came while we waited."""
        try:
            orders = self._line.receive(wait_s)
        except Ended:
            _end(AGENT_GONE)
        return orders[-1].drive if orders else 0


class Run:
    """One query, while it is driven."""

    def __init__(
        self, query: Query, client: PipelineClient, number: int, folder: Path, holds: Holds, states: Path | None = None
    ) -> None:
        self._states = states
        self.query = query
        self.failures = 0
        self.sink: QuerySink | None = None
        self.running: StreamingQuery | None = None
        self.again_at = 0.0
        self._client = client
        self._number = number
        self._folder = folder
        self._holds = holds
        self._runs = 0

    def start(self, trigger: str) -> None:
        """Start it from where it stands, unless it is stopped. Raises: DriverDeposed; what Spark raises."""
        self._runs += 1
        folder = self._folder / f"{self.query.name}.{self._runs}"
        if self.query.stateful:
            assert self._states is not None, "`check` has seen to it"
            folder = self._states / self.query.name
        kind = TableSink if self.query.table is not None else ServiceSink
        self.sink = kind(self.query, self._client, self._number, folder, self._holds.keep)
        if self.sink.open():
            self.sink.close()
            self.running = None
            self.again_at = time.monotonic() + STOPPED_LOOK_S
            return
        writer = self.query.frame.writeStream.queryName(self.query.name).foreachBatch(self.sink.on_batch)
        writer = writer.outputMode(self.query.mode).option("checkpointLocation", str(self.sink.folder))
        self.running = writer.trigger(processingTime=trigger).start()

    def look(self, now: float, trigger: str) -> int:
        """Start it again where it has ended; gives how many batches were decided since the last look.

        Raises: DriverDeposed.
        """
        decided = 0
        if self.sink is not None:
            decided, self.sink.decided = self.sink.decided, 0
        if decided:
            self.failures = 0
        if self.running is not None and not self.running.isActive:
            self._ended(now)
        if self.running is None and now >= self.again_at:
            try:
                self.start(trigger)
            except DriverDeposed:
                raise
            except Exception as error:  # noqa: BLE001  whatever it is, the other queries go on
                assert self.sink is not None
                self.sink.close()
                self._failed(error, now)
        return decided

    def _ended(self, now: float) -> None:
        assert self.running is not None
        assert self.sink is not None
        error = self.sink.error or self.running.exception() or RuntimeError("the query ended")
        self.sink.close()
        self.running = None
        if isinstance(error, DriverDeposed):
            raise error
        if isinstance(error, QueryStopped):
            self.again_at = now + STOPPED_LOOK_S
            return
        self._failed(error, now)

    def _failed(self, error: Exception, now: float) -> None:
        self.failures += not _passes(error)
        _LOG.warning("query failed", extra={"query": self.query.name, "failures": self.failures, "error": _told(error)})
        if self.failures >= FAILURES_MAX:
            self._give_up(error)
        self.again_at = now + pause_after(self.failures, first_s=AGAIN_S, most_s=AGAIN_MAX_S)

    def _give_up(self, error: Exception) -> None:
        """Have the query stopped; with the next failure, if nobody can be told now. Raises: DriverDeposed."""
        with contextlib.suppress(RetryLater):
            self._client.stop(self.query.name, self._number, _told(error))
            self.failures = 0


class Driver:
    """Builds the queries, warms them up, and runs them.

    Args:
        spark: the session.
        build: the user's function.
        control: line to the agent.
        trigger: pause between two batches, as Spark writes it.
        folder: of our own, for checkpoints.
        states: where queries keep state, for all drivers; None: nowhere.
    """

    def __init__(
        self,
        spark: SparkSession,
        build: Build,
        control: Control,
        trigger: str,
        folder: Path,
        states: Path | None = None,
    ) -> None:
        self._states = states
        self._spark = spark
        self._build = build
        self._control = control
        self._trigger = trigger
        self._folder = folder

    def wait(self) -> tuple[int, list[Query]]:
        """Warm up and wait for the order; gives the number, and the queries to run."""
        queries: list[Query] | None = None
        told, warm = "", False
        number = self._control.order(0.0)  # nobody else is there: who has to drive does not warm up first
        while not number or queries is None:
            try:
                if not (warm or number):
                    number = self._warm_up()
                    warm = True
                if queries is None:
                    queries = self._built(Driven)
                    self._control.tell(Fact(warm=True))
            except Exception as error:  # noqa: BLE001  a topic may have no rows yet: it is tried again
                if _told(error) != told:
                    told = _told(error)
                    _LOG.warning("the queries can't be built", extra={"error": told})
            if not number or queries is None:
                number = self._control.order(BUILD_PAUSE_S) or number
        return number, queries

    def drive(self, client: PipelineClient, number: int, queries: Sequence[Query], holds: Holds) -> NoReturn:
        """Run the queries until this driver is replaced. Raises: DriverDeposed."""
        with contextlib.suppress(RetryLater):  # people see the names that there were before, until the next driver
            client.declare(number, [query.name for query in queries])
        folder = self._folder / "checkpoints"
        runs = [Run(query, client, number, folder, holds, self._states) for query in queries]
        while True:
            now = time.monotonic()
            decided = sum(run.look(now, self._trigger) for run in runs)
            if decided:
                self._control.tell(Fact(decided=decided))
            self._control.order(LOOK_S)

    def _built(self, source: type[Deathless]) -> list[Query]:
        self._spark.dataSource.register(source)
        return check(self._build(self._spark), has_state_folder=self._states is not None)

    def _warm_up(self) -> int:
        """Run the queries for a while on the newest rows; gives the number if the order to drive ended it."""
        ends_at, number = time.monotonic() + WARM_S, 0
        try:
            for query in self._built(Recent):
                folder = self._folder / "warm" / query.name
                writer = query.frame.writeStream.queryName(f"warm-{query.name}").foreachBatch(_throw_away)
                running = (
                    writer.outputMode(query.mode)
                    .option("checkpointLocation", str(folder))
                    .trigger(availableNow=True)
                    .start()
                )
                while not (number or running.awaitTermination(WARM_LOOK_S)) and time.monotonic() < ends_at:
                    number = self._control.order(0.0)
                running.stop()
                if number:
                    break
        finally:
            shutil.rmtree(self._folder / "warm", ignore_errors=True)
        return number


def _passes(error: Exception) -> bool:
    """Say whether time mends it, so that it is no failure of the query.

    So it is where the pipeline's service can't be reached, and on a busy machine where a worker of Python had no time
    to start: Spark gives it 10 s, and that can't be changed.
    """
    return isinstance(error, RetryLater) or STARVED in str(error)


def _throw_away(frame: DataFrame, _batch: int) -> None:
    frame.toArrow()


def _told(error: BaseException) -> str:
    """Say in one line what went wrong; rows, which a traceback may hold, are no part of it."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]


def _end(code: int) -> NoReturn:
    """End this process and Java, which ends when its input is closed, without waiting for queries."""
    sys.stdout.flush()
    os._exit(code)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m deathless.spark.driver", description="A driver of a pipeline.")
    parser.add_argument(
        "module", help="the function that builds the queries: module:function or path/to/file.py:function"
    )
    parser.add_argument("--config", default="", help="of the agent; empty: manifest and directory count")
    parser.add_argument("--manifest", default="", help="of the pipeline's service")
    parser.add_argument("--directory", default="", help="of that service; empty: the manifest counts")
    parser.add_argument("--control", type=int, required=True, help="descriptor of the line to the agent")
    parser.add_argument("--folder", required=True, help="an empty folder, which the agent removes")
    parser.add_argument("--trigger", default="100 milliseconds", help="pause between two batches")
    parser.add_argument("--conf", action="append", default=[], help="NAME=VALUE for Spark; can be repeated")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the process until it is replaced or its agent is gone. Raises: DeathlessError where it can't begin."""
    given = parse(sys.argv[1:] if arguments is None else arguments)
    die_with_parent()
    config = read_agent_config(Path(given.config)) if given.config else None
    found = None if config is not None else find_target(given.manifest, given.directory, every=True)
    pipeline = config.pipeline if config is not None else found.config.service if found is not None else ""
    configure("info", pipeline, "spark")
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # what it tells of an error is told by us, in one line
    control = Control(Line(socket.socket(fileno=given.control), Order))
    folder = Path(given.folder)
    build: Any = load_attribute(given.module)  # before Spark starts, whose workers import from the same folders
    spark = session.start(pipeline, session.read_conf(given.conf), folder / "home")
    if pages := spark.sparkContext.uiWebUrl:
        control.tell(Fact(ui=pages))
    driver = Driver(spark, build, control, given.trigger, folder, _states_of(config, found))
    number, queries = driver.wait()
    with _client_of(config, found) as client:
        try:
            driver.drive(client, number, queries, Holds(pipeline))
        except DriverDeposed as error:
            _LOG.warning("this driver was replaced", extra={"error": str(error)})
            _end(DEPOSED)


def _client_of(config: AgentConfig | None, found: Target | None) -> PipelineClient:
    if config is not None:
        return PipelineClient.as_agent(config)
    assert found is not None, "one of them is given"
    return PipelineClient.of(found)


def _states_of(config: AgentConfig | None, found: Target | None) -> Path | None:
    """Give where queries keep state: beside the log of the pipeline's service, where that is on this machine."""
    directory = config.directory if config is not None else found.config.service_directory if found is not None else ""
    return Path(directory) / FOLDER if directory else None


if __name__ == "__main__":
    try:
        main()
    except DeathlessError as error:
        sys.stderr.write(f"{error.code} {error}\n")
        sys.exit(error.exit_code)

"""The flights of 2013 through Kafka, two services, Spark and PostgreSQL, while `kill -9` takes one process each second.

    make demo-flights [MINUTES=10] [SEED=1]        python -m examples.flights.demo --minutes 10 --seed 1 [--json]

Starts a broker, PostgreSQL, both services and the pipeline, plays the flights, and kills a random process each second
until the time is over: a supervisor, a worker, a source, a driver, a sink, an agent, a driver of Spark, the broker, or
a process of PostgreSQL. Then it waits until everything has come through, and compares each place with what follows from
the data (answers.py).

Guarantees: who is killed follows from the seed, as far as the same processes run; everything that it started ends with
it. Needs what lab/kafka.py, lab/spark.py and lab/postgresql.py install; where one is missing, one line says so and the
exit code is 3. It is 0 when all is right, 1 otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import psycopg
from examples.flights.answers import Answers, Flight, answers, differences
from examples.flights.play import make_topic, play, read
from examples.killing import end_all, finish, processes_of, wrong_lines
from lab import flights as lab_flights
from lab import kafka as lab_kafka
from lab import postgresql as lab_postgresql
from lab import spark as lab_spark

from deathless.base.errors import DeathlessError, OtherSupervisor
from deathless.sdk.client import SyncClient

HERE: Final = Path(__file__).parent
PROGRAM: Final = (sys.executable, "-m", "deathless.cli.main")
SERVICES: Final = ("carriers", "airports", "delays")
KINDS: Final = {
    "deathless.shell.supervisor.supervisor": "supervisor",
    "deathless.shell.worker.worker": "worker",
    "deathless.sources.host": "source",
    "deathless.drivers.host": "driver of a topic",
    "deathless.sinks.host": "sink",
    "deathless.spark.host": "agent",
    "deathless.spark.driver": "driver of Spark",
}
"""What a process is, by the module it runs."""
BROKER: Final = "broker"
POSTGRES: Final = "PostgreSQL"
NOTHING: Final = Answers({}, {}, {}, (0, 0, 0), (0, 0, 0))
READY_S: Final = 300.0
REST_S: Final = 900.0  # without a change, once the killing has ended
TELL_S: Final = 10.0
POLL_S: Final = 0.5


class Line:
    """All that runs, in a folder of its own.

    Args:
        folder: empty.
        broker: of Kafka.
        server: of PostgreSQL.
        path: PYTHONPATH with Spark and Kafka's client.
    """

    def __init__(self, folder: Path, broker: lab_kafka.Broker, server: lab_postgresql.Server, path: str) -> None:
        self.folder = folder / "flights"
        self.broker = broker
        self.server = server
        self.wrong: list[str] = []  # what ended without having been killed
        self._environment = {**os.environ, "PYTHONPATH": path}
        self._runners: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start the services and the pipeline."""
        shutil.copytree(HERE, self.folder, ignore=shutil.ignore_patterns(".deathless", "__pycache__"))
        manifest = self.folder / "airports.yaml"
        manifest.write_text(manifest.read_text().replace("localhost:9092", self.broker.address))
        (self.folder / "database.dsn").write_text(self.server.dsn)
        for name in SERVICES:
            self._up(name)

    def _up(self, name: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            command = [*PROGRAM, "up", f"{name}.yaml", "--plain"]
            self._runners[name] = subprocess.Popen(
                command, cwd=self.folder, env=self._environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    def revive(self) -> None:
        """Start what nobody else starts again: `deathless up`, the broker and PostgreSQL."""
        for name, runner in list(self._runners.items()):
            code = runner.poll()
            if code is not None:
                if code not in (-signal.SIGKILL, OtherSupervisor.exit_code):
                    self.wrong.append(f"`deathless up` of {name} ended by itself with {code}")
                self._up(name)
        self.server.revive()

    def processes(self) -> dict[str, list[int]]:
        """What can be killed: pids by kind, of ours alone, which name our folder."""
        found = {BROKER: [0], **processes_of(KINDS, str(self.folder))}
        if backends := self.server.backends():
            found[POSTGRES] = backends
        return {kind: sorted(pids) for kind, pids in sorted(found.items())}

    def kill(self, kind: str, pid: int) -> None:
        """End it by kill -9; the broker is started again. Raises: ProcessLookupError when it has ended by itself."""
        if kind == BROKER:
            self.broker.kill()
            self.broker.start()
        else:
            os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        """End all that was started."""
        for runner in self._runners.values():  # they would start the others again
            runner.kill()
            runner.wait()
        self._runners.clear()
        end_all(lambda: [pid for pids in processes_of(KINDS, str(self.folder)).values() for pid in pids])

    # ---- what has come through -------------------------------------------------------------------------------

    def found(self, wanted: Answers) -> Answers:
        """Give what each place holds; a place that does not answer now holds nothing."""
        with self._client("airports") as ask:
            airports = {key: _of(ask(key), "flights", "cancelled") for key in wanted.airports}
        with self._client("carriers") as ask:
            totals = {carrier: ask(carrier) for carrier in wanted.late}
        by_origin = {
            (carrier, origin): (each["flights"], each["minutes"])
            for carrier, total in totals.items()
            for origin, each in (total or {}).get("origins", {}).items()
        }
        late = {carrier: (total or {}).get("late", 0) for carrier, total in totals.items()}
        return Answers(airports, by_origin, late, self._table("facts"), self._table("published"))

    @contextlib.contextmanager
    def _client(self, service: str) -> Iterator[Callable[[str], dict[str, Any] | None]]:
        with SyncClient(service, [f"dir:{self.folder / '.deathless' / service}"]) as client:

            def ask(key: str) -> dict[str, Any] | None:
                with contextlib.suppress(DeathlessError):
                    told: dict[str, Any] = client.query("totals", key, timeout=5.0)
                    return told
                return None

            yield ask

    def _table(self, name: str) -> tuple[int, int, int]:
        try:
            with psycopg.connect(self.server.dsn, connect_timeout=5) as connection:
                query = f"SELECT count(*), count(DISTINCT position), coalesce(sum(minutes), 0) FROM {name}"
                row = connection.execute(query.encode()).fetchone()
        except psycopg.Error:
            return 0, 0, 0
        assert row is not None
        return int(row[0]), int(row[1]), int(row[2])


def _of(told: dict[str, Any] | None, *names: str) -> tuple[int, int]:
    first, second = ((told or {}).get(name, 0) for name in names)
    return first, second


class Run:
    """One run of it."""

    def __init__(self, line: Line, flights: list[Flight], *, minutes: float, seed: int) -> None:
        self._line = line
        self._flights = flights
        self._seconds = minutes * 60
        self._chance = random.Random(seed)
        self._began = time.monotonic()
        self.wanted = answers(flights)
        self.kills: Counter[str] = Counter()

    def say(self, text: str) -> None:
        """Tell whoever watches."""
        print(f"{time.monotonic() - self._began:6.0f} s  {text}", file=sys.stderr, flush=True)

    def run(self) -> list[str]:
        """Play and kill; gives what is wrong in the end."""
        make_topic(self._line.broker.address)
        self._line.start()
        self._wait_begun()
        failed: list[str] = []

        def playing() -> None:
            try:
                play(self._line.broker.address, self._flights)
            except Exception as error:  # noqa: BLE001  whatever it is, the verdict tells it
                failed.append(f"the player: {error}")

        player = threading.Thread(target=playing, daemon=True)
        player.start()
        self._kill()
        found = self._rest(player)
        return [*failed, *self._line.wrong, *differences(self.wanted, found)]

    def _wait_begun(self) -> None:
        """Wait until services answer. Raises: TimeoutError."""
        ends_at = time.monotonic() + READY_S
        while self._line.found(self.wanted).late.keys() != self.wanted.late.keys() or not self._line.processes().get(
            "driver of Spark"
        ):
            if time.monotonic() > ends_at:
                raise TimeoutError(f"nothing serves after {READY_S:g} s; logs: {self._line.folder}")
            time.sleep(POLL_S)
        self.say(f"plays {len(self._flights):,} flights")

    def _kill(self) -> None:
        """Kill one process each second; each kind has its turn before one has another."""
        had: set[str] = set()
        told_at, began = 0.0, time.monotonic()
        while (now := time.monotonic()) < began + self._seconds:
            running = self._line.processes()
            kinds = [kind for kind in running if kind not in had]
            if not kinds:
                had.clear()
                continue
            kind = self._chance.choice(kinds)
            had.add(kind)
            with contextlib.suppress(ProcessLookupError):
                self._line.kill(kind, self._chance.choice(running[kind]))
                self.kills[kind] += 1
            self._line.revive()
            if now > told_at + TELL_S:
                told_at = now
                self._tell(self._line.found(self.wanted))
            time.sleep(max(0.0, now + 1.0 - time.monotonic()))

    def _rest(self, player: threading.Thread) -> Answers:
        """Wait until all has come through, or nothing changes any more; gives what there is."""
        self.say(f"{self.kills.total()} kills; what is under way comes through")
        found, changed_at = NOTHING, time.monotonic()
        while player.is_alive() or found != self.wanted:
            self._line.revive()
            now = self._line.found(self.wanted)
            if now != found:
                found, changed_at = now, time.monotonic()
                self._tell(found)
            elif time.monotonic() > changed_at + REST_S:
                break
            time.sleep(TELL_S / 5)
        return found

    def _tell(self, found: Answers) -> None:
        taken = sum(flights for flights, _ in found.airports.values())
        called = sum(flights for flights, _ in found.carriers.values())
        self.say(
            f"{self.kills.total()} kills; {taken:,} flights, {called:,} at carriers, {found.facts[0]:,} facts, "
            f"{found.published[0]:,} published"
        )

    def report(self, wrong: list[str]) -> dict[str, object]:
        """What is told in the end."""
        return {
            "passed": not wrong,
            "seconds": round(time.monotonic() - self._began),
            "flights": len(self._flights),
            "departures": self.wanted.facts[0],
            "late": sum(self.wanted.late.values()),
            "minutes": self.wanted.facts[2],
            "kills": self.kills.total(),
            "killsByKind": dict(sorted(self.kills.items())),
            "wrong": wrong,
        }


def show(report: dict[str, Any]) -> str:
    """Give the verdict as text."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in report["killsByKind"].items())
    lines = [
        f"{report['kills']} kills, {report['seconds']} s in all: {kinds}",
        f"{report['flights']:,} flights, {report['departures']:,} departures, {report['late']:,} of them late",
        *wrong_lines(report["wrong"]),
    ]
    lines.append("PASSED: every flight is everywhere once" if report["passed"] else "FAILED")
    return "\n".join(lines)


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m examples.flights.demo", description="Kill what carries flights.")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long to kill (default 10)")
    parser.add_argument("--seed", type=int, default=0, help="who is killed; drawn when 0")
    parser.add_argument("--flights", type=int, default=0, help="play so many, the first ones (default: all)")
    parser.add_argument("--json", action="store_true", help="print the verdict as JSON")
    return parser.parse_args(given)


def main() -> int:
    """Run it; see the module's docstring for exit codes."""
    given = arguments()
    seed = given.seed or random.SystemRandom().randrange(1, 1 << 31)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        more = [str(lab_kafka.ensure()), str(lab_spark.ensure())]
        server = lab_postgresql.Server()
    except (lab_kafka.Missing, lab_spark.Missing, lab_postgresql.Missing) as missing:
        print(missing)
        return 3
    sys.path[1:1] = more
    path = os.pathsep.join([*more, *filter(None, [os.environ.get("PYTHONPATH", "")])])
    flights = read(lab_flights.ensure())[: given.flights or None]
    folder = Path(tempfile.mkdtemp(prefix="deathless-flights-"))
    with server, lab_kafka.Broker() as broker:
        line = Line(folder, broker, server, path)
        try:
            run = Run(line, flights, minutes=given.minutes, seed=seed)
            run.say(f"seed {seed}; a kill each second for {given.minutes:g} minutes")
            report = {"seed": seed, **run.report(run.run())}
        except KeyboardInterrupt:
            print(f"ended; seed {seed}", file=sys.stderr)
            return 130
        finally:
            line.close()
    return finish(report, show(report), folder, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())

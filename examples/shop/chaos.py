"""The chaos run: the shop under load, while `kill -9` takes one of its processes after the other.

    make demo-shop [MINUTES=10] [SEED=1]        python -m examples.shop.chaos --minutes 10 --seed 1 [--json]
    make demo-shop-record                       the same, and the verdict written into last-verdict.md

Starts PostgreSQL and the three services with three replicas each, lets customers order, and kills a random process
each second: `deathless up`, a supervisor, a worker, an ingress, a driver, an activity worker, an exporter of spans, or
a process of PostgreSQL, which then recovers from a crash. In the end the ledger in PostgreSQL must be equal to what
the customers were told, and stock and payments must agree with it (verdict.py).

Who starts whom again: `deathless up` the supervisors, these all others beside them or have their worker do it. Nobody
in the shop starts `deathless up`: a service manager would, and here the run does. Its supervisors live on meanwhile,
and the next one finds them.

Guarantees: who is killed follows from the seed, as far as the same processes run; of all kinds that run each is killed
once before one is killed again; a kill that comes late is made up for, and the verdict tells how many were planned;
everything that it started ends with it. Does not: judge spans, which a killed exporter
may lose; kill the postmaster, which starts PostgreSQL's processes. Needs PostgreSQL (lab/postgresql.py); where there
is none, one line says so and the exit code is 3. It is 0 when all is right, 1 otherwise.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime as dt
import json
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
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import msgspec
import psycopg
from examples.killing import end_all, finish, processes_of, wrong_lines
from examples.shop.customers import Customers, History
from examples.shop.verdict import Books, Entry, judge, take_inventory
from lab.postgresql import Missing, Server

from deathless.base.errors import OtherSupervisor

HERE: Final = Path(__file__).parent
PROGRAM: Final = (sys.executable, "-m", "deathless.cli.main")
MANIFESTS: Final = {"stock": "stock.yaml", "payments": "payments-ledger.yaml", "shop": "shop.yaml"}
KINDS: Final = {
    "deathless.shell.supervisor.supervisor": "supervisor",
    "deathless.shell.worker.worker": "worker",
    "deathless.shell.ingress.ingress": "ingress",
    "deathless.drivers.host": "driver",
    "deathless.shell.worker.activity_process": "activity worker",
    "deathless.shell.worker.span_exporter": "span exporter",
}
"""What a process is, by the module it runs."""
POSTGRES: Final = "PostgreSQL"
UP: Final = "deathless up"
ALL: Final = frozenset({*KINDS.values(), POSTGRES, UP})
REST_S: Final = 600.0  # how long the last orders, and what services still send, may take once the killing has ended
TELL_S: Final = 10.0
POLL_S: Final = 0.5
CATCH_UP_S: Final = 60.0  # how long kills that are late may still be done once the time is over


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What was asked for."""

    seconds: float
    seed: int
    kills: int  # then it ends, also before its time; 0: as many as come
    every_s: float
    clients: int
    as_json: bool
    record: Path | None  # the page that the verdict is written to


class Shop:
    """The three services and the database, in a folder of their own.

    Args:
        folder: empty.
        server: that holds the ledger.
        replicas: of each service.

    Attributes:
        wrong: what ended without having been killed.
    """

    def __init__(self, folder: Path, server: Server, *, replicas: int = 3) -> None:
        self.folder = folder / "shop"
        self.logs = self.folder / ".deathless"
        self.server = server
        self.wrong: list[str] = []
        self._replicas = replicas
        self._collector = Collector()
        self._runners: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Make the tables, start the services."""
        ignored = shutil.ignore_patterns(".deathless", "__pycache__", "bank.txt")
        shutil.copytree(HERE, self.folder, ignore=ignored)
        manifest = self.folder / "shop.yaml"
        manifest.write_text(manifest.read_text().replace("port: 8090", "port: 0"))
        for path in (self.folder / name for name in MANIFESTS.values()):
            text = path.read_text().replace("replicas: 3", f"replicas: {self._replicas}")
            path.write_text(f"{text}  tracing:\n    endpoint: {self._collector.endpoint}\n")  # it ends within its spec
        (self.folder / "ledger.dsn").write_text(self.server.dsn)
        with psycopg.connect(self.server.dsn) as connection:
            connection.execute((HERE / "ledger.sql").read_bytes())
        for service in MANIFESTS:
            self._up(service)

    def _up(self, service: str) -> None:
        with (self.folder / f"{service}.log").open("ab") as log:
            command = [*PROGRAM, "up", MANIFESTS[service]]
            self._runners[service] = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)

    def kill(self, pid: int) -> None:
        """End it by kill -9. Raises: ProcessLookupError when it has ended by itself."""
        os.kill(pid, signal.SIGKILL)
        for runner in self._runners.values():
            if runner.pid == pid:
                runner.wait()

    def revive(self) -> None:
        """Start each `deathless up` again that has ended, as a service manager would."""
        for service, runner in list(self._runners.items()):
            code = runner.poll()
            if code is None:
                continue
            # One that was killed as it forked may leave its lock with the child until that has become a supervisor.
            if code not in (-signal.SIGKILL, OtherSupervisor.exit_code):
                self.wrong.append(f"`deathless up` of {service} ended by itself with {code}")
            self._up(service)

    def processes(self) -> dict[str, list[int]]:
        """What can be killed: pids by kind. Those of ours alone: each names our folder, or our collector."""
        found = {UP: [runner.pid for runner in self._runners.values() if runner.poll() is None]}
        found |= processes_of(KINDS, str(self.folder), self._collector.endpoint)
        if backends := self.server.backends():
            found[POSTGRES] = backends
        return {kind: sorted(pids) for kind, pids in sorted(found.items()) if pids}

    def command(self, service: str, *words: str) -> Any:
        """What a command of the program tells with --json; None: nothing now."""
        command = [*PROGRAM, *words, "-f", MANIFESTS[service], "--json"]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def rests(self) -> bool:
        """Has everything that services sent been confirmed?"""
        self.revive()
        for service in MANIFESTS:
            told = self.command(service, "peers", "list")
            if told is None or any(each["lag"] for each in told["peers"]):
                return False
        return True

    def books(self) -> Books:
        """What stands in PostgreSQL."""
        with psycopg.connect(self.server.dsn) as connection:
            rows = connection.execute('SELECT entry, customer, "order", cents FROM ledger').fetchall()
            sums = connection.execute("SELECT customer, payments, cents FROM turnover").fetchall()
        return Books(
            ledger=[msgspec.convert(dict(zip(Entry.__struct_fields__, row, strict=True)), Entry) for row in rows],
            turnover={customer: (payments, cents) for customer, payments, cents in sums},
        )

    def bank(self) -> list[str]:
        """Lines of the bank."""
        path = self.folder / "bank.txt"
        return path.read_text().splitlines() if path.exists() else []

    def close(self) -> None:
        """End all that was started."""
        for runner in self._runners.values():  # they would start supervisors again
            runner.kill()
            runner.wait()
        self._runners.clear()
        end_all(lambda: [pid for kind, pids in self.processes().items() if kind != POSTGRES for pid in pids])
        self._collector.close()


class Collector:
    """Takes spans and forgets them: an exporter needs somebody to send to. Its address is nobody else's."""

    def __init__(self) -> None:
        class Handler(BaseHTTPRequestHandler):
            """One request."""

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_request(self, code: object = "-", size: object = "-") -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Schedule:
    """When kills are due: the n-th n times `every_s` after the beginning, however long the others took.

    A kill that comes late moves no other; those that are due meanwhile follow it without a pause. Where that is not
    enough, it ends CATCH_UP_S after its time, with fewer than were planned.

    Args:
        settings: seconds, interval and number.
        began: on the clock of every `now`.

    Attributes:
        planned: how many are due in all.
    """

    def __init__(self, settings: Settings, began: float) -> None:
        self._began = began
        self._every_s = settings.every_s
        self._last = began + settings.seconds + CATCH_UP_S
        self.planned = planned(settings)

    def over(self, done: int, now: float) -> bool:
        """Are all done, or is it too late for more?"""
        return done >= self.planned or now > self._last

    def wait_s(self, done: int, now: float) -> float:
        """How long until the next one is due, after so many; 0: it is."""
        return max(0.0, self._began + (done + 1) * self._every_s - now)


def planned(settings: Settings) -> int:
    """Give how many kills are due in all."""
    in_time = int(settings.seconds / settings.every_s)
    return min(settings.kills, in_time) if settings.kills else in_time


class Run:
    """One run of it."""

    def __init__(self, shop: Shop, settings: Settings) -> None:
        self._shop = shop
        self._settings = settings
        self._chance = random.Random(settings.seed)
        self._customers = Customers(shop.logs, count=settings.clients, seed=settings.seed)
        self._began = time.monotonic()
        self.kills: Counter[str] = Counter()
        self.history: History = self._customers.history

    def _say(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:6.0f} s  {text}", file=sys.stderr, flush=True)

    async def run(self) -> list[str]:
        """Let them order and kill; gives what is wrong in the end."""
        self._say(
            f"seed {self._settings.seed}; {self._settings.clients} customers; a kill every {self._settings.every_s:g} s"
        )
        customers = asyncio.create_task(self._customers.run())
        telling = asyncio.create_task(self._tell())
        try:
            killing = asyncio.create_task(self._kill())
            await asyncio.wait([customers, killing], return_when=asyncio.FIRST_COMPLETED)
            if customers.done():
                killing.cancel()
                await customers  # it raises
            await killing
            self._customers.stop()
            self._say(f"{self.kills.total()} kills; the last {len(self.history.under_way)} orders come to an end")
            await asyncio.wait_for(customers, REST_S)
            async with asyncio.timeout(REST_S):
                while not await asyncio.to_thread(self._shop.rests):  # noqa: ASYNC110 - other processes say so
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            left = sorted(self.history.under_way)
            return [f"after {REST_S:g} s without a kill these orders are not done: {left}"] if left else ["no rest"]
        finally:
            telling.cancel()
            customers.cancel()
        found = await take_inventory(self._shop.logs, self.history.orders)
        return [*self._shop.wrong, *judge(self.history, self._shop.books(), found, self._shop.bank())]

    async def _kill(self) -> None:
        """Kill until the time is over; the first one falls once an order is through."""
        while not any(order.outcome for order in self.history.orders):  # noqa: ASYNC110 - nobody waits for it
            await asyncio.sleep(POLL_S)
        schedule = Schedule(self._settings, time.monotonic())
        had: set[str] = set()  # kinds of which one was killed in this round
        while not schedule.over(done := self.kills.total(), time.monotonic()):
            await asyncio.sleep(schedule.wait_s(done, time.monotonic()))
            running = await asyncio.to_thread(self._shop.processes)  # orders go on meanwhile
            if not self._kill_one(running, had):
                await asyncio.sleep(POLL_S)  # what is missing is being started; the kill stays due
            self._shop.revive()
            if await asyncio.to_thread(self._shop.server.revive):
                self._say(f"{POSTGRES} had ended and was started again")

    def _kill_one(self, running: dict[str, list[int]], had: set[str]) -> bool:
        """Kill one of a kind that has not had its turn in this round; False: none of them runs."""
        if had >= ALL:
            had.clear()
        if kinds := [kind for kind in running if kind not in had]:
            kind = self._chance.choice(kinds)
            with contextlib.suppress(ProcessLookupError):  # it has ended by itself: the next one may be of its kind
                self._shop.kill(self._chance.choice(running[kind]))
                self.kills[kind] += 1
                had.add(kind)
                return True
        return False

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(TELL_S)
            known = Counter(order.outcome.partition(":")[0] for order in self.history.orders if order.outcome)
            told = ", ".join(f"{count} {outcome}" for outcome, count in known.most_common())
            self._say(f"{self.kills.total()} kills; orders: {told}, {len(self.history.under_way)} under way")

    def report(self, wrong: list[str]) -> dict[str, object]:
        """What is told in the end."""
        waited = sorted(order.waited_s for order in self.history.orders if order.outcome)
        return {
            "passed": not wrong,
            "seed": self._settings.seed,
            "seconds": round(time.monotonic() - self._began),
            "killsPlanned": planned(self._settings),
            "kills": self.kills.total(),
            "killsByKind": dict(sorted(self.kills.items())),
            "orders": len(self.history.orders),
            "outcomes": dict(Counter(order.outcome.partition(":")[0] for order in self.history.orders)),
            "articles": sum(self.history.filled.values()),
            "sentAgain": self.history.asked_again,
            "medianSeconds": round(waited[len(waited) // 2], 3) if waited else None,
            "longestSeconds": round(waited[-1], 3) if waited else None,
            "loadAverage": round(os.getloadavg()[2], 1),
            "cores": len(os.sched_getaffinity(0)),
            "wrong": wrong,
        }


def arguments(given: list[str] | None = None) -> Settings:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m examples.shop.chaos", description="Kill the shop under load.")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long to kill (default 10)")
    parser.add_argument("--seed", type=int, default=0, help="who is killed and what is ordered; drawn when 0")
    parser.add_argument("--kills", type=int, default=0, help="end after so many kills")
    parser.add_argument("--every", type=float, default=1.0, help="seconds between two kills (default 1)")
    parser.add_argument("--clients", type=int, default=8, help="customers that order at a time (default 8)")
    parser.add_argument("--json", action="store_true", help="print the verdict as JSON")
    parser.add_argument("--record", type=Path, help="write the verdict to this page, too")
    found = parser.parse_args(given)
    return Settings(
        seconds=found.minutes * 60,
        seed=found.seed or random.SystemRandom().randrange(1, 1 << 31),
        kills=found.kills,
        every_s=found.every,
        clients=found.clients,
        as_json=found.json,
        record=found.record,
    )


def show(report: dict[str, Any]) -> str:
    """Give the verdict as text."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in report["killsByKind"].items())
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in report["outcomes"].items())
    lines = [
        f"{report['kills']} kills of {report['killsPlanned']} planned, {report['seconds']} s in all: {kinds}",
        f"{report['orders']} orders: {outcomes}",
        f"half of them within {report['medianSeconds']} s, the longest {report['longestSeconds']} s",
        f"{report['sentAgain']} times an order was sent again over HTTP",
        *wrong_lines(report["wrong"]),
    ]
    passed = "PASSED: the ledger is exactly what the customers were told, stock and payments agree"
    lines.append(f"{passed if report['passed'] else 'FAILED'} (seed {report['seed']})")
    return "\n".join(lines)


def page(report: dict[str, Any], *, date: str, commit: str) -> str:
    """Give the page that `--record` writes."""
    outcomes = ", ".join(f"{count:,} {outcome}" for outcome, count in report["outcomes"].items())
    kinds = [f"| kills of: {kind} | {count:,} |" for kind, count in report["killsByKind"].items()]
    wrong = [f"- {line}" for line in wrong_lines(report["wrong"])]
    lines = [
        "# The last verdict of the chaos run",
        "",
        "`make demo-shop-record` wrote this page; no number is typed by hand.",
        "",
        f"**{'PASSED' if report['passed'] else 'FAILED'}**, {date}, commit {commit}, seed {report['seed']}",
        "",
        "| | |",
        "| --- | ---: |",
        f"| seconds until everything rested | {report['seconds']:,} |",
        f"| kills planned | {report['killsPlanned']:,} |",
        f"| kills done | {report['kills']:,} |",
        *kinds,
        f"| orders | {report['orders']:,} |",
        f"| what came of them | {outcomes} |",
        f"| orders sent again over HTTP | {report['sentAgain']:,} |",
        f"| half of the orders within | {report['medianSeconds']} s |",
        f"| the longest | {report['longestSeconds']} s |",
        f"| load of the machine, mean of 15 minutes, on {report['cores']} cores | {report['loadAverage']} |",
        f"| differences between what customers were told and the books | {len(report['wrong']):,} |",
        "",
        *wrong,
    ]
    return "\n".join(lines).rstrip() + "\n"


def commit_of_tree() -> str:
    """Name the commit, with a mark if files differ from it."""
    command = ["git", "describe", "--always", "--dirty"]
    asked = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
    return asked.stdout.strip() or "unknown"


def main() -> int:
    """Run it; see the module's docstring for exit codes."""
    settings, commit = arguments(), commit_of_tree()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        server = Server()
    except Missing as missing:
        print(missing)
        return 3
    folder = Path(tempfile.mkdtemp(prefix="deathless-shop-"))
    with server:
        shop = Shop(folder, server)
        try:
            shop.start()
            run = Run(shop, settings)
            report = run.report(asyncio.run(run.run()))
        except KeyboardInterrupt:
            print(f"ended; seed {settings.seed}", file=sys.stderr)
            return 130
        finally:
            shop.close()
    if settings.record is not None:
        settings.record.write_text(page(report, date=dt.datetime.now(dt.UTC).date().isoformat(), commit=commit))
    return finish(report, show(report), folder, as_json=settings.as_json)


if __name__ == "__main__":
    sys.exit(main())

"""A Go program and a Python service that call each other, while `kill -9` takes one of their processes all the time.

    make demo-ambrosia [MINUTES=10] [SEED=1]     python -m examples.foreign.orders.demo --minutes 10 --seed 1 [--json]

Builds the program (orders.go; orders.py stands for it where Go is missing), starts it and the till with three replicas
each, has customers place orders and ask for their money back, and kills a random process every three seconds: a
program, the process that keeps one, a worker, a supervisor with all that it started, and the primary of either service.
Then both books are compared with what the customers were told, exactly (verdict.py).

Guarantees: who is killed follows from the seed, as far as the same processes run; of all kinds each is killed once
before one is killed again; each service was taken over at least once, or the run failed; everything that it started
ends with it. The exit code is 0 when all is right, 1 otherwise.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
from examples.foreign.orders.verdict import Entry, Placed, judge, read_entries
from examples.killing import end_all, finish, processes_of, wrong_lines
from lab.go_programs import built

from deathless import Client, DeathlessError
from deathless.shell.link.application_status import read_statuses
from deathless.shell.net.admin_call import Access
from deathless.shell.operate.runner import running_supervisor
from deathless.shell.operate.status import look

HERE: Final = Path(__file__).parent
PROGRAM: Final = (sys.executable, "-m", "deathless.cli.main")
ORDERS: Final = "orders"
TILL: Final = "till"
SERVICES: Final = (ORDERS, TILL)
KINDS: Final = {
    "deathless.shell.supervisor.supervisor": "supervisor",
    "deathless.shell.worker.worker": "worker",
    "deathless.foreign.host": "process beside a program",
}
"""What a process is, by the module it runs."""
PROGRAMS: Final = "program"
PRIMARIES: Final = {ORDERS: "primary of orders", TILL: "primary of till"}
ALL: Final = frozenset({*KINDS.values(), PROGRAMS, *PRIMARIES.values()})
CUSTOMERS: Final = ("alice", "bob", "carol", "dave")
PLACE: Final = 1
BOOK: Final = 5
GIVEN_BACK: Final = 0.2  # share of the orders
EVERY_S: Final = 3.0
READY_S: Final = 300.0
TAKEOVER_S: Final = 120.0  # how long a takeover that has not been seen yet is tried for, once the time is over
REST_S: Final = 300.0  # how long the last orders may take, and books that change no more may differ
TELL_S: Final = 10.0
POLL_S: Final = 0.5
Till = dict[str, list[tuple[int, int]]]


class Shop:
    """The program and the till, in a folder of their own.

    Args:
        folder: for both.

    Attributes:
        language: of the program.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "orders"
        self.logs = self.folder / ".deathless"
        self.language = ""
        self._runners: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Build the program, start both."""
        shutil.copytree(HERE, self.folder, ignore=shutil.ignore_patterns(".deathless", "__pycache__"))
        self.language = self._build()
        for name in SERVICES:
            with (self.folder / f"{name}.log").open("ab") as log:
                self._runners[name] = subprocess.Popen(
                    [*PROGRAM, "up", f"{name}.yaml", "--plain"],
                    cwd=self.folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                )  # fmt: skip

    def _build(self) -> str:
        """Build the program, or have the manifest name the one in Python; gives the language."""
        sources = HERE.parent / "go" / "ambrosia.go", HERE / "orders.go"
        program = built("orders", *sources)
        if program is None:
            manifest = self.folder / "orders.yaml"
            words = f"command: [{sys.executable}, orders.py]\n    environment: {{PYTHONPATH: {_python_path()!r}}}"
            manifest.write_text(manifest.read_text().replace("command: [./orders]", words))
            return "Python"
        shutil.copy(program, self.folder / "orders")
        return "Go"

    def client(self, service: str) -> Client:
        """One of a service."""
        return Client(service, [f"dir:{self.logs / service}"])

    def wrong(self) -> list[str]:
        """What ended without having been killed."""
        ended = {name: runner.poll() for name, runner in self._runners.items()}
        return [f"`deathless up` of {name} ended with {code}" for name, code in ended.items() if code is not None]

    def differences(self) -> list[str]:
        """What the program sent otherwise when it was run again."""
        return [
            f"the program of {each.replica} sent {each.differences} messages otherwise than before: {each.problem}"
            for each in read_statuses(str(self.logs / ORDERS))
            if each.differences
        ]

    async def processes(self) -> tuple[dict[str, list[int]], dict[str, int]]:
        """What can be killed, pids by kind, of ours alone; and the epoch of each service."""
        found = processes_of(KINDS, str(self.folder))
        programs = [each.pid for each in read_statuses(str(self.logs / ORDERS)) if self._runs_here(each.pid)]
        epochs = {}
        for service in SERVICES:
            folder = self.logs / service
            view = await look(folder, Access(service, directory=str(folder)))
            epochs[service] = view.epoch
            if view.primary and (pid := running_supervisor(folder / "replicas" / view.primary)):
                found[PRIMARIES[service]] = [pid]
        found[PROGRAMS] = programs
        return {kind: sorted(pids) for kind, pids in sorted(found.items()) if pids}, epochs

    def _runs_here(self, pid: int) -> bool:
        """Whether a process is there, in our folder."""
        with contextlib.suppress(OSError):
            return pid > 0 and Path(f"/proc/{pid}/cwd").readlink() == self.folder
        return False

    async def books(self) -> tuple[list[Entry], Till]:
        """Read both books."""
        entries: list[Entry] = []
        async with self.client(ORDERS) as orders, self.client(TILL) as till:
            while True:
                asked = {"method": BOOK, "args": b"%d" % len(entries)}
                lines = read_entries((await orders.request("call", "", asked, result=bytes, timeout=None)).decode())
                if not lines:
                    break
                entries += lines
            payments = {
                name: msgspec.convert(await till.query("book", name), list[dict[str, int]]) for name in CUSTOMERS
            }
        return entries, {name: [(each["order"], each["cents"]) for each in book] for name, book in payments.items()}

    def close(self) -> None:
        """End all that was started."""
        for runner in self._runners.values():  # they would start supervisors again
            runner.kill()
            runner.wait()
        self._runners.clear()
        end_all(self._supervisors)

    def _supervisors(self) -> list[int]:
        return [pid for folder in self.logs.glob("*/replicas/*") if (pid := running_supervisor(folder))]


def _python_path() -> str:
    return os.environ.get("PYTHONPATH", "")


@dataclass
class Customers:
    """They order, one at a time each, and remember what they were told.

    Args:
        shop: where.
        seed: what they want follows from it.
    """

    shop: Shop
    seed: int

    def __post_init__(self) -> None:
        self.placed: list[Placed] = []
        self.wrong: list[str] = []
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """Have nobody place a further order; those under way go on."""
        self._stop.set()

    async def run(self) -> None:
        """Order until `stop`; ends when everybody knows what became of every order."""
        async with asyncio.TaskGroup() as group:
            for number in range(len(CUSTOMERS)):
                group.create_task(self._order(number))

    async def _order(self, number: int) -> None:
        name, chance, total = CUSTOMERS[number], random.Random(f"{self.seed}/{number}"), 0
        async with self.shop.client(ORDERS) as orders, self.shop.client(TILL) as till:
            while not self._stop.is_set():
                cents, back = chance.randint(1, 5_000), chance.random() < GIVEN_BACK
                words = {"method": PLACE, "args": f"{number} {name} {cents}".encode()}
                total += cents
                self._check(number, total, await _told(orders.request("call", "", words, timeout=None, result=bytes)))
                if back:
                    total -= cents
                    asked = till.request("give_back", name, {"order": number}, timeout=None)
                    self._check(number, total, await _told(asked))
                self.placed.append(Placed(number, name, cents, back))
                number += len(CUSTOMERS)

    def _check(self, number: int, total: int, told: str) -> None:
        if told != str(total):
            self.wrong.append(f"order {number}: the customer was told {told}, and has paid {total}")


async def _told(asked: Any) -> str:
    """Wait for what a service says."""
    try:
        answer = await asked
    except DeathlessError as error:
        return f"{error.code} {error}"
    return answer.decode() if isinstance(answer, bytes) else str(answer)


class Run:
    """One run of it.

    Args:
        shop: that was started.
        seconds: how long to kill.
        seed: who is killed and what is ordered.
        every_s: between two kills.
    """

    def __init__(self, shop: Shop, *, seconds: float, seed: int, every_s: float = EVERY_S) -> None:
        self._shop = shop
        self._seconds = seconds
        self._every_s = every_s
        self._chance = random.Random(seed)
        self._customers = Customers(shop, seed)
        self._began = time.monotonic()
        self._epochs: dict[str, tuple[int, int]] = {}  # by service: the first and the last that was seen
        self.kills: Counter[str] = Counter()

    def say(self, text: str) -> None:
        """Tell whoever watches."""
        print(f"{time.monotonic() - self._began:6.0f} s  {text}", file=sys.stderr, flush=True)

    async def run(self) -> list[str]:
        """Let them order and kill; gives what is wrong in the end."""
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
            self.say(f"{self.kills.total()} kills; the last orders come to an end")
            await asyncio.wait_for(customers, REST_S)
            wrong = await self._compare()
        except TimeoutError:
            wrong = [f"after {REST_S:g} s without a kill not all orders are done"]
        finally:
            telling.cancel()
            customers.cancel()
        missing = [f"{service} was never taken over" for service, count in self.takeovers().items() if not count]
        return [*missing, *self._shop.wrong(), *self._shop.differences(), *self._customers.wrong, *wrong]

    async def _compare(self) -> list[str]:
        """Compare the books until they agree, or differ and change no more."""
        found, changed_at = await self._shop.books(), time.monotonic()
        while wrong := judge(self._customers.placed, *found):
            await asyncio.sleep(POLL_S)
            now = await self._shop.books()
            if now != found:
                found, changed_at = now, time.monotonic()
            elif time.monotonic() > changed_at + REST_S / 10:
                return wrong
        return []

    async def _kill(self) -> None:
        """Kill until the time is over and each service was taken over; the first kill waits for an order."""
        ends_at = time.monotonic() + READY_S
        while not self._customers.placed:
            if time.monotonic() > ends_at:
                raise TimeoutError(f"no order came through within {READY_S:g} s")
            await asyncio.sleep(POLL_S)
        began, had = time.monotonic(), set[str]()
        while (now := time.monotonic()) < began + self._seconds + TAKEOVER_S:
            running, epochs = await self._shop.processes()
            self._saw(epochs)
            lacking = {PRIMARIES[service] for service, count in self.takeovers().items() if not count}
            if now > began + self._seconds:
                if not lacking:
                    break
                running = {kind: pids for kind, pids in running.items() if kind in lacking}
            self._kill_one(running, had)
            await asyncio.sleep(max(0.0, now + self._every_s - time.monotonic()))
        self._saw((await self._shop.processes())[1])

    def _kill_one(self, running: dict[str, list[int]], had: set[str]) -> None:
        """Kill one of a kind that has not had its turn in this round, if one runs."""
        if not (kinds := [kind for kind in running if kind not in had]):
            had.clear()
            kinds = [*running]
        if kinds:
            kind = self._chance.choice(kinds)
            with contextlib.suppress(ProcessLookupError):  # it ended by itself
                os.kill(self._chance.choice(running[kind]), signal.SIGKILL)
                self.kills[kind] += 1
                had.add(kind)

    def _saw(self, epochs: dict[str, int]) -> None:
        """Note the epoch that each service is in; 0: not known now."""
        for service, epoch in epochs.items():
            if epoch:
                first, last = self._epochs.get(service, (epoch, epoch))
                self._epochs[service] = first, max(last, epoch)

    def takeovers(self) -> dict[str, int]:
        """How often each service was taken over."""
        known = {service: self._epochs.get(service, (0, 0)) for service in SERVICES}
        return {service: last - first for service, (first, last) in known.items()}

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(TELL_S)
            taken = ", ".join(f"{service} {count}" for service, count in self.takeovers().items())
            self.say(f"{self.kills.total()} kills; {len(self._customers.placed):,} orders; taken over: {taken} times")

    def report(self, wrong: Sequence[str]) -> dict[str, object]:
        """What is told in the end."""
        return {
            "passed": not wrong,
            "program": self._shop.language,
            "seconds": round(time.monotonic() - self._began),
            "orders": len(self._customers.placed),
            "givenBack": sum(each.given_back for each in self._customers.placed),
            "kills": self.kills.total(),
            "killsByKind": dict(sorted(self.kills.items())),
            "takeovers": self.takeovers(),
            "wrong": list(wrong),
        }


def show(report: dict[str, Any]) -> str:
    """Give the verdict as text."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in report["killsByKind"].items())
    taken = ", ".join(f"{service} {count}" for service, count in report["takeovers"].items())
    lines = [
        f"{report['kills']} kills, {report['seconds']} s in all: {kinds}",
        f"taken over: {taken} times",
        f"{report['orders']:,} orders of a program in {report['program']}, {report['givenBack']:,} of them paid back",
        *wrong_lines(report["wrong"]),
    ]
    passed = "PASSED: both books hold each order once, exactly as the customers were told"
    lines.append(f"{passed if report['passed'] else 'FAILED'} (seed {report['seed']})")
    return "\n".join(lines)


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m examples.foreign.orders.demo", description="Kill a Go program.")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long to kill (default 10)")
    parser.add_argument("--seed", type=int, default=0, help="who is killed and what is ordered; drawn when 0")
    parser.add_argument("--every", type=float, default=EVERY_S, help=f"seconds between two kills (default {EVERY_S:g})")
    parser.add_argument("--json", action="store_true", help="print the verdict as JSON")
    return parser.parse_args(given)


def main() -> int:
    """Run it; see the module's docstring for exit codes."""
    given = arguments()
    seed = given.seed or random.SystemRandom().randrange(1, 1 << 31)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = Path(tempfile.mkdtemp(prefix="deathless-orders-")).resolve()
    shop = Shop(folder)
    try:
        shop.start()
        run = Run(shop, seconds=given.minutes * 60, seed=seed, every_s=given.every)
        if shop.language != "Go":
            run.say("Go is missing: the program is orders.py, in Python")
        run.say(f"seed {seed}; a kill every {given.every:g} s for {given.minutes:g} minutes")
        report = {"seed": seed, **run.report(asyncio.run(run.run()))}
    except KeyboardInterrupt:
        print(f"ended; seed {seed}", file=sys.stderr)
        return 130
    finally:
        shop.close()
    return finish(report, show(report), folder, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())

"""Services that run are forked: in the originals and in the fork everything adds up, and both go on."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cli_tool import PROGRAM, ROOT, run
from replica_set import DEADLINE_S, send_signal, wait_for

from deathless import Client
from deathless.shell.operate.runner import running_runner, running_supervisor

SERVICES = ("stock", "payments", "shop")
PAIR = ("sender", "receiver")
MANIFEST = """\
apiVersion: deathless.dev/v1alpha1
kind: DeathlessService
metadata: {{name: {service}}}
spec:
  module: message_services.py:{service}
  replicas: 1
"""
NAP_S = 15
APPLES = 10_000
CUSTOMERS = 4
WARM_ORDERS = 12  # that are sent before the fork
MORE_ORDERS = 12  # that are sent after it


def command(folder: Path, *arguments: str, code: int = 0) -> str:
    """Run a command in a folder; gives what it printed, or why it refused."""
    done = run(*arguments, cwd=folder)
    assert done.returncode == code, f"{arguments}\n{done.stdout}\n{done.stderr}"
    return done.stderr if code else done.stdout


def start(folder: Path, services: Sequence[str] = SERVICES) -> None:
    for service in services:
        command(folder, "up", "--detach", f"{service}.yaml")


def end(folder: Path) -> None:
    """End whatever runs there."""
    for directory in (folder / ".deathless").glob("*"):
        pids = [running_runner(directory)]
        pids += [running_supervisor(path) for path in (directory / "replicas").glob("*")]
        for pid in filter(None, pids):
            send_signal(pid, signal.SIGKILL)


@contextmanager
def pair(folder: Path) -> Iterator[Path]:
    """A sender and a receiver, running; what runs there and in their fork is ended."""
    folder.mkdir()
    shutil.copy(Path(__file__).with_name("message_services.py"), folder)
    for service in PAIR:
        (folder / f"{service}.yaml").write_text(MANIFEST.format(service=service))
    try:
        start(folder, PAIR)
        yield folder
    finally:
        end(folder)
        end(folder / "fork")


@contextmanager
def shop(folder: Path) -> Iterator[Path]:
    """The example's folder with its three services, running; what runs there and in its fork is ended."""
    shutil.copytree(ROOT / "examples" / "shop", folder, ignore=shutil.ignore_patterns(".deathless"))
    for service in SERVICES:
        manifest = folder / f"{service}.yaml"
        manifest.write_text(manifest.read_text().replace("port: 8090", "port: 0").replace("replicas: 3", "replicas: 1"))
    try:
        start(folder)
        yield folder
    finally:
        end(folder)
        end(folder / "fork")


def client(folder: Path, service: str) -> Client:
    return Client(service, [f"dir:{folder / '.deathless' / service}"])


async def place(one: Client, number: str) -> str:
    named = {"article": "apples", "count": 1, "customer": "alice", "cents": 5}
    return str(await one.request("place", number, named, timeout=None))


class Customers:
    """They order until they are told to stop, and remember what they ordered and what was sent."""

    def __init__(self, folder: Path) -> None:
        self.ordered: list[str] = []
        self.sent: list[str] = []
        self.stop = asyncio.Event()
        self._folder = folder
        self._news = asyncio.Condition()

    async def run(self, customer: int) -> None:
        async with client(self._folder, "shop") as one:
            count = 0
            while not self.stop.is_set():
                number, count = f"{customer}.{count}", count + 1
                self.ordered.append(number)
                assert await place(one, number) == "sent"
                async with self._news:
                    self.sent.append(number)
                    self._news.notify_all()

    async def wait_for(self, count: int) -> None:
        """Wait until so many orders were sent."""
        async with self._news, asyncio.timeout(4 * DEADLINE_S):
            await self._news.wait_for(lambda: len(self.sent) >= count)


async def books(folder: Path, numbers: list[str]) -> set[str]:
    """Wait until no order is under way, compare what the three services know, and give the orders that were sent."""
    async with client(folder, "shop") as orders, client(folder, "stock") as stock, client(folder, "payments") as bank:
        known: dict[str, str] = {}
        async with asyncio.timeout(4 * DEADLINE_S):
            for number in numbers:
                while (status := str(await orders.query("status", number))) not in ("sent", "none"):
                    assert status in ("holding", "charging")
                known[number] = status
        sent = {number for number, status in known.items() if status == "sent"}
        held: dict[str, int] = await stock.query("held", "apples")
        paid: dict[str, int] = await bank.query("paid", "alice")
        assert set(held) == set(paid) == sent
        assert await stock.query("free", "apples") == APPLES - len(sent)
        return sent


async def forked_under_load(folder: Path) -> tuple[Customers, dict[str, Any]]:
    """Fork the shop while its customers order."""
    customers = Customers(folder)
    async with client(folder, "stock") as stock:
        await stock.call("refill", "apples", count=APPLES)
    running = [asyncio.create_task(customers.run(number)) for number in range(CUSTOMERS)]
    await customers.wait_for(WARM_ORDERS)
    named = [word for service in SERVICES for word in ("-f", f"{service}.yaml")]
    told = await asyncio.to_thread(command, folder, "fork", *named, "--to", "fork", "--json")
    await customers.wait_for(len(customers.sent) + MORE_ORDERS)
    customers.stop.set()
    await asyncio.gather(*running)
    return customers, json.loads(told)


def test_services_that_talk_are_forked_under_load_and_both_add_up(tmp_path: Path) -> None:
    with shop(tmp_path / "shop") as folder:
        customers, told = asyncio.run(forked_under_load(folder))
        assert [each["service"] for each in told["services"]] == list(SERVICES)
        fork = folder / "fork"
        start(fork)
        assert "outside held" in command(fork, "status", "-f", "payments.yaml")
        command(fork, "resume-outside", "--yes", "-f", "payments.yaml")
        before = asyncio.run(books(fork, customers.ordered))
        assert WARM_ORDERS <= len(before) < len(customers.ordered), "customers ordered before the cut and behind it"
        assert asyncio.run(books(folder, customers.ordered)) == set(customers.ordered)

        async def order(there: Path, number: str) -> str:
            async with client(there, "shop") as one:
                return await place(one, number)

        assert asyncio.run(order(fork, "fork-1")) == "sent"
        assert asyncio.run(order(folder, "original-1")) == "sent"
        numbers = [*customers.ordered, "fork-1", "original-1"]
        assert asyncio.run(books(fork, numbers)) == {*before, "fork-1"}
        assert asyncio.run(books(folder, numbers)) == {*customers.ordered, "original-1"}
        for service in SERVICES:
            peers = json.loads(command(fork, "peers", "-f", f"{service}.yaml", "--json"))["peers"]
            assert [each["problem"] for each in peers] == [""] * len(peers)
            assert "verdict: sound" in command(fork, "log", "verify", "-f", f"{service}.yaml")


def test_logs_that_were_exported_at_different_moments_are_forked_at_one(tmp_path: Path) -> None:
    with pair(tmp_path / "pair") as folder:
        note = ("call", "call", "-f", "sender.yaml", "--key", "alice", "--arg")
        fork = folder / "fork"
        for number, service in enumerate(("receiver", "sender")):
            command(folder, *note, f"tag=t{number}")
            command(folder, "log", "export", f"{service}.dlog", "-f", f"{service}.yaml")
            command(folder, "log", "import", f"{service}.dlog", f"{service}-log")
        words = ["fork", "--to", "fork"]
        for service in PAIR:
            words += ["-f", f"{service}.yaml", "--log", f"{service}:{service}-log"]
        command(folder, *words)
        start(fork, PAIR)
        command(fork, *note, "tag=fork")
        tags = json.loads(command(fork, "query", "tags", "-f", "receiver.yaml", "--key", "alice"))
        sent = json.loads(command(fork, "query", "look", "-f", "sender.yaml", "--key", "alice"))["sent"]
        assert tags == sent
        assert (tags[0], tags[-1]) == ("t0", "fork")


def test_timer_that_runs_at_the_cut_fires_once_in_both_and_what_came_behind_the_cut_is_the_originals(
    tmp_path: Path,
) -> None:
    with pair(tmp_path / "pair") as folder:
        note = ("call", "call", "-f", "sender.yaml", "--key", "alice", "--arg")
        command(folder, *note, "tag=before")
        words = [*PROGRAM, "call", "nap", "-f", "sender.yaml", "--key", "bob", "--arg", f"seconds={NAP_S}"]
        words += ["--timeout", f"{2 * DEADLINE_S:g}"]
        napping = subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, text=True)

        def waiting(where: Path) -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = json.loads(
                command(where, "invocations", "list", "-f", "sender.yaml", "--json")
            )["invocations"]
            return found

        nap = wait_for(lambda: [one["invocation"] for one in waiting(folder)], "a nap")[0]
        command(folder, *note, "tag=behind")
        named = [word for service in PAIR for word in ("-f", f"{service}.yaml")]
        told = json.loads(command(folder, "fork", *named, "--to", "fork", "--at", f"sender:{nap}", "--json"))
        assert told["services"][0]["lsn"] == nap
        fork = folder / "fork"
        start(fork, PAIR)
        slept = command(fork, "invocations", "wait", str(nap), "-f", "sender.yaml", "--timeout", f"{2 * DEADLINE_S:g}")
        assert int(slept) >= NAP_S * 1_000_000
        assert waiting(fork) == []
        assert int(napping.communicate()[0]) >= NAP_S * 1_000_000
        command(fork, *note, "tag=fork")
        look = ("query", "tags", "-f", "receiver.yaml", "--key", "alice")
        assert json.loads(command(fork, *look)) == ["before", "fork"]
        assert json.loads(command(folder, *look)) == ["before", "behind"]

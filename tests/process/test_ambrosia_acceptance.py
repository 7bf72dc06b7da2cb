"""Two programs that call each other keep equal books, whichever of their processes are killed, and in which order.

One pair of services goes through all of it: each start of one costs seconds. The server is the Go program, where Go is.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import job_program as job
import pytest
from cli_tool import ROOT
from counter_service import Counter, add
from go_program import go_counter
from replica_set import children_of, send_signal, wait_for

from deathless.sdk.client import SyncClient
from deathless.shell.link.application_status import read_statuses

SIZES = (16, 1024, 65536)
CALLERS = 4
MORE = 4  # orders behind each death


class Instance(Counter):
    """One service of the pair, in the folder that both share.

    Args:
        name: of the service.
        replicas: of it.
        program: to copy into the folder.
    """

    def __init__(self, folder: Path, name: str, replicas: int, program: Path) -> None:
        self.name, self.replicas = name, replicas
        super().__init__(folder, program)
        self.manifest = folder / f"{name}.yaml"
        self.directory = folder / ".deathless" / name
        self.write_manifest(replicas)

    def write_manifest(self, replicas: int, more: str = "") -> None:
        """See Counter."""
        super().write_manifest(replicas, more)
        self.manifest.write_text(self.manifest.read_text().replace("name: bank", f"name: {self.name}"))

    def client(self) -> SyncClient:
        """One of its service."""
        return SyncClient(self.name, [f"dir:{self.directory}"])

    def is_whole(self) -> bool:
        """Whether one program leads and the others follow."""
        states = sorted(each.state for each in read_statuses(str(self.directory)))
        return states == ["following"] * (self.replicas - 1) + ["leading"] and len(self.supervisors()) == self.replicas

    def primary(self) -> str:
        """The replica whose program leads."""
        leader = wait_for(self.leader, f"a program of {self.name} that leads")
        return leader.replica

    def kill(self, *replicas: str) -> None:
        """Kill replicas, with SIGKILL: supervisors, and with them all that they keep."""
        running = self.supervisors()
        for name in replicas:
            send_signal(running[name], signal.SIGKILL)

    def replays(self) -> bool:
        """Whether its program does again what it did, from its oldest checkpoint on."""
        told = self.json("ambrosia", "replay", "--from", "oldest", "-f", str(self.manifest))
        same: bool = told["differs"] is None
        return same and not any(each.differences for each in read_statuses(str(self.directory)))


class Books:
    """What callers ordered, while they go on ordering.

    Args:
        client: gives one of the job's service.
    """

    def __init__(self, client: Callable[[], SyncClient]) -> None:
        self.orders = self.bytes = 0
        self._client = client
        self._ended = False
        self._allowed = threading.Semaphore(0)
        self._lock = threading.Lock()

    def order(self, caller: int) -> None:
        """Order what is allowed until it is enough, in messages of sizes that come in any order."""
        with self._client() as client:
            number = caller
            while self._allowed.acquire() and not self._ended:
                size = SIZES[number % len(SIZES)]
                client.call("call", "", result=bytes, method=job.ORDER, args=b"server 2 %d" % size)
                with self._lock:
                    self.orders, self.bytes, number = self.orders + 1, self.bytes + 2 * size, number + 1

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Have several callers order meanwhile."""
        callers = [threading.Thread(target=self.order, args=(caller,)) for caller in range(CALLERS)]
        for each in callers:
            each.start()
        try:
            yield
        finally:
            self._ended = True
            self.allow(CALLERS)
            for each in callers:
                each.join()

    def allow(self, count: int) -> None:
        """Have so many more ordered."""
        self._allowed.release(count)

    def wait_for_more(self, what: str) -> None:
        """Wait until orders go on behind something."""
        before = self.orders
        self.allow(MORE)
        wait_for(lambda: self.orders >= before + MORE, f"orders behind {what}")


def server_program() -> Path:
    """The counter in Go, or in Python where Go is missing."""
    try:
        return go_counter()
    except pytest.skip.Exception:
        return ROOT / "examples" / "foreign" / "counter.py"


def test_books_are_equal_whoever_is_killed_and_in_which_order(tmp_path: Path) -> None:
    """Job, server, both in either order, followers and the one that checkpoints, a frozen primary, and all at once."""
    with (
        Instance(tmp_path, "server", 2, server_program()) as server,
        Instance(tmp_path, "job", 1, Path(job.__file__)) as client,
    ):
        server.up()
        client.up()
        wait_for(server.is_whole, "the server's programs")
        wait_for(client.is_whole, "the job's program")
        books = Books(client.client)
        with books.kept():
            books.wait_for_more("the start")
            for victims in (add_one_and_kill, kill_job, kill_both, kill_followers, freeze_primary, kill_all):
                books.allow(CALLERS)
                victims(server, client)
                books.wait_for_more(victims.__name__)
                wait_for(server.is_whole, "the server's programs")
        check(server, client, books)  # no caller orders any more


def kill_job(server: Instance, client: Instance) -> None:
    """The job dies with its replica, and comes back."""
    client.kill(*client.supervisors())
    client.up()


def add_one_and_kill(server: Instance, client: Instance) -> None:
    """A replica is added while orders come, and the one that leads dies, and comes back."""
    fewer = server.manifest.read_text()
    server.replicas += 1
    server.manifest.write_text(fewer.replace("replicas: 2", "replicas: 3"))
    server.up()
    wait_for(server.is_whole, "the program of the replica that was added")
    server.kill(server.primary())
    server.up()


def kill_both(server: Instance, client: Instance) -> None:
    """Both primaries die; the server comes back first, while in `kill_all` the job does."""
    server.kill(server.primary())
    client.kill(*client.supervisors())
    server.up()
    client.up()


def kill_followers(server: Instance, client: Instance) -> None:
    """Those that do not lead die, the one that checkpoints among them."""
    leader = server.primary()
    server.kill(*(name for name in server.supervisors() if name != leader))
    server.up()


def freeze_primary(server: Instance, client: Instance) -> None:
    """All processes of the replica that leads are frozen until another one leads, and go on then."""
    frozen = server.primary()
    supervisor = server.supervisors()[frozen]
    pids = family(supervisor)
    for pid in pids:
        send_signal(pid, signal.SIGSTOP)
    wait_for(lambda: (now := server.leader()) is not None and now.replica != frozen, "another program that leads")
    for pid in pids:
        send_signal(pid, signal.SIGCONT)


def kill_all(server: Instance, client: Instance) -> None:
    """Every replica dies; the job comes back first."""
    server.kill(*server.supervisors())
    client.kill(*client.supervisors())
    client.up()
    server.up()


def family(pid: int) -> list[int]:
    """A process and all that it started, the eldest first."""
    return [pid, *(each for child in children_of(pid, "") for each in family(child))]


def check(server: Instance, client: Instance, books: Books) -> None:
    """Compare what callers ordered with both books, and each program's run with its log."""
    with client.client() as orders, server.client() as counts:

        def book() -> list[int]:
            return [*map(int, orders.call("call", "", result=bytes, method=job.BOOK, args=b"").split())]

        wait_for(lambda: book() == [books.bytes, books.orders, books.orders, 0], "all answers", lambda: str(book()))
        assert add(counts, 0) == books.bytes
    assert server.replays()
    assert client.replays()

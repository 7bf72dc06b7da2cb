"""A set of real replicas for tests: supervisors and workers as processes in a temporary directory.

    with ReplicaSet(tmp_path) as replicas:
        replicas.wait_primary()
        replicas.kill_worker(replicas.primary())

Nothing here sleeps for a guessed time: every wait polls a condition and fails at a deadline, telling the logs' ends.
`Load` calls the service from several sessions while a test breaks things, and `verdict` compares what was acknowledged
with what the service holds: lost and doubled calls are counted, not believed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar, cast

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.base.errors import DeathlessError
from deathless.shell.client.shard_client import Client
from deathless.shell.directory.members import read_members
from deathless.shell.link.status_page import page_path
from deathless.shell.net.admin_call import Access, ask
from deathless.simulation.checkers.exactly_once import check_exactly_once as judge_exactly_once
from deathless.simulation.checkers.history import History, Outcome
from deathless.simulation.checkers.linearizability import check_linearizable
from deathless.simulation.checkers.models import CounterModel

DEADLINE_S = 120.0  # a starved machine may need half of it to start one process
PATIENT = {"suspect_after_s": 2.0, "log_call_max_s": 30.0}
"""Limits of a set whose test must see no takeover but its own: a busy machine may let a replica stand for a moment."""
ANSWER_S = 5.0  # a supervisor that says nothing for so long is left out
FIRST_POLL_S, LAST_POLL_S = 0.02, 0.1
"""A look asks every process: 50 of them a second would take a third of a core from what is waited for."""
PACE_S = 0.005
"""Callers pause between two calls, as people do: those who do not leave a process that starts no time to do so."""
ALL = {"primary": 1, "checkpointer": 1, "standby": 1}
"""Roles of three replicas that are all well."""
KEYS = 5  # that a load spreads its calls over
READ_EVERY = 7  # calls of a session for one linearizable query
SERVICE = Path(__file__).with_name("ledger.py")
T = TypeVar("T")
Status = dict[str, object]


def wait_for(condition: Callable[[], T | None], what: str, describe: Callable[[], str] = str) -> T:
    """Poll until `condition` gives something; fails naming `what` at the deadline."""
    end = time.monotonic() + DEADLINE_S
    pause, poll_s = threading.Event(), FIRST_POLL_S
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"waited {DEADLINE_S:g} s for {what}\n{describe()}")
        pause.wait(poll_s)
        poll_s = min(poll_s * 1.5, LAST_POLL_S)


def now_us() -> int:
    """The clock of recorded histories."""
    return time.monotonic_ns() // 1000


def send_signal(pid: int, number: int) -> bool:
    """Signal a process that may have ended since somebody named it, or 0: none. False: nobody got it."""
    if not pid:
        return False
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def children_of(parent: int, module: str) -> list[int]:
    """Processes that another one started and that run a module; none when the parent is gone."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            fields = (each / "stat").read_text().rpartition(")")[2].split()
            words = (each / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # it ended meanwhile
        if int(fields[1]) == parent and module.encode() in words:
            found.append(int(each.name))
    return found


class ReplicaSet:
    """Supervisors of one service.

    Args:
        folder: for data, configs and logs.
        replicas: how many.
        settings: further fields of ReplicaConfig.
    """

    def __init__(self, folder: Path, *, replicas: int = 3, service: str = "ledger", **settings: object) -> None:
        self.folder = folder
        self.directory = folder / "data"
        self.service = service
        self.names = [f"r{i}" for i in range(replicas)]
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.environment: dict[str, str] = {}  # of the supervisors, beside ours
        self._settings = {"module": f"{SERVICE}:ledger", **settings}

    def config(self, name: str) -> ReplicaConfig:
        """Give one replica's config."""
        fields = {"service": self.service, "directory": str(self.directory), "replica": name, **self._settings}
        return msgspec.convert(fields, ReplicaConfig)

    def __enter__(self) -> Self:
        for name in self.names:
            self.start(name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name, process in self.processes.items():
            for pid in (self._worker_pid(name), process.pid):
                if process.poll() is None:
                    send_signal(pid, signal.SIGCONT)
            process.kill()
            process.wait()
            Path(page_path(self.config(name).directory, name)).unlink(missing_ok=True)

    def start(self, name: str) -> None:
        """Start a supervisor."""
        path = self.folder / f"{name}.json"
        path.write_bytes(msgspec.json.encode(self.config(name)))
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                self.command(name, path), stdout=log, stderr=log, env={**os.environ, **self.environment}
            )

    def command(self, name: str, config: Path) -> list[str]:
        """What starts a supervisor."""
        return [sys.executable, "-m", "deathless.shell.supervisor.supervisor", str(config)]

    def stop(self) -> dict[str, int]:
        """Stop all in order; gives their exit codes."""
        for process in self.processes.values():
            process.terminate()
        return {name: process.wait(DEADLINE_S) for name, process in self.processes.items()}

    # ---- looking ---------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Status]:
        """What the replicas say of themselves, by name; those that do not answer are left out."""
        members = read_members(str(self.directory)).items()
        ours = [(name, member.control) for name, member in members if name in self.processes]
        asked = {name: address for name, address in ours if not self._is_frozen(name)}

        async def ask_all() -> list[Status | None]:
            return await asyncio.gather(*(self._ask(name, address) for name, address in asked.items()))

        return {name: told for name, told in zip(asked, asyncio.run(ask_all()), strict=True) if told is not None}

    async def _ask(self, name: str, address: str) -> Status | None:
        try:
            answer = await ask(address, "status", self._access(), answer_s=ANSWER_S)
        except DeathlessError:
            return None
        reports = cast("list[Status]", answer["replicas"])
        return next((report for report in reports if report["replica"] == name), None)

    def _is_frozen(self, name: str) -> bool:
        """Is its supervisor stopped? Nobody then waits for an answer that cannot come."""
        try:
            text = Path(f"/proc/{self.processes[name].pid}/stat").read_text()
        except OSError:
            return False  # it has ended
        return text.rpartition(")")[2].split()[0] == "T"

    def _access(self) -> Access:
        config = self.config(self.names[0])  # its directory may be a mount that hangs
        return Access(self.service, config.token, config.tls, str(self.directory))

    def role_of(self, role: str) -> str | None:
        """Name of a running replica in `role`, the one of the highest epoch; None: there is none."""
        found = [(s["epoch"], n) for n, s in self.status().items() if s["role"] == role and s["state"] == "running"]
        return max(found)[1] if found else None

    def primary(self, *, besides: str = "") -> str:
        """Wait for a primary and give its name."""

        def look() -> str | None:
            name = self.role_of("primary")
            return None if name == besides else name

        return wait_for(look, "a primary", self.describe)

    def wait_roles(self, **wanted: int) -> None:
        """Wait until so many replicas have each role, e.g. primary=1, checkpointer=1, standby=1."""

        def look() -> bool:
            roles = [s["role"] for s in self.status().values() if s["state"] == "running"]
            return all(roles.count(role) == count for role, count in wanted.items())

        wait_for(look, f"roles {wanted}", self.describe)

    def wait_same_lsn(self) -> None:
        """Wait until every replica has applied the same."""

        def look() -> bool:
            status = self.status()
            return len(status) == len(self.names) and len({s["lsn"] for s in status.values()}) == 1

        wait_for(look, "one lsn on all replicas", self.describe)

    def describe(self) -> str:
        """Status and the ends of the logs, for a failing test."""
        parts = [f"{n}: {s['role']} {s['state']} epoch {s['epoch']} lsn {s['lsn']}" for n, s in self.status().items()]
        for name in self.names:
            log = self.folder / f"{name}.log"
            if log.exists():
                parts.append(f"--- {name}\n" + "\n".join(line[:400] for line in log.read_text().splitlines()[-12:]))
        return "\n".join(parts)

    # ---- breaking --------------------------------------------------------------------------------------------

    def _worker_pid(self, name: str) -> int:
        return cast("int", self.status().get(name, {}).get("worker_pid", 0))

    def signal_worker(self, name: str, number: int) -> int:
        """Send a signal to a worker; gives its pid."""

        def signalled() -> int:
            pid = self._worker_pid(name)  # the one that is told of may have ended
            return pid if send_signal(pid, number) else 0

        return wait_for(signalled, f"a worker of {name}", self.describe)

    def kill_primary(self) -> None:
        """End the worker of whoever leads, and wait until another replica does."""
        old = self.primary()
        self.kill_worker(old)
        self.primary(besides=old)

    def kill_worker(self, name: str) -> None:
        """kill -9 of a worker."""
        self.signal_worker(name, signal.SIGKILL)

    def kill_replica(self, name: str) -> None:
        """kill -9 of a supervisor; its worker dies with it."""
        self.processes[name].kill()
        self.processes[name].wait()


class Load:
    """Calls from several sessions in a thread of its own; each call has a tag of its own."""

    def __init__(self, replicas: ReplicaSet, *, sessions: int = 3, name: str = "", pace_s: float = PACE_S) -> None:
        self.acknowledged: list[str] = []
        self.sent: list[str] = []
        self.errors: list[BaseException] = []
        self._replicas = replicas
        self._sessions = sessions
        self._name = name
        self._pace_s = pace_s
        self.history = History()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.stop()
        else:
            self._stop.set()
            self._thread.join(DEADLINE_S / 4)

    def stop(self) -> None:
        """Let the calls under way end and begin no more."""
        self._stop.set()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), f"calls did not end\n{self._replicas.describe()}"
        if self.errors:
            raise self.errors[0]

    async def _run(self) -> None:
        await asyncio.gather(*(self._session(number) for number in range(self._sessions)))

    async def _session(self, number: int) -> None:
        try:
            async with client_of(self._replicas) as client:
                count = 0
                while not self._stop.is_set():
                    key, tag = f"k{count % KEYS}", f"{self._name}{number}.{count}"
                    self.sent.append(tag)
                    adding = self.history.invoke(
                        caller=f"{self._name}{number}", action="add", keys=(key,), argument=1, tag=tag, now_us=now_us()
                    )
                    total = await client.call("note", key, tag=tag)
                    self.history.complete(adding, outcome=Outcome.OK, result=total, now_us=now_us())
                    self.acknowledged.append(tag)
                    if count % READ_EVERY == 0:
                        await self._read(client, key, f"{self._name}{number}")
                    count += 1
                    await asyncio.sleep(self._pace_s)
        except BaseException as error:
            self.errors.append(error)
            raise

    async def _read(self, client: Client, key: str, caller: str) -> None:
        reading = self.history.invoke(caller=caller, action="read", keys=(key,), argument=None, tag="", now_us=now_us())
        total = await client.query("count", key)
        self.history.complete(reading, outcome=Outcome.OK, result=total, now_us=now_us())

    def wait_more(self, count: int = 20) -> None:
        """Wait until `count` more calls are acknowledged."""
        goal = len(self.acknowledged) + count
        wait_for(
            lambda: len(self.acknowledged) >= goal or bool(self.errors), f"{count} more calls", self._replicas.describe
        )
        if self.errors:
            raise self.errors[0]


@contextmanager
def called(replicas: ReplicaSet) -> Iterator[Load]:
    """Calls that have begun, to three replicas that are all well; in the end each was counted exactly once."""
    replicas.wait_roles(**ALL)
    with Load(replicas) as load:
        load.wait_more()
        yield load
    check_exactly_once(load, replicas)


def client_of(replicas: ReplicaSet) -> Client:
    """A client that finds the replicas by itself."""
    config = replicas.config(replicas.names[0])
    return Client(replicas.service, [f"dir:{replicas.directory}"], token=config.token or None, tls=config.tls)


def held_tags(replicas: ReplicaSet) -> list[str]:
    """Every tag that the service holds, with repetitions."""

    async def look() -> list[str]:
        async with client_of(replicas) as client:
            return [tag for key in range(KEYS) for tag in cast("list[str]", await client.query("notes", f"k{key}"))]

    return asyncio.run(look())


def check_exactly_once(load: Load, replicas: ReplicaSet, *others: Load) -> None:
    """Every acknowledged call is held once, every other at most once, nothing else is held."""
    held = Counter(held_tags(replicas))
    sent = {tag for each in (load, *others) for tag in each.sent}
    acknowledged = {tag for each in (load, *others) for tag in each.acknowledged}
    lost = sorted(acknowledged - set(held))
    doubled = sorted(tag for tag, count in held.items() if count > 1)
    assert not lost, f"lost {lost[:5]} of {len(acknowledged)}\n{replicas.describe()}"
    assert not doubled, f"doubled {doubled[:5]}\n{replicas.describe()}"
    assert set(held) <= sent


def judge(replicas: ReplicaSet, *histories: History) -> None:
    """Have the checkers of the simulation judge what callers saw: exactly once, and in one order."""
    operations = sorted((one for history in histories for one in history), key=lambda one: one.invoked_us)
    violations = [*judge_exactly_once(operations, held_tags(replicas)), *check_linearizable(operations, CounterModel())]
    assert not violations, "\n".join([*map(str, violations[:5]), replicas.describe()])

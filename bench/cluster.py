"""Real replicas for the figures: supervisors as child processes, on a directory of their own, asked over their ports.

Guarantees: `close` ends every process that `start` began, frozen ones too; they also end when this process does.
Does not: measure.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.base.errors import DeathlessError
from deathless.base.shards import shard_directory, shard_name
from deathless.core.supervisor.detection import Report
from deathless.shell.directory.members import read_members
from deathless.shell.net.admin_call import Access, ask
from deathless.shell.process.forked import die_with_parent

SERVICE: Final = "bench"
MODULE: Final = f"{Path(__file__).resolve().parent / 'services' / 'counter.py'}:bench"
READY_S: Final = 60.0
RECOVERED_S: Final = 900.0  # with a long log to recover first
STOP_S: Final = 10.0
POLL_S: Final = 0.02


class Program(NamedTuple):
    """A service, and the folder of its log below the cluster's; or one shard of several."""

    service: str
    module: str
    folder: str
    shard: int = 0
    shards: int = 1


COUNTER: Final = Program(SERVICE, MODULE, "shard")


class NotReady(Exception):
    """The replicas did not come to serve; the message ends with what they last wrote."""


class Cluster:
    """A set of replicas of the bench's service.

    Args:
        folder: empty, on the storage to be measured.
        replicas: how many.
        limits: changes of `base.limits`.
        ingress: where the first replica's HTTP ingress listens; empty: there is none.
        environment: more variables for the processes.
        log_level: what the replicas write to their logs.
        ready_s: how long they may take until they serve.
        program: what they run.
    """

    def __init__(
        self,
        folder: Path,
        *,
        replicas: int = 3,
        limits: dict[str, float] | None = None,
        ingress: str = "",
        environment: dict[str, str] | None = None,
        log_level: str = "warning",
        ready_s: float = READY_S,
        program: Program = COUNTER,
    ) -> None:
        self.folder = folder
        self.directory = Path(shard_directory(str(folder / program.folder), program.shard, program.shards))
        name = shard_name(program.service, program.shard, program.shards)
        self.access = Access(name, directory=str(self.directory))
        self._program = program
        self.names = [f"r{i}" for i in range(replicas)]
        self._limits = limits or {}
        self._ingress = ingress
        self._log_level = log_level
        self._ready_s = ready_s
        self._environment = {**os.environ, **(environment or {})}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    async def __aenter__(self) -> Self:
        self.directory.mkdir(parents=True, exist_ok=True)
        for name in self.names:
            self.start(name)
        try:
            await self.wait_ready()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def address(self) -> str:
        """What a client is given."""
        return f"dir:{self.directory}"

    def config(self, name: str) -> ReplicaConfig:
        """What one replica is started with."""
        return ReplicaConfig(
            service=self._program.service,
            module=self._program.module,
            directory=str(self.directory),
            replica=name,
            limits=self._limits,
            ingress_listen=self._ingress if name == self.names[0] else "",
            log_level=self._log_level,
            shard=self._program.shard,
            shards=self._program.shards,
        )

    def start(self, name: str) -> None:
        """Start one replica's supervisor."""
        config = self.config(name)
        path = self.folder / f"{self.directory.name}-{name}.json"
        path.write_bytes(msgspec.json.encode(config))
        with self.log(name).open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", "deathless.shell.supervisor.supervisor", str(path)],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=self._environment,
                preexec_fn=die_with_parent,  # noqa: PLW1509  it calls the kernel alone
            )

    async def wait_ready(self) -> None:
        """Wait for one primary whom all others follow. Raises: NotReady."""
        deadline = time.monotonic() + self._ready_s
        while time.monotonic() < deadline:
            with contextlib.suppress(DeathlessError, NotReady):
                primary = await self.primary()
                status = await ask(primary.client, "status", self.access)
                counters = status["counters"]
                if isinstance(counters, dict) and len(counters.get("followers", {})) == len(self.names) - 1:
                    return
            ended = [name for name, process in self._processes.items() if process.poll() is not None]
            if ended:
                raise NotReady(f"replica {ended[0]} ended: {self.log_end(ended[0])}")
            await asyncio.sleep(POLL_S)
        raise NotReady(f"no primary with all followers within {self._ready_s:g} s: {self.log_end(self.names[0])}")

    async def reports(self) -> dict[str, Report]:
        """What the replicas' own supervisors say of them; those that give no answer are left out."""
        members = read_members(str(self.directory))
        found: dict[str, Report] = {}
        for name, member in members.items():
            with contextlib.suppress(DeathlessError):
                status = await ask(member.control, "status", self.access, answer_s=1.0)
                for each in msgspec.convert(status["replicas"], list[dict[str, object]]):
                    if each["replica"] == name:
                        said = {field: each[field] for field in Report.__struct_fields__ if field in each}
                        found[name] = Report(**said)  # type: ignore[arg-type]  # a Report's own fields
        return found

    async def primary(self) -> Report:
        """The replica that serves. Raises: NotReady when there is none just now."""
        reports = await self.reports()
        leading = [report for report in reports.values() if report.role == "primary" and report.client]
        if not leading:
            raise NotReady("no primary")
        return max(leading, key=lambda report: report.epoch)

    async def workers(self) -> dict[str, int]:
        """Process ids of the workers by replica."""
        return {name: report.worker_pid for name, report in (await self.reports()).items()}

    def supervisor(self, name: str) -> int:
        """Process id of a replica's supervisor."""
        return self._processes[name].pid

    def log(self, name: str) -> Path:
        """Where a replica writes what it does."""
        return self.folder / f"{self.directory.name}-{name}.log"

    def log_end(self, name: str) -> str:
        """The last lines a replica wrote."""
        path = self.log(name)
        return "\n".join(path.read_text(errors="replace").splitlines()[-5:]) if path.exists() else "(nothing)"

    async def stop(self, name: str) -> None:
        """Stop one replica in order."""
        process = self._processes.pop(name)
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            await asyncio.to_thread(process.wait, STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def kill(self, name: str, worker: int) -> None:
        """Kill one replica's supervisor and worker, whose process id its report says."""
        process = self._processes.pop(name)
        process.kill()
        with contextlib.suppress(ProcessLookupError):  # it ends with its supervisor
            os.kill(worker, signal.SIGKILL)
        process.wait()

    async def close(self) -> None:
        """End all; in order where they are well."""
        for process in self._processes.values():
            process.send_signal(signal.SIGCONT)
        await asyncio.gather(*(self.stop(name) for name in list(self._processes)))

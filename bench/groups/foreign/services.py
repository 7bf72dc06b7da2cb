"""Services whose code is the program of bench/foreign_load, and what they use: worker, process beside it, program.

Guarantees: the program is built in Go where there is one, once, and is Python otherwise; `LANGUAGE` of it is in the
notes. Does not: measure.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from lab.go_programs import GoBuildFailed, built

from bench.cluster import POLL_S, Cluster, NotReady, Program
from bench.setting import Setting
from bench.usage import children, peak_bytes, processor_s
from deathless.base.config import BindingConfig, ReplicaConfig
from deathless.base.foreign.binding import INPUTS, LIMITS, SERVICE_MODULE
from deathless.base.topics.settings import topic_configs
from deathless.shell.client.shard_client import Client
from deathless.shell.link.application_status import ApplicationStatus, read_statuses

ROOT: Final = Path(__file__).resolve().parents[3]
SOURCES: Final = (ROOT / "bench" / "foreign_load" / "main.go", ROOT / "examples" / "foreign" / "go" / "ambrosia.go")
IN_PYTHON: Final = ROOT / "bench" / "services" / "foreign_load.py"
WAIT_S: Final = 300.0  # for anything
START, ADD, READ, ASK, FILL = 1, 2, 3, 4, 5
BEGUN_S: Final = 60.0
MANY: Final = 1 << 40  # no checkpoint by itself


def compiled() -> Path | None:
    """The program in Go; None: there is no Go, or it can't build it."""
    try:
        return built("foreign-load", *SOURCES)
    except GoBuildFailed as error:
        print(error, file=sys.stderr)
        return None


def language() -> str:
    """Which program runs, for the notes."""
    return "programs in Go" if compiled() is not None else "programs in Python, since there is no Go"


def command() -> tuple[str, ...]:
    """How it is started."""
    built = compiled()
    return (str(built),) if built is not None else (sys.executable, str(IN_PYTHON))


class Used(NamedTuple):
    """Seconds of processor time, of all replicas."""

    workers: float
    hosts: float
    programs: float
    topics: float  # who writes what programs get

    def since(self, before: Used) -> Used:
        """What came to it."""
        return Used(*(now - then for now, then in zip(self, before, strict=True)))

    def plus(self, more: Used) -> Used:
        """Both."""
        return Used(*(one + other for one, other in zip(self, more, strict=True)))

    def told(self, messages: int) -> str:
        """Say what each message took of each, microseconds."""
        parts = zip(("worker", "process beside it", "program", "topic"), self, strict=True)
        return ", ".join(f"{name} {seconds / messages * 1e6:.2f}" for name, seconds in parts)


class ForeignCluster(Cluster):
    """Replicas of a service whose code is the program."""

    checkpoint_rows = MANY

    def config(self, name: str) -> ReplicaConfig:
        """See Cluster."""
        config = super().config(name)
        binding = BindingConfig(
            command=command(),
            instance=config.service,
            checkpoint_rows=self.checkpoint_rows,
            checkpoint_bytes=MANY,
            folder=str(self.folder),
        )
        return msgspec.structs.replace(
            config,
            module=SERVICE_MODULE,
            binding=binding,
            drivers=topic_configs([INPUTS], str(self.directory)),
            limits={**LIMITS, **config.limits},
        )

    async def begun(self) -> None:
        """Wait for a program that leads, and for one that follows beside each other replica. Raises: NotReady."""
        deadline = time.monotonic() + BEGUN_S
        while time.monotonic() < deadline:
            states = sorted(each.state for each in self.statuses())
            if states == ["following"] * (len(self.names) - 1) + ["leading"]:
                return
            await asyncio.sleep(POLL_S)
        raise NotReady(f"no program leads: {self.statuses()}; {self.log_end(self.names[0])}")

    def statuses(self) -> list[ApplicationStatus]:
        """What the processes beside the replicas say."""
        return read_statuses(str(self.directory))

    def hosts(self) -> list[int]:
        """Process ids of what is beside the replicas."""
        return [pid for name in self.names for pid in _children(self.supervisor(name), "deathless.foreign.host")]

    def host_peak_bytes(self) -> int:
        """The most memory that one of these has ever had."""
        return max(map(peak_bytes, self.hosts()))

    async def used(self) -> Used:
        """What they have used so far."""
        topics = [pid for name in self.names for pid in _children(self.supervisor(name), "deathless.drivers")]
        return Used(
            sum(map(processor_s, (await self.workers()).values())),
            sum(map(processor_s, self.hosts())),
            sum(processor_s(each.pid) for each in self.statuses() if each.pid),
            sum(map(processor_s, topics)),
        )


def _children(pid: int, module: str) -> list[int]:
    """Children of a process that run a module."""
    return [child for child in children(pid) if module in _command(child)]


def _command(process: int) -> str:
    with contextlib.suppress(OSError):  # it has ended
        return Path(f"/proc/{process}/cmdline").read_text(encoding="utf-8", errors="replace")
    return ""


class Counts(NamedTuple):
    """What a program has counted."""

    messages: int
    bytes: int
    answers: int


class Loaded:
    """One service of the program, and a client of it."""

    def __init__(self, cluster: ForeignCluster, client: Client) -> None:
        self.cluster = cluster
        self.client = client

    async def call(self, method: int, arguments: bytes = b"") -> Counts:
        """Call its program; gives what it has counted then."""
        told = await self.client.call("call", "", method=method, args=arguments, timeout=WAIT_S, result=bytes)
        return Counts(*(int.from_bytes(told[at : at + 8], "little") for at in (0, 8, 16)))

    async def start(self, to: str, messages: int, size: int) -> None:
        """Have it fork so many messages of so many bytes; "" is itself."""
        arguments = messages.to_bytes(4, "little") + size.to_bytes(4, "little") + to.encode()
        await self.client.call("send", "", method=START, args=arguments, timeout=WAIT_S)

    async def ask(self, to: str, calls: int, outstanding: int) -> None:
        """Have it call another one so often, so many at a time."""
        arguments = calls.to_bytes(4, "little") + outstanding.to_bytes(4, "little") + to.encode()
        await self.client.call("send", "", method=ASK, args=arguments, timeout=WAIT_S)

    async def wait(self, *, messages: int = 0, answers: int = 0) -> float:
        """Wait until it has counted so many; gives when. Raises: TimeoutError, ValueError: there are more."""
        async with asyncio.timeout(WAIT_S):
            while True:
                counts = await self.call(READ)
                if counts.messages >= messages and counts.answers >= answers:
                    break
                await asyncio.sleep(POLL_S)
        if (messages and counts.messages != messages) or (answers and counts.answers != answers):
            raise ValueError(f"more messages came than were sent: {counts}")
        return time.perf_counter()


@contextlib.asynccontextmanager
async def loaded(
    setting: Setting, service: str, *, folder: Path | None = None, replicas: int = 1, checkpoint_rows: int = MANY
) -> AsyncIterator[Loaded]:
    """A service of the program that serves; those of one folder find each other."""
    folder = folder or setting.new_folder()
    cluster = setting.made(ForeignCluster, folder, replicas=replicas, program=Program(service, "", service))
    cluster.checkpoint_rows = checkpoint_rows
    async with cluster, Client(service, [cluster.address]) as client:
        await client.ready()
        await cluster.begun()
        yield Loaded(cluster, client)

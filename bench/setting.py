"""What every group of figures is given: a folder on the storage to be measured, sizes, and the peers.

Guarantees: a peer is started once, when it is first asked for, and ends with the run; one that is missing is said
in one line, once, and its column stays empty. Does not: measure.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from bench.build_log import Built
from bench.cluster import COUNTER, READY_S, Cluster, Program
from bench.peers import etcd as etcd_peer
from bench.peers import postgres as postgres_peer
from bench.peers.etcd import Etcd
from bench.peers.postgres import Postgres
from deathless.shell.process.forked import die_with_parent

PROFILING: Final = Path(__file__).resolve().parent / "profiling"
ROOT: Final = Path(__file__).resolve().parents[1]
C = TypeVar("C", bound=Cluster)


class Setting:
    """One run.

    Args:
        folder: empty, on the storage to be measured.
        quick: tiny sizes, for a look whether everything works; the numbers mean little.
        profile: where profiles of the workers go; None: none are made.
        peers: start the peers.
        divide: full sizes are divided by so much, for a small machine, or one that others use.
    """

    def __init__(
        self, folder: Path, *, quick: bool, profile: Path | None = None, peers: bool = True, divide: int = 1
    ) -> None:
        self.folder = folder
        self.quick = quick
        self._divide = divide
        self._profile = profile
        self.peers = peers
        self._stack = contextlib.ExitStack()
        self._postgres: Postgres | None = None
        self._etcd: Etcd | None = None
        self._missing: dict[str, str] = {}
        self._clusters = 0

    def close(self) -> None:
        """End the peers."""
        self._stack.close()

    def say(self, text: str) -> None:
        """Tell whoever watches."""
        print(text, file=sys.stderr, flush=True)

    def size(self, full: int, quick: int) -> int:
        """One of two sizes; a full one as it was divided, and no less than the other."""
        return quick if self.quick else max(full // self._divide, min(quick, full))

    def postgres(self) -> Postgres | None:
        """The peer; None: missing."""
        if self._postgres is None and self._wanted("postgres"):
            try:
                self._postgres = self._stack.enter_context(Postgres(self.folder))
            except postgres_peer.Missing as missing:
                self._left_out("postgres", str(missing))
        return self._postgres

    def etcd(self) -> Etcd | None:
        """The peer; None: missing."""
        if self._etcd is None and self._wanted("etcd"):
            try:
                self._etcd = self._stack.enter_context(Etcd(self.folder))
            except etcd_peer.Missing as missing:
                self._left_out("etcd", str(missing))
        return self._etcd

    def _wanted(self, peer: str) -> bool:
        if not self.peers:
            self._missing.setdefault(peer, f"{peer} not asked for")
        return self.peers and peer not in self._missing

    def _left_out(self, peer: str, line: str) -> None:
        self._missing[peer] = line
        self.say(line)

    def missing(self, *peers: str) -> str:
        """Lines on those of these peers that are missing."""
        return "; ".join(self._missing[peer] for peer in peers if peer in self._missing)

    def new_folder(self) -> Path:
        """A folder for one set of replicas; their shard is in `shard` below it."""
        self._clusters += 1
        folder = self.folder / f"cluster{self._clusters}"
        folder.mkdir()
        return folder

    def cluster(
        self,
        folder: Path | None = None,
        *,
        replicas: int = 3,
        limits: dict[str, float] | None = None,
        ingress: str = "",
        log_level: str = "warning",
        ready_s: float = READY_S,
        program: Program = COUNTER,
    ) -> Cluster:
        """A set of replicas in `folder`, or in a new one."""
        return self.made(
            Cluster,
            folder or self.new_folder(),
            replicas=replicas,
            limits=limits,
            ingress=ingress,
            log_level=log_level,
            ready_s=ready_s,
            program=program,
        )

    def made(
        self,
        kind: type[C],
        folder: Path,
        *,
        replicas: int,
        program: Program,
        limits: dict[str, float] | None = None,
        ingress: str = "",
        log_level: str = "warning",
        ready_s: float = READY_S,
        modules: Path | None = None,
    ) -> C:
        """A set of replicas of a kind of its own; `modules`: a folder more that its processes import from."""
        environment = {"PYTHONPATH": module_path(modules)}
        if self._profile is not None:
            self._profile.mkdir(parents=True, exist_ok=True)
            environment["PYTHONPATH"] = f"{PROFILING}{os.pathsep}{environment['PYTHONPATH']}"
            environment["DEATHLESS_PROFILE"] = str(self._profile)
        return kind(
            folder,
            replicas=replicas,
            limits=limits,
            ingress=ingress,
            environment=environment,
            log_level=log_level,
            ready_s=ready_s,
            program=program,
        )

    @contextlib.asynccontextmanager
    async def profiled(self, cluster: Cluster, name: str) -> AsyncIterator[None]:
        """Sample the workers meanwhile, if profiles are wanted; one file for each."""
        if self._profile is None:
            yield
            return
        workers = await cluster.workers()
        primary = (await cluster.primary()).replica
        for pid in workers.values():
            os.kill(pid, signal.SIGUSR1)
        yield
        for replica, pid in workers.items():
            os.kill(pid, signal.SIGUSR2)
            path = self._profile / f"{pid}.txt"
            for _ in range(100):
                if path.exists():
                    break
                await asyncio.sleep(0.02)
            if path.exists():
                await asyncio.sleep(0.1)
                role = "primary" if replica == primary else replica
                path.replace(self._profile / f"{name}-{role}.txt")


def module_path(modules: Path | None = None) -> str:
    """Where processes import from: this tree, what this process was told, and a folder more if there is one."""
    told = os.environ.get("PYTHONPATH", "")
    return os.pathsep.join(filter(None, (str(ROOT), "" if modules is None else str(modules), told)))


async def build_log(folder: Path, handler: str, *, message_bytes: int, log_bytes: int, keys: int) -> Built:
    """Have a process of its own write a long log into `folder`/shard. Raises: RuntimeError with what it wrote."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.build_log",
        str(folder / "shard"), handler, str(message_bytes), str(log_bytes), str(keys),
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=die_with_parent,
    )  # fmt: skip
    output, errors = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"writing a log: {errors.decode(errors='replace')[-500:]}")
    return msgspec.json.decode(output, type=Built)

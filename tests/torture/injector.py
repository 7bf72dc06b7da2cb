"""The faults of a torture run: drawn from a seed, several at once, each undone after a while.

Guarantees: the same seed draws the same faults at the same distances; what they meet differs from run to run, since the
processes are real. After `heal` nothing is broken any more. Does not: judge.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import random
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from etcd_server import EtcdCluster
from relay import Relay
from replica_set import ReplicaSet, send_signal

SHIM = Path(__file__).with_name("faults.c")
AT_ONCE_MAX = 3


def build_shim(folder: Path) -> Path:
    """Compile what is preloaded into the replicas. Raises: FileNotFoundError where there is no C compiler."""
    library = folder / "faults.so"
    words = ["cc", "-shared", "-fPIC", "-O2", "-o", str(library), str(SHIM), "-ldl"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"cc: {done.stderr}")
    return library


class Machine:
    """What the processes of one replica believe of their clock and their disk."""

    CLOCK, SYNC, ERRNO = range(3)

    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / f"{name}.faults"
        self.path.write_bytes(bytes(24))
        with self.path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 24)

    def set(self, cell: int, value: int) -> None:
        """Change one of the cells of faults.c."""
        struct.pack_into("<q", self._map, 8 * cell, value)


class Fault(NamedTuple):
    """One fault under way."""

    what: str
    until: float  # monotonic seconds
    undo: Callable[[], object]


class Injector:
    """Breaks one set of replicas, and what it stands on.

    Args:
        replicas: running.
        machines: by name of the replica.
        chance: draws everything.
        etcd: the lock store's members, and each replica's way to each of them; None: the directory is the lock.
        wire: cuts one replica off from everybody, or lets it in again; None: there is no such wire.
    """

    def __init__(
        self,
        replicas: ReplicaSet,
        machines: dict[str, Machine],
        chance: random.Random,
        *,
        etcd: EtcdCluster | None = None,
        relays: dict[str, list[Relay]] | None = None,
        wire: Callable[[bool], None] | None = None,
    ) -> None:
        self.told: list[str] = []
        self.counts: dict[str, int] = {}
        self._replicas = replicas
        self._machines = machines
        self._chance = chance
        self._etcd = etcd
        self._relays = relays or {}
        self._wire = wire
        self._faults: list[Fault] = []
        self._member_is_frozen = False  # one at a time: whoever is stopped can't be stopped again
        self._began = time.monotonic()
        kinds: list[Callable[[float], Fault | None]] = [
            self._kill_worker, self._kill_worker, self._kill_replica, self._freeze, self._freeze, self._step_clock,
            self._slow_syncs, self._full_disk,
        ]  # fmt: skip
        if etcd is not None:
            kinds += [self._kill_member, self._freeze_member, self._cut_from_etcd]
        if wire is not None:
            kinds += [self._cut_wire, self._cut_wire]
        self._kinds = kinds

    def run(self, seconds: float, look: Callable[[], None]) -> None:
        """Break for so long; `look` is called about once a second."""
        pause = threading.Event()
        end = time.monotonic() + seconds
        looked = 0.0
        while (now := time.monotonic()) < end:
            self._undo_due(now)
            self._restart_dead()
            if len(self._faults) < AT_ONCE_MAX:
                self._begin(now)
            if now - looked > 1.0:
                looked = now
                look()
            pause.wait(self._chance.uniform(0.1, 1.5))

    def heal(self) -> None:
        """Undo everything."""
        self._undo_due(float("inf"))
        self._restart_dead()

    def _begin(self, now: float) -> None:
        kind = self._chance.choice(self._kinds)
        fault = kind(self._chance.uniform(0.3, 4.0))
        if fault is not None:
            self.told.append(f"{now - self._began:8.2f} s  {fault.what}")
            name = kind.__name__.strip("_").replace("_", " ")
            self.counts[name] = self.counts.get(name, 0) + 1
            self._faults.append(fault._replace(until=now + fault.until))

    def _undo_due(self, now: float) -> None:
        due = [fault for fault in self._faults if fault.until <= now]
        self._faults = [fault for fault in self._faults if fault.until > now]
        for fault in due:
            fault.undo()

    def _restart_dead(self) -> None:
        for name, process in self._replicas.processes.items():
            if process.poll() is not None:
                self._replicas.start(name)

    # ---- processes -------------------------------------------------------------------------------------------

    def _name(self) -> str:
        return self._chance.choice(self._replicas.names)

    def _worker(self, name: str) -> int:
        """A worker by its parent, since a supervisor that is frozen would not tell of it."""
        supervisor = self._replicas.processes[name].pid
        for each in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError, IndexError):
                fields = (each / "stat").read_text().rpartition(")")[2].split()
                if int(fields[1]) == supervisor and b"deathless.shell.worker.worker" in (each / "cmdline").read_bytes():
                    return int(each.name)
        return 0

    def _kill_worker(self, seconds: float) -> Fault | None:
        name = self._name()
        if not send_signal(self._worker(name), signal.SIGKILL):
            return None
        return Fault(f"kill -9 of {name}'s worker", 0.0, lambda: None)

    def _kill_replica(self, seconds: float) -> Fault:
        name = self._name()
        self._replicas.kill_replica(name)
        return Fault(f"kill -9 of {name}'s supervisor", seconds / 4, lambda: None)

    def _freeze(self, seconds: float) -> Fault | None:
        name = self._name()
        supervisor, worker = self._replicas.processes[name].pid, self._worker(name)
        which = self._chance.choice(("worker", "supervisor", "replica"))
        pids = [pid for pid, part in ((worker, "worker"), (supervisor, "supervisor")) if which in (part, "replica")]
        if not all(send_signal(pid, signal.SIGSTOP) for pid in pids):
            for pid in pids:
                send_signal(pid, signal.SIGCONT)
            return None
        what = f"SIGSTOP of {name}'s {which} for {seconds:.1f} s"
        return Fault(what, seconds, lambda: [send_signal(pid, signal.SIGCONT) for pid in pids])

    # ---- clocks and disks ------------------------------------------------------------------------------------

    def _step_clock(self, seconds: float) -> Fault:
        name = self._name()
        step_s = self._chance.choice((-300_000, -3600, -2, 2, 3600, 300_000))
        self._set([name], Machine.CLOCK, step_s * 1_000_000)
        return Fault(f"clock of {name} steps by {step_s} s", seconds, lambda: self._set([name], Machine.CLOCK, 0))

    def _set(self, names: list[str], cell: int, value: int) -> None:
        for name in names:
            self._machines[name].set(cell, value)

    def _slow_syncs(self, seconds: float) -> Fault:
        names = self._chance.choice((self._replicas.names, [self._name()]))
        delay_ms = self._chance.choice((20, 100, 500))
        self._set(names, Machine.SYNC, delay_ms * 1000)
        what = f"syncs of {', '.join(names)} take {delay_ms} ms more for {seconds:.1f} s"
        return Fault(what, seconds, lambda: self._set(names, Machine.SYNC, 0))

    def _full_disk(self, seconds: float) -> Fault:
        names = self._chance.choice((self._replicas.names, [self._name()]))
        self._set(names, Machine.ERRNO, errno.ENOSPC)
        what = f"the disk of {', '.join(names)} is full for {seconds:.1f} s"
        return Fault(what, seconds, lambda: self._set(names, Machine.ERRNO, 0))

    # ---- the lock store and the network ----------------------------------------------------------------------

    def _kill_member(self, seconds: float) -> Fault | None:
        assert self._etcd is not None
        if not all(member.running for member in self._etcd.members):
            return None
        member = self._chance.choice(self._etcd.members)
        member.kill()
        return Fault(f"kill -9 of a member of etcd for {seconds:.1f} s", seconds, member.start)

    def _freeze_member(self, seconds: float) -> Fault | None:
        assert self._etcd is not None
        if self._member_is_frozen or not all(member.running for member in self._etcd.members):
            return None
        member = self._chance.choice(self._etcd.members)
        member.freeze()
        self._member_is_frozen = True

        def thaw() -> None:
            self._member_is_frozen = False
            if member.running:  # else it was killed meanwhile
                member.thaw()

        return Fault(f"SIGSTOP of a member of etcd for {seconds:.1f} s", seconds, thaw)

    def _cut_from_etcd(self, seconds: float) -> Fault:
        name = self._name()
        for relay in self._relays[name]:
            relay.cut()

        def join() -> None:
            for relay in self._relays[name]:
                relay.join()

        return Fault(f"{name} is cut from etcd for {seconds:.1f} s", seconds, join)

    def _cut_wire(self, seconds: float) -> Fault:
        assert self._wire is not None
        wire = self._wire
        wire(False)
        return Fault(f"r0 is cut from everybody for {seconds:.1f} s", seconds, lambda: wire(True))


def environment(library: Path, machine: Machine, directory: Path) -> dict[str, str]:
    """What a replica's processes are started with."""
    preload = " ".join(filter(None, (str(library), os.environ.get("LD_PRELOAD", ""))))
    return {"LD_PRELOAD": preload, "TORTURE_FAULTS": str(machine.path), "TORTURE_FOLDER": str(directory)}

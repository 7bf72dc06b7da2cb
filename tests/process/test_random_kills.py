"""Random faults on random processes of a set under load; what callers saw is judged by the simulation's checkers.

The seed is in the failing test's text; `DEATHLESS_KILLS_SEED=n` chooses the same faults again. Faults follow each other
by calls answered, not by time, so each fault also shows that the service goes on after the one before.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from fault_seed import seed_of
from http_load import HttpLoad
from replica_set import Load, ReplicaSet, children_of, judge, send_signal, wait_for

SECONDS = 12.0
SEED_VARIABLE = "DEATHLESS_KILLS_SEED"


class Faults:
    """Breaks a set; at least one replica is left alone at any time.

    Args:
        seed: of the choices.
    """

    def __init__(self, replicas: ReplicaSet, seed: int) -> None:
        self._replicas = replicas
        self._chance = random.Random(seed)
        self._mends: list[tuple[int, str, Callable[[], None]]] = []  # (at which step, replica, how)
        self._step = 0

    def step(self) -> str:
        """Mend what is due, break something; gives what."""
        self._step += 1
        for mend in [each for each in self._mends if each[0] <= self._step]:
            self._mends.remove(mend)
            mend[2]()
        broken = {name for _, name, _ in self._mends}
        whole = [name for name in self._replicas.names if name not in broken]
        if len(whole) < 2:
            return "nothing"
        name = self._chance.choice(whole)
        fault = self._chance.choice([self.kill_worker, self.kill_ingress, self.kill_replica, self.stop, self.freeze])
        fault(name)
        return f"{fault.__name__} {name}"

    def mend_all(self) -> None:
        """Let everything run again."""
        for _, _, mend in self._mends:
            mend()
        self._mends.clear()

    def kill_worker(self, name: str) -> None:
        """kill -9 of a worker, if there is one just now."""
        send_signal(self.pid_of(name, "worker_pid"), signal.SIGKILL)

    def kill_ingress(self, name: str) -> None:
        """kill -9 of an ingress."""
        for pid in children_of(self._replicas.processes[name].pid, "deathless.shell.ingress.ingress"):
            send_signal(pid, signal.SIGKILL)

    def kill_replica(self, name: str) -> None:
        """kill -9 of a supervisor, and so of all its processes."""
        self._replicas.kill_replica(name)
        self._later(name, lambda: self._replicas.start(name))

    def stop(self, name: str) -> None:
        """SIGTERM of a supervisor: an orderly stop."""
        process = self._replicas.processes[name]
        process.terminate()

        def start_again() -> None:
            process.wait()
            self._replicas.start(name)

        self._later(name, start_again)

    def freeze(self, name: str) -> None:
        """SIGSTOP of a worker, with or without its supervisor."""
        supervisor = self._replicas.processes[name].pid
        pids = [pid for pid in (self.pid_of(name, "worker_pid"),) if pid]
        if self._chance.random() < 0.5:
            pids.append(supervisor)
        for pid in pids:
            send_signal(pid, signal.SIGSTOP)

        def thaw() -> None:
            for pid in reversed(pids):
                send_signal(pid, signal.SIGCONT)

        self._later(name, thaw)

    def pid_of(self, name: str, what: str) -> int:
        """A process id from the replica's status; 0: none."""
        found = self._replicas.status().get(name, {}).get(what, 0)
        assert isinstance(found, int)
        return found

    def _later(self, name: str, mend: Callable[[], object]) -> None:
        self._mends.append((self._step + self._chance.randint(1, 3), name, lambda: (mend(), None)[1]))


def test_random_kills_and_freezes_lose_double_and_reorder_nothing(tmp_path: Path) -> None:
    seed = seed_of(SEED_VARIABLE)
    threads = threading.active_count()  # of tests before
    with ReplicaSet(tmp_path, ingress_listen="127.0.0.1:0") as replicas:
        replicas.wait_roles(primary=1, checkpointer=1, standby=1)
        faults = Faults(replicas, seed)
        chance = random.Random(seed)
        done: list[str] = []
        with Load(replicas, pace_s=0.0) as load, HttpLoad(replicas) as http:
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                load.wait_more(chance.randrange(1, 300))
                done.append(faults.step())
            faults.mend_all()
            load.wait_more()
            replicas.wait_roles(primary=1, checkpointer=1, standby=1)
        print(", ".join(done), f"; {len(load.acknowledged)} calls, {len(http.history)} over HTTP")
        judge(replicas, load.history, http.history)
        replicas.wait_same_lsn()
        # One that looks for a proof of the directory ends behind the answer that it was needed for.
        wait_for(lambda: threading.active_count() <= threads, "threads to end", lambda: str(threading.enumerate()))

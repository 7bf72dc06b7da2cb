"""Messages of a client reach a service, while gate, primaries and the client itself are killed and frozen.

`DEATHLESS_KILLS_SEED=n` chooses the same order of faults again.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from replica_set import DEADLINE_S, send_signal, wait_for
from test_sources import KEYS, Frozen, Taker, break_something, running

from deathless.base.config import SourceConfig

CLIENT = Path(__file__).with_name("gate_client.py")
ROOT = CLIENT.parent.parent.parent
SEED_VARIABLE = "DEATHLESS_KILLS_SEED"
FAULTS = {  # by the count of shards
    1: ("source", "worker", "replica", "frozen source", "client", "frozen client"),
    2: ("worker", "frozen source", "client"),
}
ROWS = 300  # that follow each other's fault; with few credits they take most of a second
GATE = SourceConfig(
    name="lines", kind="connector", input="numbers", key="value.key", options={"listen": "127.0.0.1:0", "credits": 8}
)


class Client:
    """A program that sends a file, which grows, from where the service says on."""

    def __init__(self, folder: Path, directory: Path) -> None:
        self.rows: list[tuple[str, int]] = []
        self.processes: list[subprocess.Popen[bytes]] = []
        self._file = folder / "rows.jsonl"
        self._directory = directory
        self._log = folder / "client.log"

    def start(self, more: int = 0) -> None:
        """Start another process, after so many rows were added."""
        begin = len(self.rows)
        self.rows += [(KEYS[at % 5], at) for at in range(begin, begin + more)]
        self._file.write_text("".join(f"{json.dumps({'key': key, 'number': at})}\n" for key, at in self.rows))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
        command = [sys.executable, str(CLIENT), str(self._directory), str(self._file), "one"]
        with self._log.open("ab") as log:
            self.processes.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment))

    def break_it(self, *, frozen: bool) -> None:
        """Kill or freeze the process at work, and start another one in its place."""
        send_signal(self.processes[-1].pid, signal.SIGSTOP if frozen else signal.SIGKILL)
        self.start()

    def wait(self) -> None:
        """Wait until the one started last has heard that everything was taken in."""
        assert self.processes[-1].wait(DEADLINE_S) == 0

    def close(self) -> None:
        """End all."""
        for each in self.processes:
            each.kill()
            each.wait()

    def describe(self) -> str:
        """For a failing test."""
        return "\n".join(self._log.read_text().splitlines()[-20:])


class Run:
    """One run of clients and faults."""

    def __init__(self, folder: Path, taker: Taker, chance: random.Random) -> None:
        self.client = Client(folder, taker.shards[0].directory)
        self._taker = taker
        self._chance = chance
        self._frozen: list[Frozen] = []

    def came(self, goal: int) -> bool:
        """Are so many rows there? What is frozen beside a replica that leads goes on."""
        for each in self._frozen:
            each.thaw(beside_primary=True)
        return self._taker.count() >= goal

    def break_at(self, what: str) -> None:
        """Have a client send more rows, and break something in the middle of them."""
        taker, client = self._taker, self.client
        goal = len(client.rows) + self._chance.randrange(20, 100)
        client.start(ROWS)
        wait_for(partial(self.came, goal), f"{goal} rows", taker.describe)
        print(what, taker.counted)
        if "client" in what:
            client.break_it(frozen="frozen" in what)
        else:  # the gate is beside the primary of shard 0
            shards = taker.shards[:1] if "source" in what else taker.shards
            self._frozen += break_something(self._chance.choice(shards), what)
        wait_for(partial(self.came, len(client.rows)), f"all rows after {what}", taker.describe)
        client.wait()

    def thaw(self) -> None:
        """Let everything go on: it finds that it is fenced, or that all is done."""
        for each in self._frozen:
            each.thaw()
        for process in self.client.processes:
            send_signal(process.pid, signal.SIGCONT)
        for process in self.client.processes:
            process.wait(DEADLINE_S)


@pytest.mark.parametrize("shards", [1, 2])
def test_each_message_is_taken_in_once_whatever_is_killed_or_frozen(tmp_path: Path, shards: int) -> None:
    seed = int(os.environ.get(SEED_VARIABLE) or random.SystemRandom().randrange(1 << 32))
    print(f"{SEED_VARIABLE}={seed}")
    chance = random.Random(seed)
    with running(tmp_path, shards, GATE) as taker:
        run = Run(tmp_path, taker, chance)
        client = run.client
        try:
            for what in chance.sample(FAULTS[shards], len(FAULTS[shards])):
                run.break_at(what)
            run.thaw()
            client.start(ROWS)
            client.wait()
        finally:
            print(client.describe())
            client.close()
        wanted = {key: [number for of, number in client.rows if of == key] for key in KEYS}
        assert taker.taken() == wanted, "each once, and in order"

        def far() -> bool:
            status = taker.status()
            return status is not None and status.streams[0].taken_in == len(client.rows) - 1

        wait_for(far, "the status to say so", taker.describe)

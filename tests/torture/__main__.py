"""`python -m tests.torture --seconds N --seed S`: real replicas under everything at once, judged by others' programs.

Two sets, half of the time each: one whose lock is an etcd of three members, one whose lock is the directory itself and
one of whose replicas has a network of its own (root; without it that replica is in the same network, which is said).
Callers read, write, swap and transfer, while processes are killed and frozen, clocks step, syncs are slow, the disk is
full, etcd's members die and freeze, and networks are cut, up to three of these at a time.

Judged: every call is answered once the faults have ended; all replicas serve again, none stays stopped; the history is
linearizable (porcupine, a Go module); the log, read by a reader that shares no code with ours, holds each call that was
answered exactly once, in the order in which its caller made them.

Exit code 0 = all held, 1 = something did not, 3 = left out because a tool is missing (one line says which).
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
from etcd_server import EtcdCluster
from relay import Relay
from replica_set import ReplicaSet, wait_for
from test_partitions import APART, Network
from tests.torture.injector import Injector, Machine, build_shim, environment
from tests.torture.load import Load, Operation
from tests.torture.log_reader import LogFiles

from deathless.base.config import EtcdConfig, ReplicaConfig

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 120.0  # for what is owed once all faults have ended
SERVICE = Path(__file__).with_name("service.py")


class TorturedSet(ReplicaSet):
    """Three replicas, each on a machine that can be made to lie to it.

    Args:
        relays: by replica, its ways to the members of an etcd; empty: the directory is the lock.
        network: of the replica apart; None: there is none.
    """

    def __init__(self, folder: Path, library: Path, relays: dict[str, list[Relay]], network: Network | None) -> None:
        settings: dict[str, object] = {"module": f"{SERVICE}:torture", "limits": {"checkpoint_every_messages": 500}}
        settings |= {"lock": "etcd", "fence": "etcd"} if relays else {}
        super().__init__(folder, service="torture", **settings)  # type: ignore[arg-type]  # fields of its config
        self.machines = {name: Machine(folder, name) for name in self.names}
        self._library = library
        self._relays = relays
        self._network = network

    def config(self, name: str) -> ReplicaConfig:
        """See the base class."""
        config = super().config(name)
        if self._relays:
            urls = tuple(f"http://{host}:{port}" for host, port in (relay.address for relay in self._relays[name]))
            config = msgspec.structs.replace(config, etcd=EtcdConfig(endpoints=urls))
        if self._network is not None:
            address = f"{self._network.there if name == APART else self._network.here}:0"
            config = msgspec.structs.replace(
                config, control_listen=address, client_listen=address, replication_listen=address
            )
        return config

    def command(self, name: str, config: Path) -> list[str]:
        """See the base class."""
        apart = self._network is not None and name == APART
        inside = ["ip", "netns", "exec", self._network.namespace] if apart and self._network else []
        return [*inside, *super().command(name, config)]

    def start(self, name: str) -> None:
        """See the base class."""
        self.environment = environment(self._library, self.machines[name], self.directory)
        super().start(name)


class Keeper:
    """Keeps every file of the log by a link of its own, so that what is collected can still be read."""

    def __init__(self, log: Path, kept: Path) -> None:
        self.kept = kept
        self._log = log
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        kept.mkdir()
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(0.1):
            self._link()

    def _link(self) -> None:
        for path in self._log.glob("*.seg"):
            target = self.kept / path.name
            if not target.exists():
                try:
                    os.link(path, target)
                except FileNotFoundError:
                    continue  # collected meanwhile: the reader will miss it, and say so

    def close(self) -> None:
        """Link what there is, and end."""
        self._ended.set()
        self._thread.join()
        self._link()


def say(text: str) -> None:
    """Tell how it goes."""
    print(text, flush=True)


@contextmanager
def tortured(folder: Path, library: Path, *, etcd: bool) -> Iterator[tuple[TorturedSet, EtcdCluster | None, object]]:
    """A running set, its etcd, and what an injector is given of its networks."""
    with ExitStack() as stack:
        cluster: EtcdCluster | None = None
        relays: dict[str, list[Relay]] = {}
        network: Network | None = None
        if etcd:
            cluster = stack.enter_context(EtcdCluster(folder / "etcd", members=3))
            for name in ("r0", "r1", "r2"):
                ways = [Relay(("127.0.0.1", member.port)) for member in cluster.members]
                relays[name] = [stack.enter_context(way) for way in ways]
        elif os.geteuid() == 0 and shutil.which("ip"):
            network = Network()
            stack.callback(network.remove)
            network.make()
        replicas = stack.enter_context(TorturedSet(folder, library, relays, network))
        replicas.wait_roles(primary=1, checkpointer=1, standby=1)
        yield replicas, cluster, relays if etcd else network


def torture(folder: Path, library: Path, judge: Path, *, seconds: float, seed: int, etcd: bool) -> list[str]:
    """Run one half; gives what did not hold."""
    folder.mkdir()
    which = "etcd" if etcd else "directory"
    with tortured(folder, library, etcd=etcd) as (replicas, cluster, networks):
        keeper = Keeper(replicas.directory / "log", folder / "kept")
        injector = Injector(
            replicas,
            replicas.machines,
            random.Random(seed),
            etcd=cluster,
            relays=networks if isinstance(networks, dict) else None,
            wire=(lambda joined: networks.join() if joined else networks.cut())
            if isinstance(networks, Network)
            else None,
        )
        load = Load(replicas.directory, seed)
        load.start()
        began = time.monotonic()
        told = [0.0]

        def look() -> None:
            now = time.monotonic() - began
            if now - told[0] >= 10.0:
                told[0] = now
                say(f"  {now:6.0f} s  {load.answered:,} calls answered, {sum(injector.counts.values())} faults")

        injector.run(seconds, look)
        injector.heal()
        counts = ", ".join(f"{name} {count}" for name, count in sorted(injector.counts.items()))
        say(f"  {which}: {sum(injector.counts.values())} faults ({counts}); waiting for the answers that are owed")
        problems: list[str] = []
        try:
            load.stop(PATIENCE_S)
            wait_for(lambda: is_whole(replicas), "all replicas to serve", replicas.describe)
        except AssertionError as error:
            problems.append(str(error))
        codes = replicas.stop()
        problems += [f"{name} ended with exit code {code}" for name, code in codes.items() if code]
        keeper.close()
        problems += judge_history(folder / "history.jsonl", load.operations, judge)
        problems += judge_log(keeper.kept, load.operations)
        if problems:
            (folder / "faults.txt").write_text("\n".join(injector.told) + "\n")
        return [f"{which}: {problem}" for problem in problems]


def is_whole(replicas: ReplicaSet) -> bool:
    """Does every replica serve, and none say that somebody must see to it?"""
    status = replicas.status()
    roles = Counter(str(each["role"]) for each in status.values())
    followers = roles["checkpointer"] + roles["standby"]
    return (roles["primary"], followers) == (1, 2) and not any(each["condition"] for each in status.values())


def judge_history(path: Path, operations: list[Operation], judge: Path) -> list[str]:
    """Have the history judged by porcupine; gives what it finds."""
    encoder = msgspec.json.Encoder()
    path.write_bytes(b"".join(encoder.encode(each) + b"\n" for each in operations))
    done = subprocess.run([str(judge), str(path)], capture_output=True, text=True, check=False)
    say(f"  {done.stdout.strip() or done.stderr.strip()}")
    return [] if done.returncode == 0 else [done.stdout.strip() or done.stderr.strip()]


def judge_log(kept: Path, operations: list[Operation]) -> list[str]:
    """Compare the log with what callers were told; gives the differences."""
    messages = LogFiles(kept).messages()
    found = Counter(str(message.arguments["tag"]) for message in messages)
    problems = [f"call {tag} stands {count} times in the log" for tag, count in found.items() if count > 1]
    asked = [each for each in operations if each.tag]
    problems += [f"call {each.tag} was answered, and is not in the log" for each in asked if each.tag not in found]
    made = {each.tag for each in asked}
    problems += [f"call {tag} is in the log, and nobody made it" for tag in found if tag not in made]
    last: dict[str, int] = {}
    for message in messages:
        caller, _, number = str(message.arguments["tag"]).partition(".")
        if int(number) <= last.get(caller, -1):
            problems.append(f"call {caller}.{number} stands behind a later one of its caller")
        last[caller] = int(number)
    if messages:
        say(
            f"  {len(messages):,} calls in the log, lsn {messages[0].lsn} to {messages[-1].lsn}, each once and in order"
        )
    return problems[:20]


def tools() -> Path | None:
    """Find what judges; None: one line has said what is missing."""
    if not shutil.which("cc"):
        print("torture left out: no C compiler (`cc`) on the search path to build the faults with")
        return None
    path = ""
    for words in (("etcd.py",), ("kubernetes.py", "linearizability")):
        done = subprocess.run(
            [sys.executable, str(ROOT / "lab" / words[0]), *words[1:]], capture_output=True, text=True, check=False
        )
        path = done.stdout.split()[-1]
        if done.returncode == 3:
            print("torture left out: no Go compiler (`go`) on the search path to build etcd and porcupine with")
            return None
        if done.returncode:
            raise SystemExit(done.stderr)
    return Path(path)


def main() -> int:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(prog="make torture", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="How long faults go on, in all.")
    parser.add_argument("--seed", type=int, default=0, help="Draws the same faults again; 0: one is drawn and told.")
    parser.add_argument("--keep", metavar="FOLDER", help="Where logs and histories stay; else they stay when it fails.")
    options = parser.parse_args()
    judge = tools()
    if judge is None:
        return 3
    seed = options.seed or random.SystemRandom().randrange(1, 1 << 31)
    folder = Path(options.keep or tempfile.mkdtemp(prefix="deathless-torture-"))
    folder.mkdir(exist_ok=True)
    say(f"torture with seed {seed}, {options.seconds:g} s, in {folder}")
    library = build_shim(folder)
    problems: list[str] = []
    for etcd in (True, False):
        problems += torture(
            folder / ("etcd" if etcd else "directory"),
            library,
            judge,
            seconds=options.seconds / 2,
            seed=seed,
            etcd=etcd,
        )
    for problem in problems:
        say(f"  {problem}")
    if problems:
        say(f"torture: {len(problems)} problems with seed {seed}; everything is in {folder}")
        return 1
    if not options.keep:
        shutil.rmtree(folder)
    say("torture: every call answered once, linearizable, and in the log once")
    return 0


if __name__ == "__main__":
    sys.exit(main())

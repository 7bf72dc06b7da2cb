"""How long a primary's and a follower's engine take per call alone: no sockets, and a log that is never synced.

Real core, shard, executor, codec and segment writer; the file system's sync does nothing. Prints microseconds of
processor time per call for several shapes of load: sessions x calls of each that arrive together. Run it as
`python -m bench.micro.primary [--profile SHAPE]`.
"""

from __future__ import annotations

import asyncio
import cProfile
import gc
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from bench.build_log import LazyFileSystem
from bench.cluster import MODULE, SERVICE
from bench.load import Messages
from deathless.base.config import ReplicaConfig
from deathless.base.errors import DeathlessError
from deathless.codec.snapshot import Snapshot
from deathless.codec.wire import Follow, Hello, PacketReader, Registered, Type, decode_struct, packet, struct_packet
from deathless.core import events as ev
from deathless.core.replica.replica import Replica
from deathless.core.replica.witness import Sighting
from deathless.engine.lock.directory_lock import DirectoryLock
from deathless.engine.ports import AsyncLock, Holder, Lock, LockView
from deathless.engine.replica.applying import Code
from deathless.engine.replica.intake import Intake
from deathless.engine.replica.outside import Outside
from deathless.engine.replica.replica_engine import ReplicaEngine
from deathless.engine.shard.assembly import open_shard
from deathless.shell.directory.identity import prepare
from deathless.shell.disk.open_log import open_log
from deathless.shell.link.machine_clock import boot_us
from deathless.shell.service_code.fingerprint import fingerprint
from deathless.shell.service_code.loading import load_service

T = TypeVar("T")
SHAPES: Final = {"1x1": (1, 1), "64x1": (64, 1), "1x500": (1, 500), "1x1000": (1, 1000)}
ROUNDS: Final = 15
CALLS: Final = 20_000  # of a shape, in all rounds
FOLLOWERS: Final = 2


class Node:
    """An engine whose outside is this object: what it sends is kept by connection."""

    def __init__(self, config: ReplicaConfig) -> None:
        limits = config.make_limits()
        fs = LazyFileSystem(config.directory)
        self._lock = DirectoryLock(fs, process=f"{config.replica}.worker", fresh_store_id="0")
        self._lock.prepare()
        view = self._lock.view()
        assert view.service is not None
        service = load_service(MODULE)
        shard = open_shard(service, limits, view.service.seed)
        self.sent: dict[int, list[bytes]] = {}
        self.upstream: list[bytes] = []
        port = cast("Any", self)
        self.engine = ReplicaEngine(
            core=Replica(replica=config.replica, sessions=shard.sessions, place=shard.place, limits=limits),
            shard=shard,
            log=open_log(fs, limits, config.replica, view.service, view.store_id),
            service=view.service,
            store_id=view.store_id,
            code=Code(fingerprint(service, limits)),
            outside=Outside(
                clock=port,
                lock=port,
                clients=port,
                upstream=cast("Any", Upstream(self.upstream)),
                peers=port,
                activities=port,
                checkpoints=port,
                witness=port,
                watchers=port,
                process=port,
            ),
            limits=limits,
        )
        self.intake = Intake(self.engine, lambda conn, request: None)
        self.engine.begin()

    def now(self) -> float:
        """Monotonic seconds."""
        return time.monotonic()

    def wall_us(self) -> int:
        """Wall clock."""
        return time.time_ns() // 1000

    def boot_us(self) -> int:
        """The boot's clock."""
        return boot_us()

    def boot(self) -> int:
        """One boot is like another."""
        return 1

    def sightings(self) -> Sequence[Sighting]:
        """Nobody else is there."""
        return ()

    def nonce(self) -> bytes:
        """No need to differ."""
        return bytes(16)

    def complete(self, event: ev.Event) -> None:
        """At once."""
        self.engine.post(event)

    def ask(self, operation: Callable[[Lock | AsyncLock], T | Awaitable[T]], done: Callable[[T], None]) -> None:
        """At once."""
        done(cast("T", operation(self._lock)))

    def take(self, replica: str, nonce: bytes, seen: LockView, done: Callable[[Holder | None], None]) -> None:
        """At once."""
        done(self._lock.take(replica, nonce, seen))

    def send(self, conn: ev.Conn, data: bytes) -> None:
        """Keep it."""
        self.sent.setdefault(conn, []).append(data)

    def load_newest(self, fits: object) -> Snapshot | None:
        """There is none."""
        return None

    def end(self, error: DeathlessError | None) -> None:
        """Nothing may stop here; no Exception, since the engine would take it for one more reason to stop."""
        raise SystemExit(str(error))

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Everything else does nothing."""
        return lambda *_, **__: None


class Upstream:
    """What a follower says to its primary: it is kept."""

    def __init__(self, said: list[bytes]) -> None:
        self.send = said.append

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Everything else does nothing."""
        return lambda *_, **__: None


class Bench:
    """A primary, a follower that stays in step, and sessions."""

    def __init__(self, directory: Path, sessions: int) -> None:
        self._messages = Messages()
        configs = [
            ReplicaConfig(service=SERVICE, module=MODULE, directory=str(directory), replica=name)
            for name in ("r0", "r1")
        ]
        asyncio.run(prepare(configs[0]))
        self.primary = Node(configs[0])
        self.primary.engine.post(ev.TakeoverOrdered(0, "bench"))
        assert self.primary.engine.core.primary is not None
        self.follower = Node(configs[1])
        self.follower.engine.post(ev.PrimarySeen(1, "r0", ""))
        for conn in range(1000, 1000 + FOLLOWERS):
            self._deliver(conn, struct_packet(Type.FOLLOW, Follow(f"r{conn - 999}", 0, bytes(16), False)))
        self.follower.intake.upstream(packets_of(self.primary.sent.pop(1000)))
        self.sessions: dict[int, int] = {}
        self.seqs: dict[int, int] = {}
        for conn in range(sessions):
            hello = Hello(1, "client", SERVICE, "bench")
            self.primary.intake.opened(ev.Conn(conn), hello, "")
            self._deliver(conn, packet(Type.REGISTER, conn.to_bytes(16, "little")))
        self.primary.intake.drained()
        for conn in range(sessions):
            ((kind, body),) = packets_of(self.primary.sent.pop(conn))
            assert kind == Type.REGISTERED
            self.sessions[conn] = decode_struct(Registered, body).session
            self.seqs[conn] = 1
        self._follow()

    def _deliver(self, conn: int, data: bytes) -> None:
        self.primary.intake.packets(ev.Conn(conn), packets_of([data]))

    def _follow(self) -> float:
        """Let the follower apply what was streamed; gives its processor seconds."""
        data = b"".join(self.primary.sent.pop(1000, []))
        self.primary.sent.clear()
        began = time.process_time()
        self.follower.intake.upstream(packets_of([data]))
        took = time.process_time() - began
        for answer in self.follower.upstream:
            self._deliver(1000, answer)
        self.follower.upstream.clear()
        return took

    def step(self, calls: int) -> tuple[float, float]:
        """One frame with `calls` of every session: processor seconds of primary and follower."""
        made = [
            (conn, self._messages.batch(session, self.seqs[conn], calls)) for conn, session in self.sessions.items()
        ]
        began = time.process_time()
        for conn, data in made:
            self._deliver(conn, data)
        self.primary.intake.drained()
        while len(self.primary.sent.keys() & self.sessions.keys()) < len(self.sessions):
            self.primary.intake.drained()  # a frame took long, on a machine that others use: the rest is in the next
        took = time.process_time() - began
        for conn in self.sessions:
            assert self.primary.sent[conn], "every session gets its replies"
            self.seqs[conn] += calls
        return took, self._follow()


def packets_of(data: list[bytes]) -> list[tuple[int, bytes]]:
    """Cut a stream into packets."""
    return list(PacketReader(1 << 30).feed(b"".join(data)))


def measure(shape: str) -> dict[str, float]:
    """Microseconds per call."""
    sessions, calls = SHAPES[shape]
    frames = max(20, CALLS // (sessions * calls) // ROUNDS)
    with tempfile.TemporaryDirectory(prefix="deathless-bench-") as folder:
        bench = Bench(Path(folder), sessions)
        gc.disable()
        per_call: tuple[list[float], list[float]] = ([], [])
        for _ in range(ROUNDS):
            totals = [bench.step(calls) for _ in range(frames)]
            for kept, which in zip(per_call, zip(*totals, strict=True), strict=True):
                kept.append(sum(which) / frames / sessions / calls * 1e6)
        gc.enable()
    return {who: round(min(kept), 2) for who, kept in zip(("primary", "follower"), per_call, strict=True)}


def main(arguments: list[str]) -> int:
    """Measure all shapes, or profile one."""
    if arguments[:1] == ["--profile"]:
        cProfile.runctx("measure(shape)", globals(), {"shape": arguments[1]}, sort="tottime")
        return 0
    print(
        json.dumps({"unit": "us of processor time per call", **{shape: measure(shape) for shape in SHAPES}}, indent=2)
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""A whole cluster in one process: replicas, clients, lock, disk and network under one scheduler.

Why it exists: the parts are tested by themselves; what loses data is what happens between them. A `Setup` says how a
cluster is made, `draw_setup` draws one from a seed, `Cluster` builds it and lets time pass. Which faults come when is
the injector's, what was wrong is the verdict's.

Guarantees: the same seed and setup give the same run. Does not: judge. May import engine and below, and the
simulation's parts.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from deathless.base.limits import Limits
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.codec.generations import NEWEST
from deathless.simulation.checkers.history import History, Violation
from deathless.simulation.nodes.former import SimUpgrade
from deathless.simulation.nodes.replica_node import ReplicaNode, Shared
from deathless.simulation.nodes.surroundings import Surroundings
from deathless.simulation.nodes.worker_node import WorkerNode
from deathless.simulation.workload.client_node import ClientNode
from deathless.simulation.workload.codes import LabCode
from deathless.simulation.workload.lab import HOOKS, encode_request
from deathless.simulation.workload.workload import Request, WorkloadProfile, draw_profile, draw_repeats, draw_requests
from deathless.simulation.world.directory import SimDirectory
from deathless.simulation.world.disk import SimDisk
from deathless.simulation.world.lock import LockProfile, SimLockStore
from deathless.simulation.world.network import Network, NetworkProfile
from deathless.simulation.world.scheduler import Scheduler, draw
from deathless.simulation.world.tap import Tap

SPAN_US: Final = 2_400_000  # over which clients ask and faults begin
POLL_US: Final = 20_000  # between two looks at whether something waited for has come
REPEAT_MAX_US: Final = 400_000  # until another client repeats a keyed request

LAB_LIMITS: Final = Limits(
    message_bytes_max=4096,
    entity_bytes_max=1 << 16,
    reply_bytes_max=4096,
    frame_bytes_max=16384,
    segment_bytes_max=1 << 16,
    allocate_bytes=1 << 14,
    spare_bytes=1 << 16,
    stream_buffer_bytes_max=1 << 17,
    idempotency_window_s=10_000 * 86400,
    session_idle_max_s=10_000 * 86400,
    results_kept_s=10_000 * 86400,
    reign_min_s=0.3,
    reign_max_s=1.0,
)
"""Small sizes, so that files roll and buffers end; long memories, so that clock jumps forget nothing by themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How a cluster is made.

    Attributes:
        prefix: of the names of its replicas and clients, which are hosts of one network.
        fence: "seal" (lock in the directory) or "etcd" (lock store).
        halves_share: of writes that others see half done for a while, [0, 1].
        workload: one profile for all clients; None: no clients (a scenario brings its own).
        capacity_bytes: of the volume, all the time; None: no end.
        proofs: whoever orders, reports or follows shows in which directory it stands. Off where no copy is made: a
            connection takes a few messages less, and nobody is there who could not show it.
        level: newest format level (codec.generations) that the builds know with which its replicas are first started.
    """

    prefix: str = ""
    replicas: int = 3
    fence: str = "seal"
    clients: int = 3
    limits: Limits = LAB_LIMITS
    network: NetworkProfile = field(default_factory=NetworkProfile)
    lock: LockProfile = field(default_factory=LockProfile)
    halves_share: float = 0.05
    workload: WorkloadProfile | None = None
    capacity_bytes: int | None = None
    proofs: bool = False
    level: int = NEWEST
    safeguards: Safeguards = ALL_SAFEGUARDS

    def names(self) -> tuple[str, ...]:
        """Names of the replicas."""
        return tuple(f"{self.prefix}r{i}" for i in range(self.replicas))

    def client_names(self) -> tuple[str, ...]:
        """Names of the clients."""
        return tuple(f"{self.prefix}c{i}" for i in range(self.clients))


def draw_setup(
    seed: int, *, replicas: int | None = None, fence: str | None = None, safeguards: Safeguards = ALL_SAFEGUARDS
) -> Setup:
    """Draw how the cluster of a seed is made; what is given is not drawn."""
    chance = draw(seed, "setup")
    drawn_replicas = chance.choice((1, 2, 3, 3, 3, 3, 3, 3, 4, 5))
    drawn_fence = chance.choice(("seal", "etcd"))
    return Setup(
        replicas=replicas or drawn_replicas,
        fence=fence or drawn_fence,
        clients=chance.choice((2, 2, 3, 4)),
        limits=_draw_limits(chance),
        network=NetworkProfile(
            spike_share=chance.choice((0.0, 0.01, 0.1)),
            split_share=chance.choice((0.0, 0.05)),
            ghosts_share=chance.choice((0.0, 0.0, 0.3)),
        ),
        lock=LockProfile(lost_answers_share=chance.choice((0.0, 0.0, 0.05))),
        halves_share=chance.choice((0.0, 0.05, 0.4)),
        workload=draw_profile(draw(seed, "workload"), requests=30, span_us=SPAN_US),
        safeguards=safeguards,
    )


def _draw_limits(chance: random.Random) -> Limits:
    base = LAB_LIMITS
    values: dict[str, int] = {}
    for name in Limits.__dataclass_fields__:
        values[name] = getattr(base, name)
    values["checkpoint_every_messages"] = chance.choice((1_000_000, 1_000_000, 12, 25))
    values["frame_messages_max"] = chance.choice((8192, 8192, 4))
    values["segment_bytes_max"] = chance.choice((1 << 15, 1 << 16, 1 << 20))
    values["stream_buffer_bytes_max"] = chance.choice((1 << 17, 1 << 15))
    values["sessions_max"] = chance.choice((100_000,) * 9 + (2,))
    values["clock_step_us"] = chance.choice((1000, 50_000))
    return Limits(**values)


class Beside(Protocol):
    """Something that stands beside a cluster, and may not touch it."""

    def violations(self) -> list[Violation]:
        """Say how it did."""
        ...


class Cluster:
    """A running cluster.

    Args:
        seed: of all chance.
        setup: how it is made.
        keep_trace: keep all lines of the trace.
        beside: the surroundings it shares with clusters of other services; None: its own, and the service is `lab`.
    """

    def __init__(
        self, seed: int, setup: Setup, *, keep_trace: bool = False, beside: Surroundings | None = None
    ) -> None:
        HOOKS.reset()
        self.seed = seed
        self.setup = setup
        if beside is None:
            scheduler = Scheduler(seed, keep_trace=keep_trace)
            beside = Surroundings(scheduler, Network(scheduler, scheduler.fork("network"), setup.network))
        self.scheduler = beside.scheduler
        self.network = beside.network
        self.outsiders: list[str] = []  # hosts of other services
        self.copies: list[Beside] = []  # of its directory, whose replicas woke up beside it
        self.results: list[tuple[int, bytes]] = []  # (invocation, reply) as callers saw them
        self.disk = SimDisk(self.scheduler.fork(f"{setup.prefix}disk"), capacity_bytes=setup.capacity_bytes)
        self.lock_store = SimLockStore() if setup.fence == "etcd" else None
        self.history = History()
        self.key_replies: list[tuple[str, bytes]] = []  # (idempotency key, reply) as callers saw them
        self.shared = Shared(
            beside=beside,
            disk=self.disk,
            lock_store=self.lock_store,
            lock_profile=setup.lock,
            limits=setup.limits,
            safeguards=setup.safeguards,
            directory=SimDirectory(
                f"/{setup.prefix}service",
                self.scheduler.fork(f"{setup.prefix}directory"),
                asks=setup.proofs,
                safeguards=setup.safeguards,
            ),
        )
        self.replicas = {name: ReplicaNode(name, self.shared) for name in setup.names()}
        for node in self.replicas.values():
            node.weather.halves_share = setup.halves_share
            node.level = setup.level
        self.tap = Tap(self.scheduler, setup.names())
        self.network.taps.append(self.tap)
        self.clients: dict[str, ClientNode] = {}
        self.repeats: dict[bytes, tuple[str, int]] = {}  # key -> (client that repeats it, after microseconds)
        if setup.workload is not None:
            self._make_clients(setup.workload)

    def add_upgrader(self, name: str, code: LabCode, upgrade: SimUpgrade) -> ReplicaNode:
        """Make a replica that is to upgrade the service from a code, not yet started."""
        self.replicas[name] = node = ReplicaNode(name, self.shared)
        node.code, node.upgrade = code, upgrade
        self.tap.add(name)
        return node

    def _make_clients(self, profile: WorkloadProfile) -> None:
        names = self.setup.client_names()
        for name in names:
            chance = self.scheduler.fork(f"requests/{name}")
            requests = draw_requests(chance, profile, name)
            others = [other for other in names if other != name] or [name]
            for repeated in draw_repeats(chance, profile, requests):
                self.repeats[repeated.idempotency_key] = (chance.choice(others), chance.randrange(REPEAT_MAX_US))
            self.add_client(name, requests, profile.window)

    def add_client(
        self,
        name: str,
        requests: list[Request],
        window: int = 1,
        encode: Callable[[Request], bytes] = encode_request,
    ) -> ClientNode:
        """Make a client, not yet started."""
        self.clients[name] = client = ClientNode(
            name,
            self.scheduler,
            self.network,
            addresses=[f"{replica}:1" for replica in self.replicas],
            requests=requests,
            window=window,
            history=self.history,
            asked=self._asked,
            answered=lambda key, reply: self.key_replies.append((key.decode(), reply)),
            service=self.shared.beside.service_name,
            encode=encode,
            resulted=lambda invocation, reply: self.results.append((invocation, reply)),
        )
        return client

    def _asked(self, request: Request) -> None:
        repeat = self.repeats.get(request.idempotency_key)
        if request.idempotency_key and repeat is not None:
            name, after_us = repeat
            twin = self.clients[name]
            self.scheduler.call_later(after_us, lambda: twin.repeat(request) if twin.process.alive else None)

    # ---- time ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start replicas and clients, not all at the same moment."""
        chance = self.scheduler.fork(f"{self.setup.prefix}start")
        for node in self.replicas.values():
            self.scheduler.call_at(chance.randrange(50_000), node.start)
        for client in self.clients.values():
            self.scheduler.call_at(chance.randrange(100_000), client.start)

    def run_until(self, condition: Callable[[], bool], within_us: int) -> bool:
        """Let time pass until `condition` holds, looked at now and then. False: it did not come to hold in time."""
        end_us = self.scheduler.now_us + within_us
        while not condition():
            if self.scheduler.now_us >= end_us:
                return False
            self.scheduler.run_until(min(end_us, self.scheduler.now_us + POLL_US))
        return True

    def run_for(self, us: int) -> None:
        """Let time pass."""
        self.scheduler.run_until(self.scheduler.now_us + us)

    def close(self) -> None:
        """End everything."""
        HOOKS.reset()
        self.shared.gates.clear()
        self.scheduler.close()

    # ---- what is ---------------------------------------------------------------------------------------------

    @property
    def served(self) -> bool:
        """Every client has all its answers."""
        return all(client.done for client in self.clients.values())

    def workers(self) -> list[WorkerNode]:
        """Workers whose engine runs."""
        nodes = (node.worker_node for node in self.replicas.values())
        return [node for node in nodes if node is not None and node.engine is not None and not node.stopping]

    def maybe_primary(self) -> ReplicaNode | None:
        """The replica that is primary in the highest epoch; None: nobody is."""
        leading = [
            (worker.running.core.primary.epoch, worker.host.name)
            for worker in self.workers()
            if worker.running.core.primary is not None
        ]
        return self.replicas[max(leading)[1]] if leading else None

    def maybe_follower(self) -> WorkerNode | None:
        """A replica that follows; None: there is none."""
        return next((w for w in self.workers() if w.running.core.state.value == "standby"), None)

    @property
    def last_epoch(self) -> int:
        """The highest epoch a worker knows."""
        return max((worker.running.core.known_epoch for worker in self.workers()), default=0)

    @property
    def settled(self) -> bool:
        """One primary with nothing under way; everybody else stands where it stands."""
        workers = self.workers()
        leading = [w for w in workers if w.running.core.primary is not None]
        if len(leading) != 1 or len(workers) != len(self.replicas):
            return False
        primary = leading[0].running.core.primary
        assert primary is not None
        if not primary.drained:
            return False
        places = {(w.running.place.lsn, w.running.place.chain, w.running.place.digest) for w in workers}
        return len(places) == 1

    @property
    def delivered(self) -> bool:
        """The primary has nothing left to send, to run or to wait for."""
        node = self.maybe_primary()
        if node is None or node.worker_node is None:
            return False
        shard = node.worker_node.running.shard
        return not shard.outbox.bytes and not shard.executor.invocations()

"""Scenarios around the release rule (I1, I2): a primary stopped, deposed or slow at each point."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from tests.sim.stage import (
    SECOND_US,
    Moment,
    Scenario,
    end,
    epoch_of,
    keep_apart,
    make,
    others_of,
    primary_of,
    request_of,
)

from deathless.base.safeguards import Safeguards
from deathless.codec.frames import Run
from deathless.codec.wire import Hello, Registered, Type, decode_struct, encode_batch, packet
from deathless.core import events as ev
from deathless.simulation.checkers import Outcome, Violation
from deathless.simulation.nodes.cluster import LAB_LIMITS, Cluster
from deathless.simulation.nodes.replica_node import ReplicaNode
from deathless.simulation.runs.injector import ADMIN_CONN
from deathless.simulation.workload.lab import SERVICE_NAME, encode_request
from deathless.simulation.world.lock import LockProfile
from deathless.simulation.world.sockets import Opened

FREEZE_POINTS: Final = (
    ("seal", "write", "log/", "before"),
    ("seal", "write", "log/", "after"),
    ("seal", "sync", "log/", "before"),
    ("seal", "sync", "log/", "after"),
    ("seal", "exists", "seal/", "before"),
    ("seal", "exists", "seal/", "after"),
    ("etcd", "write", "log/", "before"),
    ("etcd", "write", "log/", "after"),
    ("etcd", "sync", "log/", "before"),
    ("etcd", "sync", "log/", "after"),
    ("etcd", "owns", "", "before"),
    ("etcd", "owns", "", "after"),
)


def freeze_at(point: tuple[str, str, str, str]) -> Scenario:
    """SIGSTOP of the primary (worker and supervisor) at one point between append and release, for 3 seconds."""
    fence, operation, path, when = point

    def scenario(safeguards: Safeguards) -> list[Violation]:
        cluster = make(safeguards, fence=fence)
        node = primary_of(cluster)
        before = epoch_of(cluster)
        if operation == "owns":
            hit = _freeze_at_proof(cluster, node, when)
        else:
            moment = Moment(cluster, node, operation, path, when, lambda: node.freeze(supervisor_too=True))
            hit = lambda: moment.hit  # noqa: E731
        assert cluster.run_until(hit, SECOND_US), "the point was not reached"
        stolen = cluster.run_until(lambda: cluster.last_epoch > before, 3 * SECOND_US)
        cluster.run_for(500_000)
        node.thaw()
        return end(cluster, *([] if stolen else ["nobody took over from a frozen primary"]))

    return scenario


def _freeze_at_proof(cluster: Cluster, node: ReplicaNode, when: str) -> Callable[[], bool]:
    """Freeze the primary when the lock store answers its proof: before it looks, or after."""
    store = cluster.lock_store
    assert store is not None
    frozen: list[str] = []
    owns = store.owns

    def hooked(holder: object) -> bool:
        if when == "before" and not frozen:
            frozen.append(when)
            node.freeze(supervisor_too=True)
        answer = owns(holder)  # type: ignore[arg-type]
        if when == "after" and not frozen:
            frozen.append(when)
            node.freeze(supervisor_too=True)
        return answer

    store.owns = hooked  # type: ignore[method-assign]
    return lambda: bool(frozen)


def late_batch(safeguards: Safeguards) -> list[Violation]:
    """A frozen primary's clients send on; what waits in its buffers comes to life after a successor served."""
    cluster = make(safeguards)
    node = primary_of(cluster)
    node.freeze(supervisor_too=True)
    cluster.run_for(2 * SECOND_US)
    node.thaw()
    return end(cluster)


def read_at_a_frozen_primary(safeguards: Safeguards) -> list[Violation]:
    """A caller that reaches only the frozen primary reads after a successor has served others."""
    cluster = make(safeguards, workload=None)
    node = primary_of(cluster)
    others = others_of(cluster, node)
    for other in others:
        cluster.network.hold("reader", other.name)
        cluster.network.hold(other.name, "reader")
    cluster.add_client("reader", [request_of("read", pause_us=pause_us) for pause_us in (0, 1_500_000)]).start()
    changes = [request_of("add", tag=f"writer.{i}", pause_us=pause_us) for i, pause_us in enumerate((0, 1_350_000, 0))]
    cluster.add_client("writer", changes).start()
    cluster.run_for(720_000)  # between two times at which an idle primary asks its fence
    node.freeze(supervisor_too=True)
    cluster.run_for(850_000)
    node.thaw()
    cluster.run_for(500_000)
    for other in others:
        cluster.network.heal("reader", other.name)
        cluster.network.heal(other.name, "reader")
    return end(cluster)


def early_batch(safeguards: Safeguards) -> list[Violation]:
    """A sender's third message comes when its first is expected: it is dropped, not run."""
    cluster = make(safeguards)
    node = primary_of(cluster)
    process = cluster.scheduler.process("early", "early", lambda _process, _error: None)
    nonce = bytes(16)
    message = encode_request(request_of("add", tag=""))

    def received(packets: list[tuple[int, bytes]]) -> None:
        for kind, body in packets:
            if kind == Type.REGISTERED:
                session = decode_struct(Registered, body).session
                run = Run(session, 3, 0, 1)
                link.send(encode_batch(run, len(message).to_bytes(4, "little"), message))

    process.start(lambda: None)
    link = Opened(
        cluster.network,
        process,
        f"{node.name}:1",
        Hello(1, "client", SERVICE_NAME, "early"),
        received=received,
        ready=lambda: link.send(packet(Type.REGISTER, nonce)),
        lost=lambda: None,
    )
    cluster.run_for(300_000)
    return end(cluster)


def late_proof(safeguards: Safeguards) -> list[Violation]:
    """A proof's answer is under way for long; meanwhile a successor serves, and the deposed one goes on writing."""
    return _late_proof(safeguards, 200_000)


def duplicates_before_the_proof(safeguards: Safeguards) -> list[Violation]:
    """The same for so long that clients send again what has run and is not confirmed."""
    return _late_proof(safeguards, 1_500_000)


def _late_proof(safeguards: Safeguards, hold_us: int) -> list[Violation]:
    cluster = make(safeguards, fence="etcd", lock=LockProfile(latency_min_us=50, latency_max_us=100))
    node = primary_of(cluster)
    store = cluster.lock_store
    assert store is not None
    held: list[str] = []
    owns = store.owns

    def hooked(holder: object) -> bool:
        answer = owns(holder)  # type: ignore[arg-type]
        if not held and cluster.scheduler.current is node.channel:
            held.append(node.name)
            node.channel.freeze()
        return answer

    store.owns = hooked  # type: ignore[method-assign]
    assert cluster.run_until(lambda: bool(held), SECOND_US)
    stealer = cluster.maybe_follower()
    assert stealer is not None
    epoch = stealer.running.core.known_epoch
    join = keep_apart(cluster, node)  # or it would send its clients to the successor
    stealer.process.post(lambda: stealer.post(ev.TakeoverOrdered(epoch, "stolen by the scenario")))
    cluster.run_for(hold_us)
    node.channel.thaw()
    cluster.run_for(100_000)
    join()
    return end(cluster)


def cut_off_from_the_lock_store(safeguards: Safeguards) -> list[Violation]:
    """The primary alone gets no answer from the lock store; another takes over: no answer is no yes."""
    cluster = make(safeguards, fence="etcd")
    node = primary_of(cluster)
    join = keep_apart(cluster, node)  # or it would send its clients to the successor
    node.set_lock_reachable(False)
    thief = cluster.maybe_follower()
    assert thief is not None
    epoch = thief.running.core.known_epoch
    thief.process.post(lambda: thief.post(ev.TakeoverOrdered(epoch, "stolen by the scenario")))
    cluster.run_for(2 * SECOND_US)
    node.set_lock_reachable(True)
    join()
    return end(cluster)


def switchover(safeguards: Safeguards) -> list[Violation]:
    """An operator asks for another primary under load: no call fails, nothing is lost, it takes one takeover."""
    cluster = make(safeguards)
    node = primary_of(cluster)
    before = epoch_of(cluster)
    worker = node.worker_node
    assert worker is not None
    worker.process.post(lambda: worker.post(ev.SwitchoverOrdered(ADMIN_CONN, 1, "")))
    moved = cluster.run_until(
        lambda: cluster.maybe_primary() not in (None, node) and cluster.last_epoch == before + 1, SECOND_US
    )
    unknown = [op for op in cluster.history if op.completed_us is not None and op.outcome is Outcome.UNKNOWN]
    return end(
        cluster,
        *([] if moved else ["the switchover did not come about"]),
        *(f"a call failed: {op}" for op in unknown),
    )


def acknowledgements_alone(safeguards: Safeguards) -> list[Violation]:
    """Only acknowledgements are pending when a frame is formed, in the same millisecond (once: an empty frame)."""
    limits = replace(LAB_LIMITS, clock_step_us=10_000_000)
    cluster = make(safeguards, limits=limits)
    cluster.run_for(SECOND_US)
    return end(cluster)

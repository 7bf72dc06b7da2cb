"""Named traces: what once failed, or what the design says must hold, as directed runs of whole clusters.

Each scenario builds a cluster, does one thing to it at one moment, lets it come to its end and gives what was wrong:
the checkers' violations, and its own under the name "scenario". With all safeguards on it must give none; the tests of
the safeguards run the same scenario with one off.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.codec.frames import Run
from deathless.codec.wire import Hello, Registered, Type, decode_struct, encode_batch, packet
from deathless.core import events as ev
from deathless.engine.segment_scan import segment_path
from deathless.simulation.checkers import Outcome, Violation
from deathless.simulation.cluster import LAB_LIMITS, Cluster, Setup
from deathless.simulation.disk import Folder
from deathless.simulation.faults import Fault, FaultKind, FaultPlan
from deathless.simulation.injector import ADMIN_CONN, Injector
from deathless.simulation.lab import HOOKS, SERVICE_NAME, Cell, encode_request
from deathless.simulation.lock import LockProfile
from deathless.simulation.network import NetworkProfile
from deathless.simulation.replica_node import ReplicaNode
from deathless.simulation.run import finish
from deathless.simulation.sockets import Opened
from deathless.simulation.workload import Request, WorkloadProfile

Scenario = Callable[[Safeguards], list[Violation]]
SECOND_US: Final = 1_000_000
BUSY: Final = WorkloadProfile(
    requests=60,
    window=4,
    reads_share=0.3,
    keyed_share=0.3,
    twice_share=0.0,
    pause_max_us=40_000,
    models=("bank", "counter", "register"),
)
SMALL_FILES: Final = replace(LAB_LIMITS, segment_bytes_max=1 << 15)


def make(safeguards: Safeguards, *, seed: int = 1, **setup: object) -> Cluster:
    """Give a started cluster whose primary serves."""
    base = Setup(workload=BUSY, safeguards=safeguards, network=NetworkProfile(spike_share=0.0, split_share=0.0))
    cluster = Cluster(seed, replace(base, **setup))  # type: ignore[arg-type]  # names are checked by the dataclass
    cluster.start()
    assert cluster.run_until(lambda: cluster.maybe_primary() is not None, 2 * SECOND_US), "nobody became primary"
    cluster.run_for(300_000)
    return cluster


def primary_of(cluster: Cluster) -> ReplicaNode:
    """The primary; there must be one."""
    node = cluster.maybe_primary()
    assert node is not None
    return node


def others_of(cluster: Cluster, node: ReplicaNode) -> list[ReplicaNode]:
    """All other replicas."""
    return [other for other in cluster.replicas.values() if other is not node]


def epoch_of(cluster: Cluster) -> int:
    """The epoch of the primary."""
    return primary_of(cluster).worker_node.running.core.known_epoch  # type: ignore[union-attr]  # it runs


def end(cluster: Cluster, *extra: str, expected: frozenset[str] = frozenset()) -> list[Violation]:
    """Let a healed cluster come to its end; workers may have stopped with an expected code."""
    try:
        violations = finish(cluster, cluster.scheduler.now_us, expected)
        return [*violations, *(Violation(checker="scenario", text=text) for text in extra)]
    finally:
        cluster.close()


def given_up(cluster: Cluster, *extra: str) -> list[Violation]:
    """End a cluster that must not go on: only what the scenario itself saw counts."""
    cluster.close()
    return [Violation(checker="scenario", text=text) for text in extra]


class Moment:
    """Stops a replica's worker at its nth call of the file system that fits; `act` says how."""

    def __init__(
        self, cluster: Cluster, node: ReplicaNode, operation: str, path: str, when: str, act: Callable[[], None], skip: int = 0
    ) -> None:
        self.hit = False
        self._left = skip
        self._fits = (node.name, operation, when)
        self._path = path
        self._act = act
        self._cluster = cluster
        cluster.shared.gate = self

    def __call__(self, replica: str, operation: str, path: str, when: str) -> None:
        """See Shared.gate."""
        if self.hit or (replica, operation, when) != self._fits or self._path not in path:
            return
        if self._left:
            self._left -= 1
            return
        self.hit = True
        self._act()
        # Being stopped takes effect at the next pause: have one here.
        process = self._cluster.scheduler.current
        assert process is not None
        process.pause(0)


# ---- the primary stopped between append and release ------------------------------------------------------------

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
    frozen = []
    owns = store.owns

    def hooked(holder: object) -> bool:
        if when == "before" and not frozen:
            frozen.append(node.freeze(supervisor_too=True))
        answer = owns(holder)  # type: ignore[arg-type]
        if when == "after" and not frozen:
            frozen.append(node.freeze(supervisor_too=True))
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
    cluster.add_client("reader", [_request("read", pause_us=pause_us) for pause_us in (0, 1_500_000)]).start()
    changes = [_request("add", tag=f"writer.{i}", pause_us=pause_us) for i, pause_us in enumerate((0, 900_000, 0))]
    cluster.add_client("writer", changes).start()
    cluster.run_for(100_000)
    node.freeze(supervisor_too=True)
    cluster.run_for(1_600_000)
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
    message = encode_request(_request("add", tag=""))

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


# ---- takeover --------------------------------------------------------------------------------------------------


def stale_listing(safeguards: Safeguards) -> list[Violation]:
    """A standby whose look-ups and listings are minutes old takes over from a primary that rolled its file since."""
    cluster = make(safeguards, fence="etcd", replicas=2, limits=SMALL_FILES)
    node = primary_of(cluster)
    other = others_of(cluster, node)[0]
    other.set_stale(True)
    cluster.network.hold(node.name, other.name)  # so that it has to read the log
    cluster.run_for(SECOND_US)
    cluster.network.heal(node.name, other.name)
    node.kill_both()
    cluster.run_for(2 * SECOND_US)
    other.set_stale(False)
    node.start()
    return end(cluster, expected=frozenset({"DL4003"}))


def power_cut_before_cut_is_synced(safeguards: Safeguards) -> list[Violation]:
    """The power goes while a successor's cut and copies are written, not synced."""
    return _power_cut_at(safeguards, "sync", "before")


def power_cut_after_head(safeguards: Safeguards) -> list[Violation]:
    """The power goes right after a successor set head: cut and copies must be durable by then."""
    cluster = make(safeguards, fence="etcd")
    store = cluster.lock_store
    assert store is not None
    node = primary_of(cluster)
    # Something durable and not confirmed must be there to copy.
    moment = Moment(cluster, node, "sync", "log/", "after", lambda: node.freeze(supervisor_too=True))
    assert cluster.run_until(lambda: moment.hit, SECOND_US)
    set_head = store.set_head
    done = []

    def hooked(holder: object) -> int | None:
        revision = set_head(holder)  # type: ignore[arg-type]
        if not done:
            done.append(cluster.scheduler.call_later(0, lambda: _cut_power(cluster)))
        return revision

    store.set_head = hooked  # type: ignore[method-assign]
    assert cluster.run_until(lambda: bool(done), 4 * SECOND_US)
    cluster.run_for(100_000)
    node.thaw()
    _restore_power(cluster)
    return end(cluster)


def _power_cut_at(safeguards: Safeguards, operation: str, when: str) -> list[Violation]:
    cluster = make(safeguards)
    node = primary_of(cluster)
    node.kill_both()
    moments = []

    def gate(replica: str, what: str, path: str, at: str) -> None:
        if not moments and what == operation and at == when and path.endswith("e000000000002.r000000.seg"):
            moments.append(cluster.scheduler.call_later(0, lambda: _cut_power(cluster)))
            process = cluster.scheduler.current
            assert process is not None
            process.pause(10)

    cluster.shared.gate = gate
    assert cluster.run_until(lambda: bool(moments), 3 * SECOND_US), "nobody wrote a cut"
    cluster.run_for(100_000)
    _restore_power(cluster)
    return end(cluster)


def power_cut_after_copies_served(safeguards: Safeguards) -> list[Violation]:
    """A successor read a frame that was only in the page cache; the power goes when it has served for a while."""
    cluster = make(safeguards, seed=6)
    node = primary_of(cluster)
    before = epoch_of(cluster)
    moment = Moment(cluster, node, "write", "log/", "after", lambda: node.freeze(supervisor_too=True))
    assert cluster.run_until(lambda: moment.hit, SECOND_US)
    assert cluster.run_until(lambda: cluster.last_epoch > before, 3 * SECOND_US)
    cluster.run_for(300_000)
    _cut_power(cluster)
    cluster.run_for(100_000)
    _restore_power(cluster)
    return end(cluster)


def two_take_the_lock(safeguards: Safeguards) -> list[Violation]:
    """One is frozen right before it puts its name on the next epoch; another takes that epoch meanwhile."""
    cluster = make(safeguards)
    first = primary_of(cluster)
    before = epoch_of(cluster)
    frozen: dict[str, ReplicaNode] = {}

    def gate(replica: str, operation: str, path: str, when: str) -> None:
        stop = f"lock/head.{before + 1}" if frozen else f"lock/epoch.{before + 1}"
        if path == stop and when == "before" and operation in ("link", "rename") and len(frozen) < 2:
            frozen[replica] = cluster.replicas[replica]
            frozen[replica].freeze(supervisor_too=True)
            process = cluster.scheduler.current
            assert process is not None
            process.pause(0)

    cluster.shared.gate = gate
    first.kill_both()
    assert cluster.run_until(lambda: len(frozen) == 2, 6 * SECOND_US), "nobody took over"
    for node in frozen.values():
        node.thaw()
        cluster.run_for(100_000)
    cluster.run_for(SECOND_US)
    first.start()
    return end(cluster)


def reader_of_unconfirmed(safeguards: Safeguards) -> list[Violation]:
    """A follower starts anew while a frame is written and not synced; then that sync fails and the frame is gone."""
    cluster = make(safeguards, seed=3)
    node = primary_of(cluster)
    moment = Moment(cluster, node, "write", "log/", "after", lambda: node.freeze(supervisor_too=True))
    assert cluster.run_until(lambda: moment.hit, SECOND_US)
    follower = others_of(cluster, node)[0]
    follower.kill_worker()
    cluster.run_for(250_000)
    cluster.disk.fail("sync", "log/", number=errno.EIO, view=node.view_name())
    node.thaw()
    cluster.run_for(500_000)
    cluster.disk.heal()
    return end(cluster)


def head_set_late(safeguards: Safeguards) -> list[Violation]:
    """A successor is frozen right before it links its head; another took the lock meanwhile and saw the old head."""
    cluster = make(safeguards)
    first = primary_of(cluster)
    before = epoch_of(cluster)
    frozen: dict[str, ReplicaNode] = {}

    def gate(replica: str, operation: str, path: str, when: str) -> None:
        if operation != "link" or when != "before":
            return
        stop = f"lock/head.{before + 1}" if not frozen else f"seal/{before:012d}"
        if path == stop and replica not in frozen and len(frozen) < 2:
            node = cluster.replicas[replica]
            frozen[replica] = node
            node.freeze(supervisor_too=len(frozen) == 1)
            process = cluster.scheduler.current
            assert process is not None
            process.pause(0)

    cluster.shared.gate = gate
    first.kill_both()
    assert cluster.run_until(lambda: len(frozen) == 1, 2 * SECOND_US), "nobody took over"
    second = next(node for node in others_of(cluster, first) if node.name not in frozen)
    # It seals what the frozen one sealed already: its own steps stop at its first seal.
    assert cluster.run_until(lambda: len(frozen) == 2, 5 * SECOND_US), "nobody stole the lock"
    slow = next(node for node in frozen.values() if node is not second)
    slow.thaw()
    cluster.run_for(400_000)
    second.thaw()
    cluster.run_for(SECOND_US)
    first.start()
    return end(cluster)


def power_cut_after_collection(safeguards: Safeguards) -> list[Violation]:
    """The power goes when the log below the kept checkpoints was collected: they must be whole."""
    cluster = make(safeguards, seed=6, limits=replace(SMALL_FILES, checkpoint_every_messages=12))
    assert cluster.run_until(lambda: bool(cluster.shared.archive), 3 * SECOND_US), "nothing was collected"
    _cut_power(cluster)
    cluster.run_for(100_000)
    _restore_power(cluster)
    return end(cluster)


def _cut_power(cluster: Cluster) -> None:
    for node in cluster.replicas.values():
        node.lose_power()
    cluster.disk.cut_power()


def _restore_power(cluster: Cluster) -> None:
    for node in cluster.replicas.values():
        node.start()


def restored_store(safeguards: Safeguards) -> list[Violation]:
    """The lock store is put back to a backup from before two takeovers: everybody must refuse to go on."""
    cluster = make(safeguards, fence="etcd")
    store = cluster.lock_store
    assert store is not None
    store.backup()
    for _ in range(2):
        before = epoch_of(cluster)
        primary_of(cluster).kill_worker()
        assert cluster.run_until(lambda b=before: cluster.last_epoch > b and cluster.maybe_primary() is not None, 3 * SECOND_US)  # type: ignore[misc]
        cluster.run_for(300_000)
    store.restore()
    for node in cluster.replicas.values():
        node.kill_both()
    cluster.run_for(50_000)
    for node in cluster.replicas.values():
        node.start()
    cluster.run_for(3 * SECOND_US)
    served = cluster.maybe_primary() is not None
    refused = all(code == "DL4006" for _, code, _ in cluster.shared.stops) and cluster.shared.stops
    return given_up(
        cluster,
        *(["somebody serves with a lock store older than the log"] if served else []),
        *([] if refused else [f"stopped for another reason: {cluster.shared.stops}"]),
    )


def empty_volume(safeguards: Safeguards) -> list[Violation]:
    """All replicas come back on an empty volume: that is no first start."""
    cluster = make(safeguards, fence="etcd")
    for node in cluster.replicas.values():
        node.lose_power()
    cluster.disk.folders = {"": Folder()}
    for node in cluster.replicas.values():
        node.start()
    cluster.run_for(3 * SECOND_US)
    served = cluster.maybe_primary() is not None
    return given_up(cluster, *(["somebody serves from an empty volume"] if served else []))


# ---- rot -------------------------------------------------------------------------------------------------------


def _rot(safeguards: Safeguards, back: int) -> list[Violation]:
    """A bit of a confirmed frame flips while nobody runs: nobody may go on without that frame.

    Args:
        back: how many frames before the last confirmed one.
    """
    cluster = make(safeguards)
    node = primary_of(cluster)
    assert cluster.run_until(lambda: len(cluster.tap.frames) > back + 4, SECOND_US)
    others = others_of(cluster, node)
    cluster.run_until(lambda: others[0].worker_node.running.place.lsn > 8, SECOND_US)  # type: ignore[union-attr]
    node.lose_power()
    epoch, roll, offset = sorted(cluster.tap.frames)[-1 - back]
    cluster.disk.flip_bit(segment_path(epoch, roll), offset + 140)
    if back:
        for other in others:
            other.kill_both()
            other.start()
    cluster.run_for(3 * SECOND_US)
    lost = [
        f"{name} serves at epoch {worker.running.core.known_epoch} without a confirmed frame"
        for name, worker in ((w.host.name, w) for w in cluster.workers())
        if worker.running.core.primary is not None
    ]
    return given_up(cluster, *lost)


def rotten_last_frame(safeguards: Safeguards) -> list[Violation]:
    """The last confirmed frame, which a standby has applied, is rotten when that standby takes over."""
    return _rot(safeguards, 0)


def rotten_frame_before_others(safeguards: Safeguards) -> list[Violation]:
    """A confirmed frame in the middle is rotten when everybody starts anew: valid frames behind it say so."""
    return _rot(safeguards, 2)


def rotten_frame_behind_a_laggard(safeguards: Safeguards) -> list[Violation]:
    """The one that takes over never got the last confirmed frame, which is rotten; another replica has applied it."""
    cluster = make(safeguards)
    node = primary_of(cluster)
    others = others_of(cluster, node)
    # The next in line is the first by name of those that are not checkpointer.
    worker = node.worker_node
    assert worker is not None
    primary = worker.running.core.primary
    assert primary is not None
    laggard = next(other for other in others if other.name != primary.checkpointer)
    ahead = next(other for other in others if other is not laggard)
    cluster.network.hold(node.name, laggard.name)
    start = _lsn(ahead)
    assert cluster.run_until(lambda: _lsn(ahead) > start + 3, SECOND_US)
    cluster.run_for(100_000)  # a heartbeat tells how far it is
    last = sorted(cluster.tap.frames)[-1]
    node.lose_power()
    epoch, roll, offset = last
    cluster.disk.flip_bit(segment_path(epoch, roll), offset + 140)
    cluster.run_for(3 * SECOND_US)
    served = cluster.maybe_primary() is not None
    return given_up(cluster, *(["a laggard serves without a frame that another replica has"] if served else []))


def _lsn(node: ReplicaNode) -> int:
    worker = node.worker_node
    return worker.running.place.lsn if worker is not None and worker.engine is not None else 0


def missing_rolled_file(safeguards: Safeguards) -> list[Violation]:
    """The last file of the log is gone when everybody starts anew: nobody takes that for the end of the log."""
    cluster = make(safeguards, limits=SMALL_FILES)
    assert cluster.run_until(lambda: sorted(cluster.tap.frames)[-1][1] >= 2, 3 * SECOND_US), "the log did not roll"
    for node in cluster.replicas.values():
        node.lose_power()
    names = [name for name in sorted(cluster.disk.folders["log"].entries) if name.startswith("e000000000001")]
    del cluster.disk.folders["log"].entries[names[-1]]
    for node in cluster.replicas.values():
        node.start()
    cluster.run_for(3 * SECOND_US)
    served = cluster.maybe_primary() is not None
    return given_up(cluster, *(["somebody serves a log whose last file is missing"] if served else []))


def half_written_frames(safeguards: Safeguards) -> list[Violation]:
    """Every write is seen half done for a while, by followers that read the log live."""
    limits = replace(LAB_LIMITS, stream_buffer_bytes_max=1 << 15)
    cluster = make(safeguards, halves_share=1.0, limits=limits, replicas=3)
    for _ in range(12):
        for follower in others_of(cluster, primary_of(cluster)):
            for link in cluster.network.open_connections(follower.name):
                cluster.network.reset(link)
        cluster.run_for(100_000)
    return end(cluster)


# ---- handlers --------------------------------------------------------------------------------------------------


def _request(action: str, *, tag: str = "", pause_us: int = 0) -> Request:
    """Something to ask of one counter."""
    argument = None if action == "read" else 1
    return Request(
        model="counter",
        action=action,
        keys=("counter-x",),
        argument=argument,
        tag=tag,
        idempotency_key=b"",
        pause_us=pause_us,
    )


def _ask(cluster: Cluster, tag: str, name: str = "victim") -> None:
    cluster.add_client(name, [_request("add", tag=tag)]).start()


def killing_handler(safeguards: Safeguards) -> list[Violation]:
    """A message kills the process of its handler, each time: it is parked, its caller is told, the service goes on."""
    cluster = make(safeguards)

    def hook(tag: str, _cell: Cell) -> None:
        current = cluster.scheduler.current
        if tag == "poison" and current is not None:
            current.kill()

    HOOKS.on_turn = hook
    _ask(cluster, "poison")
    parked = cluster.run_until(lambda: cluster.clients["victim"].done, 8 * SECOND_US)
    outcomes = [op.outcome for op in cluster.history if op.tag == "poison"]
    extra = [] if outcomes == [Outcome.REFUSED] else [f"the caller of the killer was told {outcomes}"]
    if not parked:
        HOOKS.reset()
        return given_up(cluster, *extra)
    return end(cluster, *extra)


def differing_handler(safeguards: Safeguards) -> list[Violation]:
    """One follower computes something else, once: it stops, reloads what the primary has, and agrees again."""
    cluster = make(safeguards)
    follower = others_of(cluster, primary_of(cluster))[0]
    differed = []

    def hook(tag: str, cell: Cell) -> None:
        if tag == "differs" and not differed and cluster.scheduler.current is follower.worker:
            differed.append(tag)
            cell.number += 1

    HOOKS.on_turn = hook
    _ask(cluster, "differs")
    assert cluster.run_until(lambda: bool(differed), 3 * SECOND_US)
    return end(cluster, expected=frozenset({"DL4008"}))


def slow_handler(safeguards: Safeguards) -> list[Violation]:
    """A handler takes 400 ms, longer than the detector's patience: its supervisor answers for it, nobody takes over."""
    cluster = make(safeguards)
    before = epoch_of(cluster)

    def hook(tag: str, _cell: Cell) -> None:
        current = cluster.scheduler.current
        if tag == "slow" and current is not None:
            current.pause(400_000)

    HOOKS.on_turn = hook
    _ask(cluster, "slow")
    cluster.run_for(SECOND_US)
    HOOKS.reset()
    stolen = cluster.last_epoch > before
    return end(cluster, *(["somebody took over from a busy primary"] if stolen else []))


# ---- network and disk ------------------------------------------------------------------------------------------


def cut_from_each_other(safeguards: Safeguards) -> list[Violation]:
    """A standby does not hear the primary, but hears another that does: nobody takes over."""
    cluster = make(safeguards)
    node = primary_of(cluster)
    before = epoch_of(cluster)
    other = others_of(cluster, node)[0]
    for source, target in ((node.name, other.name), (other.name, node.name)):
        cluster.network.cut(source, target)
    cluster.run_for(3 * SECOND_US)
    stolen = cluster.last_epoch > before
    for source, target in ((node.name, other.name), (other.name, node.name)):
        cluster.network.heal(source, target)
    return end(cluster, *(["somebody took over from a primary that others hear"] if stolen else []))


def _fill(cluster: Cluster, full: bool) -> None:
    cluster.disk.capacity_bytes = cluster.disk.used_bytes() if full else None


def takeover_on_full_disk(safeguards: Safeguards) -> list[Violation]:
    """The disk is full when the primary dies, twice in a row: a successor serves what there is all the same."""
    cluster = make(safeguards)
    _fill(cluster, full=True)
    cluster.run_for(SECOND_US)
    extra: list[str] = []
    for _ in range(2):
        node = primary_of(cluster)
        before = epoch_of(cluster)
        node.kill_both()
        leads = cluster.run_until(
            lambda b=before: cluster.maybe_primary() is not None and cluster.last_epoch > b, 3 * SECOND_US  # type: ignore[misc]
        )
        if not leads:
            extra.append("nobody takes over on a full disk")
            break
    _fill(cluster, full=False)
    for each in cluster.replicas.values():
        each.start()
    return end(cluster, *extra)


def full_disk_keeps_the_primary(safeguards: Safeguards) -> list[Violation]:
    """Calls come while the disk is full: they are refused, the primary stays what it is, and reads are answered."""
    cluster = make(safeguards)
    before = epoch_of(cluster)
    _fill(cluster, full=True)
    cluster.run_for(1_500_000)
    stays = cluster.last_epoch == before and cluster.maybe_primary() is not None
    cluster.add_client("reader", [_request("read")]).start()
    answered = cluster.run_until(lambda: cluster.clients["reader"].done, SECOND_US)
    _fill(cluster, full=False)
    return end(
        cluster,
        *([] if stays else ["the primary did not survive a full disk"]),
        *([] if answered else ["no reads are answered while the disk is full"]),
    )


def failed_sync(safeguards: Safeguards) -> list[Violation]:
    """A sync of the primary's log fails and loses what it was to keep: it stops, another goes on."""
    cluster = make(safeguards)
    node = primary_of(cluster)
    cluster.disk.fail("sync", "log/", number=errno.EIO, view=node.view_name())
    cluster.run_for(2 * SECOND_US)
    cluster.disk.heal()
    return end(cluster)


# ---- proofs ----------------------------------------------------------------------------------------------------


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
    held = []
    owns = store.owns

    def hooked(holder: object) -> bool:
        answer = owns(holder)  # type: ignore[arg-type]
        if not held and cluster.scheduler.current is node.channel:
            held.append(node.channel.freeze())
        return answer

    store.owns = hooked  # type: ignore[method-assign]
    assert cluster.run_until(lambda: bool(held), SECOND_US)
    stealer = cluster.maybe_follower()
    assert stealer is not None
    epoch = stealer.running.core.known_epoch
    stealer.process.post(lambda: stealer.post(ev.TakeoverOrdered(epoch, "stolen by the scenario")))
    cluster.run_for(hold_us)
    node.channel.thaw()
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


def fault_plan(safeguards: Safeguards, *faults: Fault, **setup: object) -> list[Violation]:
    """Run a fixed plan of faults; times count from when the first primary serves."""
    cluster = make(safeguards, **setup)
    now_us = cluster.scheduler.now_us
    planned = tuple(replace(fault, at_us=fault.at_us + now_us) for fault in faults)
    heal_us = max(fault.at_us + fault.duration_us for fault in planned) + 1_000
    Injector(cluster, FaultPlan(faults=planned, heal_us=heal_us, enabled=()))
    cluster.scheduler.run_until(heal_us)
    return end(cluster)


def collected_under_a_laggard(safeguards: Safeguards) -> list[Violation]:
    """A replica is cut off while the log below two newer checkpoints goes: it goes on from a checkpoint (once: DL4003)."""
    limits = replace(SMALL_FILES, checkpoint_every_messages=12)
    cut = Fault(at_us=0, kind=FaultKind.PARTITION, target="r1", other="r0", duration_us=2_500_000)
    return fault_plan(safeguards, cut, limits=limits, replicas=2)


def killed_with_the_lock(safeguards: Safeguards) -> list[Violation]:
    """Who took the lock dies before it serves, and is never heard of as primary: the others go on (once: nobody did)."""
    cluster = make(safeguards, fence="etcd")
    first = primary_of(cluster)
    store = cluster.lock_store
    assert store is not None
    take = store.take
    died: list[str] = []

    def hooked(replica: str, nonce: bytes, seen: object) -> object:
        holder = take(replica, nonce, seen)  # type: ignore[arg-type]
        if holder is not None and not died:
            died.append(replica)
            cluster.scheduler.call_later(0, cluster.replicas[replica].kill_both)
        return holder

    store.take = hooked  # type: ignore[method-assign,assignment]
    first.kill_both()
    assert cluster.run_until(lambda: bool(died), 2 * SECOND_US)
    leads = cluster.run_until(lambda: cluster.maybe_primary() is not None, 5 * SECOND_US)
    for node in cluster.replicas.values():
        node.start()
    return end(cluster, *([] if leads else ["nobody leads while the last holder of the lock is dead"]))


def start_beside_a_takeover(safeguards: Safeguards) -> list[Violation]:
    """A replica starts while another opens its epoch: what it saw of the lock is older than the log (once: DL4006)."""
    cluster = make(safeguards, fence="etcd")
    store = cluster.lock_store
    assert store is not None
    node = primary_of(cluster)
    late = others_of(cluster, node)[0]
    read = store.read
    old = read()
    node.kill_both()
    late.kill_both()
    cluster.run_for(2 * SECOND_US)
    assert cluster.maybe_primary() is not None
    shown = []

    def hooked() -> object:
        if cluster.scheduler.current is late.channel and len(shown) < 1:
            shown.append(old)
            return old
        return read()

    store.read = hooked  # type: ignore[method-assign,assignment]
    late.start()
    assert cluster.run_until(lambda: bool(shown), 2 * SECOND_US)
    node.start()
    return end(cluster)


def acknowledgements_alone(safeguards: Safeguards) -> list[Violation]:
    """Only acknowledgements are pending when a frame is formed, in the same millisecond (once: an empty frame)."""
    limits = replace(LAB_LIMITS, clock_step_us=10_000_000)
    cluster = make(safeguards, limits=limits)
    cluster.run_for(SECOND_US)
    return end(cluster)


SCENARIOS: Final[dict[str, Scenario]] = {
    **{f"primary frozen at {' '.join(filter(None, point))}": freeze_at(point) for point in FREEZE_POINTS},
    "a frozen primary's late batch": late_batch,
    "a read at a frozen primary": read_at_a_frozen_primary,
    "a batch that comes too early": early_batch,
    "two take the lock": two_take_the_lock,
    "a reader of unconfirmed frames": reader_of_unconfirmed,
    "a cached listing at takeover": stale_listing,
    "power cut before the cut is synced": power_cut_before_cut_is_synced,
    "power cut after head is set": power_cut_after_head,
    "power cut after copies served": power_cut_after_copies_served,
    "power cut after collection": power_cut_after_collection,
    "head set late": head_set_late,
    "lock store restored from a backup": restored_store,
    "empty volume": empty_volume,
    "last confirmed frame rotten": rotten_last_frame,
    "a frame before others rotten": rotten_frame_before_others,
    "rotten frame behind a laggard": rotten_frame_behind_a_laggard,
    "missing rolled file": missing_rolled_file,
    "half-written frames read live": half_written_frames,
    "a handler that kills its process": killing_handler,
    "a handler that differs": differing_handler,
    "a handler that takes 400 ms": slow_handler,
    "two replicas cut from each other": cut_from_each_other,
    "takeover on a full disk": takeover_on_full_disk,
    "a full disk keeps the primary": full_disk_keeps_the_primary,
    "a sync that fails": failed_sync,
    "a proof answered late": late_proof,
    "duplicates before the proof": duplicates_before_the_proof,
    "switchover under load": switchover,
    "collected under a laggard": collected_under_a_laggard,
    "killed with the lock": killed_with_the_lock,
    "start beside a takeover": start_beside_a_takeover,
    "acknowledgements alone": acknowledgements_alone,
}


def run(name: str, safeguards: Safeguards = ALL_SAFEGUARDS) -> list[Violation]:
    """Run a scenario by its name."""
    return SCENARIOS[name](safeguards)

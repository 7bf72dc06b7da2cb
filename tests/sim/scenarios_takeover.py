"""Scenarios around takeovers: two at once, one that dies or stops at each step, a store or a listing that is old."""

from __future__ import annotations

from dataclasses import replace

from tests.sim.stage import (
    SECOND_US,
    SMALL_FILES,
    FirstThere,
    Moment,
    ask,
    end,
    epoch_of,
    given_up,
    leads_after,
    make,
    others_of,
    primary_of,
    request_of,
)

from deathless.base.safeguards import Safeguards
from deathless.core import events as ev
from deathless.engine.log.segment_scan import segment_path
from deathless.simulation.checkers import Outcome, Violation
from deathless.simulation.nodes.cluster import Cluster
from deathless.simulation.nodes.replica_node import ReplicaNode
from deathless.simulation.world.disk import Folder


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


def names_believed_absent(safeguards: Safeguards) -> list[Violation]:
    """A standby on network storage does not see a file for seconds that it looked up too early (once: it gave up).

    It ends with DL4003 again and again, is started again, and follows once the name shows: nobody has to help.
    """
    cluster = make(safeguards, fence="etcd", replicas=2, limits=SMALL_FILES)
    node = primary_of(cluster)
    other = others_of(cluster, node)[0]
    epoch, roll, _ = max(cluster.tap.frames)
    other.set_stale(True)
    assert not other.looks_up(segment_path(epoch, roll + 1)), "it is too early"
    rolled = cluster.run_until(lambda: max(cluster.tap.frames)[:2] > (epoch, roll), 2 * SECOND_US)
    other.kill_worker()  # so that it has to read the log
    cluster.run_for(3 * SECOND_US)
    missed = [code for name, code, _ in cluster.shared.stops if name == other.name]
    supervisor = other.supervisor_node
    assert supervisor is not None
    gave_up = supervisor.machine.report.condition
    other.set_stale(False)
    return end(
        cluster,
        *([] if rolled and missed.count("DL4003") > 1 else [f"the file was not missed: {missed}"]),
        *([f"an operator is asked to act: {gave_up}"] if gave_up else []),
        expected=frozenset({"DL4003"}),
    )


def collected_behind_a_look(safeguards: Safeguards) -> list[Violation]:
    """A follower looks at the lock; before it looks at the log, a successor opens and collects (once: DL4006)."""
    limits = replace(SMALL_FILES, checkpoint_every_messages=12)
    cluster = make(safeguards, seed=6, fence="etcd", limits=limits)
    store = cluster.lock_store
    assert store is not None
    node = primary_of(cluster)
    late = others_of(cluster, node)[0]
    read = store.read
    old = read()
    late.kill_both()
    node.kill_worker()
    before = set(cluster.shared.archive)
    gone = cluster.run_until(
        lambda: segment_path(1, 0) in set(cluster.shared.archive) - before and cluster.last_epoch > 1, 8 * SECOND_US
    )
    shown: list[object] = []

    def hooked() -> object:
        if cluster.scheduler.current is late.channel and len(shown) < 1:
            shown.append(old)
            return old
        return read()

    store.read = hooked  # type: ignore[method-assign,assignment]
    late.start()
    assert cluster.run_until(lambda: bool(shown), 2 * SECOND_US)
    return end(cluster, *([] if gone else ["nothing was collected"]))


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

    cluster.shared.gates["worker"] = gate
    first.kill_both()
    assert cluster.run_until(lambda: len(frozen) == 2, 6 * SECOND_US), "nobody took over"
    for node in frozen.values():
        node.thaw()
        cluster.run_for(100_000)
    cluster.run_for(SECOND_US)
    first.start()
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

    cluster.shared.gates["worker"] = gate
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


def killed_before_the_cut(safeguards: Safeguards) -> list[Violation]:
    """A successor dies right before it writes its cut: head still names a log that is whole."""
    cluster = make(safeguards, fence="etcd")
    node = primary_of(cluster)
    before = epoch_of(cluster)
    died = FirstThere(cluster, "create", segment_path(before + 1, 0), ReplicaNode.kill_worker)
    node.kill_both()
    assert cluster.run_until(lambda: died.hit, 3 * SECOND_US), "nobody wrote a cut"
    cluster.run_for(SECOND_US)
    node.start()
    return end(cluster)


def frozen_through_two_epochs(safeguards: Safeguards) -> list[Violation]:
    """Before the frozen primary's seal is linked its successor dies; the next one must seal that epoch too."""
    cluster = make(safeguards)
    node = primary_of(cluster)
    before = epoch_of(cluster)
    moment = Moment(cluster, node, "sync", "log/", "after", lambda: node.freeze(supervisor_too=True))
    assert cluster.run_until(lambda: moment.hit, SECOND_US)
    died = FirstThere(cluster, "link", f"seal/{before:012d}", ReplicaNode.kill_both)
    assert cluster.run_until(lambda: died.hit, 3 * SECOND_US), "nobody took over"
    assert cluster.run_until(lambda: cluster.last_epoch >= before + 2, 4 * SECOND_US), "nobody took over again"
    cluster.run_for(300_000)
    node.thaw()
    cluster.run_for(500_000)
    for each in cluster.replicas.values():
        each.start()
    return end(cluster)


def killed_with_the_lock(safeguards: Safeguards) -> list[Violation]:
    """Who took the lock dies before it serves, and is never heard of as primary: others go on (once: nobody did)."""
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
    shown: list[object] = []

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


def restored_store(safeguards: Safeguards) -> list[Violation]:
    """The lock store is put back to a backup from before two takeovers: everybody must refuse to go on."""
    cluster = make(safeguards, fence="etcd")
    store = cluster.lock_store
    assert store is not None
    store.backup()
    for _ in range(2):
        before = epoch_of(cluster)
        primary_of(cluster).kill_worker()
        assert cluster.run_until(leads_after(cluster, before), 3 * SECOND_US)
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


def stop_and_start_all(safeguards: Safeguards) -> list[Violation]:
    """Everybody is told to stop in order, in turn, the primary last; then everybody starts: no call fails."""
    cluster = make(safeguards)
    node = primary_of(cluster)
    for each in (*others_of(cluster, node), node):
        each.stop()
        cluster.run_for(20_000)
    ended = cluster.run_until(lambda: not any(n.supervisor.alive for n in cluster.replicas.values()), 3 * SECOND_US)
    for each in cluster.replicas.values():
        each.start()
    violations = end(cluster, *([] if ended else ["an orderly stop does not come to its end"]))
    unknown = [op for op in cluster.history if op.completed_us is not None and op.outcome is Outcome.UNKNOWN]
    return [*violations, *(Violation(checker="scenario", text=f"a call failed: {op}") for op in unknown)]


def frozen_before_reading(safeguards: Safeguards) -> list[Violation]:
    """Who took the lock is frozen before it reads the log; another opens a later epoch meanwhile (once: DL4006)."""
    cluster = make(safeguards, fence="etcd")
    first = primary_of(cluster)
    before = epoch_of(cluster)
    frozen: list[ReplicaNode] = []

    def gate(replica: str, operation: str, path: str, when: str) -> None:
        if not frozen and when == "before" and operation == "link" and path == f"seal/{before:012d}":
            frozen.append(cluster.replicas[replica])
            frozen[0].freeze(supervisor_too=True)
            process = cluster.scheduler.current
            assert process is not None
            process.pause(0)

    cluster.shared.gates["worker"] = gate
    first.kill_both()
    assert cluster.run_until(lambda: bool(frozen), 3 * SECOND_US), "nobody took over"
    assert cluster.run_until(leads_after(cluster, before + 1), 6 * SECOND_US), "nobody took over again"
    cluster.run_for(200_000)
    frozen[0].thaw()
    first.start()
    return end(cluster)


def successor_that_came_and_went(safeguards: Safeguards) -> list[Violation]:
    """An idle primary never hears of its successor, which served and stopped (once: both waited for ever).

    Its callers have met a later epoch, so they do not believe it; it must find out by itself that it is deposed.
    """
    cluster = make(safeguards, replicas=2, workload=None)
    node = primary_of(cluster)
    other = others_of(cluster, node)[0]
    changes = [
        request_of("add", tag=f"solo.{i}", pause_us=pause_us) for i, pause_us in enumerate((0, 300_000, 900_000))
    ]
    cluster.add_client("solo", changes).start()
    cluster.run_for(100_000)
    pairs = [(node.name, other.name), (other.name, node.name), (node.name, "solo"), ("solo", node.name)]
    for source, target in pairs:
        cluster.network.hold(source, target)
    for link in cluster.network.open_connections("solo"):
        cluster.network.reset(link)
    thief = other.worker_node
    assert thief is not None
    epoch = thief.running.core.known_epoch
    thief.process.post(lambda: thief.post(ev.TakeoverOrdered(epoch, "stolen by the scenario")))
    cluster.run_for(700_000)
    other.stop()
    cluster.run_for(100_000)
    for near in list(cluster.network.connections.values()):
        cluster.network.reset(near[0])  # what was said meanwhile is not heard later
    cluster.run_for(100_000)
    for source, target in pairs:
        cluster.network.heal(source, target)
    other.start()
    served = cluster.run_until(lambda: cluster.served, 5 * SECOND_US)
    return end(cluster, *([] if served else ["nobody serves the caller of a successor that is gone"]))


def replaced_when_cut_off(safeguards: Safeguards) -> list[Violation]:
    """The primary alone is cut off from the lock store: another takes over by itself and answers its callers."""
    cluster = make(safeguards, fence="etcd")
    node, epoch = primary_of(cluster), epoch_of(cluster)
    node.set_lock_reachable(False)
    ask(cluster, "asked-of-the-old")
    replaced = cluster.run_until(lambda: cluster.maybe_primary() not in (None, node), 4 * SECOND_US)
    held = node.worker_node is not None and node.worker_node.running.core.primary is not None
    ask(cluster, "asked-of-the-new", "later")
    answered = cluster.run_until(lambda: _completed(cluster) >= {"asked-of-the-old", "asked-of-the-new"}, SECOND_US)
    node.set_lock_reachable(True)
    return end(
        cluster,
        *([] if replaced else ["nobody took over"]),
        *([] if cluster.last_epoch == epoch + 1 else [f"epoch {cluster.last_epoch} after {epoch}"]),
        *([] if held else ["the old primary ended before the lock store could tell it to"]),
        *([] if answered else ["callers of the old primary were not answered"]),
    )


def lock_store_away_for_all(safeguards: Safeguards) -> list[Violation]:
    """The lock store answers nobody for a while, again and again: nobody steals, neither then nor when it is back."""
    cluster = make(safeguards, fence="etcd")
    store, epoch = cluster.lock_store, epoch_of(cluster)
    assert store is not None
    for number in range(12):
        store.available = False
        ask(cluster, f"asked{number}", f"caller{number}")
        cluster.run_for(3 * SECOND_US + number * 71_000)
        store.available = True
        cluster.run_for(2 * SECOND_US)
    found = cluster.last_epoch
    return end(cluster, *([] if found == epoch else [f"epoch {found} after {epoch}"]))


def _completed(cluster: Cluster) -> set[str]:
    return {operation.tag for operation in cluster.history if operation.completed_us is not None}

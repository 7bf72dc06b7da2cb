"""Scenarios around the disk: power cuts, rot, files that are gone, half-written frames, no space, a sync that fails."""

from __future__ import annotations

import errno
from dataclasses import replace
from functools import partial
from typing import Any

from tests.sim.stage import (
    BUSY,
    SECOND_US,
    SMALL_FILES,
    FirstThere,
    Moment,
    cut_power,
    end,
    epoch_of,
    given_up,
    leads_after,
    make,
    others_of,
    primary_of,
    request_of,
    restore_power,
)

from deathless.base.safeguards import Safeguards
from deathless.engine.log.segment_scan import LOG_FOLDER, segment_path
from deathless.simulation.checkers import Violation
from deathless.simulation.nodes.cluster import LAB_LIMITS, Cluster
from deathless.simulation.nodes.replica_node import ReplicaNode
from deathless.simulation.runs.faults import Fault, FaultKind, FaultPlan
from deathless.simulation.runs.injector import Injector


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
    done: list[object] = []

    def hooked(holder: object, *rest: object) -> int | None:
        revision = set_head(holder, *rest)  # type: ignore[arg-type]
        if not done:
            done.append(cluster.scheduler.call_later(0, lambda: cut_power(cluster)))
        return revision

    store.set_head = hooked  # type: ignore[method-assign, assignment]
    assert cluster.run_until(lambda: bool(done), 4 * SECOND_US)
    cluster.run_for(100_000)
    node.thaw()
    restore_power(cluster)
    return end(cluster)


def _power_cut_at(safeguards: Safeguards, operation: str, when: str) -> list[Violation]:
    cluster = make(safeguards)
    node = primary_of(cluster)
    node.kill_both()
    moments: list[object] = []

    def gate(replica: str, what: str, path: str, at: str) -> None:
        if not moments and what == operation and at == when and path.endswith("e000000000002.r000000.seg"):
            moments.append(cluster.scheduler.call_later(0, lambda: cut_power(cluster)))
            process = cluster.scheduler.current
            assert process is not None
            process.pause(10)

    cluster.shared.gates["worker"] = gate
    assert cluster.run_until(lambda: bool(moments), 3 * SECOND_US), "nobody wrote a cut"
    cluster.run_for(100_000)
    restore_power(cluster)
    return end(cluster)


def power_cut_after_copies_served(safeguards: Safeguards) -> list[Violation]:
    """A successor read a frame that was only in the page cache; the power goes when it has served for a while."""
    cluster = make(safeguards, seed=2)
    node = primary_of(cluster)
    before = epoch_of(cluster)
    moment = Moment(cluster, node, "write", "log/", "after", lambda: node.freeze(supervisor_too=True))
    assert cluster.run_until(lambda: moment.hit, SECOND_US)
    assert cluster.run_until(lambda: cluster.last_epoch > before, 3 * SECOND_US)
    cluster.run_for(300_000)
    cut_power(cluster)
    cluster.run_for(100_000)
    restore_power(cluster)
    return end(cluster)


def power_cut_after_collection(safeguards: Safeguards) -> list[Violation]:
    """The power goes when the log below the kept checkpoints was collected: they must be whole."""
    cluster = make(safeguards, seed=6, limits=replace(SMALL_FILES, checkpoint_every_messages=12))
    assert cluster.run_until(lambda: bool(cluster.shared.archive), 3 * SECOND_US), "nothing was collected"
    cut_power(cluster)
    cluster.run_for(100_000)
    restore_power(cluster)
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


def _rot(safeguards: Safeguards, back: int) -> list[Violation]:
    """A sector of a confirmed frame is lost while nobody runs: nobody may go on without that frame.

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
    cluster.disk.lose_sector(segment_path(epoch, roll), offset)  # which its bytes alone do not tell from a torn write
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


def rotten_end_with_all_dead(safeguards: Safeguards) -> list[Violation]:
    """All die at once and a bit of the last frame that was answered flips: nobody remembers it, its bytes show it."""
    cluster = make(safeguards, replicas=2)
    last = max(cluster.tap.frames)
    for node in cluster.replicas.values():
        node.lose_power()  # with the machine's memory goes its witness
    cluster.disk.flip_bit(segment_path(last[0], last[1]), last[2] + 140)
    for node in cluster.replicas.values():
        node.start()
    cluster.run_for(3 * SECOND_US)
    served = cluster.maybe_primary() is not None
    return given_up(cluster, *(["somebody serves without the last frame that was answered"] if served else []))


def rotten_frame_before_others(safeguards: Safeguards) -> list[Violation]:
    """A confirmed frame in the middle is rotten when everybody starts anew: valid frames behind it say so."""
    return _rot(safeguards, 2)


def rotten_frame_behind_a_laggard(safeguards: Safeguards) -> list[Violation]:
    """The one that takes over never got the last confirmed frame, which is lost; another replica has applied it.

    Its first sector reads as zeros, so the bytes look like a write that never arrived.
    """
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
    last = max(cluster.tap.frames)
    node.lose_power()
    epoch, roll, offset = last
    cluster.disk.lose_sector(segment_path(epoch, roll), offset)
    cluster.run_for(12 * SECOND_US)
    served = cluster.maybe_primary() is not None
    # Recovery succeeds each time, the takeover never: an operator must hear of it.
    asks = laggard.supervisor_node is not None and laggard.supervisor_node.machine.report.condition == "DL4003"
    return given_up(
        cluster,
        *(["a laggard serves without a frame that another replica has"] if served else []),
        *([] if asks or served else ["no operator is asked to act"]),
    )


def _lsn(node: ReplicaNode) -> int:
    worker = node.worker_node
    return worker.running.place.lsn if worker is not None and worker.engine is not None else 0


def missing_rolled_file(safeguards: Safeguards) -> list[Violation]:
    """The last file of the log is gone when everybody starts anew: nobody takes that for the end of the log."""
    cluster = make(safeguards, limits=SMALL_FILES)
    assert cluster.run_until(lambda: max(cluster.tap.frames)[1] >= 2, 3 * SECOND_US), "the log did not roll"
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
        leads = cluster.run_until(leads_after(cluster, before), 3 * SECOND_US)
        if not leads:
            extra.append("nobody takes over on a full disk")
            break
    _fill(cluster, full=False)
    for each in cluster.replicas.values():
        each.start()
    return end(cluster, *extra)


def takeover_on_a_disk_full_of_frames_without_a_proof(safeguards: Safeguards) -> list[Violation]:
    """No lock store while calls come, then a full disk, and the primary dies: its frames can be copied."""
    many = replace(BUSY, requests=200, window=64, reads_share=0.0, pause_max_us=5_000)
    cluster = make(safeguards, fence="etcd", clients=6, workload=many)
    node, before, store = primary_of(cluster), epoch_of(cluster), cluster.lock_store
    assert store is not None
    store.available = False
    cluster.run_for(2 * SECOND_US)
    _fill(cluster, full=True)
    node.kill_both()
    store.available = True
    leads = cluster.run_until(leads_after(cluster, before), 5 * SECOND_US)
    _fill(cluster, full=False)
    node.start()
    return end(cluster, *([] if leads else ["nobody takes over: the spare is too small for what must be copied"]))


def full_disk_keeps_the_primary(safeguards: Safeguards) -> list[Violation]:
    """Calls come while the disk is full: they are refused, the primary stays what it is, and reads are answered."""
    cluster = make(safeguards)
    before = epoch_of(cluster)
    _fill(cluster, full=True)
    cluster.run_for(1_500_000)
    stays = cluster.last_epoch == before and cluster.maybe_primary() is not None
    cluster.add_client("reader", [request_of("read")]).start()
    answered = cluster.run_until(lambda: cluster.clients["reader"].done, SECOND_US)
    _fill(cluster, full=False)
    return end(
        cluster,
        *([] if stays else ["the primary did not survive a full disk"]),
        *([] if answered else ["no reads are answered while the disk is full"]),
    )


def slow_for_everybody(safeguards: Safeguards) -> list[Violation]:
    """Every sync of every machine takes longer than a call may: one takeover at most, and calls are answered."""
    cluster = make(safeguards)
    before = epoch_of(cluster)
    for node in cluster.replicas.values():
        node.weather.all_slow_us = int(2 * cluster.setup.limits.log_call_max_s * SECOND_US)
    cluster.run_for(120 * SECOND_US)
    takeovers, primary = cluster.last_epoch - before, cluster.maybe_primary()
    for node in cluster.replicas.values():
        node.weather.all_slow_us = 0
    return end(
        cluster,
        *([f"replicas that are all slow took over {takeovers} times"] if takeovers > 1 else []),
        *(["nobody serves"] if primary is None else []),
    )


def read_only_for_a_while(safeguards: Safeguards) -> list[Violation]:
    """The volume takes no change for a while, twice, and a replica is killed in it: nobody has to do anything."""
    cluster = make(safeguards)
    for _ in range(2):
        cluster.disk.read_only = True
        cluster.run_for(SECOND_US)
        for node in others_of(cluster, cluster.maybe_primary() or next(iter(cluster.replicas.values())))[:1]:
            node.kill_worker()
        cluster.run_for(SECOND_US)
        cluster.disk.read_only = False
        served = cluster.run_until(lambda: cluster.maybe_primary() is not None, 10 * SECOND_US)
        if not served:
            return given_up(cluster, "nobody serves once the volume is writable again")
        cluster.run_for(SECOND_US // 2)
    return end(cluster)


def volume_smaller_than_the_log(safeguards: Safeguards) -> list[Violation]:
    """The volume holds a part of what clients write, and everything on it counts: the log frees itself each time."""
    limits = replace(LAB_LIMITS, segment_bytes_max=1 << 15, spare_bytes=1 << 15)
    capacity = limits.least_volume_bytes(3, state_bytes=1 << 16)
    many = replace(BUSY, requests=400, pause_max_us=4_000)
    cluster = make(safeguards, seed=4, capacity_bytes=capacity, limits=limits.fitted(capacity), workload=many)
    for round_number in range(4):
        cluster.run_for(700_000)
        node = cluster.maybe_primary()
        if round_number % 2 and node is not None:
            node.kill_both()
            cluster.run_for(200_000)
            node.start()
    return end(cluster)


def takeovers_on_a_small_volume(safeguards: Safeguards) -> list[Violation]:
    """Each primary dies with the first call that it confirms: what its takeover took comes back, and calls go on."""
    limits = replace(LAB_LIMITS, segment_bytes_max=1 << 15, spare_bytes=1 << 15)
    capacity = limits.least_volume_bytes(3, state_bytes=1 << 16)
    many = replace(BUSY, requests=200)
    cluster = make(safeguards, seed=5, capacity_bytes=capacity, limits=limits.fitted(capacity), workload=many)
    for _ in range(40):
        node = primary_of(cluster)
        before, confirmed = epoch_of(cluster), node.worker_node.running.core.confirmed_lsn  # type: ignore[union-attr]
        node.kill_worker()
        if not cluster.run_until(partial(_confirms_more, cluster, before, confirmed), 30 * SECOND_US):
            return given_up(cluster, f"nobody confirms anything after epoch {before}")
    return end(cluster)


def primaries_that_confirm_nothing(safeguards: Safeguards) -> list[Violation]:
    """Each primary dies as soon as it leads, before anything is called: the log takes no more room for it."""
    limits = replace(LAB_LIMITS, segment_bytes_max=1 << 15, spare_bytes=1 << 15)
    capacity = limits.least_volume_bytes(3, state_bytes=1 << 16)
    few = replace(BUSY, requests=1)
    cluster = make(safeguards, seed=5, capacity_bytes=capacity, limits=limits.fitted(capacity), workload=few)
    cluster.run_for(2 * SECOND_US)
    before = _files_of(cluster)
    for _ in range(40):
        epoch = epoch_of(cluster)
        primary_of(cluster).kill_worker()
        if not cluster.run_until(leads_after(cluster, epoch), 60 * SECOND_US):
            return given_up(cluster, f"nobody leads after epoch {epoch}")
    more = _files_of(cluster) - before
    return end(cluster, *([f"{more} files more than before"] if more > 2 else []))


def killed_before_head_is_set(safeguards: Safeguards) -> list[Violation]:
    """A successor dies between cut and head, after a primary that confirmed nothing: head's file is still needed."""
    cluster = make(safeguards, workload=replace(BUSY, requests=1))
    cluster.run_for(2 * SECOND_US)
    before = epoch_of(cluster)
    primary_of(cluster).kill_worker()
    assert cluster.run_until(leads_after(cluster, before), 10 * SECOND_US)
    before = epoch_of(cluster)
    died = FirstThere(cluster, "link", f"lock/head.{before + 1}", ReplicaNode.kill_worker)
    primary_of(cluster).kill_worker()
    assert cluster.run_until(lambda: died.hit, 10 * SECOND_US), "nobody came to set head"
    cluster.run_for(2 * SECOND_US)
    return end(cluster)


def _files_of(cluster: Cluster) -> int:
    return len(cluster.disk.view("looks").listing(LOG_FOLDER))


def _confirms_more(cluster: Cluster, epoch: int, lsn: int) -> bool:
    node = cluster.maybe_primary()
    if node is None:
        return False
    core = node.worker_node.running.core  # type: ignore[union-attr]  # it leads
    return core.known_epoch > epoch and core.confirmed_lsn > lsn


def failed_sync(safeguards: Safeguards) -> list[Violation]:
    """A sync of the primary's log fails and loses what it was to keep: it stops, another goes on."""
    cluster = make(safeguards)
    node = primary_of(cluster)
    cluster.disk.fail("sync", "log/", number=errno.EIO, view=node.view_name())
    cluster.run_for(2 * SECOND_US)
    cluster.disk.heal()
    return end(cluster)


def fault_plan(safeguards: Safeguards, *faults: Fault, **setup: Any) -> list[Violation]:
    """Run a fixed plan of faults; times count from when the first primary serves."""
    cluster = make(safeguards, **setup)
    now_us = cluster.scheduler.now_us
    planned = tuple(replace(fault, at_us=fault.at_us + now_us) for fault in faults)
    heal_us = max(fault.at_us + fault.duration_us for fault in planned) + 1_000
    Injector(cluster, FaultPlan(faults=planned, heal_us=heal_us, enabled=()))
    cluster.scheduler.run_until(heal_us)
    return end(cluster)


def collected_under_a_laggard(safeguards: Safeguards) -> list[Violation]:
    """A replica is cut off while the log below two checkpoints goes: it goes on from a checkpoint (once: it ended)."""
    limits = replace(SMALL_FILES, checkpoint_every_messages=12)
    cut = Fault(at_us=0, kind=FaultKind.PARTITION, target="r1", other="r0", duration_us=2_500_000)
    return fault_plan(safeguards, cut, limits=limits, replicas=2)

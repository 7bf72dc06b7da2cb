"""Upgrades on a disk that is full or lies, with checkpoints that rot or come late, with a lock store that is away."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.sim.stage import (
    SECOND_US,
    Moment,
    end,
    epoch_of,
    given_up,
    leads_after,
    make,
    primary_of,
)
from tests.sim.upgrade_stage import (
    REFUSED,
    comes_up_to_date,
    finish_upgrade,
    follow_suit,
    generation_of,
    go,
    leads,
    served,
    stopped_at,
    upgrade_to,
    upgraded_cluster,
    with_upgrader,
)

from deathless.base.errors import LogTruncated, StoreOlderThanLog
from deathless.base.safeguards import Safeguards
from deathless.simulation.checkers import Violation
from deathless.simulation.nodes.cluster import Cluster
from deathless.simulation.nodes.replica_node import ReplicaNode

# ---- checkpoints --------------------------------------------------------------------------------------------------


def first_checkpoint_that_was_never_good(safeguards: Safeguards) -> list[Violation]:
    """The disk keeps other bytes of the first checkpoint than were written: that shows before anybody depends on it."""
    cluster = make(safeguards)
    node, before = with_upgrader(cluster), epoch_of(cluster)

    def rot(_node: ReplicaNode) -> None:
        cluster.disk.flip_bit(f"checkpoints/t.{node.name}", 600)

    stopped_at(cluster, node, ("link", "checkpoints/", 0), rot, helper=True)
    go(cluster)
    if not cluster.run_until(leads_after(cluster, before), 5 * SECOND_US):
        return given_up(cluster, "nobody leads")
    node.kill_both()
    node.start()
    cluster.run_for(2 * SECOND_US)
    return finish_upgrade(cluster)


def first_checkpoint_that_rots(safeguards: Safeguards) -> list[Violation]:
    """It rots before there is a second one: nobody goes on with less; once it is brought back from a copy, all do."""
    cluster = make(safeguards)
    node = with_upgrader(cluster)
    if not upgrade_to(cluster, node):
        return given_up(cluster, "the upgrade is not made")
    worker = node.worker_node
    assert worker is not None
    generation = worker.running.place.generation
    path = f"checkpoints/{generation.lsn:016d}-{generation.chain.hex()}.ckpt"
    cluster.run_for(SECOND_US // 10)
    node.kill_both()
    cluster.disk.flip_bit(path, 600)
    node.start()
    cluster.run_for(2 * SECOND_US)
    extra = ["somebody serves without the first checkpoint"] if cluster.maybe_primary() is not None else []
    said = {code for _, code, _ in cluster.shared.stops} - REFUSED
    if said != {LogTruncated.code}:
        extra.append(f"it is refused with {said}")
    cluster.shared.stops.clear()
    cluster.disk.flip_bit(path, 600)
    node.kill_both()
    node.start()
    return finish_upgrade(cluster, *extra, generation=2)


def attempt_left_behind(safeguards: Safeguards) -> list[Violation]:
    """An attempt that was let go leaves a first checkpoint behind: it stops no replica of the former code."""
    cluster = make(safeguards)
    node = with_upgrader(cluster)
    died = stopped_at(cluster, node, ("create", "log/e000000000002", 0), ReplicaNode.kill_both)
    go(cluster)
    assert cluster.run_until(lambda: died.hit, 3 * SECOND_US), "it comes to no cut"
    for each in cluster.replicas.values():
        each.kill_both()
    cluster.run_for(SECOND_US // 10)
    for each in cluster.replicas.values():
        if each is not node:
            each.start()
    extra = [] if served(cluster) else ["the former code does not start"]
    cluster.run_for(SECOND_US)
    node.start()
    return finish_upgrade(cluster, *extra, generation=1)


def late_checkpoint_of_the_former_code(safeguards: Safeguards) -> list[Violation]:
    """A checkpoint of the former code gets its name, and its mark, after the upgrade: it counts for nobody."""
    cluster = make(safeguards)
    node = with_upgrader(cluster)
    worker = next(w for w in cluster.workers() if w.running.core.role == "checkpointer")
    slow = worker.host
    assert isinstance(slow, ReplicaNode)
    at_link = Moment(cluster, slow, "link", "checkpoints/", "before", slow.helper.freeze, helper=True)
    worker.process.post(worker.running.take_checkpoint)
    assert cluster.run_until(lambda: at_link.hit, SECOND_US), "it takes no checkpoint"
    slow.freeze(supervisor_too=True)
    if not upgrade_to(cluster, node):
        return given_up(cluster, "the upgrade is not made")
    cluster.run_for(SECOND_US)
    slow.thaw()
    cluster.run_for(SECOND_US)
    follow_suit(cluster)
    cluster.run_for(SECOND_US)
    for each in cluster.replicas.values():
        each.kill_both()
    cluster.run_for(SECOND_US // 10)
    for each in cluster.replicas.values():
        each.start()
    return finish_upgrade(cluster, generation=2)


def killed_before_its_checkpoint_stands(safeguards: Safeguards) -> list[Violation]:
    """The upgrader dies as it opens: all that the next process of the new code has is what was durable before head."""
    cluster = make(safeguards)
    node = with_upgrader(cluster)
    died = stopped_at(cluster, node, ("write", "log/e000000000002", 1), ReplicaNode.kill_both)
    go(cluster)
    assert cluster.run_until(lambda: died.hit, 3 * SECOND_US), "it does not open"
    cluster.run_for(SECOND_US)
    node.start()
    return finish_upgrade(cluster, generation=2)


# ---- the disk -----------------------------------------------------------------------------------------------------


def disk_full_as_it(point: tuple[str, str, int], *, helper: bool) -> Callable[[Safeguards], list[Violation]]:
    """The disk is full as the upgrader writes: either the upgrade is made, or the former code goes on."""

    def scenario(safeguards: Safeguards) -> list[Violation]:
        cluster = make(safeguards)
        node, before = with_upgrader(cluster), epoch_of(cluster)

        def fill(_node: ReplicaNode) -> None:
            cluster.disk.capacity_bytes = cluster.disk.used_bytes()

        stopped_at(cluster, node, point, fill, helper=helper)
        go(cluster)
        leads_on = cluster.run_until(leads_after(cluster, before), 5 * SECOND_US)
        cluster.run_for(SECOND_US)
        cluster.disk.capacity_bytes = None
        extra = [] if leads_on else ["nobody leads while the disk is full"]
        cluster.run_for(SECOND_US)
        if generation_of(cluster) == 1 and (not comes_up_to_date(cluster, node.name) or not upgrade_to(cluster, node)):
            extra.append("once there is room the upgrade is not made")
        return finish_upgrade(cluster, *extra, generation=2)

    return scenario


# ---- the lock store -----------------------------------------------------------------------------------------------


def head_without_answer(*, happened: bool, dies: bool) -> Callable[[Safeguards], list[Violation]]:
    """Nobody answers the request to set head, which was carried out or was not: the upgrader waits for what is so."""

    def scenario(safeguards: Safeguards) -> list[Violation]:
        cluster = make(safeguards, fence="etcd")
        node, store = with_upgrader(cluster), cluster.lock_store
        assert store is not None
        set_head, asked = store.set_head, [0]

        def hooked(holder: object, *rest: object) -> int | None:
            asked[0] += 1
            if asked[0] > 1:
                return set_head(holder, *rest)  # type: ignore[arg-type]
            revision = set_head(holder, *rest) if happened else 0  # type: ignore[arg-type]
            node.set_lock_reachable(False)  # the answer is lost
            if dies:
                cluster.scheduler.call_later(0, node.kill_both)
            return revision

        store.set_head = hooked  # type: ignore[method-assign, assignment]
        go(cluster)
        assert cluster.run_until(lambda: asked[0] > 0, 3 * SECOND_US), "it sets no head"
        cluster.run_for(SECOND_US)
        extra = ["it leads without an answer"] if leads(cluster, node) else []
        node.set_lock_reachable(True)
        if dies:
            cluster.run_for(2 * SECOND_US)
            node.start()
            if not happened and (not comes_up_to_date(cluster, node.name) or not upgrade_to(cluster, node)):
                extra.append("a second attempt comes to nothing")
        elif not cluster.run_until(lambda: leads(cluster, node), 3 * SECOND_US):
            extra.append("it does not go on once there is an answer")
        return finish_upgrade(cluster, *extra, generation=2)

    return scenario


def lock_store_away(*, for_all: bool) -> Callable[[Safeguards], list[Violation]]:
    """The lock store is away, for all or for the upgrader alone, while it holds the lock: what it made waits, or is let
    go of, and one of the two codes leads on.
    """

    def scenario(safeguards: Safeguards) -> list[Violation]:
        cluster = make(safeguards, fence="etcd")
        node, store = with_upgrader(cluster), cluster.lock_store
        assert store is not None

        def cut(_node: ReplicaNode) -> None:
            if for_all:
                store.available = False
            else:
                node.set_lock_reachable(False)

        away = stopped_at(cluster, node, ("link", "checkpoints/", 0), cut, helper=True)
        go(cluster)
        assert cluster.run_until(lambda: away.hit, 3 * SECOND_US), "it makes no checkpoint"
        cluster.run_for(13 * SECOND_US)
        led = cluster.maybe_primary()
        wrong = led is not None if for_all else led in (None, node)
        extra = [f"{led.name if led is not None else 'nobody'} leads meanwhile"] if wrong else []
        store.available = True
        node.set_lock_reachable(True)
        cluster.run_for(2 * SECOND_US)
        if (
            served(cluster)
            and generation_of(cluster) == 1
            and (not comes_up_to_date(cluster, node.name) or not upgrade_to(cluster, node))
        ):
            extra.append("a second attempt comes to nothing")
        return finish_upgrade(cluster, *extra, generation=2)

    return scenario


def store_restored_from_before(safeguards: Safeguards) -> list[Violation]:
    """The lock store is put back to a backup from before the upgrade: neither code goes on by itself."""
    cluster = make(safeguards, fence="etcd")
    store = cluster.lock_store
    assert store is not None
    store.backup()
    node = with_upgrader(cluster)
    if not upgrade_to(cluster, node):
        return given_up(cluster, "the upgrade is not made")
    cluster.run_for(SECOND_US)
    store.restore()
    for each in cluster.replicas.values():
        each.kill_both()
    cluster.run_for(SECOND_US // 10)
    cluster.shared.stops.clear()
    for each in cluster.replicas.values():
        each.start()
    cluster.run_for(3 * SECOND_US)
    led = cluster.maybe_primary() is not None
    said: Sequence[str] = sorted({code for _, code, _ in cluster.shared.stops})
    return given_up(
        cluster,
        *(["somebody leads with a lock store older than the log"] if led else []),
        *([] if said == [StoreOlderThanLog.code] else [f"stopped for another reason: {said}"]),
    )


def volume_full_after_an_upgrade(safeguards: Safeguards) -> list[Violation]:
    """The volume is full soon after an upgrade: what only the former code could use goes, calls are served again."""
    cluster, node = upgraded_cluster(safeguards)
    cluster.disk.capacity_bytes = cluster.disk.used_bytes() + (1 << 14)
    cluster.run_for(6 * SECOND_US)
    worker = primary_of(cluster).worker_node
    assert worker is not None
    primary = worker.running.core.primary
    extra = ["no call is admitted"] if primary is None or primary.full else []
    cluster.disk.capacity_bytes = None
    del node
    return end(cluster, *extra, expected=REFUSED)


def all_cut(cluster: Cluster) -> None:
    """End every program, without a word."""
    for each in cluster.replicas.values():
        each.kill_both()

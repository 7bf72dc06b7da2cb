"""Upgrades: other code goes on where the former code's turns end, or the former code does, and never both.

Here: upgrades that come to pass, and who dies, or stands still, at which step of one. Each ends as all scenarios do:
the verdict runs the log by the code of each generation, and compares every replica and every reply with that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.sim.stage import SECOND_US, Moment, end, epoch_of, given_up, leads_after, make, others_of, primary_of
from tests.sim.upgrade_stage import (
    COLLECTING,
    REFUSED,
    Act,
    become,
    comes_up_to_date,
    finish_upgrade,
    follow_suit,
    generation_of,
    go,
    served,
    stopped_at,
    take_over,
    upgrade_to,
    with_upgrader,
)

from deathless.base.safeguards import Safeguards
from deathless.codec.wire import FRAME_HEAD, Handover, PacketReader, Type, decode_struct
from deathless.core import events as ev
from deathless.simulation.checkers import Violation
from deathless.simulation.nodes.cluster import LAB_LIMITS, Cluster
from deathless.simulation.nodes.former import SimUpgrade
from deathless.simulation.nodes.replica_node import ReplicaNode
from deathless.simulation.runs.injector import ADMIN_CONN
from deathless.simulation.world.network import Endpoint

# ---- that come to pass --------------------------------------------------------------------------------------------


def upgraded(safeguards: Safeguards, fence: str = "seal") -> list[Violation]:
    """Calls come all the time: the upgrader leads, the others begin again with its code, and later takeovers hold."""
    cluster = make(safeguards, fence=fence)
    if not upgrade_to(cluster, with_upgrader(cluster)):
        return given_up(cluster, "the upgrade is not made")
    follow_suit(cluster)
    cluster.run_for(SECOND_US)
    extra = take_over(cluster, 3)  # later cuts carry the generation on
    return finish_upgrade(cluster, *extra, generation=2)


def changed_since_it_was_made_ready(safeguards: Safeguards) -> list[Violation]:
    """States and handlers are made ready ahead, and calls go on: the new code leads with what there is at the cut."""
    cluster = make(safeguards)
    node = with_upgrader(cluster, ahead=1)
    assert cluster.run_until(lambda: _is_ready(node), SECOND_US), "nothing is made ready"
    cluster.run_for(SECOND_US // 2)
    if not _is_ready(node) or not upgrade_to(cluster, node):
        return given_up(cluster, "the upgrade is not made")
    follow_suit(cluster)
    cluster.run_for(SECOND_US // 2)
    return finish_upgrade(cluster, *take_over(cluster), generation=2)


def _is_ready(node: ReplicaNode) -> bool:
    assert node.worker_node is not None
    return node.worker_node.running.takeover.is_ready


def upgraded_by_etcd(safeguards: Safeguards) -> list[Violation]:
    """The same with the lock in a store."""
    return upgraded(safeguards, "etcd")


def upgrade_and_back(safeguards: Safeguards) -> list[Violation]:
    """After an upgrade the former code comes back as generation 3: what it kept of generation 1 counts for nothing."""
    return _upgrades(safeguards, 2)


def ten_upgrades(safeguards: Safeguards) -> list[Violation]:
    """Forth and back under load, each followed by a takeover, while the log is collected and checkpoints are pruned."""
    return _upgrades(safeguards, 10, takeovers=1, collecting=True)


def _upgrades(safeguards: Safeguards, count: int, *, takeovers: int = 0, collecting: bool = False) -> list[Violation]:
    cluster = make(safeguards, limits=COLLECTING if collecting else LAB_LIMITS)
    extra: list[str] = []
    for number in range(count):
        if not upgrade_to(cluster, with_upgrader(cluster, f"u{number}")):
            return given_up(cluster, f"upgrade {number} is not made")
        follow_suit(cluster)
        cluster.run_for(SECOND_US // 2)
        extra += take_over(cluster, takeovers)
    if collecting and not cluster.shared.archive:
        extra.append("nothing of the log was collected")
    return finish_upgrade(cluster, *extra, generation=1 + count)


# ---- the upgrader ends, or stands still ---------------------------------------------------------------------------

STEPS: Final[dict[str, tuple[tuple[str, str, int], bool, int]]] = {
    "takes the lock": (("link", "lock/epoch.2", 0), False, 1),
    "seals": (("link", "seal/", 0), False, 1),
    "reads": (("read", "log/", 1), False, 1),
    "begins its checkpoint": (("create", "checkpoints/", 0), True, 1),
    "names its checkpoint": (("link", "checkpoints/", 0), True, 1),
    "reads its checkpoint back": (("open", "checkpoints/", 0), True, 1),
    "begins its cut": (("create", "log/e000000000002", 0), False, 1),
    "syncs its cut": (("sync", "log/e000000000002", 0), False, 1),
    "syncs the folder of its cut": (("sync_folder", "log", 0), False, 1),
    "sets head": (("link", "lock/head.2", 0), False, 1),
    "has set head": (("sync_folder", "lock", 1), False, 2),
    "opens": (("sync", "log/e000000000002", 1), False, 2),
    "proves": (("exists", "seal/000000000002", 0), False, 2),
}
"""Where an upgrader is stopped: before which call of its file system, is it its helper's, whose code then goes on."""


def killed_as_it(step: str) -> Callable[[Safeguards], list[Violation]]:
    """The upgrader dies at a step: the former code goes on at once, or, behind head, nobody but the new code."""
    return lambda safeguards: _stopped_as_it(safeguards, step, ReplicaNode.kill_both, ReplicaNode.start)


def frozen_as_it(step: str) -> Callable[[Safeguards], list[Violation]]:
    """The upgrader stands still at a step, and wakes up once the former code leads again: it must not go on then."""
    return lambda safeguards: _stopped_as_it(safeguards, step, _freeze, ReplicaNode.thaw)


def power_lost_as_it(step: str) -> Callable[[Safeguards], list[Violation]]:
    """The power of all machines goes as the upgrader comes to a step, with whatever was not synced."""
    return lambda safeguards: _power_lost(safeguards, step)


def _freeze(node: ReplicaNode) -> None:
    node.freeze(supervisor_too=True)


def _stopped_as_it(safeguards: Safeguards, step: str, stop: Act, bring_back: Act) -> list[Violation]:
    point, helper, generation = STEPS[step]
    cluster = make(safeguards)
    node = with_upgrader(cluster)
    before = epoch_of(cluster)
    stopped = stopped_at(cluster, node, point, stop, helper=helper)
    go(cluster)
    assert cluster.run_until(lambda: stopped.hit, 3 * SECOND_US), f"nobody came to {point}"
    cluster.run_for(3 * SECOND_US)
    extra: list[str] = []
    if (cluster.maybe_primary() is not None) != (generation == 1):
        extra.append(f"generation {generation} is to go on, and epoch {cluster.last_epoch} after {before} leads")
    bring_back(node)
    if generation == 1:  # what the attempt left behind stands in nobody's way, nor in that of the next one
        if not comes_up_to_date(cluster, node.name) or not upgrade_to(cluster, node):
            extra.append("a second attempt comes to nothing")
    elif not served(cluster):
        extra.append("the new code does not go on")
    return finish_upgrade(cluster, *extra, generation=2)


def _power_lost(safeguards: Safeguards, step: str) -> list[Violation]:
    point, helper, _ = STEPS[step]
    cluster = make(safeguards)
    node = with_upgrader(cluster)

    def act(_node: ReplicaNode) -> None:
        cluster.scheduler.call_later(0, cut)

    def cut() -> None:
        for each in cluster.replicas.values():
            each.lose_power()
        cluster.disk.cut_power()

    stopped = stopped_at(cluster, node, point, act, helper=helper)
    go(cluster)
    assert cluster.run_until(lambda: stopped.hit, 3 * SECOND_US), f"nobody came to {point}"
    cluster.run_for(SECOND_US // 10)
    for each in cluster.replicas.values():
        each.start()
    cluster.run_for(2 * SECOND_US)
    return finish_upgrade(cluster)


def migration_that(**how: object) -> Callable[[Safeguards], list[Violation]]:
    """What the new code is to go on with can't be made, or taken: the former code goes on; put right, it is made."""

    def scenario(safeguards: Safeguards) -> list[Violation]:
        cluster = make(safeguards)
        node = with_upgrader(cluster)
        before = epoch_of(cluster)
        assert isinstance(node.upgrade, SimUpgrade)
        for name, value in how.items():
            setattr(node.upgrade, name, value)
        cluster.run_for(SECOND_US // 10)
        go(cluster)
        if not cluster.run_until(leads_after(cluster, before), 13 * SECOND_US):
            return given_up(cluster, "the former code does not go on")
        extra = [] if generation_of(cluster) == 1 else ["what can't be made was made"]
        if not extra:
            node.upgrade = SimUpgrade(node.upgrade.id, node.upgrade.to)
            node.kill_worker()
            cluster.run_for(SECOND_US // 2)
            if not comes_up_to_date(cluster, node.name) or not upgrade_to(cluster, node):
                extra.append("a second attempt comes to nothing")
        return finish_upgrade(cluster, *extra, generation=2)

    return scenario


# ---- the former primary ----------------------------------------------------------------------------------------------


def primary_killed_before(operation: str, path: str, skip: int = 0) -> Callable[[Safeguards], list[Violation]]:
    """The primary dies on its way to the hand-over: a standby takes over, and the upgrader follows on."""

    def scenario(safeguards: Safeguards) -> list[Violation]:
        cluster = make(safeguards)
        node, former = with_upgrader(cluster), primary_of(cluster)
        before = epoch_of(cluster)
        go(cluster)
        died = stopped_at(cluster, former, (operation, path, skip), ReplicaNode.kill_both)
        if not cluster.run_until(lambda: died.hit, SECOND_US):
            return given_up(cluster, "the primary does not come there")
        if not cluster.run_until(leads_after(cluster, before), 5 * SECOND_US):
            return given_up(cluster, "nobody takes over")
        extra = [] if generation_of(cluster) == 1 else ["the upgrade was made without a hand-over"]
        former.start()
        if not extra and (not comes_up_to_date(cluster, node.name) or not upgrade_to(cluster, node)):
            extra.append("a second order comes to nothing")
        return finish_upgrade(cluster, *extra, generation=2)

    return scenario


def on_handover(cluster: Cluster, act: Callable[[str, str], None]) -> list[int]:
    """Do something as HANDOVER leaves, (source, target); gives a list that is filled then."""
    seen: list[int] = []

    def tap(end: Endpoint, data: bytes) -> None:
        if seen or len(data) > 2 * FRAME_HEAD.size + 64:
            return
        for kind, body in PacketReader(1 << 20).feed(data):
            if kind == Type.HANDOVER:
                seen.append(decode_struct(Handover, body).lsn)
                act(end.host, end.peer.host)

    cluster.network.taps.append(tap)
    return seen


def handover_that_comes_late(safeguards: Safeguards) -> list[Violation]:
    """HANDOVER is under way for long: a standby leads on, and what comes then is no leave to lead."""
    cluster = make(safeguards)
    node, before = with_upgrader(cluster), epoch_of(cluster)
    ways: list[tuple[str, str]] = []

    def hold(source: str, target: str) -> None:
        ways.append((source, target))
        cluster.network.hold(source, target)

    on_handover(cluster, hold)
    go(cluster)
    if not cluster.run_until(leads_after(cluster, before), 5 * SECOND_US):
        return given_up(cluster, "nobody takes over from who handed over in vain")
    cluster.run_for(SECOND_US // 5)
    cluster.network.heal(*ways[0])
    cluster.run_for(SECOND_US)
    extra = [] if generation_of(cluster) == 1 else ["an upgrade was made of a log that had gone on"]
    if not comes_up_to_date(cluster, node.name) or not upgrade_to(cluster, node):
        extra.append("a second order comes to nothing")
    return finish_upgrade(cluster, *extra, generation=2)


def handover_that_nobody_sent(safeguards: Safeguards) -> list[Violation]:
    """The upgrader hears of a hand-over while the primary goes on, which stands still between a proof and its replies:
    what it releases when it wakes up must be in the log that the new code goes on with.
    """
    cluster = make(safeguards)
    node, former = with_upgrader(cluster), primary_of(cluster)
    epoch, worker = epoch_of(cluster), node.worker_node
    assert worker is not None
    stands = Moment(cluster, former, "exists", "seal/", "after", lambda: _freeze(former), skip=1)
    assert cluster.run_until(lambda: stands.hit, SECOND_US), "the primary proves nothing"
    told = Handover(epoch, worker.running.place.lsn, node.upgrade.id)  # type: ignore[union-attr]  # it has one
    worker.process.post(lambda: worker.post(ev.HandoverReceived(told)))
    cluster.run_for(SECOND_US)
    former.thaw()
    cluster.run_for(SECOND_US)
    return finish_upgrade(cluster)


def both_killed(safeguards: Safeguards) -> list[Violation]:
    """The primary's machine ends with the hand-over, and the upgrader as it takes the lock: a standby leads on."""
    cluster = make(safeguards)
    node, former, before = with_upgrader(cluster), primary_of(cluster), epoch_of(cluster)
    stopped_at(cluster, node, ("link", "seal/", 0), ReplicaNode.kill_both)

    def soon(_source: str, _target: str) -> None:
        cluster.scheduler.call_later(500, former.kill_both)

    on_handover(cluster, soon)
    go(cluster)
    if not cluster.run_until(leads_after(cluster, before), 5 * SECOND_US):
        return given_up(cluster, "nobody takes over")
    cluster.run_for(SECOND_US)
    for each in (former, node):
        each.start()
    return finish_upgrade(cluster, generation=1)


def ordered_beside(what: str) -> Callable[[Safeguards], list[Violation]]:
    """A switchover, a stop or a kill of the primary is ordered together with an upgrade: one of them comes to pass."""

    def scenario(safeguards: Safeguards) -> list[Violation]:
        cluster = make(safeguards)
        node, former, before = with_upgrader(cluster), primary_of(cluster), epoch_of(cluster)
        worker = former.worker_node
        assert worker is not None
        go(cluster)
        if what == "switchover":
            worker.process.post(lambda: worker.post(ev.SwitchoverOrdered(ADMIN_CONN, 2, "")))
        elif what == "stop":
            former.stop()
        else:
            former.kill_both()
        if not cluster.run_until(leads_after(cluster, before), 5 * SECOND_US):
            return given_up(cluster, "nobody leads")
        cluster.run_for(SECOND_US)
        former.start()
        cluster.run_for(SECOND_US)
        del node
        return finish_upgrade(cluster)

    return scenario


def upgrader_that_lags(safeguards: Safeguards) -> list[Violation]:
    """The upgrader does not get the last frames: the upgrade is called off after a while, and the primary goes on."""
    cluster = make(safeguards)
    node, former, before = with_upgrader(cluster), primary_of(cluster), epoch_of(cluster)
    cluster.network.hold(former.name, node.name)
    cluster.run_for(SECOND_US // 10)
    go(cluster)
    cluster.run_for(7 * SECOND_US)
    extra = [] if (cluster.last_epoch, cluster.maybe_primary()) == (before, former) else ["the primary did not go on"]
    cluster.network.heal(former.name, node.name)
    if not comes_up_to_date(cluster, node.name) or not upgrade_to(cluster, node):
        extra.append("once it has caught up the upgrade is not made")
    return finish_upgrade(cluster, *extra, generation=2)


def upgraded_alone(safeguards: Safeguards) -> list[Violation]:
    """There is one replica, whose successor the upgrader is; after that it is the only one, until the other follows."""
    cluster = make(safeguards, replicas=1)
    node = with_upgrader(cluster)
    if not upgrade_to(cluster, node):
        return given_up(cluster, "the upgrade is not made")
    (former,) = others_of(cluster, node)
    cluster.run_for(SECOND_US)
    become(former, node.upgrade.to)  # type: ignore[union-attr]  # it has one
    return end(cluster, expected=REFUSED)

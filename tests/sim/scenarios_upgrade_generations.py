"""Whose generation of the code goes on: replicas of the former one that wake up late, upgraders beside each other."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tests.sim.stage import BUSY, SECOND_US, end, epoch_of, given_up, leads_after, make, others_of, primary_of
from tests.sim.upgrade_stage import (
    COLLECTING,
    become,
    comes_up_to_date,
    finish_upgrade,
    follow_suit,
    generation_of,
    go,
    leads,
    served,
    stopped_at,
    take_over,
    upgrade_to,
    wait_for_all,
    with_upgrader,
)

from deathless.base.errors import NewerLevel, UpgradeRequired
from deathless.base.safeguards import Safeguards
from deathless.codec.frames import parse_segment_name
from deathless.codec.generations import NEWEST, Level
from deathless.core import events as ev
from deathless.simulation.checkers import Violation
from deathless.simulation.nodes.cluster import Cluster
from deathless.simulation.nodes.replica_node import ReplicaNode


def standby_cut_off_from_the_new_primary(safeguards: Safeguards) -> list[Violation]:
    """A standby of the former code does not hear the new primary, and meets its epoch in the lock.

    Whom it can't succeed, it must not depose.
    """
    cluster = make(safeguards)
    node = with_upgrader(cluster)
    standby = next(each for each in others_of(cluster, node) if each is not primary_of(cluster))
    ways = [(node.name, standby.name), (standby.name, node.name)]
    for way in ways:
        cluster.network.hold(*way)
    if not upgrade_to(cluster, node):
        return given_up(cluster, "the upgrade is not made")
    before = epoch_of(cluster)
    cluster.run_for(4 * SECOND_US)
    deposed = cluster.last_epoch != before or not leads(cluster, node)
    for way in ways:
        cluster.network.heal(*way)
    cluster.run_for(SECOND_US)
    return finish_upgrade(cluster, *(["the new primary was deposed"] if deposed else []), generation=2)


def standby_ordered_to_take_over_behind_the_commit(safeguards: Safeguards) -> list[Violation]:
    """A hot standby of the former code is ordered to take over right as head is set: it looks at head's cut first."""
    cluster = make(safeguards)
    node = with_upgrader(cluster)
    standby = next(each for each in others_of(cluster, node) if each is not primary_of(cluster))
    worker = standby.worker_node
    assert worker is not None
    epoch = epoch_of(cluster)

    def order(_node: ReplicaNode) -> None:
        worker.process.post(lambda: worker.post(ev.TakeoverOrdered(epoch + 1, "as head is set")))

    stopped_at(cluster, node, ("sync_folder", "lock", 1), order)
    go(cluster)
    led = cluster.run_until(lambda: leads(cluster, node), 3 * SECOND_US)
    cluster.run_for(SECOND_US)
    deposed = led and cluster.last_epoch != epoch + 1
    extra = ["the new primary was deposed"] if deposed or not led else []
    return finish_upgrade(cluster, *extra, generation=2)


def frozen_through_an_upgrade_and_back(safeguards: Safeguards) -> list[Violation]:
    """A standby stands still while the service is upgraded and goes back: it wakes up to a log of its own code, whose
    state is not the one that it holds, and begins again with that.
    """
    cluster = make(safeguards)
    checkpointer = next(w for w in cluster.workers() if w.running.core.role == "checkpointer")
    checkpointer.process.post(checkpointer.running.take_checkpoint)  # of generation 1; there is none of the third
    cluster.run_for(SECOND_US // 2)
    first = with_upgrader(cluster)
    sleeper = next(each for each in others_of(cluster, first) if each is not primary_of(cluster))
    sleeper.freeze(supervisor_too=True)
    if not upgrade_to(cluster, first):
        return given_up(cluster, "the upgrade is not made")
    cluster.run_for(SECOND_US // 2)
    back = with_upgrader(cluster, "u1")
    if not upgrade_to(cluster, back):
        return given_up(cluster, "there is no way back")
    cluster.run_for(SECOND_US)
    sleeper.thaw()
    if not wait_for_all(cluster, [sleeper.name]):
        return given_up(cluster, "who woke up does not run")
    cluster.run_for(2 * SECOND_US)
    worker = sleeper.worker_node
    goes_on = worker is not None and worker.engine is not None and worker.running.place.generation.number == 3
    extra = [] if goes_on else ["who woke up does not go on with the generation that there is"]
    if extra:
        return given_up(cluster, *extra)
    return finish_upgrade(cluster, generation=3)


def backed_out_and_upgraded_again(safeguards: Safeguards) -> list[Violation]:
    """To the second code, back to the first by the second one's way down, and up again. Each time the upgrader is
    killed before its first checkpoint stands, and tries once more; whoever leads behind the cut is killed as well.
    """
    cluster = make(safeguards)
    wrong: list[str] = []
    for name in ("u0", "u1", "u2"):
        node = with_upgrader(cluster, name)
        before, epoch = generation_of(cluster), epoch_of(cluster)
        killed = stopped_at(cluster, node, ("link", "checkpoints/", 0), ReplicaNode.kill_both, helper=True)
        go(cluster, name)
        if not cluster.run_until(partial(getattr, killed, "hit"), 3 * SECOND_US):
            return given_up(cluster, f"{name}: it does not come to its first checkpoint")
        if not cluster.run_until(leads_after(cluster, epoch), 5 * SECOND_US) or generation_of(cluster) != before:
            return given_up(cluster, f"{name}: the code of before does not go on")
        node.start()
        if not comes_up_to_date(cluster, name) or not upgrade_to(cluster, node):
            return given_up(cluster, f"{name}: the upgrade is not made")
        follow_suit(cluster)
        if not wait_for_all(cluster, [each for each in cluster.replicas if not each.startswith("u")]):
            return given_up(cluster, f"{name}: the others do not follow")
        cluster.run_for(SECOND_US // 3)
        wrong += take_over(cluster)
        follow_suit(cluster)
        cluster.run_for(SECOND_US // 3)
    return finish_upgrade(cluster, *wrong, generation=4)


def two_upgraders_of_the_same_code(safeguards: Safeguards) -> list[Violation]:
    """Both are ordered to go at once: one makes the upgrade, the other is its standby by itself, and takes over."""
    cluster = make(safeguards)
    first, second = with_upgrader(cluster), with_upgrader(cluster, "u1")
    go(cluster, "u0")
    go(cluster, "u1")
    if not cluster.run_until(lambda: leads(cluster, first) or leads(cluster, second), 3 * SECOND_US):
        return given_up(cluster, "no upgrade is made")
    cluster.run_for(2 * SECOND_US)
    leader = primary_of(cluster)
    before = epoch_of(cluster)
    leader.kill_both()
    other = second if leader is first else first
    taken = cluster.run_until(lambda: cluster.last_epoch > before and leads(cluster, other), 5 * SECOND_US)
    leader.start()
    extra = [] if taken else ["the second upgrader does not take over"]
    return finish_upgrade(cluster, *extra, generation=2)


def two_upgraders_to_different_codes(safeguards: Safeguards) -> list[Violation]:
    """Two are ordered to go at once, to codes that differ: one is made, and the other is refused by name."""
    cluster = make(safeguards)
    code = cluster.shared.beside.codes[1]
    with_upgrader(cluster)
    other = with_upgrader(cluster, "u1", replace(code, fingerprint=bytes(range(32, 48))))
    assert other.upgrade is not None
    other.upgrade.id = b"quite another id"
    go(cluster, "u0")
    go(cluster, "u1", other.upgrade.id)
    if not cluster.run_until(lambda: generation_of(cluster) == 2 if cluster.maybe_primary() else False, 3 * SECOND_US):
        return given_up(cluster, "no upgrade is made")
    cluster.run_for(3 * SECOND_US)
    supervisor = other.supervisor_node
    said = "" if supervisor is None else supervisor.machine.report.condition
    extra = [] if said == UpgradeRequired.code else [f"the other one says {said!r}"]
    become(other, code)
    return finish_upgrade(cluster, *extra, generation=2)


def upgrader_of_a_generation_that_is_over(safeguards: Safeguards) -> list[Violation]:
    """An upgrader stands still while another makes the upgrade and the service goes back: it makes no third."""
    return _of_a_generation_that_is_over(safeguards)


def upgrader_of_a_generation_that_was_collected(safeguards: Safeguards) -> list[Violation]:
    """The same, and the log that it was reading is gone: a checkpoint of its former code is still none for it."""
    return _of_a_generation_that_is_over(safeguards, collected=True)


def _of_a_generation_that_is_over(safeguards: Safeguards, *, collected: bool = False) -> list[Violation]:
    cluster = (
        make(safeguards, limits=COLLECTING, workload=replace(BUSY, requests=300)) if collected else make(safeguards)
    )
    first, late = with_upgrader(cluster), with_upgrader(cluster, "u1")
    late.freeze(supervisor_too=True)
    if not upgrade_to(cluster, first):
        return given_up(cluster, "the upgrade is not made")
    cluster.run_for(SECOND_US // 2)
    back = with_upgrader(cluster, "u2")
    if not upgrade_to(cluster, back):
        return given_up(cluster, "there is no way back")
    follow_suit(cluster)
    if collected and not cluster.run_until(lambda: _first_epoch(cluster) > 2, 10 * SECOND_US):
        return given_up(cluster, "the log of the first generation is not collected")
    late.thaw()
    cluster.run_for(2 * SECOND_US)
    go(cluster, "u1")
    cluster.run_for(2 * SECOND_US)
    extra = [] if served(cluster) and generation_of(cluster) == 3 else ["it upgraded what is over"]
    return finish_upgrade(cluster, *extra, generation=3)


def _first_epoch(cluster: Cluster) -> int:
    """The oldest epoch of which a file stands."""
    names = (parse_segment_name(name) for name in cluster.disk.folders["log"].entries)
    return min(place[0] for place in names if place is not None)


# ---- builds that know other format levels -------------------------------------------------------------------------


def level_of(cluster: Cluster) -> int:
    """Format level of the primary's log."""
    worker = primary_of(cluster).worker_node
    assert worker is not None
    return worker.running.place.generation.level


def put_to(node: ReplicaNode, level: int) -> None:
    """Start a replica again, with a build that knows this level."""
    node.kill_both()
    node.level = level
    node.start()


def rolled_to_a_build_of_a_later_level(safeguards: Safeguards) -> list[Violation]:
    """The log keeps its level while replicas are rolled, and until the build of the former code knows a later one."""
    cluster = make(safeguards, level=Level.FIRST)
    levels, extra = [level_of(cluster)], []
    for node in list(cluster.replicas.values()):
        put_to(node, NEWEST)
        extra += [] if served(cluster) else ["nobody leads"]
        extra += take_over(cluster)
        levels.append(level_of(cluster))
    for number, level in enumerate((Level.FIRST, NEWEST)):
        if not upgrade_to(cluster, with_upgrader(cluster, f"u{number}", level=level)):
            return given_up(cluster, f"upgrade {number} is not made")
        follow_suit(cluster)
        cluster.run_for(SECOND_US // 2)
        extra += take_over(cluster)
        levels.append(level_of(cluster))
    if levels != [Level.FIRST] * 5 + [NEWEST]:
        extra.append(f"the levels were {levels}")
    return finish_upgrade(cluster, *extra, generation=3)


def older_build_at_a_later_level(safeguards: Safeguards) -> list[Violation]:
    """A replica is put back to a build that can't read the log: it stops with its code, and the others go on."""
    cluster = make(safeguards)
    node = others_of(cluster, primary_of(cluster))[0]
    put_to(node, Level.FIRST)
    cluster.run_for(SECOND_US)
    supervisor = node.supervisor_node
    refused = supervisor is not None and supervisor.machine.report.condition == NewerLevel.code
    extra = [] if refused else ["an older build follows"]
    extra += take_over(cluster)
    if primary_of(cluster) is node:
        extra.append("an older build leads")
    put_to(node, NEWEST)
    cluster.run_for(SECOND_US)
    return end(cluster, *extra, expected=frozenset({NewerLevel.code}))

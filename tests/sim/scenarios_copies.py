"""Scenarios of a directory that is copied while its service runs: the copy's replicas wake up beside the original.

They have its names, its lock's files, its addresses and its secrets. Whatever they do, nobody of the original is
ordered, fed or deposed, and what is meant for a peer is not swallowed because the copy said something else there.
"""

from __future__ import annotations

from tests.sim.scenarios_services import Pair, visit_of
from tests.sim.stage import SECOND_US, end, epoch_of, given_up, make, others_of, primary_of

from deathless.base.errors import CopiedDirectory, HistoryDiffers, LogTruncated, OtherDirectory, StoreOlderThanLog
from deathless.base.safeguards import Safeguards
from deathless.simulation.checkers import Violation
from deathless.simulation.checkers.history import History
from deathless.simulation.nodes.cluster import Cluster
from deathless.simulation.nodes.copies import Copy, CopyProfile
from deathless.simulation.runs.verdict import recover
from deathless.simulation.workload.client_node import ClientNode
from deathless.simulation.workload.visits import Hop, Visit, applied_tags

SEED = 2  # the copy's first report in it calls the primary's replica what it is not
WHILE_US = 2 * SECOND_US
HALF = tuple(CopyProfile(step_us=step_us, left_out=left_out) for step_us in (1, 50_000) for left_out in (0, 1, 2, 3))


def _beside(safeguards: Safeguards, profile: CopyProfile, *, fence: str = "seal") -> tuple[Cluster, Copy, list[str]]:
    """Let a copy wake up beside a cluster that serves; gives what the original did that it had no reason to."""
    cluster = make(safeguards, seed=SEED, fence=fence, proofs=True)
    before = epoch_of(cluster)
    copy = Copy(cluster, profile)
    cluster.run_for(WHILE_US)
    deposed = cluster.last_epoch != before
    return cluster, copy, ["a primary that was well was deposed because of a copy"] if deposed else []


def copied_by_files(safeguards: Safeguards) -> list[Violation]:
    """`cp -r` of the running folder, and `up` in the copy: it refuses, and says what it is."""
    cluster, copy, wrong = _beside(safeguards, CopyProfile())
    if copy.told() != {CopiedDirectory.code} or copy.workers():
        wrong.append(f"the copy does not say that it is one: {sorted(copy.told())}")
    return end(cluster, *wrong)


def copied_by_halves(safeguards: Safeguards) -> list[Violation]:
    """The same while files change, and with folders that are not there: it says what it is, if that was copied.

    Without the directory's own files, `place` among them, it may start; nobody of the original hears it then.
    """
    violations: list[Violation] = []
    for profile in HALF:
        cluster, copy, wrong = _beside(safeguards, profile)
        if copy.workers() and copy.placed:
            wrong.append(f"half a copy runs: {profile}")
        violations += end(cluster, *wrong)
    return violations


def cloned_volume(safeguards: Safeguards) -> list[Violation]:
    """A snapshot of the volume, inodes and all: the copy has the lock's files, and leads in it. Nobody else hears it.

    With the pages of the original's machine and without; all of the copy's replicas wake up, or one alone, which knows
    the original's addresses of the others. That one is told what it is.
    """
    violations: list[Violation] = []
    for pages in (True, False):
        for asleep in (0, 2):
            profile = CopyProfile(by_blocks=True, pages=pages, asleep=asleep)
            cluster, copy, wrong = _beside(safeguards, profile)
            if asleep and copy.told() != {OtherDirectory.code}:
                wrong.append(f"the copy is not told that it stands elsewhere: {sorted(copy.told())}")
            violations += end(cluster, *wrong)
    return violations


def cloned_beside_a_dead_primary(safeguards: Safeguards) -> list[Violation]:
    """The primary dies while the copy's one of that name runs: the others find out, and one of them takes over."""
    cluster = make(safeguards, seed=SEED, proofs=True)
    node, before = primary_of(cluster), epoch_of(cluster)
    Copy(cluster, CopyProfile(by_blocks=True))
    cluster.run_for(SECOND_US // 2)
    node.kill_both()
    led = cluster.run_until(lambda: cluster.last_epoch > before and cluster.maybe_primary() is not None, 5 * SECOND_US)
    by_ours = cluster.maybe_primary() in others_of(cluster, node)
    node.start()
    return end(cluster, *([] if led and by_ours else ["nobody took over beside a copy"]))


def copied_to_another_store(safeguards: Safeguards) -> list[Violation]:
    """With etcd a copy is no place of its own: one that asks a store of its own finds no service there, and stops."""
    cluster, copy, wrong = _beside(safeguards, CopyProfile(), fence="etcd")
    codes = {code for _, code, _ in copy.shared.stops}
    if copy.leads or codes != {StoreOlderThanLog.code}:
        wrong.append(f"a copy leads in a store that does not know it, or does not say so: {sorted(codes)}")
    return end(cluster, *wrong)


def copied_with_its_store(safeguards: Safeguards) -> list[Violation]:
    """The one copy that can depose its original: both ask one etcd, under one prefix, which gives the lock to one.

    What holds then is what the lock gives: from when the copy leads on nothing leaves a replica of the original, and
    each that looks for the log says that it is not there. Nobody goes on without what others were told.
    """
    cluster = make(safeguards, seed=SEED, fence="etcd", proofs=True)
    copy = Copy(cluster, CopyProfile(by_blocks=True, same_store=True))
    led = cluster.run_until(lambda: copy.leads, 5 * SECOND_US)
    said = len(cluster.tap.replies)
    cluster.run_for(WHILE_US)
    codes = {code for _, code, _ in cluster.shared.stops}
    return given_up(
        cluster,
        *([] if led else ["the copy does not lead: it is told from the original now, so the pages can say so"]),
        *([] if len(cluster.tap.replies) == said else ["a replica of the original released beside the copy"]),
        *([] if codes == {LogTruncated.code} else [f"the original does not say what is missing: {sorted(codes)}"]),
    )


def _asks_copy(pair: Pair, copy: Copy, visit: Visit) -> ClientNode:
    """Have a client that knows the copy's addresses ask it for a visit."""
    return ClientNode(
        "stranger",
        pair.scheduler,
        pair.network,
        addresses=[f"{machine}:1" for machine in sorted(copy.machines)],
        requests=[visit.request],
        window=1,
        history=History(),
        asked=lambda _request: None,
        answered=lambda _key, _reply: None,
        service="ant",
        encode=lambda _request: visit.encode(),
    )


def clone_that_talks_to_a_peer(safeguards: Safeguards) -> list[Violation]:
    """A clone sends a peer something of its own, in the position that the original's next message has.

    The original's is not taken for a repetition of that: it is kept, nothing more is sent, and both sides say why.
    """
    pair = Pair(safeguards, proofs=True)
    ant, bee = pair.ant, pair.bee
    pair.ask("before", visit_of("a", Hop("bee", "d1", "toss")))
    begun = ant.run_until(lambda: ant.served and ant.delivered, 5 * SECOND_US)
    copy = Copy(ant, CopyProfile(by_blocks=True))
    awake = ant.run_until(lambda: copy.leads, 5 * SECOND_US)
    stranger = _asks_copy(pair, copy, visit_of("s", Hop("bee", "d1", "toss")))
    stranger.start()
    first = ant.run_until(lambda: stranger.done and "s.0" in _visits(bee), 5 * SECOND_US)
    for _ in range(2):  # a peer hears the later epoch of two alone; the original's is the later one now
        epoch = ant.last_epoch
        primary_of(ant).kill_worker()
        assert ant.run_until(lambda: ant.last_epoch > epoch and ant.maybe_primary() is not None, 5 * SECOND_US)  # noqa: B023
    pair.ask("after", visit_of("b", Hop("bee", "d1", "toss")))
    ant.run_until(lambda: ant.served and ant.delivered, 5 * SECOND_US)
    came = "b.0" in _visits(bee)
    problems = _problems(ant)
    told = any(HistoryDiffers.code in text for text in problems)
    return pair.end(
        *([] if begun and awake and first else ["it did not begin well"]),
        *([] if came or not ant.delivered else ["a message of the original was swallowed because of the copy's"]),
        *([] if came or told else [f"the original does not say that histories differ: {problems}"]),
        *(str(each) for each in copy.violations()),
    )


def _visits(cluster: Cluster) -> list[str]:
    return applied_tags([recover(cluster).shard.executor.state()])


def _problems(cluster: Cluster) -> list[str]:
    """What keeps its primary from sending to its peers."""
    worker = primary_of(cluster).worker_node
    assert worker is not None
    primary = worker.running.core.primary
    assert primary is not None
    return [view.problem for view in primary.messaging.outreach.views()]

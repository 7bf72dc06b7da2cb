"""Scenarios around what authors write: a handler that kills its process, differs, or is slow (I6, I11)."""

from __future__ import annotations

from tests.sim.stage import SECOND_US, ask, end, epoch_of, given_up, make, others_of, primary_of

from deathless.base.safeguards import Safeguards
from deathless.simulation.checkers import Outcome, Violation
from deathless.simulation.workload.lab import HOOKS, Cell


def killing_handler(safeguards: Safeguards) -> list[Violation]:
    """A message kills the process of its handler, each time: it is parked, its caller is told, the service goes on."""
    cluster = make(safeguards)

    def hook(tag: str, _cell: Cell) -> None:
        current = cluster.scheduler.current
        if tag == "poison" and current is not None:
            current.kill()

    HOOKS.on_turn = hook
    ask(cluster, "poison")
    parked = cluster.run_until(lambda: cluster.clients["victim"].done, 8 * SECOND_US)
    outcomes = [op.outcome for op in cluster.history if op.tag == "poison"]
    extra = [] if outcomes == [Outcome.REFUSED] else [f"the caller of the killer was told {outcomes}"]
    if not parked:
        HOOKS.reset()
        return given_up(cluster, *extra)
    return end(cluster, *extra)


def burst_of_killers(safeguards: Safeguards) -> list[Violation]:
    """Five messages kill their process, each time: they cost one takeover in all, and each caller is told."""
    cluster = make(safeguards)
    before = epoch_of(cluster)

    def hook(tag: str, _cell: Cell) -> None:
        current = cluster.scheduler.current
        if tag.startswith("poison") and current is not None:
            current.kill()

    HOOKS.on_turn = hook
    names = [f"victim{number}" for number in range(5)]
    for name in names:
        ask(cluster, f"poison of {name}", name)
    parked = cluster.run_until(lambda: all(cluster.clients[name].done for name in names), 20 * SECOND_US)
    outcomes = [op.outcome for op in cluster.history if op.tag.startswith("poison")]
    extra = [] if outcomes == [Outcome.REFUSED] * len(names) else [f"the callers of killers were told {outcomes}"]
    if (takeovers := epoch_of(cluster) - before) > 1:
        extra.append(f"they cost {takeovers} takeovers")
    if not parked:
        HOOKS.reset()
        return given_up(cluster, *extra)
    return end(cluster, *extra)


def differing_handler(safeguards: Safeguards) -> list[Violation]:
    """One follower computes something else, once: it stops, reloads what the primary has, and agrees again."""
    cluster = make(safeguards)
    follower = others_of(cluster, primary_of(cluster))[0]
    differed: list[str] = []

    def hook(tag: str, cell: Cell) -> None:
        if tag == "differs" and not differed and cluster.scheduler.current is follower.worker:
            differed.append(tag)
            cell.number += 1

    HOOKS.on_turn = hook
    ask(cluster, "differs")
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
    ask(cluster, "slow")
    cluster.run_for(SECOND_US)
    HOOKS.reset()
    stolen = cluster.last_epoch > before
    return end(cluster, *(["somebody took over from a busy primary"] if stolen else []))


def differing_primary(safeguards: Safeguards) -> list[Violation]:
    """The primary alone computes what no replay gives: it holds what was released, so the others take it over.

    A replay from zero can't succeed any more, so only what the replicas themselves come to is looked at.
    """
    cluster = make(safeguards)
    node = primary_of(cluster)
    before = epoch_of(cluster)
    differed: list[str] = []

    def hook(tag: str, cell: Cell) -> None:
        if tag == "differs" and cluster.scheduler.current is node.worker:
            differed.append(tag)
            cell.number += 1

    HOOKS.on_turn = hook
    ask(cluster, "differs")
    assert cluster.run_until(lambda: bool(differed), 3 * SECOND_US)
    cluster.run_for(3 * SECOND_US)
    agreed = cluster.run_until(lambda: cluster.served and cluster.settled, 10 * SECOND_US)
    return given_up(
        cluster,
        *([] if agreed else ["the others do not take over what the primary computed"]),
        *([] if cluster.last_epoch == before else ["the primary did not stay"]),
    )

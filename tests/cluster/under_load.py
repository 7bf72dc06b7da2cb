"""A service is called all the time while something happens to it: what the tests of faults and of changes share.

    with called(ledger, patient=True) as callers:
        ... break or change something, wait for what must follow ...
        callers.wait_more()
    check_no_call_failed(callers)

Guarantees: `called` ends with the service Ready, callers served, nothing lost and nothing done twice. Waits are for
conditions of the cluster, never for a time. Does not: break anything.
"""

from __future__ import annotations

import json
import os
import random
import secrets
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from lab.cluster.cluster import Pod
from tests.cluster.front_door import Callers
from tests.cluster.installed import LOCK_STORE, NAMESPACE, Ledger

SEED = "DEATHLESS_SEED"


@contextmanager
def called(ledger: Ledger, *, patient: bool = False) -> Iterator[Callers]:
    """Call all the time; afterwards everything is well again and nothing was lost or done twice.

    Args:
        ledger: the service.
        patient: give attempts time, for `check_no_call_failed`: how long a pause was, the bench measures.
    """
    ledger.wait_ready()
    wait_whole(ledger)
    with Callers(ledger.door(), patient=patient) as callers:
        callers.wait_more()
        callers.wait_each()
        # A single pod that has just become ready may be refused by a node that has not heard of it.
        callers.forget_failures()
        yield callers
        callers.wait_more()
        ledger.wait_ready()
        callers.wait_more()
    callers.check_exactly_once()


def check_no_call_failed(callers: Callers) -> None:
    """No attempt came back without a good answer, but for those that a front door gave up in its time."""
    assert not callers.failures, (
        f"{len(callers.failures)} attempts failed beside {len(callers.answered)} answers, none came for up to "
        f"{callers.longest_gap_s():.1f} s: {callers.failures[:5]}"
    )


def wait_whole(ledger: Ledger) -> None:
    """Wait until all its pods are Ready, and all of the installation's lock store where it uses that."""
    ledger.wait_for(lambda: are_ready(ledger.pods()), "all pods are Ready")
    if "lock" not in ledger.resource()["spec"]:
        ledger.wait_for(
            lambda: are_ready(ledger.cluster.pods(NAMESPACE, LOCK_STORE)), "all members of the lock store are Ready"
        )


def are_ready(pods: Collection[Pod]) -> bool:
    """Are there pods, all of them Ready at an address and none about to go?"""
    return bool(pods) and all(pod.ready and pod.address and not pod.going for pod in pods)


def wait_epoch(ledger: Ledger, above: int) -> None:
    """Wait until somebody has taken over."""
    ledger.wait_for(lambda: ledger.epoch() > above, f"an epoch above {above}")


def wait_pods(ledger: Ledger, count: int) -> None:
    """Wait until there are so many pods of replicas."""
    ledger.wait_for(lambda: len(ledger.pods()) == count, f"{count} pods")


def wait_caught_up(ledger: Ledger, count: int = 3) -> None:
    """Wait until so many pods are Ready and follow one primary; the status may be of before, its writer being away."""

    def holds() -> bool:
        pods = ledger.pods()
        epochs = {json.loads(pod.annotations.get("deathless.dev/status", "{}")).get("epoch") for pod in pods}
        return len(pods) == count and all(pod.ready for pod in pods) and len(epochs) == 1

    ledger.wait_for(holds, f"{count} pods are Ready and follow one primary")


def uids(ledger: Ledger) -> set[str]:
    """The pods of the replicas, as no later pod is called."""
    return {pod.uid for pod in ledger.pods()}


def wait_gone(ledger: Ledger, before: Collection[str], *, left: int = 0) -> None:
    """Wait until at most `left` of the pods of before are still there."""
    ledger.wait_for(
        lambda: len(uids(ledger).intersection(before)) <= left, f"at most {left} of {len(before)} pods are left"
    )


@contextmanager
def chance() -> Iterator[random.Random]:
    """Chance from a seed that a failure tells; the environment may set it, to see the same again."""
    seed = int(os.environ.get(SEED) or secrets.randbits(32))
    try:
        yield random.Random(seed)
    except BaseException as error:
        error.add_note(f"seed {seed}; the same again: {SEED}={seed}")
        raise

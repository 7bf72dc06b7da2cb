"""What the run of a seed is: one cluster, several services that call each other, or a cluster that takes streams.

A module of its own, because a pool's fresh interpreters find functions by their module, and never those of a package's
`__main__`. Does not: read the command line, or say what came out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from deathless.simulation.runs.run import Options, Result, run_seed
from deathless.simulation.runs.services import SERVICES_MAX, run_services
from deathless.simulation.runs.streams import run_streams

SERVICES_EVERY: Final = 10  # seeds, of which the last is a run of services that call each other
SHARDED_MAX: Final = 3  # services of a run that may have shards: each shard is a whole cluster
EVERY_SEED: Final = 0  # what the command line says for: services in every seed, as many as the seed says
STREAMS: Final = -1  # what the command line says for: a cluster that takes streams, in every seed


def services_of(seed: int, services: int | None) -> int:
    """Say how many services the run of a seed has; `services`: what the command line says, None: nothing."""
    if services == EVERY_SEED:
        return 2 + seed % (SERVICES_MAX - 1)
    if services is not None:
        return services
    turn, place = divmod(seed, SERVICES_EVERY)
    return 2 + turn % (SERVICES_MAX - 1) if place == SERVICES_EVERY - 1 else 1


def shards_of(seed: int, services: int) -> int:
    """Say how many shards each service of a seed's run has: several in a third of the runs with few services."""
    return 2 if 1 < services <= SHARDED_MAX and seed % 3 == 0 else 1


def run(work: tuple[int, int, Options]) -> Result:
    """Run one seed, with so many services, under these options."""
    seed, services, options = work
    if services == STREAMS:
        return run_streams(seed, options)
    if services == 1:
        return run_seed(seed, options)
    return run_services(seed, services, replace(options, shards=shards_of(seed, services)))


def run_one(work: tuple[int, int, Options]) -> Result:
    """Run one seed for a pool of processes, where the trace's text is not wanted back."""
    return replace(run(work), trace=())

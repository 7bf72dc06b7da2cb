"""Whether a volume is large enough for the log of a service, and what is said where it is not.

Why: a log that fills a volume below the least can't take a checkpoint and can't let anything go, so the service stops
for good one day. That is told before it begins, by whoever knows a size: `deathless up` and each replica at its start,
and the operator from the size of the claim.

Guarantees: they all go by `Limits.least_volume_bytes`, with the limits as the volume changes them. Does not: look at a
volume. Imports nothing of ours but limits.
"""

from __future__ import annotations

from typing import Final

from deathless.base.limits import Limits

MIB: Final = 1 << 20
KIB: Final = 1 << 10


def show_bytes(size: int) -> str:
    """Give a size as Kubernetes writes quantities, in whole Mi; below one of them in whole Ki. Rounded up."""
    unit, name = (MIB, "Mi") if size >= MIB else (KIB, "Ki")
    return f"{-(-size // unit)}{name}"


def find_shortage(
    volume_bytes: int, limits: Limits, *, replicas: int, shards: int = 1, state_bytes: int = 0, topics_bytes: int = 0
) -> str | None:
    """Say what a volume lacks; None: it is large enough, or it does not say how large it is.

    Args:
        volume_bytes: of the whole volume, used or not; 0 and less: not known.
        limits: of the service; that they are fitted to the volume makes no difference.
        replicas: of each shard.
        shards: of the service, all on this volume.
        state_bytes: one checkpoint of a shard, as far as it is known.
        topics_bytes: what the rows of its topics may come to, of all shards together.
    """
    least = limits.least_volume_bytes(replicas, shards=shards, state_bytes=state_bytes) + topics_bytes
    if volume_bytes <= 0 or volume_bytes >= least:
        return None
    whom = f"{shards} shards of {replicas}" if shards > 1 else f"{replicas}"
    states = f", with checkpoints of {show_bytes(state_bytes)}" if state_bytes else ""
    topics = f", and {show_bytes(topics_bytes)} of topics," if topics_bytes else ""
    return (
        f"the log's volume has {volume_bytes // KIB}Ki, and the least for {whom} "
        f"{'replica' if replicas == 1 else 'replicas'} with these limits{states}{topics} is {show_bytes(least)}"
    )

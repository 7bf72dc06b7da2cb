"""What a replay does for a fork: it notes how far the service had got with others, and writes the fork's checkpoint.

Why in a replay: positions of outboxes stand in no log, since turns give them. The process that runs the log again has
them behind each frame, and at the cut it has the state that the forked service begins with.

Guarantees: the checkpoint is the original's state at its place, but for who the services of the fork are. Does not:
decide the place, write anything else. May import engine, core, codec and base.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from deathless.base.ids import Incarnation
from deathless.codec.peer_messages import Target
from deathless.core.access.fork import ForkedService, peers_in_fork
from deathless.core.replica.fork_cut import ForkPlace, Known
from deathless.engine.log.checkpoint_store import CheckpointStore
from deathless.engine.shard.shard import Shard
from deathless.shell.disk.filesystem import RealFileSystem

NAME: Final = "fork"  # stands as replica in what a fork writes


class ForkOrder(msgspec.Struct, kw_only=True):
    """The checkpoint that is to be written at the end of a run."""

    directory: str  # of the forked service
    service: str  # which of `forked` this is
    forked: dict[str, ForkedService]
    epoch: int
    fingerprint: bytes


def place_behind(shard: Shard, names: Sequence[str]) -> ForkPlace:
    """Say how far a shard has got with other services."""
    targets = {name: Target(name, 0) for name in names}
    peers = {name: peer for name, target in targets.items() if (peer := shard.peers.get(target)) is not None}
    sessions = {name: session for name, peer in peers.items() if (session := shard.sessions.get(peer.session))}
    return ForkPlace(
        shard.place.lsn,
        shard.place.chain,
        {name: shard.outbox.next_position(target) - 1 for name, target in targets.items()},
        {name: shard.outbox.first_position(target) - 1 for name, target in targets.items()},
        {name: session.next_seq - 1 for name, session in sessions.items()},
        {name: Known(peer.session, peer.service_id, peer.incarnation) for name, peer in peers.items()},
    )


def write_checkpoint(shard: Shard, order: ForkOrder) -> None:
    """Write the checkpoint that the forked service begins with, and read it back. Raises: OutOfSpace; OSError."""
    own = order.forked[order.service]
    snapshot = shard.snapshot(
        service=order.service,
        service_id=own.forked_id,
        incarnation=Incarnation(own.forked_incarnation),
        epoch=order.epoch,
        fingerprint=order.fingerprint,
    )
    snapshot.peers = peers_in_fork(snapshot.peers, order.forked)
    store = CheckpointStore(RealFileSystem(order.directory), NAME)
    name = store.write(snapshot)
    store.announce(name)
    store.verify(name)

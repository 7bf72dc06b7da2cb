"""The services that are forked: who they are, whose code their logs are run by, and where each log can be cut.

    original_of    who it is, and the code that was kept with its log
    places_of      its log run again in a fresh process: how far it had got with the others behind each frame
    position_of    the place in its log at which it is cut

Guarantees: nothing of the originals is changed, and they may run meanwhile. Does not: decide the cut. May import
engine, core, codec and base.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.base.errors import ForkRefused, FormerCodeMissing, LogTruncated
from deathless.base.lock_stores import lock_store
from deathless.codec.frames import Cut, Position
from deathless.core.access.fork import ForkedService
from deathless.core.replica.fork_cut import ForkPlace
from deathless.engine.ports import ServiceRecord
from deathless.shell.directory.adopted import read_adoption
from deathless.shell.lock_stores.inspection import Inspection, inspect
from deathless.shell.operate.forking.program import ProgramFiles
from deathless.shell.operate.replay import ReplayOrder, replay
from deathless.shell.service_code.former_command import former_command


@dataclass(frozen=True, slots=True)
class Original:
    """A service that is forked."""

    config: ReplicaConfig  # with the kept code
    folder: str  # that the module's path starts from
    look: Inspection
    record: ServiceRecord  # with the id and incarnation that count now
    cut: Cut  # of the log's last epoch: whose code goes on with it
    program: ProgramFiles | None = None  # of its program, where it has one

    @property
    def name(self) -> str:
        """The service's name."""
        return self.config.service

    def forked_as(self, service_id: bytes, incarnation: int) -> ForkedService:
        """Say who the forked one is."""
        return ForkedService(self.record.service_id, self.record.incarnation, service_id, incarnation)


async def original_of(config: ReplicaConfig, folder: str) -> Original:
    """Look at a service that shall be forked.

    Args:
        config: of any replica.
        folder: that its module's path starts from.

    Raises: ForkRefused for what can't be forked; as `inspect`; DataCorrupt errors, OSError.
    """
    if config.shards > 1:
        raise ForkRefused(f"{config.service} has {config.shards} shards: only services of one shard are forked")
    if not lock_store(config.lock).in_directory:
        raise ForkRefused(
            f"{config.service} has its lock in {config.lock}: only services whose lock is in their directory are forked"
        )
    program = None if config.binding is None else ProgramFiles(config.directory)
    look = await inspect(config)
    if not look.view.head:
        raise ForkRefused(f"{config.service}: its log is empty", remedy="fork it once it has served")
    cut = look.reader.routes.cut(look.view.head)
    with contextlib.suppress(FormerCodeMissing):
        _, kept, module = former_command(config.directory, cut.fingerprint)
        config = msgspec.structs.replace(config, code=kept.name, module=module)
    record = read_adoption(config.directory).apply(look.record)
    return Original(config, folder, look, record, cut, program)


async def places_of(original: Original, others: Sequence[str], *, oldest: bool) -> list[ForkPlace]:
    """Run its log again, and say of each place how far it had got with the others.

    Args:
        original: the service.
        others: with whom.
        oldest: from as early as the log allows; else from the newest checkpoint.

    Raises: as `replay`.
    """
    order = ReplayOrder(peers=list(others), oldest=oldest, folder=original.folder)
    return (await replay(original.config, order)).places


def position_of(original: Original, place: ForkPlace) -> Position:
    """Give the position behind the frame that a place stands behind. Raises: ForkRefused; DataCorrupt errors, OSError.

    The log may have been collected up to just there: then the way begins with the place itself.
    """
    routes, head = original.look.reader.routes, original.look.view.head
    try:
        route = routes.find(head, max(place.lsn - 1, 0))
    except LogTruncated:
        route = routes.find(head, place.lsn)
    at = route.start
    for step in original.look.steps(route):
        if at.lsn >= place.lsn:
            break
        at = step.after
    if (at.lsn, at.chain) != (place.lsn, place.chain):
        raise ForkRefused(f"{original.name}: its log does not pass through lsn {place.lsn} any more")
    return at.position

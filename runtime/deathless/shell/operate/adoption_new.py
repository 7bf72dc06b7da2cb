"""What an operator says of a copied directory: a service of its own (`--as-new`), or the same one moved (`--moved`).

    as new   new service id, incarnation and installation; the seeds stay, for the log can be run again by them alone.
             members/ is emptied, what was written so far counts as this service's own. What would leave it (messages to
             peers and drivers, activities) is held until `deathless resume-outside`, or a copy of a shop would charge
             every card a second time
    moved    nothing but the place is new: the other directory is gone

Guarantees: nothing is written while a replica runs; the place is written last, so that a directory that was left half
way is refused as a copy still. Does not: change the original, or dial anybody. May import engine and base.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.base.errors import CopiedDirectory, ForeignDirectory, HalfCopy, InvalidArgument
from deathless.base.lock_stores import lock_store
from deathless.engine.log.overview import newest_opening
from deathless.engine.ports import ServiceRecord
from deathless.shell.directory.adopted import read_adoption, write_adoption
from deathless.shell.directory.identity import Identity, read_identities, write_identity
from deathless.shell.directory.place import at_home, check_place, find_place, fits, read_place, write_place
from deathless.shell.directory.service_record import FILE as COPY
from deathless.shell.directory.service_record import keep_copy, read_copy
from deathless.shell.disk.filesystem import RealFileSystem
from deathless.shell.lock_stores.opening import open_lock
from deathless.shell.operate.adoption import NAME, Difference, raise_store, refuse_while_running

AS_NEW, MOVED = "as-new", "moved"


async def look_copy(config: ReplicaConfig, *, as_new: bool) -> list[Difference]:
    """Say what accepting a copy does. Raises: as `look_new` and `look_moved`."""
    return await look_new(config) if as_new else look_moved(config)


async def accept(config: ReplicaConfig, *, as_new: bool) -> None:
    """Accept a copy. Raises: as `carry_out_new` and `carry_out_moved`."""
    if as_new:
        await carry_out_new(config)
    else:
        carry_out_moved(config)


async def accept_copies(configs: Sequence[ReplicaConfig], how: str) -> list[str]:
    """Accept those of these directories that are copies, as was said beforehand; gives which ones were.

    Args:
        configs: one of each shard.
        how: AS_NEW or MOVED.

    Raises: as `accept`.
    """
    found = []
    for config in configs:
        try:
            check_place(config.directory)
        except CopiedDirectory:
            await accept(config, as_new=how == AS_NEW)
            found.append(config.directory)
    return found


def look_moved(config: ReplicaConfig) -> list[Difference]:
    """Say what accepting a move does.

    Raises: OtherSupervisor while a replica runs; InvalidArgument where there is nothing to accept, or the other
    directory still stands.
    """
    refuse_while_running(config.directory)
    found = find_place(config.directory)
    if found is None or fits(config.directory, found):
        raise InvalidArgument(f"{config.directory} is not a copy: there is nothing to adopt")
    place = found.place
    if place.path != os.path.realpath(config.directory) and at_home(place):
        raise InvalidArgument(
            f"{place.path} still exists: this directory was copied, not moved",
            remedy="remove the other one, or make this a service of its own: `deathless adopt --as-new`",
        )
    return [Difference(f"this directory was written as {place.path}", "it is the service's own from now on")]


def carry_out_moved(config: ReplicaConfig) -> None:
    """Make the directory the service's own. Raises: as `look_moved`; OSError."""
    look_moved(config)
    place = read_place(config.directory)
    _forget_addresses(config.directory)
    write_place(config.directory, place.installation if place is not None else "")


async def look_new(config: ReplicaConfig) -> list[Difference]:
    """Say what making a service of its own does.

    Raises: OtherSupervisor while a replica runs; HalfCopy, ForeignDirectory, InvalidArgument where it can't be done.
    """
    before = await _former(config)
    return [
        Difference(
            f"this directory is of service {before.name!r}, id {before.service_id.hex()}",
            "it becomes a service of its own: another id and incarnation, with the state as it is; sessions of before "
            "end, other services have to adopt it",
        ),
        Difference(
            "what it does to the outside is what the other one does as well",
            "messages to other services and drivers, and activities, wait for `deathless resume-outside` (in a cluster "
            "`kubectl deathless resume-outside`)",
        ),
    ]


async def carry_out_new(config: ReplicaConfig) -> ServiceRecord:
    """Make a service of its own of a directory; gives who it is.

    Raises: as `look_new`; LockUnavailable; OSError.
    """
    before = await _former(config)
    filesystem = RealFileSystem(config.directory)
    adoption = read_adoption(config.directory)
    newest = newest_opening(filesystem)
    made = msgspec.structs.replace(
        before, service_id=os.urandom(16), incarnation=int.from_bytes(os.urandom(7), "little") | 1, fence=config.fence
    )
    async with open_lock(config, filesystem, NAME) as lock:
        view = await lock.view()
        adoption.through_epoch = max(adoption.through_epoch, view.epoch, newest[0] if newest else 0)
        adoption.former_services = [*adoption.former_services, before.service_id]
        adoption.former = [*adoption.former, before.incarnation]
        adoption.service_id, adoption.incarnation = made.service_id, made.incarnation
        adoption.fence = config.fence
        adoption.hold_outside = True
        write_adoption(config.directory, adoption)
        if view.service is None:
            await lock.create_service(msgspec.structs.replace(made, live=False))
            (Path(config.directory) / COPY).unlink(missing_ok=True)
            keep_copy(config.directory, made)
            if newest is not None:
                await raise_store(lock, newest[0], live=True)
            view = await lock.view()
    for name in read_identities(config.directory):
        identity = Identity(made.name, made.service_id, made.incarnation, config.fence, view.store_id)
        write_identity(config.directory, name, identity)
    _forget_addresses(config.directory)
    if lock_store(config.lock).in_directory:
        write_place(config.directory)
    return made


async def _former(config: ReplicaConfig) -> ServiceRecord:
    """Whose directory it is so far."""
    refuse_while_running(config.directory)
    async with open_lock(config, RealFileSystem(config.directory), NAME) as lock:
        view = await lock.view()
    if view.service is not None and not lock_store(config.lock).in_directory:
        raise InvalidArgument(
            f"the lock store knows service {view.service.name!r} under this prefix: it belongs to the other one",
            remedy="give the copy a lock store or a prefix of its own (spec.lock), then adopt it",
        )
    copy = read_copy(config.directory)
    record = view.service if view.service is not None else copy.record() if copy is not None else None
    if record is None:
        raise HalfCopy(
            f"{config.directory} says nowhere whose directory it is: service.json and the lock store's record are gone",
            remedy="copy the whole directory again",
        )
    if record.name != config.shard_name:
        raise ForeignDirectory(
            f"{config.directory} belongs to service {record.name!r}, not {config.shard_name!r}",
            remedy="name the right folder; a copy keeps its name",
        )
    return read_adoption(config.directory).apply(record)


def _forget_addresses(directory: str) -> None:
    """Whoever is announced in a copy is the original's."""
    for path in (Path(directory) / "members").glob("*"):
        with contextlib.suppress(OSError):
            path.unlink()

"""Forks services that talk to each other at one cut: what `deathless fork` does.

    plan_fork    reads the logs, one after the other, while their services run or not, and decides the cut
    carry_out    writes a directory and a manifest for each forked service, and the folder appears whole or not at all

Logs are first read from their newest checkpoints. Where the cut lies below one, that log is read from as early as it
can be.

Guarantees: the originals are only read. Does not: start the forked services. May import engine, core, codec and base.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deathless.base.config import ReplicaConfig
from deathless.base.errors import ForkRefused, InvalidArgument
from deathless.base.foreign.binding import INPUTS
from deathless.core.replica.fork_cut import ForkPlace, TooShort, decide
from deathless.shell.disk.durable import sync_folder
from deathless.shell.operate.forking.directory import Forking, write_directory
from deathless.shell.operate.forking.manifest import forked_manifest
from deathless.shell.operate.forking.originals import Original, original_of, places_of, position_of
from deathless.shell.operate.manifest_file import LoadedManifest

Tell = Callable[[str], None]
HIDDEN = ".deathless"


@dataclass(frozen=True, slots=True)
class Source:
    """A service that shall be forked."""

    config: ReplicaConfig
    loaded: LoadedManifest


@dataclass(frozen=True, slots=True)
class ForkPlan:
    """Where each service is cut."""

    sources: Sequence[Source]
    services: Sequence[Forking]

    def between(self) -> dict[tuple[str, str], int]:
        """How many messages of each to each other are sent before the cut and received behind it."""
        places = {each.original.name: each.place for each in self.services}
        found = {}
        for sender, place in places.items():
            for receiver, there in places.items():
                if receiver != sender:
                    found[sender, receiver] = place.sent.get(receiver, 0) - there.received.get(sender, 0)
        return found


async def plan_fork(sources: Sequence[Source], through: Mapping[str, int], tell: Tell) -> ForkPlan:
    """Read the logs and decide.

    Args:
        sources: the services, at least one.
        through: lsn behind which a service is not cut, by name.
        tell: gets how far it is.

    Raises: ForkRefused; InvalidArgument; as `original_of` and `replay`.
    """
    originals = [await original_of(each.config, str(each.loaded.folder)) for each in sources]
    names = [each.name for each in originals]
    if len(set(names)) < len(names):
        raise InvalidArgument("a service is named twice", remedy="name each service of the fork once")
    for name in through:
        if name not in names:
            raise InvalidArgument(f"--at names {name}, which is not forked", remedy=f"one of {', '.join(names)}")
    logs: dict[str, list[ForkPlace]] = {}
    for original in originals:
        tell(f"reading the log of {original.name}")
        logs[original.name] = await places_of(original, _others(names, original), oldest=False)
    places = await _decide(originals, logs, through, tell)
    services = [Forking(each, places[each.name], position_of(each, places[each.name])) for each in originals]
    return ForkPlan(sources, services)


async def _decide(
    originals: Sequence[Original], logs: dict[str, list[ForkPlace]], through: Mapping[str, int], tell: Tell
) -> dict[str, ForkPlace]:
    """Decide the cut; a log that was not read from early enough is read again from its beginning."""
    whole: set[str] = set()
    while True:
        try:
            return decide(logs, through)
        except TooShort as error:
            if error.service in whole:
                raise ForkRefused(
                    f"{error.service} can't be cut where the others fit: {error.why}, and its log begins at lsn "
                    f"{logs[error.service][0].lsn}"
                ) from None
            whole.add(error.service)
            (original,) = (each for each in originals if each.name == error.service)
        tell(f"reading the log of {original.name} from its beginning")
        end = logs[original.name][-1].lsn
        earlier = await places_of(original, _others(list(logs), original), oldest=True)
        logs[original.name] = [each for each in earlier if each.lsn <= end]


def _others(names: Sequence[str], original: Original) -> list[str]:
    """Give with whom its log is compared, and what its program gets its rows through."""
    own = [] if original.config.binding is None else [INPUTS.name]
    return [*(name for name in names if name != original.name), *own]


async def carry_out(plan: ForkPlan, folder: Path, tell: Tell) -> None:
    """Write the fork.

    Args:
        plan: what.
        folder: that is made; it may exist and be empty.
        tell: gets how far it is.

    Raises: InvalidArgument when the folder is there; as `write_directory`.
    """
    check_folder(folder)
    made = folder.with_name(f"{folder.name}.new")
    forked = {
        each.original.name: each.original.forked_as(os.urandom(16), int.from_bytes(os.urandom(7), "little") | 1)
        for each in plan.services
    }
    made.mkdir(parents=True)
    try:
        for source, each in zip(plan.sources, plan.services, strict=True):
            name = each.original.name
            tell(f"writing {name} as it was at lsn {each.place.lsn}")
            await write_directory(each, made / HIDDEN / name, forked)
            (made / f"{name}.yaml").write_text(forked_manifest(source.loaded, forked), encoding="utf-8")
        _appear(made, folder)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def _appear(made: Path, folder: Path) -> None:
    """Let the folder appear, whole."""
    sync_folder(made)
    if folder.exists():
        folder.rmdir()
    made.rename(folder)
    sync_folder(folder.parent)


def check_folder(folder: Path) -> None:
    """Refuse a folder that is there. Raises: InvalidArgument."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidArgument(f"{folder} exists and is not empty", remedy="name a folder that does not exist yet")
    made = folder.with_name(f"{folder.name}.new")
    if made.exists():
        raise InvalidArgument(
            f"{made} is left of a fork that did not end, or belongs to one that runs", remedy=f"remove {made}"
        )

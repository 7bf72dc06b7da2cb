"""Opens a service's directory and lock to look, never to write: for tools, while the service runs or not.

Guarantees: nothing in the directory or the lock store is changed. Does not: judge what it shows. May import engine,
codec and base.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from deathless.base.config import ReplicaConfig
from deathless.base.errors import HalfCopy, InvalidArgument, PermissionRefused
from deathless.engine.log.checkpoint_store import CheckpointName, CheckpointStore
from deathless.engine.log.reader import LogReader, Step
from deathless.engine.log.route import Route
from deathless.engine.log.segment_scan import segment_path
from deathless.engine.ports import FileSystem, LockView, ServiceRecord
from deathless.shell.disk.filesystem import RealFileSystem
from deathless.shell.lock_stores.exported import read_exported
from deathless.shell.lock_stores.opening import open_lock_to_look


@dataclass(frozen=True, slots=True)
class Inspection:
    """A service's directory and what its lock said when it was opened."""

    config: ReplicaConfig
    filesystem: FileSystem
    view: LockView
    record: ServiceRecord
    known_confirmed: int = 0  # lsn that an exported log says was confirmed, whatever its last frames say; 0: none

    @property
    def reader(self) -> LogReader:
        """Reads the log, whoever wrote its cuts."""
        return LogReader(self.filesystem, None)

    @property
    def checkpoints(self) -> CheckpointStore:
        """The checkpoints; used to read alone."""
        return CheckpointStore(self.filesystem, "tool")

    def beginnings(self) -> list[CheckpointName]:
        """Give the checkpoints that a run may begin with, the newest first.

        Those that were announced, and the one that the code's generation began with: head's cut names that one, and it
        needs no mark. Raises: DataCorrupt errors, OSError.
        """
        store, head = self.checkpoints, self.view.head
        cut = self.reader.routes.cut(head) if head else None  # a log without an epoch has none
        first = (cut.upgraded_lsn, cut.upgraded_chain) if cut is not None else None
        return [
            each
            for each in store.names(announced_only=False)
            if (each.lsn, each.chain) == first or store.announced(each.name)
        ]

    def steps(self, route: Route) -> Iterator[Step]:
        """Give every frame on a route, up to the log's end."""
        return self.reader.walk(route, judge=False)

    def whole_route(self) -> Route:
        """The way from the oldest frame that is still there. Raises: DataCorrupt errors, OSError."""
        return self.reader.routes.find_oldest(self.view.head)


def _open_folder(directory: str) -> RealFileSystem:
    if not Path(directory).is_dir():
        raise InvalidArgument(
            f"{directory} is not a folder: nothing has been started yet", remedy="run `deathless up` first"
        )
    return RealFileSystem(directory)


async def inspect(config: ReplicaConfig) -> Inspection:
    """Open a directory.

    Raises: InvalidArgument when no service was ever started in it; PermissionRefused; LockUnavailable; InvalidConfig,
    NewerFormat: it is an exported log that can't be read.
    """
    filesystem = _open_folder(config.directory)
    try:
        if (exported := read_exported(config.directory)) is not None:
            view = exported.view()
            assert view.service is not None
            return Inspection(config, filesystem, view, view.service, exported.confirmed_lsn)
        async with open_lock_to_look(config, filesystem) as lock:
            view = await lock.view()
    except PermissionError as error:
        raise PermissionRefused(f"{error.filename or config.directory}: {error.strerror}") from None
    if view.service is None:
        raise HalfCopy(
            f"{config.directory}: the lock store knows no service here",
            remedy="check that the folder and the lock store are the right ones",
        )
    return Inspection(config, filesystem, view, view.service)


def place_of(step: Step) -> tuple[str, int]:
    """File and offset of a frame."""
    return segment_path(step.after.epoch, step.after.roll), step.found.offset

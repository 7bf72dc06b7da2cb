"""A directory that is copied while its service runs, and the copy's replicas, which wake up beside the original.

They have the names, the lock's files, the addresses, the secrets and, if that is wanted, the pages of the original, on
machines of their own in the same network; of an etcd they use the same one, or another that knows no service.

    by files   folder after folder, in any order; some may be left out. Every file has another inode then
    by blocks  an image or a snapshot of the volume, as after a power cut. Inodes are carried along

Guarantees: the original's files are read, and nothing else of it is touched. Does not: judge what becomes of the
original (verdict.py does); know clients, which are the original's. May import the simulation's parts.
"""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass
from typing import Final

from deathless.base.errors import CopiedDirectory
from deathless.simulation.checkers.history import Violation
from deathless.simulation.nodes.cluster import Cluster
from deathless.simulation.nodes.replica_node import ReplicaNode, Shared
from deathless.simulation.nodes.worker_node import WorkerNode
from deathless.simulation.world.disk import Folder, SimDisk
from deathless.simulation.world.lock import SimLockStore
from deathless.simulation.world.network import Endpoint
from deathless.simulation.world.page import Page

PREFIX: Final = "twin-"  # of the names of the copy's machines
WAKES_MAX_US: Final = 50_000  # from the end of the copying until each replica starts
STEP_MAX_US: Final = 60_000  # from one folder to the next


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyProfile:
    """How a directory is copied.

    Attributes:
        by_blocks: not by files.
        pages: what workers left in their machine's memory is there for the copy as well.
        step_us: from one folder to the next; 0: all in one moment.
        left_out: folders that are not copied.
        rooted: what lies at the top, the file `place` with it, is none of those.
        asleep: replicas that don't wake up: what the copy knows of them leads to the original.
        same_store: the copy asks the same etcd; else one that knows no service. Nothing where the lock is a directory.
    """

    by_blocks: bool = False
    pages: bool = True
    step_us: int = 0
    left_out: int = 0
    rooted: bool = False
    asleep: int = 0
    same_store: bool = False


def draw_copy(chance: random.Random, *, has_peers: bool) -> CopyProfile:
    """Draw how a directory is copied.

    Args:
        chance: generator that belongs to the copy alone.
        has_peers: other services know the copied one. A clone that leads, or a copy without `place`, would be taken
            for it there while its epoch is the later one (design 0014), and what the original sends would wait for an
            operator.
    """
    by_blocks = chance.random() < 0.6 and not has_peers
    whole = by_blocks or chance.random() < 0.4
    return CopyProfile(
        by_blocks=by_blocks,
        pages=chance.random() < 0.5,
        step_us=0 if whole else chance.randrange(1, STEP_MAX_US),
        left_out=0 if whole else chance.choice((0, 0, 1, 2)),
        rooted=has_peers,
        asleep=chance.choice((0, 0, 1, 2)),
    )


class Copy:
    """A copy of a cluster's directory that is being made, and its replicas once they are awake.

    Args:
        original: the cluster whose directory it is.
        profile: how it is copied.
        prefix: of the names of the copy's machines.
    """

    def __init__(self, original: Cluster, profile: CopyProfile, prefix: str = PREFIX) -> None:
        self.original = original
        self.profile = profile
        self.replicas: dict[str, ReplicaNode] = {}  # once they are awake
        self.shared: Shared
        self.placed = True  # the file that says where the directory was written was copied, too
        self._prefix = prefix
        self._chance = original.scheduler.fork(f"{prefix}{original.setup.prefix}copy")
        self._folders: dict[str, Folder] = {}
        self._talked: dict[str, None] = {}  # clients of the original that a machine of the copy has sent something to
        original.network.taps.append(self._tap)
        original.copies.append(self)
        names = sorted({path.partition("/")[0] for path in original.disk.folders})
        self._chance.shuffle(names)
        if profile.rooted:
            names.sort(key=bool)  # the top's name is empty; the others stay as they were drawn
        self._copy(names[: len(names) - profile.left_out])

    def _copy(self, names: list[str]) -> None:
        """Copy folders, one after the other or all at once."""
        count = 1 if self.profile.step_us else len(names)
        now, later = names[:count], names[count:]
        folders = self.original.disk.folders
        found = {path: folder for path, folder in folders.items() if path.partition("/")[0] in now}
        self._folders |= copy.deepcopy(found)
        if later:
            self.original.scheduler.call_later(self.profile.step_us, lambda: self._copy(later))
        else:
            self._wake()

    def _wake(self) -> None:
        original, profile, chance = self.original, self.profile, self._chance
        setup, before, scheduler = original.setup, original.shared, original.scheduler
        disk = SimDisk(scheduler.fork(f"{self._prefix}{setup.prefix}disk"))
        disk.folders = {"": Folder()} | self._folders
        disk.cut_power() if profile.by_blocks else disk.make_durable()
        store = before.lock_store
        if store is not None and not profile.same_store:
            store = SimLockStore("store-2")
        self.shared = shared = Shared(
            beside=before.beside,
            disk=disk,
            lock_store=store,
            lock_profile=before.lock_profile,
            limits=before.limits,
            safeguards=before.safeguards,
            directory=before.directory.copied(
                f"{before.directory.path}-copy",
                scheduler.fork(f"{self._prefix}{setup.prefix}directory"),
                by_blocks=profile.by_blocks,
            ),
            prefix=self._prefix,
        )
        self.placed = "" in self._folders
        if not self.placed:
            shared.directory.place = None
        scheduler.note(f"{self._prefix}{setup.prefix}copy", f"wakes up: {profile}")
        names = list(setup.names())
        for name in names[min(profile.asleep, len(names) - 1) :]:
            node = self.replicas[name] = ReplicaNode(name, shared)
            if profile.pages and name in before.pages:
                node.page = shared.pages[name] = Page(before.pages[name])
            scheduler.call_later(chance.randrange(WAKES_MAX_US), node.start)

    def _tap(self, end: Endpoint, _data: bytes) -> None:
        if end.host.startswith(self._prefix) and end.peer.host in self.original.clients:
            self._talked[end.peer.host] = None

    @property
    def machines(self) -> set[str]:
        """Names of the copy's machines."""
        return {node.machine for node in self.replicas.values()}

    def workers(self) -> list[WorkerNode]:
        """Workers of the copy whose engine runs."""
        nodes = (node.worker_node for node in self.replicas.values())
        return [node for node in nodes if node is not None and node.engine is not None and not node.stopping]

    @property
    def leads(self) -> bool:
        """Is a replica of the copy primary there?"""
        return any(worker.running.core.primary is not None for worker in self.workers())

    def told(self) -> set[str]:
        """Give the codes by which the copy's replicas say what they are."""
        return {code for _, code in self.shared.refused}

    def violations(self) -> list[Violation]:
        """Say what the copy did to the original that no copy may do."""
        if not self.replicas:
            return []
        ours = {node.machine for node in self.original.replicas.values()}
        let_in, by_copy = self.original.shared.let_in, self.shared.let_in
        texts = [f"{machine} of the copy was let in as {kind}" for machine, kind in let_in if machine in self.machines]
        texts += [f"{machine} was let in by the copy as {kind}" for machine, kind in by_copy if machine in ours]
        texts += [f"the copy talked to {client}, a client of the original" for client in self._talked]
        texts += [f"crash in the copy: {text}" for text in self.shared.failures]
        by_files = self.shared.lock_store is None and not self.profile.by_blocks
        if by_files and self.placed and (self.workers() or self.told() != {CopiedDirectory.code}):
            texts.append(f"the copy does not say that it is one, but {sorted(self.told())}")
        return [Violation(checker="copies", text=text) for text in dict.fromkeys(texts)]

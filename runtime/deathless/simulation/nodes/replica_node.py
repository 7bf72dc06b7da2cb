"""One replica of a simulated cluster: a machine with supervisor, worker, helper, clocks, and its way to disk and lock.

    supervisor   restarted by the cluster when it died with its machine
    worker       restarted by the supervisor; dies with it
    helper       writes and reads checkpoints for the worker; dies with it
    lock         the way to a lock store over the network: what is under way arrives whether or not the asker lives

Guarantees: killing or freezing is done here and nowhere else, so that what belongs together goes together. Does not:
decide when. May import engine and below, and the simulation's parts.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from typing import Final

from deathless.base.errors import CopiedDirectory, DataCorrupt, DeathlessError, Internal
from deathless.base.limits import Limits
from deathless.base.safeguards import Safeguards
from deathless.codec.generations import NEWEST
from deathless.codec.peer_messages import ActivityStart, Target
from deathless.core.access.directory_proof import KINDS
from deathless.core.replica.witness import Sighting
from deathless.core.supervisor.records import ToSupervisor, ToWorker
from deathless.core.tables.spool import Spool
from deathless.engine.lock.directory_lock import DirectoryLock
from deathless.engine.ports import FileSystem, Handle, Lock, ServiceRecord
from deathless.simulation.nodes.former import SimUpgrade
from deathless.simulation.nodes.supervisor_node import SupervisorNode
from deathless.simulation.nodes.surroundings import Surroundings
from deathless.simulation.nodes.worker_node import WorkerNode
from deathless.simulation.world.clock import SimClock
from deathless.simulation.world.directory import Asker, Door, SimDirectory
from deathless.simulation.world.disk import SimDisk, SimFileSystem
from deathless.simulation.world.inode import Inode
from deathless.simulation.world.interposed import DiskWeather, InterposedFileSystem
from deathless.simulation.world.lock import LockProfile, SimLock, SimLockStore
from deathless.simulation.world.page import Page
from deathless.simulation.world.scheduler import Process, ProcessState
from deathless.simulation.world.spool import SimSpool

LINE_US: Final = 30  # over the socket pair
INPUT_OUTPUT: Final = "input/output"  # how the engine begins when the disk gave an error
START_MIN_US, START_MAX_US = 5_000, 40_000  # until a started worker runs its own code

Gate = Callable[[str, str, str, str], None]
"""(replica, operation, path, "before" or "after") of each call of a file system: where a scenario stops the process."""


class Shared:
    """What all replicas of a cluster share."""

    def __init__(
        self,
        *,
        beside: Surroundings,
        disk: SimDisk,
        lock_store: SimLockStore | None,
        lock_profile: LockProfile,
        limits: Limits,
        safeguards: Safeguards,
        directory: SimDirectory,
        prefix: str = "",
    ) -> None:
        self.beside = beside
        self.directory = directory
        self.prefix = prefix  # of the names of its machines, which replicas of another directory do not share
        self.let_in: list[tuple[str, str]] = []  # (machine, kind) of whoever was let in to order, report or follow
        self.refused: list[tuple[str, str]] = []  # (machine, code): what a replica was told of where it stands
        self.left: list[tuple[Target, bytes]] = []  # packets that left any replica for a peer
        self.began: list[ActivityStart] = []  # activities that any replica began
        self.disk = disk
        self.lock_store = lock_store  # None: the lock is in the directory, the fence is "seal"
        self.lock_profile = lock_profile
        self.limits = limits
        self.safeguards = safeguards
        self.pages: dict[str, Page] = {}  # by replica: what its workers leave in their machine's memory
        self.archive: dict[str, Inode] = {}  # segments that were collected, for the oracle
        self.gates: dict[str, Gate] = {}  # by role: "worker", or "helper", which writes and reads checkpoints
        self.failures: list[str] = []  # programs that ended in an exception that is none of ours, or a broken invariant
        self.stops: list[tuple[str, str, str]] = []  # (replica, code, text) of workers that found their data broken


class WatchedFileSystem(InterposedFileSystem):
    """A process's file system: marks syncs in the worker's page, keeps collected segments for the oracle."""

    def __init__(
        self, inner: FileSystem, process: Process, chance: random.Random, weather: DiskWeather, node: ReplicaNode
    ) -> None:
        super().__init__(inner, process, chance, weather)
        self._node = node

    def sync(self, handle: Handle) -> None:
        """See the port."""
        page = self._node.page if self._process is self._node.worker else None
        if page is None:
            super().sync(handle)
            return
        began_us = self._node.shared.beside.scheduler.now_us
        page.syncs += 1
        super().sync(handle)
        page.syncs += 1
        page.note_call(began_us, self._node.shared.beside.scheduler.now_us)

    def unlink(self, path: str) -> None:
        """See the port."""
        shared = self._node.shared
        if path.startswith("log/"):
            name = path.removeprefix("log/")
            inode = shared.disk.folders["log"].entries.get(name)
            if inode is not None and inode.blocks:
                shared.archive[path] = inode
        super().unlink(path)


class LockCalls:
    """Carries lock operations out: in the worker itself for a directory, in a process of their own for a store."""

    def __init__(self, lock: Lock, channel: Process | None) -> None:
        self._lock = lock
        self._channel = channel

    def ask(
        self,
        worker: WorkerNode,
        operation: Callable[[Lock], object],
        answered: Callable[[object], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """See worker_node.LockChannel."""
        process = worker.process
        generation = process.generation

        def run() -> None:
            try:
                answer = operation(self._lock)
            except Exception as error:  # noqa: BLE001  whatever it is, the one who asked judges it
                ended = error
                tell(lambda: failed(ended))
            else:
                tell(lambda: answered(answer))

        def tell(callback: Callable[[], None]) -> None:
            if self._channel is None:
                callback()
            elif process.generation == generation:
                process.post(callback)

        (process if self._channel is None else self._channel).post(run)


class ReplicaNode:
    """One machine; see the module. Attributes are what worker and supervisor ask of their `Host`."""

    level: int = NEWEST  # newest format level that its build knows

    def __init__(self, name: str, shared: Shared) -> None:
        self.name = name
        self.machine = machine = f"{shared.prefix}{name}"
        self.shared = shared
        beside = shared.beside
        self.scheduler = beside.scheduler
        self.network = beside.network
        self.limits = shared.limits
        self.code = beside.codes[0]
        self.upgrade: SimUpgrade | None = None  # that its workers are started for
        self.sharding = beside.sharding
        self.service_name = beside.service_name
        self.safeguards = shared.safeguards
        self.clock = SimClock(self.scheduler)
        self.weather = DiskWeather()
        self.page: Page | None = None
        self.chance = self.scheduler.fork(f"replica/{machine}")
        self.spool: Spool = SimSpool(self.scheduler.fork(f"spool/{machine}"))
        self.powered = False
        self.stopping = False  # it was told to stop, and has not been started again
        self.fenced = False  # an operator keeps its worker stopped
        process = self.scheduler.process
        self.worker = process(machine, machine, self._worker_exited)
        self.helper = process(f"{machine}.helper", machine, self._helper_exited)
        self.supervisor = process(f"{machine}.sup", machine, self._supervisor_exited)
        self.channel = process(f"{machine}.lock", machine, self._helper_exited)
        self.worker_node: WorkerNode | None = None
        self.supervisor_node: SupervisorNode | None = None
        self.lock_clients: list[SimLock] = []
        self._views: dict[str, SimFileSystem] = {}
        for role in ("worker", "supervisor", "helper"):
            self._views[role] = shared.disk.view(f"{machine}.{role}", self._gate(role))

    def _gate(self, role: str) -> Callable[[str, str, str], None]:
        shared = self.shared

        def gate(operation: str, path: str, moment: str) -> None:
            hook = shared.gates.get(role)
            if hook is not None:
                hook(self.name, operation, path, moment)

        return gate

    @property
    def local(self) -> bool:
        """See supervisor_node.Host: the fence `seal` is kept off network storage."""
        return self.shared.lock_store is None

    # ---- what programs ask -----------------------------------------------------------------------------------

    def note(self, what: str) -> None:
        """See Host."""
        self.scheduler.note(self.machine, what)

    def nonce(self) -> bytes:
        """See Host."""
        return self.chance.randbytes(16)

    def name_of(self, target: Target) -> str:
        """See Host."""
        return self.shared.beside.name_of(target)

    def addresses_of(self, target: Target) -> list[str]:
        """See Host."""
        return self.shared.beside.directory.get(self.name_of(target), [])

    def left_for(self, target: Target, data: bytes) -> None:
        """See Host."""
        self.shared.left.append((target, data))

    def activity_began(self, start: ActivityStart) -> None:
        """See Host."""
        self.shared.began.append(start)

    def members(self) -> dict[str, str]:
        """See Host."""
        return self.shared.directory.members

    def door(self, role: str) -> Door:
        """See Host."""
        view = self._views[role]
        return Door(self.shared.directory, lambda: not view.dead and not self.shared.disk.read_only)

    def asker(self, role: str) -> Asker | None:
        """See Host."""
        directory, view = self.shared.directory, self._views[role]
        return Asker(directory, lambda: not view.dead) if directory.asks else None

    def let_in(self, machine: str, kind: str) -> None:
        """See Host."""
        if kind in KINDS:
            self.shared.let_in.append((machine, kind))

    def refused(self, code: str) -> None:
        """See Host."""
        self.shared.refused.append((self.machine, code))

    def draw_service(self) -> ServiceRecord:
        """See Host."""
        return ServiceRecord(
            name=self.service_name,
            service_id=self.nonce(),
            incarnation=int.from_bytes(self.chance.randbytes(7), "little") | 1,
            seed=self.chance.randbytes(32),
            hash_seed=1,
            fence="seal" if self.shared.lock_store is None else "etcd",
            live=False,
        )

    def open_filesystem(self, process: Process) -> FileSystem:
        """See Host."""
        role = {self.worker: "worker", self.supervisor: "supervisor", self.helper: "helper"}[process]
        view = self._views[role]
        if role != "helper":
            view.crash()
        return WatchedFileSystem(view, process, self.chance, self.weather, self)

    def _open_any_lock(self, filesystem: FileSystem, process: Process) -> Lock:
        shared = self.shared
        if shared.lock_store is not None:
            lock = SimLock(shared.lock_store, process, self.chance, shared.lock_profile, self.safeguards)
            if self.lock_clients:
                lock.reachable = self.lock_clients[0].reachable
            self.lock_clients.append(lock)
            return lock
        directory = DirectoryLock(
            filesystem,
            process=f"{process.name}.{process.generation}",
            fresh_store_id=self.nonce().hex(),
            safeguards=shared.safeguards,
        )
        directory.prepare()
        return directory

    def open_first_lock(self, filesystem: FileSystem, process: Process) -> Lock:
        """See supervisor_node.Host."""
        return self._open_any_lock(filesystem, process)

    def open_lock(self, filesystem: FileSystem) -> tuple[Lock, LockCalls]:
        """See worker_node.Host."""
        lock = self._open_any_lock(filesystem, self.worker)
        if self.shared.lock_store is None:
            return lock, LockCalls(lock, None)
        if not self.channel.alive:
            self.channel.start(_nothing)
        remote = self._open_any_lock(filesystem, self.channel)
        return lock, LockCalls(remote, self.channel)

    def tell_supervisor(self, record: ToSupervisor) -> None:
        """See worker_node.Host."""
        self.worker.check()
        generation, life = self.supervisor.generation, self.worker.generation

        def arrive() -> None:
            node = self.supervisor_node
            if node is not None and self.supervisor.generation == generation:
                self.supervisor.post(lambda: node.worker_said(life, record))

        self.scheduler.call_later(LINE_US, arrive)

    def tell_worker(self, record: ToWorker) -> None:
        """See supervisor_node.Host."""
        self.supervisor.check()
        generation = self.worker.generation

        def arrive() -> None:
            node = self.worker_node
            if node is not None and self.worker.generation == generation:
                self.worker.post(lambda: node.ordered(record))

        self.scheduler.call_later(LINE_US, arrive)

    def worker_stops(self, error: DeathlessError) -> None:
        """See worker_node.Host."""
        if isinstance(error, Internal) and not error.message.startswith(INPUT_OUTPUT):
            self.shared.failures.append(f"{self.name} at {self.scheduler.now_us} us: {error}")
        elif isinstance(error, DataCorrupt):
            self.shared.stops.append((self.name, error.code, str(error)))

    def start_worker(self) -> int:
        """See supervisor_node.Host."""
        page = Page(self.page)
        self.shared.pages[self.name] = page
        node = WorkerNode(self, page)
        self.page, self.worker_node = page, node
        self.worker.start(_nothing)
        self.worker.call_later(self.chance.randrange(START_MIN_US, START_MAX_US), node.run)
        return self.worker.generation

    # ---- what happens to it ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Power on: the supervisor starts."""
        if self.powered or self.supervisor.alive:
            return
        if self.local:
            try:
                self.shared.directory.keep_place()
            except CopiedDirectory as error:
                self.note(f"does not start: {error}")
                self.refused(error.code)
                return
        self.powered = True
        self.stopping = False
        self.network.host_has_power(self.machine)
        self.supervisor_node = node = SupervisorNode(self)
        self.shared.directory.members[self.name] = f"{self.machine}:3"
        self.supervisor.start(node.run)
        if self.fenced:
            self._tell_fence()

    def sightings(self) -> list[Sighting]:
        """See worker_node.Host. Replicas that share a directory as their lock share a machine."""
        pages = self.shared.pages if self.local else {self.name: self.page}
        return [
            Sighting(page.confirmed, f"page of {name}")
            for name, page in sorted(pages.items())
            if page is not None and page.confirmed is not None
        ]

    def kill_worker(self) -> None:
        """Kill -9 of the worker."""
        self.worker.kill()

    def stop(self) -> None:
        """SIGTERM: the supervisor has its worker stop in order, then ends itself."""
        node = self.supervisor_node
        if node is not None and self.supervisor.alive:
            self.stopping = True
            self.supervisor.post(node.order_stop)

    def fence(self, fenced: bool) -> None:
        """An operator keeps the worker stopped, or does not any more; a supervisor that is started anew is told."""
        self.fenced = fenced
        self._tell_fence()

    def be_superseded(self, later: str) -> None:
        """A later instance of this replica runs; its supervisor is told so."""
        node = self.supervisor_node
        if node is not None and self.supervisor.alive:
            self.supervisor.post(lambda: node.be_superseded(later))

    def _tell_fence(self) -> None:
        node, fenced = self.supervisor_node, self.fenced
        if node is not None and self.supervisor.alive:
            self.supervisor.post(lambda: node.fence(fenced))

    def hang(self, duration_us: int) -> None:
        """The worker's loop stands still, in nothing that its page shows."""
        if self.worker.alive:
            self.worker.post(lambda: self.worker.pause(duration_us))

    def withdraw(self) -> None:
        """See supervisor_node.Host."""
        self.shared.directory.members.pop(self.name, None)

    def kill_both(self) -> None:
        """Kill -9 of the supervisor; its worker goes with it. `start` brings the machine's programs back."""
        self.powered = False
        self.supervisor.kill()

    def lose_power(self) -> None:
        """All programs end without a word to anybody."""
        self.network.host_lost_power(self.machine)
        self.clock.boot()
        self.kill_both()
        self.channel.kill()
        self.page = None
        self.shared.pages.pop(self.name, None)
        for view in self._views.values():
            view.crash()
            view.refresh()

    def freeze(self, *, supervisor_too: bool) -> None:
        """SIGSTOP of the worker, and of the supervisor."""
        self.worker.freeze()
        self.helper.freeze()
        if supervisor_too:
            self.supervisor.freeze()
        self._children_changed()

    def thaw(self) -> None:
        """SIGCONT of everything."""
        self.supervisor.thaw()
        self.worker.thaw()
        self.helper.thaw()
        self._children_changed()

    def _children_changed(self) -> None:
        node = self.supervisor_node
        if node is not None and self.supervisor.alive:
            self.supervisor.post(node.children_changed)

    def set_stale(self, stale: bool) -> None:
        """Absent names and listings stay as first seen, or are looked up again."""
        for view in self._views.values():
            view.stale = stale
            if not stale:
                view.refresh()

    def looks_up(self, path: str) -> bool:
        """Does the worker's machine find a name? While look-ups are stale, it then believes for ever what it found."""
        view = self._views["worker"]
        with contextlib.suppress(FileNotFoundError):
            view.close(view.open(path))
            return True
        return False

    def set_dead_disk(self, dead: bool) -> None:
        """Every call of the file system fails, or works again."""
        for view in self._views.values():
            view.dead = dead

    def set_lock_reachable(self, reachable: bool) -> None:
        """The way to the lock store is cut, or stands again."""
        for lock in self.lock_clients:
            lock.reachable = reachable

    def set_unheard(self, operation: str) -> None:
        """One operation, `witness` or `set_head`, does not get to the lock store; empty: all do."""
        for lock in self.lock_clients:
            lock.unheard = operation

    def view_name(self) -> str:
        """Name of the worker's view, for planned errors."""
        return f"{self.machine}.worker"

    # ---- ends ------------------------------------------------------------------------------------------------

    def _worker_exited(self, process: Process, error: BaseException | None) -> None:
        self.network.process_died(process)
        self._views["worker"].crash()
        self.helper.kill()
        self.worker_node = None
        if error is not None:
            self._failed("worker", error)
        node = self.supervisor_node
        if node is not None and self.supervisor.alive:
            self.supervisor.post(node.worker_ended)
            self.scheduler.call_later(LINE_US, self._line_ends(node, self.worker.generation))

    def _line_ends(self, node: SupervisorNode, life: int) -> Callable[[], None]:
        """What tells a supervisor that everything a life of the worker said has arrived."""
        generation = self.supervisor.generation

        def ends() -> None:
            if self.supervisor.alive and self.supervisor.generation == generation:
                self.supervisor.post(lambda: node.line_ended(life))

        return ends

    def _supervisor_exited(self, process: Process, error: BaseException | None) -> None:
        self.network.process_died(process)
        self._views["supervisor"].crash()
        if error is not None:
            self._failed("supervisor", error)
        self.supervisor_node = None
        self.powered = False
        self.worker.kill()  # the kernel does (PDEATHSIG)

    def _helper_exited(self, _process: Process, error: BaseException | None) -> None:
        self._views["helper"].crash()
        if error is not None:
            self._failed("helper", error)

    def _failed(self, which: str, error: BaseException) -> None:
        text = f"{which} ended in {type(error).__name__}: {error}"
        self.note(text)
        if not isinstance(error, OSError):
            self.shared.failures.append(f"{self.name} {text}")

    @property
    def frozen(self) -> bool:
        """The worker is stopped."""
        return self.worker.state is ProcessState.FROZEN


def _nothing() -> None:
    """First callback of a process that waits for work."""

"""`deathless up`: starts a service's supervisors as processes of their own, or finds them running, and keeps them so.

    up --(starts, each in its own session)--> supervisor r0, r1, r2 --> workers
     |  '--(pidfd)-- learns of a death at once, starts it again with growing pauses
     '-- replicas/<id>/config.json, replica.log

The supervisors need nobody: killing `up` kills nothing, and a later one finds them by the kernel lock that each holds
on its file. Stopping in order asks the followers first and the primary last, so that nobody takes over on the way down.
A runner that found some running has joined another's set: Ctrl-C then ends the runner alone, and SIGTERM stops all.

A service of several shards has that many groups of replicas, all run by one runner; a replica is then called SHARD/ID.
The agents of a pipeline's drivers are run beside its replicas, and stopped before them.

Guarantees: one runner per service folder; a supervisor that fails for a reason an operator must mend is not started
again and its error is told. Does not: elect, detect, touch the log. May import base.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import errno
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deathless.base.backoff import next_pause
from deathless.base.config import ReplicaConfig
from deathless.base.errors import DeathlessError, InvalidConfig, OtherSupervisor, PermissionRefused
from deathless.base.limits import END_S
from deathless.base.pipelines.agents import AgentConfig
from deathless.base.storage import storage_error
from deathless.shell.directory.members import remove_member
from deathless.shell.directory.place import check_place
from deathless.shell.directory.service_record import check_shards
from deathless.shell.disk.holders import holder_of, take
from deathless.shell.link.config_file import read_config, stands, write_config
from deathless.shell.net.listening import refuse_taken_port
from deathless.shell.operate.agents import DriverAgent, running_agents
from deathless.shell.operate.programs import Program, start_program
from deathless.shell.operate.replica_log import cut_log, last_words, told_error
from deathless.shell.operate.status import Part, ServiceView, look_at_all, parts_of

LOCK: Final = "supervisor.lock"
RESTART_MIN_S, RESTART_MAX_S = 0.1, 5.0
STABLE_S: Final = 10.0  # a supervisor that ran so long starts again without waiting
LOG_CHECK_S: Final = 10.0
FOLLOWERS_STOP_S: Final = 5.0  # then the primary is asked to stop all the same
STOP_S: Final = 30.0  # an orderly stop that takes longer is told, not ended; a primary's wait comes on top
FINAL_EXITS: Final = frozenset({64, 65, 73, 77, 78})
"""Exit codes of errors that a second try would meet again (`base.errors`)."""


class Change(enum.StrEnum):
    """What happened to a replica's supervisor."""

    STARTED = "started"
    FOUND = "found running"
    ENDED = "ended"
    DELAYED = "not started"
    FAILED = "failed"
    STOPPING = "stopping"
    STOPPED = "stopped"
    LEFT = "left running"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerEvent:
    """Something to tell the user."""

    change: Change
    replica: str
    pid: int = 0
    text: str = ""


class _Replica(Program):
    """One supervisor."""

    def __init__(self, config: ReplicaConfig) -> None:
        name = config.replica if config.shards == 1 else f"{config.shard}/{config.replica}"
        folder = Path(config.directory) / "replicas" / config.replica
        super().__init__(name, folder, log_name="replica.log", lock_name=LOCK)
        self.config = config

    def stands(self) -> bool:
        """See Program."""
        return stands(self.config)

    def start(self, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """See Program."""
        return start_supervisor(self.config, environment)

    def left(self) -> None:
        """See Program."""
        remove_member(self.config.directory, self.config.replica)


class Runner:
    """Runs the replicas of one service.

    Args:
        configs: one per replica, all of one service, of all its shards.
        environment: what the supervisors get beside ours.
        tell: gets each event, in order.
        agents: of a pipeline's drivers, one config for each.
    """

    def __init__(
        self,
        configs: list[ReplicaConfig],
        *,
        tell: Callable[[RunnerEvent], None],
        environment: dict[str, str] | None = None,
        agents: Sequence[AgentConfig] = (),
    ) -> None:
        self.directory = Path(configs[0].service_directory)
        self.parts = parts_of(configs)
        self.replicas = {replica.name: replica for replica in map(_Replica, configs)}
        self.agents = {agent.name: agent for agent in map(DriverAgent, agents)}
        self.stopping = False
        self.joined = False  # some ran when it began: they are another's, who did not ask us to stop them
        self._environment = {**os.environ, **(environment or {})}
        self._tell = tell
        self._lock_file = -1
        self._kick = asyncio.Event()
        self._upgraders: dict[str, int] = {}  # pidfds of those that were running when a stop was ordered
        self._log_checked_at, self._killed_at = 0.0, float("inf")

    def use(self, configs: list[ReplicaConfig]) -> None:
        """Start the replicas with these configs from now on, which differ from the first in the code they name."""
        for replica in map(_Replica, configs):
            self.replicas[replica.name].config = replica.config

    # ---- life ------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Make the folder ours.

        Raises: OtherSupervisor when another runner is at work; PortTaken; PermissionRefused, InvalidConfig,
        ShardsFixed, CopiedDirectory; what the storage says, where the folder can't even be made.
        """
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._lock_file = _open_lock(self.directory / "up.lock")
            take(self._lock_file)
        except BlockingIOError:
            other = os.pread(self._lock_file, 32, 0).decode(errors="replace").strip()
            raise OtherSupervisor(
                f"`deathless up` already runs this service (process {other}) in {self.directory}",
                remedy="`deathless status --watch` shows it; `deathless down` stops it",
            ) from None
        except PermissionError as error:
            raise PermissionRefused(
                f"{error.filename}: {error.strerror}",
                remedy="give this user the folder, or choose another with spec.logStorage.path",
            ) from None
        except OSError as error:
            # Where a replica has run there is a lock file, which may be read-only: this is a place that never was one.
            full = None if error.errno == errno.EROFS else storage_error(error)
            raise full or InvalidConfig(
                f"spec.logStorage.path {self.directory}: {error.strerror}",
                remedy="name a writable folder with spec.logStorage.path",
            ) from None
        with contextlib.suppress(OSError):  # the lock counts; the number in it is for people
            os.ftruncate(self._lock_file, 0)
            os.pwrite(self._lock_file, f"{os.getpid()}\n".encode(), 0)
        check_shards(next(iter(self.replicas.values())).config)
        for part in self.parts:
            check_place(str(part.directory))
        for replica in self.replicas.values():
            if not running_supervisor(replica.folder):
                refuse_taken_port(replica.config)

    async def run(self) -> int:
        """Keep all replicas running until `stop` was called and all have ended; gives the exit code."""
        for program in self._programs:
            self._find(program)
        self.joined = any(program.pid for program in self._programs)
        while True:
            now = time.monotonic()
            self._look_at_ends(now)
            self._start_due(now)
            self._cut_logs(now)
            over = all(replica.pid == 0 and replica.start_at is None for replica in self.replicas.values())
            if over and not self._upgraders and not self._agents_run_on():
                break
            if now > self._killed_at + END_S:  # before `kill`, a supervisor's own stop has its bound
                self.leave("killed, but the kernel has not let go of it: it hangs in its storage")
                break
            self._kick.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._kick.wait(), 0.1 if self._any_due() else 1.0)
        return self._exit_code()

    def close(self) -> None:
        """Let go of everything; kills nothing."""
        for program in self._programs:
            self._forget(program)
        for name in list(self._upgraders):
            self._forget_upgrader(name)
        if self._lock_file >= 0:
            os.close(self._lock_file)
            self._lock_file = -1

    async def look(self) -> ServiceView:
        """Ask the supervisors how they are."""
        return await look_at_all(self.parts)

    def leave(self, why: str = "") -> None:
        """Tell that the replicas and agents go on without us."""
        for program in self._programs:
            if program.pid:
                self._tell(RunnerEvent(change=Change.LEFT, replica=program.name, pid=program.pid, text=why))

    async def stop(self) -> None:
        """Stop in order: agents first, then followers, the primary last. Returns when all have been asked."""
        self.stopping = True
        for program in self._programs:
            program.start_at = None
        await self._stop_these(list(self.agents.values()))
        view = await self.look()
        followers = [r for r in self.replicas.values() if r.name not in view.primaries]
        self._find_upgraders()
        for name in self._upgraders.keys() - view.primaries:
            self._terminate_upgrader(name)
        await self._stop_these(followers)
        for replica in self.replicas.values():
            self._terminate(replica)
        for name in self._upgraders.keys() & view.primaries:
            self._terminate_upgrader(name)
        self._kick.set()

    def _agents_run_on(self) -> bool:
        """Stop agents whose service has no replica any more; False: none runs."""
        for agent in self.agents.values():
            agent.start_at = None
            self._terminate(agent)
        return any(agent.pid for agent in self.agents.values())

    async def _stop_these(self, programs: Sequence[Program]) -> None:
        """Ask them to stop, and wait for that for a while."""
        for program in programs:
            self._terminate(program)
        deadline = time.monotonic() + FOLLOWERS_STOP_S
        while any(program.pid for program in programs) and time.monotonic() < deadline:
            self._look_at_ends(time.monotonic())
            await asyncio.sleep(0.02)

    def refusal(self, view: ServiceView) -> DeathlessError | None:
        """Give the error for which no replica will run until an operator acts; None: at least one may.

        Args:
            view: of `look`.
        """
        if not view.refusal or len(view.replicas) < len(self.replicas):
            return None
        return told_error(last_words(self.replicas[view.refused[0].replica].folder))

    def failure(self) -> DeathlessError | None:
        """Give the error with which a supervisor ended for good; None: none did."""
        failed = (replica for replica in self.replicas.values() if replica.exit_code in FINAL_EXITS)
        return next((told_error(last_words(replica.folder)) for replica in failed), None)

    def kill(self) -> None:
        """End all supervisors and agents at once, and with them what they started. Nothing confirmed is lost by it."""
        self.stopping, self._killed_at = True, time.monotonic()
        for program in self._programs:
            program.start_at = None
            if program.pid:
                self._signal(program, signal.SIGKILL)
        for descriptor in self._upgraders.values():
            _signal(descriptor, signal.SIGKILL)
        self._kick.set()

    @property
    def running(self) -> list[str]:
        """Names of the replicas whose supervisor runs."""
        return [replica.name for replica in self.replicas.values() if replica.pid]

    # ---- starting --------------------------------------------------------------------------------------------

    @property
    def _programs(self) -> list[Program]:
        """Replicas, then agents: these find their service by what the replicas were started with."""
        return [*self.replicas.values(), *self.agents.values()]

    def _find(self, program: Program) -> None:
        """See whether one of an earlier runner still holds its lock."""
        try:
            pid = program.running()
            differs = pid and not program.stands()
        except OSError:  # it is looked for again before it is started
            return
        if pid:
            note = "it keeps its old settings until it is stopped: the manifest has changed" if differs else ""
            self._watch(program, pid, None)
            self._tell(RunnerEvent(change=Change.FOUND, replica=program.name, pid=pid, text=note))

    def _start_due(self, now: float) -> None:
        for program in self._programs:
            if isinstance(program, DriverAgent) and not any(replica.pid for replica in self.replicas.values()):
                continue
            if program.pid == 0 and program.start_at is not None and now >= program.start_at:
                try:
                    self._start(program, now)
                except OSError as error:  # its log can't be opened, say: neither does that end the others' runner
                    self._plan_start(program, now)
                    self._tell_once(program, f"can't be started yet: {error}")

    def _start(self, program: Program, now: float) -> None:
        other = program.running()  # someone else may have started it since it ended
        if other:
            self._watch(program, other, None)
            self._tell(RunnerEvent(change=Change.FOUND, replica=program.name, pid=other))
            return
        process = program.start(self._environment)
        program.started_at = now
        program.start_at = None
        program.told = ""
        self._watch(program, process.pid, process)
        self._tell(RunnerEvent(change=Change.STARTED, replica=program.name, pid=process.pid))

    def _watch(self, program: Program, pid: int, process: subprocess.Popen[bytes] | None) -> None:
        try:
            program.pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        program.pid, program.process, program.start_at = pid, process, None
        asyncio.get_running_loop().add_reader(program.pidfd, self._kick.set)

    def _forget(self, program: Program) -> None:
        if program.pidfd >= 0:
            asyncio.get_running_loop().remove_reader(program.pidfd)
            os.close(program.pidfd)
        if program.process is not None and program.process.returncode is None:
            program.process.returncode = 0  # it lives on without us; Popen would warn that we leave it
        program.pid, program.pidfd, program.process = 0, -1, None

    # ---- ends ------------------------------------------------------------------------------------------------

    def _find_upgraders(self) -> None:
        """Take note of the upgraders that run: who started them may be gone, so that nobody else stops them."""
        for name, pid in upgraders_of(self.parts).items():
            with contextlib.suppress(ProcessLookupError):
                self._upgraders[name] = os.pidfd_open(pid)
                asyncio.get_running_loop().add_reader(self._upgraders[name], self._kick.set)

    def _terminate_upgrader(self, name: str) -> None:
        for number in (signal.SIGTERM, signal.SIGCONT):
            _signal(self._upgraders[name], number)

    def _forget_upgrader(self, name: str) -> None:
        descriptor = self._upgraders.pop(name)
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)

    def _look_at_ends(self, now: float) -> None:
        for name in [name for name, descriptor in self._upgraders.items() if not _is_there(descriptor)]:
            self._forget_upgrader(name)
        for program in self._programs:
            if program.pid and _has_ended(program):
                self._ended(program, now)

    def _ended(self, program: Program, now: float) -> None:
        code = program.process.poll() if program.process is not None else None
        pid, stable = program.pid, now - program.started_at >= STABLE_S
        self._forget(program)
        program.exit_code = code
        if self.stopping or program.stop_sent:
            with contextlib.suppress(OSError):
                program.left()
            self._tell(RunnerEvent(change=Change.STOPPED, replica=program.name, pid=pid))
            return
        said = last_words(program.folder, program.log.name)
        if code in FINAL_EXITS:
            program.start_at = None
            self._tell(RunnerEvent(change=Change.FAILED, replica=program.name, pid=pid, text=said))
            return
        self._plan_start(program, now, at_once=stable)
        why = "by a signal" if code is None or code < 0 else f"with exit code {code}: {said}"
        self._tell(RunnerEvent(change=Change.ENDED, replica=program.name, pid=pid, text=why))

    @staticmethod
    def _plan_start(program: Program, now: float, *, at_once: bool = False) -> None:
        program.delay_s = 0.0 if at_once else next_pause(program.delay_s, first_s=RESTART_MIN_S, most_s=RESTART_MAX_S)
        program.start_at = now + program.delay_s

    def _tell_once(self, program: Program, text: str) -> None:
        if text != program.told:
            program.told = text
            self._tell(RunnerEvent(change=Change.DELAYED, replica=program.name, pid=0, text=text))

    def _any_due(self) -> bool:
        return any(program.start_at is not None for program in self._programs)

    def _exit_code(self) -> int:
        if self.stopping:
            return 0
        return next((code for replica in self.replicas.values() if (code := replica.exit_code)), 0)

    def _terminate(self, program: Program) -> None:
        if program.pid and not program.stop_sent:
            program.stop_sent = True
            self._tell(RunnerEvent(change=Change.STOPPING, replica=program.name, pid=program.pid))
            # A frozen one would not hear it.
            self._signal(program, signal.SIGTERM)
            self._signal(program, signal.SIGCONT)

    @staticmethod
    def _signal(program: Program, number: signal.Signals) -> None:
        _signal(program.pidfd, number)

    def _cut_logs(self, now: float) -> None:
        if now - self._log_checked_at < LOG_CHECK_S:
            return
        self._log_checked_at = now
        for program in self._programs:
            cut_log(program.log)


def _has_ended(program: Program) -> bool:
    if program.process is not None:
        return program.process.poll() is not None
    return not _is_there(program.pidfd)


def _is_there(pidfd: int) -> bool:
    """Does the process run? One that has ended counts as gone, whether or not its parent has taken note of that."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return not poll.poll(0)


def _signal(pidfd: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, number)


def start_supervisor(config: ReplicaConfig, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a replica's supervisor in a session of its own; what it says goes to replica.log. Raises: OSError.

    Args:
        config: of the replica; it is written first.
        environment: the whole of it.
    """
    folder = Path(config.directory) / "replicas" / config.replica
    folder.mkdir(parents=True, exist_ok=True)
    write_config(config)
    arguments = [str(folder / "config.json")]
    return start_program("deathless.shell.supervisor.supervisor", arguments, folder / "replica.log", environment)


def running_supervisor(folder: Path) -> int:
    """Give the pid of the supervisor that holds the replica's lock; 0: none."""
    return holder_of(folder / LOCK)


def _open_lock(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno != errno.EROFS:
            raise
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # read-only just now: it can be locked all the same


async def run_until_stopped(runner: Runner) -> int:
    """Run with SIGINT and SIGTERM stopping in order, at once the second time. SIGHUP leaves all running.

    SIGINT leaves them running, too, where the runner has joined a set that ran already.
    """
    loop = asyncio.get_running_loop()
    work: asyncio.Task[int] = loop.create_task(runner.run())
    stops: list[asyncio.Task[None]] = []

    def ordered() -> None:
        if stops:
            runner.kill()
        else:
            stops.append(loop.create_task(runner.stop()))

    def interrupted() -> None:
        if runner.joined and not stops:
            runner.leave()
            work.cancel()
        else:
            ordered()

    loop.add_signal_handler(signal.SIGINT, interrupted)
    loop.add_signal_handler(signal.SIGTERM, ordered)
    loop.add_signal_handler(signal.SIGHUP, work.cancel)
    try:
        return await work
    except asyncio.CancelledError:
        return 0
    finally:
        for stop in stops:
            await asyncio.gather(stop, return_exceptions=True)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(number)
        runner.close()


async def stop_all(
    directory: Path, parts: list[Part], tell: Callable[[RunnerEvent], None], *, handover_wait_s: float
) -> list[str]:
    """Stop every supervisor of a service, in order; gives their names. A runner there ends with them.

    A pipeline's agents are stopped before them.

    Args:
        directory: of the service.
        parts: its shards.
        tell: gets each event.
        handover_wait_s: so long a primary may wait for activities before it stops.

    Raises: OtherSupervisor when one has not ended after STOP_S, and the wait.
    """
    view = await look_at_all(parts)
    folders = [(part.label, path.parent) for part in parts for path in _configs(part.directory)]
    running = {label + folder.name: pid for label, folder in folders if (pid := running_supervisor(folder))}
    pids = {name: os.pidfd_open(pid) for name, pid in running.items()}
    runner, agents = running_runner(directory), running_agents(directory)
    theirs = running.keys() - upgraders_of(parts).keys() if runner else set()
    try:
        # A runner would start them again: it is the one to ask.
        if runner:
            os.kill(runner, signal.SIGTERM)
        await _stop_agents(agents, tell, ours=not runner)
        for last in (False, True):
            group = {name: fd for name, fd in pids.items() if (name in view.primaries) is last}
            for name, fd in group.items():
                tell(RunnerEvent(change=Change.STOPPING, replica=name, pid=running[name]))
                if name not in theirs:
                    signal.pidfd_send_signal(fd, signal.SIGTERM)
                    signal.pidfd_send_signal(fd, signal.SIGCONT)
            stop_s = STOP_S + (handover_wait_s if last else 0.0)
            for name, fd in group.items():
                if not await wait_end(fd, stop_s):
                    raise OtherSupervisor(
                        f"{name} (process {running[name]}) has not stopped after {stop_s:g} s",
                        remedy="kill -9 it: that loses nothing confirmed",
                    )
                tell(RunnerEvent(change=Change.STOPPED, replica=name, pid=running[name]))
    finally:
        for fd in pids.values():
            os.close(fd)
    return [*agents, *running]


async def _stop_agents(agents: Mapping[str, int], tell: Callable[[RunnerEvent], None], *, ours: bool) -> None:
    """Stop agents of a pipeline, or with `ours` False wait until their runner has. Raises: OtherSupervisor."""
    for name, pid in agents.items():
        try:
            agent = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            tell(RunnerEvent(change=Change.STOPPING, replica=name, pid=pid))
            if ours:
                _signal(agent, signal.SIGTERM)
                _signal(agent, signal.SIGCONT)
            if not await wait_end(agent, STOP_S):
                what = f"{name} (process {pid}) has not stopped after {STOP_S:g} s"
                raise OtherSupervisor(what, remedy="kill -9 it: that loses nothing confirmed")
            tell(RunnerEvent(change=Change.STOPPED, replica=name, pid=pid))
        finally:
            os.close(agent)


def upgraders_of(parts: list[Part]) -> dict[str, int]:
    """Give the supervisors that run of replicas that were started for an upgrade, which no runner started."""
    found = {}
    for part in parts:
        for path in _configs(part.directory):
            with contextlib.suppress(DeathlessError, OSError):
                if read_config(str(path)).upgrade is not None and (pid := running_supervisor(path.parent)):
                    found[part.label + path.parent.name] = pid
    return found


def _configs(directory: Path) -> list[Path]:
    return sorted((directory / "replicas").glob("*/config.json"))


async def wait_end(pidfd: int, wait_s: float) -> bool:
    """Wait until a process has ended, at most so many seconds; False where it has not."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(pidfd, ended.set)
    try:
        await asyncio.wait_for(ended.wait(), wait_s)
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(pidfd)
    return True


def running_runner(directory: Path) -> int:
    """Give the pid of the runner at work in a folder; 0: none."""
    return holder_of(directory / "up.lock")

"""Pid 1 of a replica: the processes, sockets and files around `core.supervisor.machine`, which decides.

    supervisor --(socket pair: orders, roles)--> worker          control port <-- other supervisors, tools
        |  '-----(page: ticks, message run)----'  |
        '--> ingress                              '-- dies with the supervisor's end of the pair

No handler ever runs here, and once it runs nothing here waits for the log's storage, so a supervisor answers for a busy
or hung worker. It learns of its worker's death or stop from the kernel at once and tells the others, which makes a
takeover start within milliseconds.

Guarantees: one supervisor per replica, or per instance of it (a kernel lock on a file). Its own death ends its worker.
Does not: touch the log or the lock's values beyond reading and first writing who the service is.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, assert_never

from deathless.base.config import ReplicaConfig
from deathless.base.errors import DeathlessError, OtherSupervisor, UpgradeRequired
from deathless.core.supervisor.detection import Detector, Report
from deathless.core.supervisor.dispatch import Dispatch
from deathless.core.supervisor.effects import (
    Announce,
    CloseLine,
    Effect,
    Exit,
    KillWorker,
    LeaveWord,
    LookAgain,
    Note,
    PeerLives,
    ReadMembers,
    RefuseReport,
    StartIngress,
    StartWorker,
    StopIngress,
    Tell,
    TellPeers,
)
from deathless.core.supervisor.events import (
    Begun,
    CodeNotKept,
    Event,
    Fenced,
    HeartbeatDue,
    IngressExited,
    IngressNotStarted,
    IngressStarted,
    ReportReceived,
    ReportsTaken,
    RestartOrdered,
    StopOrdered,
    WorkerNotStarted,
    WorkerSaid,
    WorkerStarted,
)
from deathless.core.supervisor.machine import Settings, State, SupervisorMachine
from deathless.core.supervisor.records import AddressesAre, RoleIs, Stopping
from deathless.engine.replica.failures import as_ours
from deathless.shell.disk.filesystem import LOCAL_TYPES, filesystem_type
from deathless.shell.link.config_file import read_config
from deathless.shell.link.settings_file import SettingsFile
from deathless.shell.link.standing import SERVING, Standing
from deathless.shell.link.status_page import sweep
from deathless.shell.net.connections import CLOSING_TURNS
from deathless.shell.net.listening import announced, listen, stop_listening
from deathless.shell.net.tls import server_context
from deathless.shell.process.logs import configure
from deathless.shell.process.output import never_wait
from deathless.shell.process.reaping import end_all
from deathless.shell.supervisor.control_port import ControlPort, status_of
from deathless.shell.supervisor.other_replicas import OtherReplicas
from deathless.shell.supervisor.side_processes import SideProcesses, reap_orphans
from deathless.shell.supervisor.standing_view import StandingView
from deathless.shell.supervisor.starting import Start
from deathless.shell.supervisor.termination_message import leave_word
from deathless.shell.supervisor.worker_process import WorkerProcess, changes_of
from deathless.shell.upgrade.following import CodeFollowing

MODULE: Final = "deathless.shell.supervisor.supervisor"
BEGIN_AGAIN: Final = -1
"""What a supervisor ends with that is to be started anew, with the config as it stands then; no exit code has it."""
_LOG: Final = logging.getLogger("deathless.supervisor")
_LEVELS: Final = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class Supervisor:
    """One replica's supervisor; `run` ends when it is told to stop.

    Args:
        config: the replica's.
        config_path: where its children read it.
        reaps: orphans of this machine, or pod, become our children; their ends are taken note of.
        settings: the file that the config was made from; None: nobody changes it under a running replica.
    """

    def __init__(
        self, config: ReplicaConfig, config_path: str, *, reaps: bool = False, settings: SettingsFile | None = None
    ) -> None:
        self.config = config
        self.config_path = config_path
        self.machine = SupervisorMachine(
            Settings(
                replica=config.replica,
                limits=config.make_limits(),
                directory=config.directory,
                instance=config.instance,
                has_ingress=bool(config.ingress_listen),
                promote_checkpointer=config.promote_checkpointer,
                follows_code=bool(config.code),
            ),
            time.monotonic(),
        )
        self._dispatch = Dispatch(self._handle, self._do)
        self.worker = WorkerProcess(config, self._take)
        self.ingress: subprocess.Popen[bytes] | None = None
        self._reaps = reaps
        self._kick = asyncio.Event()
        self._stopped = asyncio.Event()  # we were told to stop
        self._following = CodeFollowing(config, self.order_stop, lambda: self._take(CodeNotKept()))
        self._start = Start(config, self.folder, settings, lambda: self.worker.open_page(fresh=False))
        self._others = OtherReplicas(config, self._take, self._kick.set)
        self._beside = SideProcesses(config, config_path, lambda fenced: self._take(Fenced(fenced)))
        self._control = ControlPort(
            config,
            reported=self._report_received,
            done=lambda: self._take(ReportsTaken()),
            commands={"status": self.status, "stop": self.order_stop, "restart-worker": self._restart_worker},
            door=self._others.door,
        )
        self._view = StandingView(config, settings)

    @property
    def folder(self) -> Path:
        """Of this replica, in the log directory."""
        return Path(self.config.directory) / "replicas" / self.config.replica

    @property
    def report(self) -> Report:
        """What the other supervisors are told."""
        return self.machine.report

    @property
    def detector(self) -> Detector:
        """What is known of the set."""
        return self.machine.detector

    # ---- life ------------------------------------------------------------------------------------------------

    async def run(self) -> int:
        """Run until stopped; gives the exit code, or BEGIN_AGAIN: the config names other code from now on.

        Raises: what `prepare` refuses to start with; PortTaken; SettingsChanged; OSError.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.order_stop)
        config = self.config
        record = await self._start.when_ready(self._stopped)
        if record is None:
            return 0
        self._view.record = record
        sweep()
        server, address = await listen(self._control.accept, config.control_listen, server_context(self._control.tls))
        loop.add_signal_handler(signal.SIGCHLD, self._children_changed)
        self._others.start()
        self._take(
            Begun(
                announced(address, config.advertise_host),
                os.getpid(),
                self._start.generation,
                filesystem_type(config.directory) in LOCAL_TYPES,
                self.worker.take_running(),
            )
        )
        try:
            await self._loop()
        finally:
            await stop_listening(server)
            self._end()
            for _ in range(CLOSING_TURNS):
                await asyncio.sleep(0)
        return BEGIN_AGAIN if self._following.begins_again else 0

    async def _loop(self) -> None:
        heartbeat_s = self.machine.settings.limits.heartbeat_s
        while True:
            self._beside.start_due(time.monotonic(), self._environment())
            self._take(HeartbeatDue())
            if self.machine.state is State.GONE:
                return
            self._start.look(time.monotonic(), held=self.machine.hold.held or self.machine.stop.ordered)
            self._others.peers.connect_due()
            self._kick.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._kick.wait(), heartbeat_s)

    def _end(self) -> None:
        """Leave nothing behind: no process, no connection, after an orderly stop no announcement."""
        self._control.close()
        self.worker.close_line()
        children = (self.worker.process, self.ingress, *self._beside.let_go())
        self.worker.process = self.ingress = None
        end_all(each for each in children if each is not None)  # what one that is left may do: shell.directory.instance
        self._others.close(withdraw=self.machine.state is State.GONE)

    def order_stop(self) -> None:
        """SIGTERM: an orderly stop; what is admitted is confirmed and answered first."""
        self._following.stop_ordered()
        self._stopped.set()
        self._take(StopOrdered())

    # ---- events and effects ----------------------------------------------------------------------------------

    def _take(self, event: Event) -> None:
        self._dispatch.take(event)

    def _handle(self, event: Event) -> list[Effect]:
        if isinstance(event, WorkerSaid):
            if isinstance(event.record, AddressesAre):
                self._view.fingerprint = event.record.fingerprint
            elif isinstance(event.record, RoleIs):
                self._start.served = self._start.served or event.record.role in SERVING
            elif isinstance(event.record, Stopping) and event.record.code == UpgradeRequired.code:
                self._following.look()
        return self.machine.handle(event, time.monotonic(), self.worker.read())

    def _do(self, effect: Effect) -> None:
        match effect:
            case TellPeers():
                self._beside.tell(self._standing(), time.monotonic())
                self._others.tell(effect.report)
            case Tell():
                self.worker.send(effect.record)
            case LookAgain():
                self._kick.set()
            case Note():
                _LOG.log(_LEVELS[effect.level], effect.text, extra=effect.fields)
            case PeerLives():
                self._others.peers.heard(effect.replica)
            case ReadMembers():
                self._others.board.look()
            case StartWorker():
                self._start_worker()
            case KillWorker():
                self.worker.kill()
            case CloseLine():
                self.worker.close_line()
            case StartIngress():
                self._start_ingress()
            case StopIngress():
                if self.ingress is not None:
                    self.ingress.terminate()
            case Announce():
                self._others.announce(self.report)
            case LeaveWord():
                leave_word(self.config.termination_file, effect.text)
            case RefuseReport() | Exit():
                pass  # whoever told the event looks for it
            case _:
                assert_never(effect)

    # ---- children --------------------------------------------------------------------------------------------

    def worker_command(self, descriptor: int) -> list[str]:
        """What a worker is started with; `descriptor` is its end of the socket pair."""
        page = self.worker.page.path if self.worker.page is not None else ""
        return [sys.executable, "-m", "deathless.shell.worker.worker", self.config_path, str(descriptor), page]

    def ingress_command(self) -> list[str]:
        """What an ingress is started with."""
        return [sys.executable, "-m", "deathless.shell.ingress.ingress", self.config_path, str(os.getpid())]

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONHASHSEED": str(self._view.record.hash_seed if self._view.record is not None else 0),
            "PYTHONUNBUFFERED": "1",
            "TZ": "UTC",
            "LC_ALL": "C.UTF-8",
        }

    def _start_worker(self) -> None:
        try:
            self.worker.start(self.worker_command, self._environment())
        except OSError as error:  # the page can't be opened, or no process be made
            ours = as_ours(error, "start of the worker")
            self._take(WorkerNotStarted(ours.code, str(ours)))
        else:
            self._take(WorkerStarted(self.worker.pid))

    def _start_ingress(self) -> None:
        try:
            self.ingress = subprocess.Popen(self.ingress_command(), env=self._environment(), stdin=subprocess.DEVNULL)
        except OSError as error:
            self._take(IngressNotStarted(str(error)))
        else:
            self._take(IngressStarted())

    def _children_changed(self) -> None:
        """SIGCHLD: somebody died, was stopped or goes on."""
        self.worker.look()
        for change in changes_of(self.ingress):
            if change.exit_code is not None:
                self.ingress = None
                self._take(IngressExited(change.exit_code))
        self._beside.reap(time.monotonic())
        if self._reaps:
            own = {each.pid for each in (self.worker.process, self.ingress) if each is not None}
            reap_orphans(own | self._beside.pids)
        self._kick.set()

    # ---- other supervisors, and tools ------------------------------------------------------------------------

    def _report_received(self, report: Report) -> DeathlessError | None:
        """Another supervisor tells how it is; gives why it is not to be heard."""
        effects = self._dispatch.ask(ReportReceived(report))
        return next((OtherSupervisor(each.text) for each in effects if isinstance(each, RefuseReport)), None)

    def _restart_worker(self) -> None:
        self._take(RestartOrdered())

    def _standing(self) -> Standing:
        """What is told to the processes beside us."""
        return self._view.standing(self.machine, self.worker.page, time.monotonic(), self._beside.program)

    def status(self) -> dict[str, object]:
        """What `deathless status` shows, as this supervisor knows it."""
        return status_of(self.config, self.detector, self._standing(), time.monotonic())


async def serve(
    config: ReplicaConfig, config_path: str, *, reaps: bool = False, settings: SettingsFile | None = None
) -> int:
    """Run one supervisor to its end. Raises: as `Supervisor.run`."""
    return await Supervisor(config, config_path, reaps=reaps, settings=settings).run()


def main(arguments: list[str] | None = None) -> int:
    """Run one replica from a JSON config file; gives the exit code of `base.errors`."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        config = read_config(arguments[0])
        configure(config.log_level, config.replica, "supervisor")
        code = asyncio.run(serve(config, arguments[0]))
    except (DeathlessError, OSError) as error:
        ours = as_ours(error, "supervisor")
        _LOG.error("supervisor stops", extra={"code": ours.code, "why": str(ours)})
        sys.stderr.write(f"{ours}\n")
        return ours.exit_code
    if code == BEGIN_AGAIN:
        sys.stderr.flush()
        os.execv(sys.executable, [sys.executable, "-m", MODULE, arguments[0]])  # noqa: S606  this very program
    return code


if __name__ == "__main__":
    never_wait()
    sys.exit(main())

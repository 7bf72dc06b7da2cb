"""`ImmortalCoordinator`: one replica of an instance, in the foreground, beside a program that somebody else starts.

    ImmortalCoordinator -i=counter -p=1500

    this process --(exec shim)--> supervisor --> worker
         |                            '--------> host of the program: listens at the two ports
         '--looks at--> status of the host: connecting, following, leading, ended

The two share their fate, as the protocol has it: a program whose coordinator ends loses its connections and ends, and a
program that ends ends its coordinator. Whoever starts both again goes on from checkpoint and log.

Lines that scripts and bindings wait for: `Ready ...` once the program may connect; `I'm a secondary` and `NOW I'm
Primary`; `FATAL ERROR n: text` and then `KILLING WORKER:` at its end.

Guarantees: nothing of the replica outlives this process, also where it is killed; the exit code is 0 where it was
stopped in order and 1 otherwise. Does not: hold any truth. Imports this folder, base and the shell.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from deathless.base.config import PeerConfig, ReplicaConfig
from deathless.base.errors import (
    ApplicationStateMissing,
    DeathlessError,
    InstanceNotRegistered,
    InstanceThere,
    OriginalArgumentRefused,
    ProgramVersionDiffers,
)
from deathless.base.foreign.binding import SERVICE_MODULE, Binding
from deathless.base.manifest import Manifest, Metadata, ServiceSpec, replica_configs
from deathless.cli.ambrosia.arguments import (
    COORDINATOR,
    INSTANCE,
    LOG,
    RECEIVE,
    REPLICA,
    SEND,
    WrongArguments,
    number,
    parse,
    required,
    usage,
)
from deathless.cli.ambrosia.registrations import Registration, Replica, all_registrations, registration_of
from deathless.cli.ambrosia.tool import MB_MAX, PORT_MAX, REPLICA_MAX
from deathless.cli.output import show_error
from deathless.foreign.checkpoints import CheckpointDamaged, Checkpoints
from deathless.shell.disk.filesystem import RealFileSystem
from deathless.shell.foreign import exec_shim
from deathless.shell.link.application_status import ApplicationStatus, forget_status, read_statuses
from deathless.shell.link.config_file import config_path, write_config
from deathless.shell.operate.replica_log import last_words
from deathless.shell.operate.runner import running_supervisor

NAME: Final = "ImmortalCoordinator"
PORT: Final = COORDINATOR[1]
LOOPBACK: Final = "127.0.0.1"
LOOK_S: Final = 0.1
STOP_S: Final = 30.0  # how long an orderly stop may take
NEVER: Final = 100_000_000  # rows between two checkpoints, where the program asks for them
NEVER_BYTES: Final = "1Ti"
READY: Final = "Ready ..."
DEPOSED: Final = "Migrating or upgrading. Must commit suicide since I'm the primary"
LINES: Final = {"following": "I'm a secondary", "leading": "NOW I'm Primary"}
"""What is told once a program is so."""
STOPS: Final = (signal.SIGTERM, signal.SIGINT)
UNEXPECTED, VERSION_MISMATCH, NO_CHECKPOINT, NO_LOG, STORE = 0, 1, 2, 3, 4
"""Numbers of fatal errors, as the original has them."""
_NUMBERS: Final[Mapping[str, int]] = {
    ApplicationStateMissing.code: NO_CHECKPOINT,
    ProgramVersionDiffers.code: VERSION_MISMATCH,
}


def main(home: Path, words: Sequence[str]) -> int:
    """Run a replica until it is stopped or its program ends; gives the exit code.

    Args:
        home: folder of the launchers.
        words: behind the program's name.
    """
    try:
        found = parse(words, COORDINATOR)
        if "help" in found:
            print(usage(NAME, COORDINATOR))
            return 0
        registration, config = prepare(home, found)
    except ProgramVersionDiffers as error:
        return fatal(VERSION_MISMATCH, f"{error.message} ({error.advice})")
    except WrongArguments as wrong:
        print(f"Invalid arguments: {wrong}\n{usage(NAME, COORDINATOR)}")
        return 1
    except DeathlessError as error:
        show_error(error)
        return 1
    if registration.pause_at_start:
        print("Hit Enter to continue", flush=True)
        sys.stdin.readline()
    try:
        write_config_of(config)
        return Replicating(config).run()
    except OSError as error:
        return fatal(STORE, str(error))


def prepare(home: Path, found: Mapping[str, str]) -> tuple[Registration, ReplicaConfig]:
    """Give what was registered, with what the command line changes of it, and the replica's config.

    Raises: WrongArguments; OriginalArgumentRefused, InstanceNotRegistered, InstanceThere, ProgramVersionDiffers.
    """
    required(found, INSTANCE, PORT)
    index = number(found, REPLICA.long, least=0, most=REPLICA_MAX) or 0
    registration = registration_of(home, found[INSTANCE.long])
    if index not in registration.replicas:
        raise InstanceNotRegistered(f"replica {index} of {registration.instance}")
    registration = _changed(registration, index, found)
    there = registration.directory.exists()
    if registration.create_service == "Y" and there:
        raise InstanceThere(
            f"{registration.instance} was registered with -cs=Y; its log is in {registration.directory}"
        )
    if registration.create_service == "N" and not there:
        raise InstanceThere(f"{registration.instance} was registered with -cs=N; no log is in {registration.directory}")
    _require_version(registration)
    port = number(found, PORT.long, least=0, most=PORT_MAX)
    address = found.get("IPAddr", LOOPBACK)
    if address != "localhost" and not address.startswith("127."):
        raise OriginalArgumentRefused(
            f"--IPAddr={address}: a port that others reach needs TLS", remedy="run the program by a manifest"
        )
    others = [each for each in all_registrations(home) if each.log != registration.log]
    return registration, config_of(registration, index, f"{address}:{port}", others)


def _require_version(registration: Registration) -> None:
    """See that its program's state is of the version that was registered. Raises: ProgramVersionDiffers."""
    try:
        was = Checkpoints(RealFileSystem(registration.directory), "").version()
    except (CheckpointDamaged, OSError):  # its program can't go on from that, and the process beside it says why
        return
    if was not in {-1, registration.version}:
        raise ProgramVersionDiffers.between(registration.version, was)


def _changed(registration: Registration, index: int, found: Mapping[str, str]) -> Registration:
    """Put the command line's values in the place of those that were registered."""
    if found.get("logStorageType", "files").lower() != "files":
        raise OriginalArgumentRefused("--logStorageType", remedy="leave it out: a log is in files")
    ports = registration.replicas[index]
    receive = number(found, RECEIVE.long, least=1, most=PORT_MAX) or ports.receive_port
    send = number(found, SEND.long, least=1, most=PORT_MAX) or ports.send_port
    trigger = number(found, "logTriggerSize", least=-MB_MAX, most=MB_MAX)
    return msgspec.structs.replace(
        registration,
        replicas={**registration.replicas, index: Replica(receive_port=receive, send_port=send)},
        log=str(Path(found[LOG.long]).absolute()) if LOG.long in found else registration.log,
        log_trigger_mb=registration.log_trigger_mb if trigger is None else trigger,
    )


def config_of(registration: Registration, index: int, address: str, others: Sequence[Registration]) -> ReplicaConfig:
    """Give the config of a replica.

    Args:
        registration: of its instance.
        index: of the replica.
        address: that callers and other instances connect.
        others: instances whose logs are elsewhere.
    """
    asked = registration.log_trigger_mb <= 0
    binding = Binding(
        command=("started by somebody else",),
        instance_name=registration.instance,
        compare="Shape",
        checkpoint_every_rows=NEVER,
        checkpoint_every_bytes=NEVER_BYTES if asked else f"{registration.log_trigger_mb}Mi",
        connect_max_seconds=0.0,
    )
    manifest = Manifest(
        api_version="deathless.dev/v1alpha1",
        kind="DeathlessService",
        metadata=Metadata(name=registration.service),
        spec=ServiceSpec(binding=binding, replicas=1),
    )
    (config,) = replica_configs(manifest, module=SERVICE_MODULE, directory=str(registration.directory), token="")
    assert config.binding is not None
    ports = registration.replicas[index]
    return msgspec.structs.replace(
        config,
        replica=f"r{index}",
        client_listen=address,
        peers=tuple(PeerConfig(name=each.service, directory=str(each.directory)) for each in others),
        binding=msgspec.structs.replace(
            config.binding,
            command=(),
            receive_port=ports.receive_port,
            send_port=ports.send_port,
            checkpoints_kept=0,
            version=registration.version,
            next_version=registration.upgrade_version if registration.upgrade_version > registration.version else -1,
        ),
    )


def write_config_of(config: ReplicaConfig) -> None:
    """Write a replica's config where it belongs. Raises: OSError."""
    config_path(config.directory, config.replica).parent.mkdir(parents=True, exist_ok=True)
    write_config(config)


class Replicating:
    """One replica that runs.

    Args:
        config: of it, which stands where it belongs.
    """

    def __init__(self, config: ReplicaConfig) -> None:
        self._config = config
        self._told: set[str] = set()
        self._stop = threading.Event()

    def run(self) -> int:
        """Run it to its end; gives the exit code. Raises: OSError."""
        if running_supervisor(self._folder):
            return fatal(UNEXPECTED, f"another coordinator runs replica {self._config.replica}, in {self._folder}")
        forget_status(self._config.directory, self._config.replica)  # of an earlier life
        former = {each: signal.signal(each, lambda *_: self._stop.set()) for each in STOPS}
        supervisor = self._start()
        try:
            while not self._stop.wait(LOOK_S):
                if supervisor.poll() is not None:
                    return fatal(UNEXPECTED, last_words(self._folder))
                status = self._look()
                if status is not None and status.state == "ended" and status.starts:
                    return fatal(_NUMBERS.get(status.code, UNEXPECTED), status.problem or DEPOSED)
            return 0
        finally:
            self._end(supervisor)
            for number_, handler in former.items():
                signal.signal(number_, handler)

    @property
    def _folder(self) -> Path:
        return config_path(self._config.directory, self._config.replica).parent

    def _start(self) -> subprocess.Popen[bytes]:
        """Start the supervisor, which the kernel kills with us."""
        shim = [sys.executable, "-I", "-S", str(Path(exec_shim.__file__)), str(os.getpid())]
        command = [sys.executable, "-m", "deathless.shell.supervisor.supervisor", str(self._folder / "config.json")]
        with (self._folder / "replica.log").open("ab") as log:
            return subprocess.Popen(
                [*shim, *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0
            )

    def _look(self) -> ApplicationStatus | None:
        """Tell what became of the program; None: nothing is known yet."""
        for status in read_statuses(self._config.directory):
            if status.replica == self._config.replica:
                if status.state != "ended":
                    self._say(READY)
                if line := LINES.get(status.state):
                    self._say(line)
                return status
        return None

    def _say(self, line: str) -> None:
        """Say a line that was not said yet."""
        if line not in self._told:
            self._told.add(line)
            print(line, flush=True)

    def _end(self, supervisor: subprocess.Popen[bytes]) -> None:
        """End it in order, and what does not end, at once."""
        supervisor.terminate()
        try:
            supervisor.wait(STOP_S)
        except subprocess.TimeoutExpired:
            supervisor.kill()
            supervisor.wait()


def fatal(code: int, text: str) -> int:
    """Say why it is over, as the original does; gives the exit code.

    Args:
        code: one of the numbers of fatal errors.
        text: why.
    """
    print(f"FATAL ERROR {code}: {text}\nKILLING WORKER:", flush=True)
    return 1

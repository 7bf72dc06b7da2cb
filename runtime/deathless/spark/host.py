"""The process of an agent: one that `deathless up` starts for each driver of a SparkPipeline.

    python -m deathless.spark.host <directory>/agents/d0/config.json
    python -m deathless.spark.host      in a pod: its config is a variable, and it tells the API server as well

Guarantees: one process for each such folder; how its driver is stands in the folder's status while it lives. Does not:
start again when it ends; who started it does. Imports the rest of this package.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from deathless.base.errors import DeathlessError, InvalidConfig, OtherSupervisor
from deathless.base.pipelines.agents import CONFIG_VARIABLE, READY_FILE, AgentConfig, AgentStatus
from deathless.pipelines.client import PipelineClient
from deathless.shell.disk.holders import take
from deathless.shell.link.config_file import write_private
from deathless.shell.operate.agents import LOCK, read_agent_config, write_status
from deathless.shell.pod.kubernetes_api import Api, Place
from deathless.shell.process.logs import configure
from deathless.spark.agent import Agent, agent_name, driver_command
from deathless.spark.announcing import Announcing
from deathless.spark.options import TOKEN_FILE, offer_services, offer_tls
from deathless.spark.session import check

_LOG: Final = logging.getLogger("deathless.agent")


class Publisher:
    """Writes how an agent is, whenever that has changed.

    Args:
        folder: of the agent.
        status: gives it.
        also: is told as well.
    """

    def __init__(
        self, folder: Path, status: Callable[[], AgentStatus], also: Callable[[AgentStatus], object] = lambda _: None
    ) -> None:
        self._also = also
        self._folder = folder
        self._status = status
        self._told: AgentStatus | None = None
        self._trouble = ""

    def tell(self) -> None:
        """Write it; where that is impossible just now, the next call tries again."""
        now = self._status()
        if now == self._told:
            return
        try:
            write_status(self._folder, now)
            _show_ready(self._folder / READY_FILE, ready=now.role != "starting")
        except OSError as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                _LOG.warning("the status can't be written", extra={"error": self._trouble})
        else:
            self._told, self._trouble = now, ""
            self._also(now)


def _show_ready(path: Path, *, ready: bool) -> None:
    """Have a file be there while a driver is ready, which a kubelet asks for. Raises: OSError."""
    if ready:
        path.touch()
    else:
        path.unlink(missing_ok=True)


def hold(folder: Path) -> int:
    """Take an agent's lock for as long as this process lives; gives its descriptor.

    Raises: OtherSupervisor where another process has it; OSError.
    """
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        take(descriptor)
    except BlockingIOError:
        os.close(descriptor)
        raise OtherSupervisor(
            f"another agent runs in {folder}", remedy="`deathless status` shows it; `deathless down` stops it"
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def command_of(config: AgentConfig, path: Path) -> list[str]:
    """Give the command that starts the drivers of an agent, whose config stands in that file."""
    conf = [f"{name}={value}" for name, value in config.conf.items()]
    file, _, function = config.module.rpartition(":")
    module = f"{Path(file).absolute()}:{function}" if file.endswith(".py") else config.module
    return [*driver_command(module, "", "", conf, config.trigger), "--config", str(path)]


def pod_folder(environment: Mapping[str, str], above: Path) -> Path:
    """Make the folder of an agent in a pod, with the config that the pod was given; gives the config's path.

    Args:
        environment: of the pod.
        above: where the folder is made; what a container of before left there is used again.

    Raises: InvalidConfig where the pod was given none; OSError.
    """
    given = environment.get(CONFIG_VARIABLE, "")
    if not given:
        raise InvalidConfig(f"no config is named, and {CONFIG_VARIABLE} has none")
    folder = above / "agent"
    folder.mkdir(exist_ok=True)
    (folder / READY_FILE).unlink(missing_ok=True)
    write_private(folder / "config.json", given.encode())
    return folder / "config.json"


def announcer(environment: Mapping[str, str]) -> Callable[[AgentStatus], object]:
    """Give what tells the API server how an agent in a pod is. Raises: InvalidConfig."""
    try:
        place, pod = Place.from_environment(environment), environment["POD_NAME"]
    except (KeyError, ValueError) as error:
        raise InvalidConfig(f"the environment lacks what a pod has: {error}") from None
    found = Announcing(Api(place), pod)
    threading.Thread(target=found.run, name="announcing", daemon=True).start()
    return found.tell


def main(arguments: list[str]) -> int:
    """Run an agent until SIGTERM. Raises: DeathlessError where it can't begin."""
    in_pod = not arguments
    configure("info", os.environ.get("POD_NAME", "agent") if in_pod else Path(arguments[0]).parent.name, "agent")
    path = pod_folder(os.environ, Path(tempfile.gettempdir())) if in_pod else Path(arguments[0]).absolute()
    config = read_agent_config(path)
    held = hold(path.parent)
    if config.folder:
        os.chdir(config.folder)
    check()
    offer_services(config.services, config.beside)
    if config.token_file:
        os.environ[TOKEN_FILE] = config.token_file
    if config.tls is not None:
        offer_tls(config.tls)

    def tell(event: str, number: int) -> None:
        _LOG.info(event, extra={"number": number})

    also = announcer(os.environ) if in_pod else lambda _: None
    command = command_of(config, path)
    with PipelineClient.as_agent(config) as client, Agent(client, agent_name(), command, tell) as agent:
        publisher = Publisher(path.parent, lambda: agent.status, also)
        publisher.tell()
        agent.run(publisher.tell)
    fcntl.flock(held, fcntl.LOCK_UN)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except DeathlessError as error:
        _LOG.error("the agent ends", extra={"code": error.code, "why": str(error)})
        sys.exit(error.exit_code)

"""The process of an agent: one that `deathless up` starts for each driver of a SparkPipeline.

    python -m deathless.spark.host <directory>/agents/d0/config.json

Guarantees: one process for each such folder; how its driver is stands in the folder's status while it lives. Does not:
start again when it ends; who started it does. Imports the rest of this package.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from deathless.base.errors import DeathlessError, OtherSupervisor
from deathless.base.pipelines.agents import AgentConfig, AgentStatus
from deathless.pipelines.client import PipelineClient
from deathless.shell.disk.holders import take
from deathless.shell.operate.agents import LOCK, read_agent_config, write_status
from deathless.shell.operate.target import find_target
from deathless.shell.process.logs import configure
from deathless.spark.agent import Agent, agent_name, driver_command
from deathless.spark.options import TOKEN_FILE, offer_services
from deathless.spark.session import check

_LOG: Final = logging.getLogger("deathless.agent")


class Publisher:
    """Writes how an agent is, whenever that has changed.

    Args:
        folder: of the agent.
        status: gives it.
    """

    def __init__(self, folder: Path, status: Callable[[], AgentStatus]) -> None:
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
        except OSError as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                _LOG.warning("the status can't be written", extra={"error": self._trouble})
        else:
            self._told, self._trouble = now, ""


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


def command_of(config: AgentConfig) -> list[str]:
    """Give the command that starts the drivers of an agent."""
    conf = [f"{name}={value}" for name, value in config.conf.items()]
    return driver_command(config.module, "", config.directory, conf, config.trigger)


def main(arguments: list[str]) -> int:
    """Run an agent until SIGTERM. Raises: DeathlessError where it can't begin."""
    [path] = map(Path, arguments)
    configure("info", path.parent.name, "agent")
    config = read_agent_config(path)
    held = hold(path.parent)
    check()
    offer_services(config.services, config.beside)
    if config.token_file:
        os.environ[TOKEN_FILE] = config.token_file
    found = find_target("", config.directory, every=True)

    def tell(event: str, number: int) -> None:
        _LOG.info(event, extra={"number": number})

    with PipelineClient.of(found) as client, Agent(client, agent_name(), command_of(config), tell) as agent:
        publisher = Publisher(path.parent, lambda: agent.status)
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

"""The agents of a pipeline's drivers on this machine: programs beside its replicas, and what they tell of themselves.

    <directory>/agents/d0/   config.json, agent.lock, agent.log, status.json

An agent holds the lock of its file for as long as it lives, so what its status says counts only then.

Guarantees: an agent is known by its files alone, whoever started it. Does not: know what an agent does (`spark.host`),
or ask the pipeline's service. May import base.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from deathless.base.errors import InvalidConfig
from deathless.base.pipelines.agents import FOLDER, AgentConfig, AgentStatus
from deathless.codec.untrusted import read_json
from deathless.shell.disk.holders import holder_of
from deathless.shell.disk.small_files import read_small
from deathless.shell.link.config_file import write_private
from deathless.shell.operate.programs import Program, start_program

HOST: Final = "deathless.spark.host"  # its module: a layer above this one
LOCK: Final = "agent.lock"
_CONFIG, _STATUS = "config.json", "status.json"


class DriverView(msgspec.Struct, rename="camel"):
    """One driver of a pipeline on this machine."""

    name: str
    role: str  # driver, warm, starting; dead: its agent does not run
    number: int = 0  # under which it drives; 0: it does not
    agent: str = ""  # as the pipeline's service knows it
    agent_pid: int = 0
    driver_pid: int = 0
    ui: str = ""


class DriverAgent(Program):
    """The program of one agent."""

    def __init__(self, config: AgentConfig) -> None:
        folder = Path(config.directory) / FOLDER / config.name
        super().__init__(config.name, folder, log_name="agent.log", lock_name=LOCK)
        self.config = config

    def stands(self) -> bool:
        """See Program."""
        try:
            return read_small(self.folder / _CONFIG) == _text_of(self.config)
        except FileNotFoundError:
            return False

    def start(self, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """See Program."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / _CONFIG
        if not self.stands():
            write_private(path, _text_of(self.config))
        return start_program(HOST, [str(path)], self.log, environment)

    def left(self) -> None:
        """See Program."""
        (self.folder / _STATUS).unlink(missing_ok=True)


def _text_of(config: AgentConfig) -> bytes:
    return msgspec.json.format(msgspec.json.encode(config), indent=2)


def read_agent_config(path: Path) -> AgentConfig:
    """Read what an agent is started with. Raises: InvalidConfig."""
    try:
        return read_json(read_small(path), AgentConfig)
    except OSError as error:
        raise InvalidConfig(f"{path}: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise InvalidConfig(f"{path}: {error}", remedy="`deathless up` rewrites it") from None


def write_status(folder: Path, status: AgentStatus) -> None:
    """Have people know how an agent's driver is. Raises: OSError."""
    write_private(folder / _STATUS, msgspec.json.encode(status))


def running_agents(directory: Path) -> dict[str, int]:
    """Give the pids of the agents that run beside a pipeline's replicas, by name. Raises: OSError."""
    found = {each.name: holder_of(each / LOCK) for each in _folders(directory)}
    return {name: pid for name, pid in found.items() if pid}


def look_at_drivers(directory: Path) -> list[DriverView]:
    """Give what the agents beside a pipeline's replicas tell; none: it is no pipeline, or has no driver here."""
    return [_view(each) for each in _folders(directory)]


def _folders(directory: Path) -> list[Path]:
    return sorted(path.parent for path in (directory / FOLDER).glob(f"*/{_CONFIG}"))


def _view(folder: Path) -> DriverView:
    pid, told = 0, None
    with contextlib.suppress(OSError, msgspec.MsgspecError):  # it has only just begun, or is about to say so again
        pid = holder_of(folder / LOCK)
        told = read_json(read_small(folder / _STATUS), AgentStatus)
    if not pid:
        return DriverView(folder.name, "dead")
    if told is None or told.pid != pid:
        return DriverView(folder.name, "starting", agent_pid=pid)
    return DriverView(folder.name, told.role, told.number, told.agent, pid, told.driver_pid, told.ui)

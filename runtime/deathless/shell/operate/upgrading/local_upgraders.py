"""The upgraders of a set on this machine: supervisors that are started for an upgrade, found again, and stopped.

Guarantees: an upgrader that an earlier run started is found by its config; what is stopped leaves no folder behind.
Does not: decide which upgrade is made.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from deathless.base.config import ReplicaConfig, UpgradeConfig
from deathless.base.errors import DeathlessError, InvalidArgument
from deathless.codec.frames import Cut
from deathless.shell.directory.members import remove_member
from deathless.shell.link.config_file import config_path, read_config
from deathless.shell.operate.replica_log import last_words
from deathless.shell.operate.runner import running_supervisor, start_supervisor, wait_end
from deathless.shell.operate.status import ReplicaView, ServiceView

STOP_S: Final = 30.0  # an upgrader that has not stopped by then is ended
UPGRADERS_MAX: Final = 8


class LocalUpgraders:
    """Those of one shard.

    Args:
        directory: of the shard.
        environment: of the replicas' processes, the whole of it.
        count: how many; two, so that the commit does not leave one replica alone.
    """

    def __init__(self, directory: str, environment: Mapping[str, str], count: int) -> None:
        if not 1 <= count <= UPGRADERS_MAX:
            raise InvalidArgument(f"{count} upgraders", remedy=f"give a number from 1 to {UPGRADERS_MAX}")
        self.names: list[str] = []
        self._directory = Path(directory)
        self._environment = environment
        self._count = count
        self._started: dict[str, subprocess.Popen[bytes]] = {}  # supervisors that this run started

    def start(self, before: ServiceView, config: ReplicaConfig) -> bool:
        """Start them, or what is missing of those of an earlier run; True: there were some.

        Args:
            before: the set.
            config: of an upgrader, but for its name.
        """
        assert config.upgrade is not None
        found = [name for name, upgrade in self.configs().items() if upgrade.id == config.upgrade.id]
        self.names = found or self._free_names(before)
        for name in self.names:
            if not running_supervisor(config_path(self._directory, name).parent):
                self._started[name] = start_supervisor(msgspec.structs.replace(config, replica=name), self._environment)
        return bool(found)

    def find_left_by(self, cut: Cut) -> None:
        """Find those that made the upgrade to this generation, and are still there."""
        self.names = [name for name, upgrade in self.configs().items() if upgrade.from_generation < cut.generation]

    def configs(self) -> dict[str, UpgradeConfig]:
        """Give the upgrade of every replica that was started for one, by name."""
        found = {}
        for path in sorted((self._directory / "replicas").glob("*/config.json")):
            with contextlib.suppress(DeathlessError, OSError):
                config = read_config(str(path))
                if config.upgrade is not None:
                    found[config.replica] = config.upgrade
        return found

    def _free_names(self, view: ServiceView) -> list[str]:
        taken = {each.replica for each in view.replicas} | {
            path.name for path in (self._directory / "replicas").iterdir()
        }
        free = (f"r{number}" for number in range(10_000) if f"r{number}" not in taken)
        return [next(free) for _ in range(self._count)]

    # ---- the port ------------------------------------------------------------------------------------------------

    def has_ended(self, name: str) -> bool:
        """See Upgraders: its supervisor has ended. One that begins holds no lock yet."""
        ours = self._started.get(name)
        begins = ours is not None and ours.poll() is None
        return not begins and not running_supervisor(config_path(self._directory, name).parent)

    async def passes(self, view: ReplicaView, why: str) -> bool:
        """See Upgraders: somebody waits for the command, and may give it again."""
        return False

    def last_words(self, name: str) -> str:
        """See Upgraders."""
        return last_words(self._directory / "replicas" / name) or "its log says nothing"

    async def stop(self) -> None:
        """See Upgraders."""
        await self._stop(self.names)

    async def stop_others(self, upgrade: UpgradeConfig) -> list[str]:
        """Stop what was left by a command for other code, or for an earlier generation, that was ended itself."""
        others = [name for name, each in self.configs().items() if each.id != upgrade.id]
        await self._stop(others)
        return others

    async def _stop(self, names: list[str]) -> None:
        for name in names:
            folder = config_path(self._directory, name).parent
            ours = self._started.get(name)
            # One that was started a moment ago holds no lock yet.
            pid = running_supervisor(folder) or (ours.pid if ours is not None and ours.poll() is None else 0)
            if pid:
                await _end(pid)
            remove_member(str(self._directory), name)
            shutil.rmtree(folder, ignore_errors=True)


async def _end(pid: int) -> None:
    """Stop a process in order, and end it where that takes too long."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        for numbers in ((signal.SIGTERM, signal.SIGCONT), (signal.SIGKILL,)):
            for number in numbers:  # a stopped one would not hear that it is to end
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(descriptor, number)
            if await wait_end(descriptor, STOP_S):
                return
    finally:
        os.close(descriptor)

"""The example's counter as a service, for tests that kill, copy and change it."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from cli_tool import Bank
from replica_set import wait_for

from deathless.base.config import ReplicaConfig
from deathless.sdk.client import SyncClient
from deathless.shell.link.application_status import ApplicationStatus, read_statuses

MANIFEST = """\
apiVersion: deathless.dev/v1alpha1
kind: DeathlessService
metadata: {{name: bank}}
spec:
  binding:
    command: [{command}]
    environment: {{PYTHONPATH: {path!r}}}
    checkpointEveryRows: 20
  replicas: {replicas}
{more}"""
ADD = 1


class Counter(Bank):
    """A service whose code is the example's counter, in the place of the bank.

    Args:
        program: to copy into its folder.
    """

    def __init__(self, folder: Path, program: Path) -> None:
        self.program = program
        super().__init__(folder)

    def write_manifest(self, replicas: int, more: str = "") -> None:
        """See Bank."""
        shutil.copy(self.program, self.folder)
        name = self.program.name
        command = f"{sys.executable}, {name}" if name.endswith(".py") else f"./{name}"
        path = os.environ.get("PYTHONPATH", "")
        self.manifest.write_text(MANIFEST.format(command=command, path=path, replicas=replicas, more=more))

    def client(self) -> SyncClient:
        """One of its service."""
        return SyncClient("bank", [f"dir:{self.directory}"])

    def config(self) -> ReplicaConfig:
        """Of the first replica, as far as it says whom to ask."""
        return ReplicaConfig(service="bank", module="", directory=str(self.directory), replica="r0")

    def leader(self) -> ApplicationStatus | None:
        """The application that leads, by what all tell."""
        leads = [each for each in read_statuses(str(self.directory)) if each.state == "leading"]
        return max(leads, key=lambda each: each.epoch, default=None)

    def wait_for_all(self, position: int = 0) -> ApplicationStatus:
        """Wait until one leads and the others follow, all of them at a position or behind it; gives the first."""

        def look() -> ApplicationStatus | None:
            found = read_statuses(str(self.directory))
            states = sorted(each.state for each in found)
            there = all(each.position >= position for each in found)
            return self.leader() if states == ["following", "following", "leading"] and there else None

        return wait_for(look, "applications", lambda: str(read_statuses(str(self.directory))))


def add(client: SyncClient, count: int) -> int:
    """Have the counter add so many bytes; gives the total."""
    told: bytes = client.call("call", "", result=bytes, method=ADD, args=bytes(count))
    return int.from_bytes(told, "little")

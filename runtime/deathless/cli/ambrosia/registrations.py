"""What `Ambrosia RegisterInstance` and `AddReplica` write down, and `ImmortalCoordinator` reads.

    <folder of the launchers>/registrations/<service>.json

It takes the place of the original's tables in a cloud account, which both tools find without being told where: these
find the folder that they were installed into. A registration is no truth of a service; its log is.

Guarantees: a file is whole or not there. Does not: look at logs. Imports base, foreign and the shell's files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from deathless.base.errors import InstanceNotRegistered, InvalidConfig
from deathless.codec.untrusted import read_json
from deathless.execution.author.instance_names import service_of
from deathless.shell.disk.small_files import read_small
from deathless.shell.link.config_file import write_private

FOLDER: Final = "registrations"
DATA: Final = ".deathless"  # folder of all services' data in that of the log
LOG_TRIGGER_MB: Final = 1000
_SUFFIX: Final = ".json"


class Replica(msgspec.Struct, frozen=True, kw_only=True):
    """Ports of the program beside one replica."""

    receive_port: int
    send_port: int


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """One instance."""

    instance: str
    log: str  # folder, absolute
    replicas: dict[int, Replica]
    create_service: str = "A"  # A | N | Y
    pause_at_start: bool = False
    log_trigger_mb: int = LOG_TRIGGER_MB  # 0 and below: a checkpoint when the program asks
    version: int = 0
    upgrade_version: int = 0  # that it goes over to at its next start; `version` or less: it stays

    @property
    def service(self) -> str:
        """What the service is called whose program it is."""
        return service_of(self.instance)

    @property
    def directory(self) -> Path:
        """Of the service's data."""
        return Path(self.log) / DATA / self.service


def register(home: Path, registration: Registration) -> None:
    """Put a registration in the place of the one before. Raises: OSError."""
    folder = home / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    write_private(folder / f"{registration.service}{_SUFFIX}", msgspec.json.encode(registration))


def deregister(home: Path, registration: Registration) -> None:
    """Forget a registration, if it is there. Raises: OSError."""
    (home / FOLDER / f"{registration.service}{_SUFFIX}").unlink(missing_ok=True)


def registration_of(home: Path, instance: str) -> Registration:
    """Read the registration of an instance.

    Raises:
        InstanceNotRegistered: there is none.
        InvalidConfig: it can't be read.
    """
    path = home / FOLDER / f"{service_of(instance)}{_SUFFIX}"
    try:
        return read_json(read_small(path), Registration)
    except FileNotFoundError:
        raise InstanceNotRegistered(f"{instance}: {path} is not there") from None
    except (OSError, msgspec.MsgspecError) as error:
        raise InvalidConfig(f"{path}: {error}", remedy="register the instance again") from None


def all_registrations(home: Path) -> list[Registration]:
    """Read those of all instances that can be read, by name. Raises: OSError."""
    found = []
    for path in sorted((home / FOLDER).glob(f"*{_SUFFIX}")):
        try:
            found.append(read_json(read_small(path), Registration))
        except (OSError, msgspec.MsgspecError):  # its own tool says what is wrong with it
            continue
    return found

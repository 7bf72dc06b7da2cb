"""What an exported log carries in place of a lock: `exported.json`, which says all that a tool asks a lock for.

    deathless log export FILE            reads log and lock of a service, and writes one file
    deathless log import FILE FOLDER     makes a folder of it, with exported.json in it: a log to look at

Guarantees: such a folder is looked at as the log of a service that does not run. Does not: give anybody a lock; nothing
is ever started in it (`opening.open_lock`). May import engine (ports), codec and base.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from deathless.base.errors import InvalidConfig, NewerFormat
from deathless.codec.untrusted import read_json
from deathless.engine.ports import LockView, ServiceRecord
from deathless.shell.disk.small_files import read_small

FILE: Final = "exported.json"
FORMAT_VERSION: Final = 1


class Exported(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The service and the place in its log at which it was exported; bytes are base64."""

    format_version: int = FORMAT_VERSION
    name: str
    service_id: bytes
    incarnation: int
    seed: bytes
    hash_seed: int
    fence: str
    store_id: str
    head: int  # epoch that the exported log ends in; 0: the log is empty
    first_lsn: int  # of the state that a replay can begin with; 0: the log's beginning
    last_lsn: int  # the last message in it
    confirmed_lsn: int  # the last that was known to be confirmed
    fingerprint: str  # of the code that wrote the end of it; empty: the log is empty
    exported_at: str  # UTC, ISO 8601
    version: str  # release that exported it

    def view(self) -> LockView:
        """Give what the lock said when the log was exported."""
        record = ServiceRecord(
            self.name, self.service_id, self.incarnation, self.seed, self.hash_seed, self.fence, live=True
        )
        return LockView(record, self.head, self.head, None, 0, self.store_id)


def read_exported(directory: str | Path) -> Exported | None:
    """Give what an exported log says of itself; None: the folder is none.

    Raises: InvalidConfig, NewerFormat.
    """
    path = Path(directory) / FILE
    try:
        data = read_small(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unreadable(str(path), error.strerror or str(error)) from None
    return decode_exported(data, str(path))


def decode_exported(data: bytes, where: str) -> Exported:
    """Take `exported.json` apart.

    Args:
        data: its bytes.
        where: for messages.

    Raises: InvalidConfig, NewerFormat.
    """
    try:
        found = read_json(data, Exported)
    except msgspec.MsgspecError as error:
        raise _unreadable(where, str(error)) from None
    if found.format_version > FORMAT_VERSION:
        raise NewerFormat(
            f"{where}: format version {found.format_version}, written by deathless {found.version}; this release reads "
            f"up to {FORMAT_VERSION}"
        )
    return found


def _unreadable(where: str, why: str) -> InvalidConfig:
    return InvalidConfig(f"{where}: {why}", remedy="export the log again: `deathless log export`")


def refuse_to_run(directory: str | Path) -> None:
    """Refuse to start anything in the folder of an exported log. Raises: InvalidConfig."""
    if (Path(directory) / FILE).exists():
        raise InvalidConfig(
            f"{directory} holds an exported log, in which nothing is started",
            remedy="look at it: `deathless replay --dir`, `deathless log show --dir`; a service has another directory",
        )

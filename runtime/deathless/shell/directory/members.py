"""members/<replica>.json: where each replica is reached. A hint for finding each other, never a truth.

Written by a supervisor under a temporary name and renamed; read by supervisors, clients and tools. `Board` does both
in a thread of its own: the folder lies on the log's storage, and a supervisor must answer while that hangs.

Guarantees: an announcement that could not be written (disk full, storage away) is written later, and again when it
does not stand any more; on a full disk it takes the room of the one before. Of several instances of a replica the
latest one's stands. Does not: tell who is alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from deathless.codec.untrusted import read_json
from deathless.engine.log.spare import is_full
from deathless.shell.directory import later_instance
from deathless.shell.directory.place import check_place
from deathless.shell.disk.small_files import read_small

_LOG: Final = logging.getLogger("deathless.members")
ADDRESS_BYTES: Final = 64  # the announced address is padded to this, so that a later one fits in its place
ANNOUNCE_AGAIN_S: Final = 2.0  # between two tries of an ingress to write its address down
LOOK_S: Final = 0.5  # between two looks
END_S: Final = 1.0  # a hung storage keeps nobody from ending longer than this
ADDRESS_BYTES_MAX: Final = 1024  # more than this is no address
SUFFIX: Final = ".json"
MEMBER_BYTES: Final = 1024  # an announcement is padded to this, so that a later one fits in its place


class Member(msgspec.Struct, frozen=True):
    """Addresses are host:port, empty where there is none."""

    replica: str
    control: str
    client: str = ""
    replication: str = ""
    ingress: str = ""
    pid: int = 0
    instance: str = ""  # which of several that call themselves this replica
    generation: int = 0  # the later one has the higher
    proves: bool = False  # its build shows in each connection where it stands (shell.net.proof)


_NOBODY: Final[Mapping[str, Member]] = {}


def write_member(directory: str, member: Member) -> None:
    """Announce a replica, replacing what it announced before. Raises: OSError."""
    folder = Path(directory) / "members"
    folder.mkdir(parents=True, exist_ok=True)
    write_small(folder / f"{member.replica}.json", msgspec.json.encode(member).ljust(MEMBER_BYTES))


def write_small(path: Path, data: bytes) -> None:
    """Write a file whole or not at all; on a full disk, in the room of the one that stands there.

    Raises: OSError when there is neither room nor such a file.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")  # every pod's is process 1
    try:
        try:
            temporary.write_bytes(data)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        if not is_full(error):
            raise
        with path.open("r+b") as file:  # a reader in between leaves it out and looks again
            file.write(data)
            file.truncate()


def read_members(directory: str) -> dict[str, Member]:
    """Give all announced replicas by name, to be dialled; what can't be read is left out.

    Raises: CopiedDirectory: a copy's announcements lead to the replicas of the original.
    """
    check_place(directory)
    return announced_in(directory)


def announced_in(directory: str, before: Mapping[str, Member] = _NOBODY) -> dict[str, Member]:
    """Give what stands there, for those who look at their own directory and dial nobody by it.

    Args:
        directory: the shared one.
        before: what was seen last. It counts for a file that can't be read now: who is reached there has not gone.
    """
    found: dict[str, Member] = {}
    folder = Path(directory) / "members"
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(SUFFIX))
    except FileNotFoundError:
        return found
    except OSError:
        return dict(before)
    for name in names:
        try:
            member = read_json(read_small(folder / name), Member)
        except FileNotFoundError:
            continue
        except (OSError, msgspec.MsgspecError):
            known = before.get(name.removesuffix(SUFFIX))
            if known is None:
                continue
            member = known
        if member.replica == name.removesuffix(SUFFIX):  # else a copy beside it, as tools that synchronise leave them
            found[member.replica] = member
    return found


def remove_member(directory: str, replica: str) -> None:
    """Take a replica's announcement back."""
    (Path(directory) / "members" / f"{replica}.json").unlink(missing_ok=True)


def ingress_address_path(directory: str, replica: str, instance: str = "") -> Path:
    """Where a replica's ingress says that it listens."""
    name = f"ingress.{instance}.address" if instance else "ingress.address"
    return Path(directory) / "replicas" / replica / name


def ingress_address(directory: str, replica: str, instance: str = "") -> str:
    """What it says; empty: it has not said so."""
    try:
        return read_small(ingress_address_path(directory, replica, instance), ADDRESS_BYTES_MAX).decode().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def announce_at(path: Path, address: str) -> OSError | None:
    """Write an address where tools and the supervisor find it; gives why it could not be written."""
    try:
        write_small(path, address.encode().ljust(ADDRESS_BYTES))
    except OSError as error:
        return error
    return None


def announce_later(path: Path, address: str, pause_s: float = ANNOUNCE_AGAIN_S) -> None:
    """Try again until it stands; in a thread, since the storage may hang."""
    while announce_at(path, address) is not None:
        time.sleep(pause_s)


class Board:
    """members/ as one supervisor sees it.

    Args:
        directory: the shared directory.
        replica: ours.
        seen: called in the loop with what stands there, after each look.
        instance: ours, where several may call themselves this replica.
        superseded: called in the loop with the later instance of our replica, once the volume knows one.
    """

    def __init__(
        self,
        directory: str,
        replica: str,
        seen: Callable[[dict[str, Member]], None],
        instance: str = "",
        superseded: Callable[[str], None] | None = None,
    ) -> None:
        self._directory = directory
        self._replica = replica
        self._instance = instance
        self._seen = seen
        self._loop = asyncio.get_running_loop()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="members", daemon=True)
        self._mine: Member | None = None  # to be announced
        self._ending = self._withdraw = False
        self._superseded = superseded
        self._folder = Path(directory) / "replicas" / replica
        self._ingress = ""  # as it was read last
        self._doubted = False  # somebody said that a later instance of our replica runs
        self._problem = ""

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def look(self) -> None:
        """Look now: somebody unknown was heard."""
        self._wake.set()

    def ask_later(self) -> None:
        """Find out whether a later instance of our replica runs: somebody says so."""
        self._doubted = True
        self._wake.set()

    def announce(self, member: Member) -> None:
        """Have an announcement written; only the newest counts."""
        self._mine = member
        self._wake.set()

    def close(self, *, withdraw: bool) -> None:
        """End; takes our announcement back if asked to, and if the storage answers in time."""
        self._ending, self._withdraw = True, withdraw
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(END_S)

    def _run(self) -> None:
        found = announced_in(self._directory)
        while not self._ending:
            found = self.look_once(found)
            self._wake.wait(LOOK_S)
            self._wake.clear()
        standing = found.get(self._replica)
        if self._withdraw and (standing is None or standing.instance == self._instance):
            with contextlib.suppress(OSError):
                remove_member(self._directory, self._replica)

    def look_once(self, found: dict[str, Member]) -> dict[str, Member]:
        """Do what is due, tell what stands there, and give it; `found` is what stood there before."""
        member = self._mine
        if member is not None:
            if member.ingress:
                told = ingress_address(self._directory, self._replica, self._instance)
                self._ingress = told or self._ingress or member.ingress
                member = msgspec.structs.replace(member, ingress=self._ingress)
            # What a later instance of this replica announced stays; what a former one wrote over ours does not.
            if found.get(self._replica) != member and self._later(found) is None:
                self._write(member)
        found = announced_in(self._directory, found)
        if self._instance:
            later_instance.answer(self._folder, self._instance)
        later = self._later(found)
        if later is not None and self._superseded is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._superseded, later)
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._seen, found)
        return found

    def _later(self, found: dict[str, Member]) -> str | None:
        """Give the later instance of our replica, if one runs: what members/ says of it is a reason to look."""
        standing, mine = found.get(self._replica), self._mine
        claimed = standing is not None and mine is not None and standing.generation > mine.generation
        if not (claimed or self._doubted):
            return None
        return later_instance.later_than(self._folder, self._instance)

    def _write(self, member: Member) -> None:
        try:
            write_member(self._directory, member)
        except OSError as error:
            if str(error) != self._problem:  # told once, tried again with each look
                _LOG.warning("can't write to members/", extra={"why": str(error)})
            self._problem = str(error)
            return
        self._problem = ""

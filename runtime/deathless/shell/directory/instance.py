"""Which process is a replica: a lock against a second supervisor, and instances where several may live at once.

On one machine a kernel lock on a file is enough: there is one supervisor of a replica, or the second is refused. In a
cluster a pod that was cut off may live on while its replacement runs, and no lock can tell the two. So each pod is an
*instance*: the file lock carries the pod's uid, and which of two instances is the later one is known without a clock:

    replicas/<r>/instance.<N>   content: the instance. Linked exclusively, N above all that stand; the highest is the
                                latest. An instance that starts again keeps its N;
                                one that finds a later one, which is gone for good, takes a higher one.

The file lock is the supervisor's, so it is free once that has left, although a worker that it killed may still be in a
system call that the storage does not answer (`shell.process.reaping`); a worker has no lock of its own. The next worker
may then use the folder beside it, which harms nothing. A killed process runs no further instruction, so at most that
one call still comes to its end: the folder is as if the process had died at that call, later. What it writes into a
segment was not synced, so nobody was told of it (I1); the next worker leads by a higher epoch alone, and what stands
behind the cut of that one is not the log. Spare and temporary files are made anew by the next worker, and a checkpoint
counts for nobody before it is marked as read back. As long as a supervisor stays, it starts no worker before the one
that it killed is gone.

Guarantees: no two instances have the same N; an instance that is not the latest does not start while that one runs.
Does not: make anything safe (the epoch does, whoever is later); look again after the start (members/ and other
supervisors tell). Imports base.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
from pathlib import Path
from typing import Final

from deathless.base.errors import DeathlessError, InvalidConfig, OtherSupervisor, PermissionRefused, StorageUnfit
from deathless.base.storage import storage_error
from deathless.shell.disk.durable import link_file, naming
from deathless.shell.disk.holders import take
from deathless.shell.disk.small_files import read_small

KEPT_MAX: Final = 64  # instances that are remembered; one older than that would count as new
ENTRY_BYTES_MAX: Final = 256  # of a file that names an instance
NO_ENTRY: Final = (errno.EISDIR, errno.EINVAL, errno.EFBIG)  # what is found under such a name is none
NO_LINKS: Final = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS)  # what file systems without hard links say
_NAME: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
_ENTRY: Final = re.compile(r"instance\.(\d{9,18})")
NUMBER_MAX: Final = 10**18 - 1  # of an instance; nobody starts so often, so it was put there


def check_instance(instance: str) -> None:
    """Raises: InvalidConfig when it can't be part of a file's name."""
    if instance and not _NAME.fullmatch(instance):
        raise InvalidConfig(f"instance {instance!r} must be letters, digits and dashes, at most 64")


def lock_replica(folder: Path, replica: str, instance: str = "") -> int:
    """Take the lock of this replica, or of this instance of it; gives the descriptor that holds it.

    Args:
        folder: the replica's own, made when missing.
        replica: its name, for messages.
        instance: empty where only one may run.

    Raises: OtherSupervisor; InvalidConfig, PermissionRefused for a folder that can't be used; OSError.
    """
    check_instance(instance)
    path = folder / (f"supervisor.{instance}.lock" if instance else "supervisor.lock")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise unusable(error, str(folder)) from None
    try:
        _hold(descriptor, path, replica, any_file_system=bool(instance))
    except BaseException:  # one that stayed open would hold the lock against our own next try
        os.close(descriptor)
        raise
    return descriptor


def _hold(descriptor: int, path: Path, replica: str, *, any_file_system: bool) -> None:
    """Lock an open file and say in it who holds it."""
    try:
        take(descriptor)
    except BlockingIOError:
        with naming(path):
            other = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        raise OtherSupervisor(f"replica {replica} in {path.parents[2]} is run by process {other}") from None
    except OSError:
        # Some network file systems carry no locks; a pod is the only one of its instance without one.
        if not any_file_system:
            raise
    with naming(path):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)


def unusable(error: OSError, folder: str) -> DeathlessError:
    """Give the error of ours for a folder that the service can't be kept in."""
    ours = storage_error(error)
    if isinstance(ours, PermissionRefused):
        return PermissionRefused(
            f"{error.filename or folder}: {error.strerror}", remedy="give this user the folder, or choose another"
        )
    return ours or InvalidConfig(f"{folder}: {error.strerror}")


def take_generation(folder: Path, replica: str, instance: str, *, anew: bool = False) -> int:
    """Give this instance's number among those of its replica; 0 without an instance.

    Args:
        folder: the replica's own.
        replica: its name, for messages.
        instance: empty where only one may run.
        anew: the later ones will never run again: take a number above theirs (see shell.directory.later_instance).

    Raises: OtherSupervisor when a later instance has started; StorageUnfit where nothing can be linked; InvalidConfig
        where numbers end; OSError.
    """
    if not instance:
        return 0
    while True:
        standing = standing_instances(folder)
        latest = max(standing, default=0)
        own = max((number for number, name in standing.items() if name == instance), default=0)
        if own and own == latest:
            return own
        if own and not anew:
            raise OtherSupervisor(
                f"replica {replica} is run by instance {standing[latest] or latest}, which started later",
                remedy="do nothing if its pod is being replaced; otherwise delete this pod",
            )
        if latest >= NUMBER_MAX:
            raise InvalidConfig(
                f"{folder}/instance.{latest}: no instance with a higher number can be recorded",
                remedy="remove this file: no instance has written it",
            )
        if _link(folder, latest + 1, instance):
            _forget(folder, {number for number in standing if number <= latest + 1 - KEPT_MAX})
            return latest + 1


def clear_former(folder: Path, instance: str) -> None:
    """Take away small files that former instances left; those of one that lives on this machine stay."""
    if not instance:
        return
    own = {f"supervisor.{instance}.lock", f"ingress.{instance}.address"}
    for path in folder.iterdir():
        if path.name in own:
            continue
        if path.match("ingress.*.address"):
            path.unlink(missing_ok=True)
        elif path.match("supervisor.*.lock"):
            with contextlib.suppress(OSError):
                _unlink_unlocked(path)


def _unlink_unlocked(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def standing_instances(folder: Path) -> dict[int, str]:
    """Every instance that stands, by number; empty text for what is none. Raises: OSError, for it may be our own."""
    found = {}
    for path in folder.iterdir():
        entry = _ENTRY.fullmatch(path.name)
        if entry is not None:
            try:
                found[int(entry.group(1))] = read_small(path, ENTRY_BYTES_MAX).decode().strip()
            except FileNotFoundError:
                continue
            except UnicodeDecodeError:
                found[int(entry.group(1))] = ""
            except OSError as error:
                if error.errno not in NO_ENTRY:
                    raise
                found[int(entry.group(1))] = ""
    return found


def _link(folder: Path, number: int, instance: str) -> bool:
    """Write whole, then link under the number; False: another instance was faster."""
    try:
        return link_file(folder / f"instance.{number:09d}", instance.encode())
    except OSError as error:
        if error.errno not in NO_LINKS or error.filename2 is None:
            raise
        # It is the link that failed, of a file that could be made just now: it is not that this user lacks a right.
        raise StorageUnfit(f"the log directory lacks a call that the log needs: {error}") from None


def _forget(folder: Path, numbers: set[int]) -> None:
    for number in numbers:
        with contextlib.suppress(OSError):
            (folder / f"instance.{number:09d}").unlink()

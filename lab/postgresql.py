"""Install PostgreSQL from Debian's package, where that is possible, and start servers of our own from it.

Why: the driver for PostgreSQL is tested against a real server, which tests kill, and the shop's chaos run has one. The
package's own service stays stopped: each server here has its data and its unix socket in a temporary folder, and
listens on no port.

Guarantees: does nothing when a server is installed; a `Server` is ended with what it left when its `with` ends or its
parent dies. Does not: build PostgreSQL, run another package manager, or touch a cluster that the machine has.

Usage: python -m lab.postgresql
    prints the folder of its programs; exit code 0 = it is there, 3 = left out because this machine can't install it
    (one line says why), 1 = the installation failed.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from lab import debian
from lab.server import ServerProcess

PACKAGE: Final = "postgresql"
USER: Final = "deathless"  # who owns the cluster and all in it
READY_S: Final = 60.0
POLL_S: Final = 0.02


class Missing(Exception):
    """There is no PostgreSQL here; the message is the one line to print."""


def find_binaries() -> Path | None:
    """Return the folder with initdb and postgres, of the newest version; None: not installed."""
    folders = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if (path / "postgres").exists()]
    if folders:
        return max(folders, key=lambda path: int(path.parent.name))
    found = shutil.which("postgres")
    return Path(found).resolve().parent if found and (Path(found).resolve().parent / "initdb").exists() else None


def install() -> None:
    """Install the package. Raises: Missing where that can't be done, CalledProcessError when it failed."""
    try:
        debian.install(PACKAGE)
    except debian.CannotInstall as why:
        raise Missing(f"PostgreSQL left out: {why}") from None


class Server(ServerProcess):
    """One server, with a folder of its own.

    Args:
        settings: of postgresql.conf, beside the defaults; `fsync=off` is safe against any death but the machine's.

    Raises: Missing.
    """

    def __init__(self, **settings: str) -> None:
        binaries = find_binaries()
        if binaries is None:
            raise Missing(f"PostgreSQL left out: no server found (as root: {Path(__file__).name} installs {PACKAGE})")
        super().__init__("PostgreSQL", "deathless-pg-", ready_s=READY_S, poll_s=POLL_S)
        self._binaries = binaries
        self._settings = settings
        owner = _owner()
        self._uid: int | None = None if owner is None else owner[0]
        self._gid: int | None = None if owner is None else owner[1]
        self._groups: list[int] | None = None if owner is None else []

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    @property
    def dsn(self) -> str:
        """Where it is."""
        return f"host={self.folder} user={USER} dbname=postgres"

    def create(self) -> None:
        """See ServerProcess: a cluster is initialized."""
        if self._uid is not None and self._gid is not None:
            os.chown(self.folder, self._uid, self._gid)
        made = self._run("initdb", "-D", str(self._data), "-A", "trust", "-U", USER, "-E", "UTF8", "--no-sync")
        if made.returncode != 0:
            raise RuntimeError(f"initdb failed: {made.stderr.strip()[-300:]}")

    def command(self) -> Sequence[str]:
        """See ServerProcess."""
        settings = {"listen_addresses": "", "unix_socket_directories": str(self.folder), **self._settings}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [str(self._binaries / "postgres"), "-D", str(self._data), *options]

    def options(self) -> dict[str, Any]:
        """See ServerProcess."""
        return {"user": self._uid, "group": self._gid, "extra_groups": self._groups}

    def answers(self) -> bool:
        """See ServerProcess."""
        return self._run("pg_isready", "-q", "-h", str(self.folder)).returncode == 0

    def kill(self) -> None:
        """End the server with kill -9, and all its processes."""
        children = _children(self.pid)
        super().kill()
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        pause = threading.Event()
        while any(_runs(pid) for pid in children):
            pause.wait(POLL_S)

    def backends(self) -> list[int]:
        """Processes that serve one connection each. The server ends, when the one that recovers it is killed."""
        pid = self.pid
        try:  # the kernel's own list may miss one that starts just now, and asks no other process
            children = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        except OSError:
            children = _children(pid)
        return [each for each in children if _title(each).startswith(f"postgres: {USER} ".encode())]

    def close(self) -> None:
        """End it at once and remove its folder."""
        if self._started is not None:
            self.process.send_signal(signal.SIGQUIT)  # at once, and its shared memory goes with it
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(READY_S)
        super().close()

    def _run(self, tool: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self._binaries / tool), *arguments],
            capture_output=True,
            text=True,
            cwd=self.folder,
            user=self._uid,
            group=self._gid,
            extra_groups=self._groups,
            check=False,
        )


def _owner() -> tuple[int, int] | None:
    """Who runs it, as it refuses root; None: we do. Raises: Missing."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return entry.pw_uid, entry.pw_gid
    raise Missing("PostgreSQL left out: it refuses to run as root, and there is no other user")


def _children(pid: int) -> list[int]:
    """Give the processes that `pid` has started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            if int(path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1]) == pid:
                found.append(int(path.parent.name))
    return found


def _runs(pid: int) -> bool:
    """True unless the process is gone, or ended and not asked for."""
    with contextlib.suppress(OSError, IndexError):
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return stat.rpartition(")")[2].split()[0] not in "ZX"
    return False


def _title(pid: int) -> bytes:
    """Give what a process calls itself; empty when it is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def main() -> int:
    """Install; see the module's docstring for output and exit codes."""
    try:
        if find_binaries() is None:
            install()
    except Missing as missing:
        print(missing)
        return 3
    except subprocess.CalledProcessError as error:
        print(f"PostgreSQL: {error}", file=sys.stderr)
        return 1
    found = find_binaries()
    if found is None:
        print(f"PostgreSQL: {PACKAGE} is installed and brought no server", file=sys.stderr)
        return 1
    print(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""PostgreSQL as a peer: a real server of its own, with default durability, on a unix socket below the bench's folder.

Guarantees: fsync and synchronous_commit on, as they come; the server ends with `close`. Does not: tune it.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import pwd
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from bench.figures import percentile
from bench.load import KEYS, NOTE
from deathless.shell.process.forked import die_with_parent

MISSING: Final = "PostgreSQL left out: no server found (Debian: apt-get install postgresql)"
NO_DRIVER: Final = "PostgreSQL left out: psycopg is not installed"
UPDATE: Final = "UPDATE bench SET count = count + 1, note = %s WHERE id = %s RETURNING count"
READY_S: Final = 30.0


class Missing(Exception):
    """There is no PostgreSQL here; the message is the line to print."""


def find_binaries() -> Path | None:
    """The folder with initdb, postgres and pgbench; None: not installed."""
    for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: path.parent.name, reverse=True):
        if (folder / "postgres").exists():
            return folder
    found = shutil.which("postgres")
    return Path(found).parent if found else None


def _user() -> tuple[str, int, int]:
    """Who runs the server: it refuses root."""
    if os.geteuid() != 0:
        return getpass.getuser(), os.geteuid(), os.getegid()
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return name, entry.pw_uid, entry.pw_gid
    raise Missing("PostgreSQL left out: it refuses to run as root, and there is no other user")


class Postgres:
    """One server.

    Args:
        folder: on the storage to be measured.

    Raises: Missing.
    """

    def __init__(self, folder: Path) -> None:
        binaries = find_binaries()
        if binaries is None:
            raise Missing(MISSING)
        try:
            import psycopg  # noqa: PLC0415 - of the group bench; left out in one line where it is not installed
        except ImportError:
            raise Missing(NO_DRIVER) from None
        self._psycopg: Any = psycopg
        self._binaries = binaries
        self._folder = folder / "postgres"
        self._name, self._uid, self._gid = _user()
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Any = None

    def __enter__(self) -> Self:
        self._folder.mkdir()
        if os.geteuid() == 0:
            os.chown(self._folder, self._uid, self._gid)
            for parent in self._folder.parents:  # the server's user must be able to reach its folder
                if parent.stat().st_uid == 0 and parent.stat().st_mode & 0o077 == 0:
                    parent.chmod(0o711)
        data = str(self._folder / "data")
        self._run("initdb", "-D", data, "-A", "trust", "-U", "bench", "--no-sync")
        with (self._folder.parent / "postgres.log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._binaries / "postgres"), "-D", data, "-k", str(self._folder), "-c", "listen_addresses="],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self._folder,
                user=self._uid if os.geteuid() == 0 else None,
                group=self._gid if os.geteuid() == 0 else None,
                extra_groups=[] if os.geteuid() == 0 else None,
                preexec_fn=die_with_parent,  # noqa: PLW1509  it calls the kernel alone
            )
        self._connection = self._connect_when_ready()
        self._connection.execute("CREATE TABLE bench (id int PRIMARY KEY, count bigint NOT NULL, note text NOT NULL)")
        self._connection.execute("INSERT INTO bench SELECT n, 0, '' FROM generate_series(0, %s) AS n", (KEYS - 1,))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)  # at once, and its shared memory goes with it
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
            self._process.kill()
            self._process.wait()

    @property
    def host(self) -> str:
        """Where clients of their own find it: the folder of its socket; its user is `bench`."""
        return str(self._folder)

    @property
    def version(self) -> str:
        """As the server names it."""
        return f"PostgreSQL {self._connection.info.server_version // 10000}"

    def _run(self, tool: str, *arguments: str) -> str:
        done = subprocess.run(
            [str(self._binaries / tool), *arguments],
            capture_output=True,
            text=True,
            cwd=self._folder,
            user=self._uid if os.geteuid() == 0 else None,
            group=self._gid if os.geteuid() == 0 else None,
            extra_groups=[] if os.geteuid() == 0 else None,
            check=False,
        )
        if done.returncode != 0:
            raise Missing(f"PostgreSQL left out: {tool} failed: {done.stderr.strip()[-300:]}")
        return done.stdout

    def _connect_when_ready(self) -> Any:
        deadline = time.monotonic() + READY_S
        while True:
            try:
                return self._psycopg.connect(host=str(self._folder), user="bench", dbname="postgres", autocommit=True)
            except self._psycopg.OperationalError as error:
                if time.monotonic() > deadline:
                    raise Missing(f"PostgreSQL left out: no connection: {error}") from None
                time.sleep(0.05)

    def update_us(self, count: int) -> list[float]:
        """Microseconds of each of `count` single-row UPDATEs, one after the other, each its own transaction."""
        took = []
        for n in range(count):
            began = time.perf_counter()
            self._connection.execute(UPDATE, (NOTE, n % KEYS), prepare=True).fetchone()
            took.append((time.perf_counter() - began) * 1e6)
        return took

    def pipelined_per_s(self, seconds: float, window: int) -> float:
        """UPDATEs per second in pipeline mode; one sync, so one commit, per `window` of them."""
        began = time.perf_counter()
        done = 0
        while (took := time.perf_counter() - began) < seconds:
            with self._connection.pipeline(), self._connection.cursor() as cursor:
                for n in range(window):
                    cursor.execute(UPDATE, (NOTE, n % KEYS), prepare=True)
            done += window
        return done / took

    def clients_per_s(self, clients: int, seconds: float) -> tuple[float, float]:
        """(UPDATEs per second, p99 in milliseconds) with `clients` connections, by pgbench."""
        script = self._folder / "update.sql"
        script.write_text(
            f"\\set id random(0, {KEYS - 1})\n"
            f"UPDATE bench SET count = count + 1, note = '{NOTE}' WHERE id = :id RETURNING count;\n"
        )
        for old in self._folder.glob("latency.*"):
            old.unlink()
        output = self._run(
            "pgbench", "-h", str(self._folder), "-U", "bench", "-n", "-M", "prepared", "-c", str(clients), "-j", "1",
            "-T", str(max(1, round(seconds))), "-f", str(script), "-l", "--log-prefix=latency", "postgres",
        )  # fmt: skip
        found = re.search(r"tps = ([\d.]+)", output)
        latencies = [
            float(line.split()[2]) / 1000
            for path in self._folder.glob("latency.*")
            for line in path.read_text(encoding="ascii").splitlines()
        ]
        return (float(found[1]) if found else 0.0), percentile(latencies, 99) if latencies else 0.0

"""Install a ClickHouse server from Debian's packages, and the engine of today from PyPI, where that is possible.

Why: the store of sinks is tested against a real server, which tests kill: Debian's, of 2018. The engine of today is
there as a library alone (chdb), so a small process of ours speaks HTTP for it (`lab.clickhouse_engine`), which tests
kill likewise. What was tried of one was tried of the other.

Guarantees: does nothing when both are there; packages are unpacked beside the tree, and nothing is installed into the
system; the library is pinned in requirements-clickhouse.txt. A `Server` is ended with what it left when its `with` ends
or its parent dies. Does not: listen anywhere but on loopback.

Usage: python -m lab.clickhouse [engine]
    installs the server, and with `engine` the library too (530 MB); exit code 0 = it is there, 3 = left out because
    this machine can't install it (one line says why), 1 = the installation failed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from lab.ports import free_ports
from lab.server import ServerProcess

PACKAGE: Final = "clickhouse-server"
PINS: Final = Path(__file__).resolve().parent.parent / "requirements-clickhouse.txt"
LIBRARIES: Final = ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu")
READY_S: Final = 120.0
POLL_S: Final = 0.02
CONFIG: Final = """
<yandex>
  <logger><level>warning</level><console>1</console></logger>
  <http_port>{port}</http_port><listen_host>127.0.0.1</listen_host>
  <path>{data}/</path><tmp_path>{data}/tmp/</tmp_path>
  <mark_cache_size>16777216</mark_cache_size>
  <users_config>users.xml</users_config>
  <default_profile>default</default_profile><default_database>default</default_database>
</yandex>
"""
USERS: Final = """
<yandex>
  <profiles><default><max_memory_usage>2000000000</max_memory_usage></default></profiles>
  <users>
    <default><password></password><networks><ip>127.0.0.1</ip></networks><profile>default</profile>
      <quota>default</quota></default>
    <reporter><password>pa ss</password><networks><ip>127.0.0.1</ip></networks><profile>default</profile>
      <quota>default</quota></reporter>
  </users>
  <quotas><default></default></quotas>
</yandex>
"""


class Missing(Exception):
    """There is no ClickHouse here; the message is the one line to print."""


def _base() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")) / "deathless"


def server_folder() -> Path:
    """Return where the server's packages are unpacked, whether they are there yet or not."""
    return _base() / "clickhouse-18.16"


def engine_folder() -> Path:
    """Return the folder for PYTHONPATH of the engine, whether it is there yet or not; other pins are kept elsewhere."""
    pins = hashlib.sha256(PINS.read_bytes() + sys.implementation.cache_tag.encode()).hexdigest()
    return _base() / f"chdb-{pins[:12]}"


def has_server() -> bool:
    """Is the server there?"""
    return (server_folder() / "usr/sbin/clickhouse-server").exists()


def ensure_server() -> None:
    """Unpack the server's packages if they are not there. Raises: Missing, CalledProcessError."""
    if has_server():
        return
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise Missing("ClickHouse left out: without apt-get and dpkg-deb this machine can't fetch it")
    if os.uname().machine != "x86_64":
        raise Missing("ClickHouse left out: Debian has it for amd64 alone")
    target = server_folder()
    target.parent.mkdir(parents=True, exist_ok=True)
    print("Unpacking ClickHouse 18.16 (16 MB)", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="clickhouse-", dir=target.parent) as scratch:
        if os.geteuid() == 0:
            subprocess.run(["apt-get", "-qq", "update"], check=True, stdout=sys.stderr)
        plan = subprocess.run(
            ["apt-get", "-s", "install", "--no-install-recommends", PACKAGE],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        names = [line.split()[1] for line in plan.stdout.splitlines() if line.startswith("Inst ")]
        if PACKAGE not in names:
            raise Missing(f"ClickHouse left out: {(plan.stderr.strip() or 'apt-get has no such package')[-200:]}")
        subprocess.run(["apt-get", "-qq", "download", *names], check=True, cwd=scratch, stderr=subprocess.DEVNULL)
        new = Path(scratch) / "new"
        for package in sorted(Path(scratch).glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", str(package), str(new)], check=True)
        new.rename(target)


def has_engine() -> bool:
    """Is the engine of today there?"""
    return (engine_folder() / "chdb").is_dir()


def ensure_engine() -> None:
    """Install the engine of today if it is not there. Raises: CalledProcessError."""
    target = engine_folder()
    if has_engine():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    print("Installing chdb (530 MB)", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="chdb-", dir=target.parent) as scratch:
        new = Path(scratch) / "new"
        arguments = ["--quiet", "--no-input", "--disable-pip-version-check", "--progress-bar", "off", "--no-deps"]
        pip = [sys.executable, "-m", "pip", "install", *arguments, "--require-hashes", "-r", str(PINS)]
        subprocess.run([*pip, "--target", str(new)], check=True, stdout=sys.stderr)
        new.rename(target)


class Server(ServerProcess):
    """One server on a port of its own, with a folder of its own.

    Args:
        engine: the engine of today behind our own HTTP, instead of the server of 2018.

    Raises: Missing.
    """

    def __init__(self, *, engine: bool = False) -> None:
        if not (has_engine() if engine else has_server()):
            raise Missing(f"ClickHouse left out: it is not installed ({Path(__file__).name} installs it)")
        super().__init__("ClickHouse", "deathless-ch-", ready_s=READY_S, poll_s=POLL_S)
        self._engine = engine
        [self._port] = free_ports(1)
        data = self.folder / "data"
        data.mkdir()
        (self.folder / "config.xml").write_text(CONFIG.format(port=self._port, data=data), encoding="utf-8")
        (self.folder / "users.xml").write_text(USERS, encoding="utf-8")

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self._port}/"

    def command(self) -> Sequence[str]:
        """See ServerProcess."""
        if self._engine:
            return [sys.executable, "-m", "lab.clickhouse_engine", str(self.folder / "data"), str(self._port)]
        return [str(server_folder() / "usr/sbin/clickhouse-server"), f"--config-file={self.folder / 'config.xml'}"]

    def options(self) -> dict[str, Any]:
        """See ServerProcess."""
        if self._engine:
            found = {"PYTHONPATH": f"{engine_folder()}:{Path(__file__).resolve().parent.parent}"}
        else:
            found = {"LD_LIBRARY_PATH": ":".join(str(server_folder() / each) for each in LIBRARIES)}
        return {"env": {**os.environ, **found}}

    def answers(self) -> bool:
        """See ServerProcess."""
        with contextlib.suppress(OSError, RuntimeError):
            return self.run("SELECT 1") == "1\n"
        return False

    def run(self, statement: str, **settings: str) -> str:
        """Run a statement, and give its answer. Raises: RuntimeError with the server's words; OSError."""
        url = f"{self.url}?{urllib.parse.urlencode(settings)}"
        request = urllib.request.Request(url, data=statement.encode())
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            raise RuntimeError(error.read().decode()) from None


def main() -> int:
    """Install; see the module's docstring for output and exit codes."""
    try:
        ensure_server()
        if sys.argv[1:] == ["engine"]:
            ensure_engine()
    except Missing as missing:
        print(missing)
        return 3
    except subprocess.CalledProcessError as ended:
        print(f"{' '.join(map(str, ended.cmd))} ended with {ended.returncode}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

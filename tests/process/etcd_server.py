"""Real etcd servers for tests: one member or three, on loopback, killed, frozen and restarted by pid.

    with EtcdCluster(tmp_path, members=3) as cluster:
        cluster.leader().kill()

Ports are whatever is free, data lies below the folder given, output goes to a log file beside it. Nothing
here sleeps for a guessed time: every wait polls a condition and fails at a deadline, telling the log's end.
Where Go is missing the tests that ask for a cluster are skipped with the one line of lab/etcd.py.
"""

from __future__ import annotations

import functools
import http.client
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
import trustme
from lab.ports import free_ports

READY_WITHIN_S = 60.0
START_TRIES = 5
_POLL_S = 0.02
_TOOL = Path(__file__).resolve().parents[2] / "lab" / "etcd.py"


@functools.cache
def etcd_binary() -> Path:
    """Return the etcd to run, built on first use; skips the test where Go is missing."""
    done = subprocess.run([sys.executable, str(_TOOL)], capture_output=True, text=True, check=False)
    if done.returncode == 3:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def wait_until(condition: Callable[[], bool], what: str, *, poll_s: float = _POLL_S) -> None:
    """Poll until `condition` holds; fail with `what` when it does not within READY_WITHIN_S."""
    deadline = time.monotonic() + READY_WITHIN_S
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {READY_WITHIN_S} s: {what}")
        time.sleep(poll_s)


@dataclass(frozen=True, kw_only=True)
class TlsFiles:
    """An authority with a server's and a client's certificate, as PEM files."""

    ca_file: Path
    server_cert: Path
    server_key: Path
    client_cert: Path
    client_key: Path

    @classmethod
    def create(cls, folder: Path, *, name: str = "etcd.test") -> TlsFiles:
        """Write all files below `folder`; the server is `name` and 127.0.0.1."""
        folder.mkdir(parents=True, exist_ok=True)
        authority = trustme.CA()
        server = authority.issue_cert("127.0.0.1", name)
        client = authority.issue_cert("replica.test")
        files = cls(
            ca_file=folder / "ca.pem",
            server_cert=folder / "server.pem",
            server_key=folder / "server.key",
            client_cert=folder / "client.pem",
            client_key=folder / "client.key",
        )
        authority.cert_pem.write_to_path(files.ca_file)
        server.private_key_pem.write_to_path(files.server_key)
        client.private_key_pem.write_to_path(files.client_key)
        for leaf, path in ((server, files.server_cert), (client, files.client_cert)):
            path.write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
        return files


class EtcdMember:
    """One etcd process; made by EtcdCluster."""

    def __init__(self, name: str, folder: Path, arguments: list[str], port: int, tls: TlsFiles | None) -> None:
        self.name = name
        self.data = folder / name
        self.port = port
        self.log = folder / f"{name}.log"
        self._arguments = arguments
        self._tls = tls
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Base URL for clients."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process; it must be running."""
        assert self._process is not None, f"{self.name} does not run"
        return self._process.pid

    @property
    def running(self) -> bool:
        """Is there a process, frozen ones included?"""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process; see `wait_ready`."""
        assert not self.running, f"{self.name} runs already"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._arguments, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def kill(self) -> None:
        """kill -9, and wait until the process is gone. A frozen one dies as well."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """SIGSTOP: connections stay open, nothing answers any more when this returns."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)

    def thaw(self) -> None:
        """SIGCONT."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def restart(self) -> None:
        """kill -9, start again on the same data and ports, wait until it serves."""
        self.kill()
        self.start()
        self.wait_ready()

    def wipe(self) -> None:
        """Remove the data of a killed member: started again it is a new store behind the old address."""
        assert not self.running
        shutil.rmtree(self.data)

    def back_up(self, folder: Path) -> None:
        """Copy the data of a killed member."""
        assert not self.running
        shutil.copytree(self.data, folder)

    def bring_back(self, folder: Path) -> None:
        """Put a backup where the data was wiped."""
        assert not self.running
        shutil.copytree(folder, self.data)

    def request(self, path: str, body: object = None, *, token: str = "", timeout_s: float = 2.0) -> dict[str, object]:
        """Send one request past our own client: GET without a body, else POST. Raises OSError, ValueError."""
        connection: http.client.HTTPConnection
        if self._tls is None:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        else:
            context = ssl.create_default_context(cafile=str(self._tls.ca_file))
            context.load_cert_chain(self._tls.client_cert, self._tls.client_key)
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=timeout_s, context=context)
        try:
            headers = {"Authorization": token} if token else {}
            if body is None:
                connection.request("GET", path, headers=headers)
            else:
                connection.request("POST", path, json.dumps(body), headers)
            response = connection.getresponse()
            answer = json.loads(response.read())
        except http.client.HTTPException as error:
            raise OSError(str(error)) from error
        finally:
            connection.close()
        assert isinstance(answer, dict)
        if response.status != 200:
            raise ValueError(f"{path}: {answer}")
        return answer

    def healthy(self) -> bool:
        """Does it serve linearizable reads? etcd's own health check makes one."""
        try:
            return self.request("/health").get("health") == "true"
        except (OSError, ValueError):
            return False

    def wait_ready(self) -> None:
        """Wait until the member serves. Raises AssertionError with the end of its log."""

        def ready_or_dead() -> bool:
            return not self.running or self.healthy()

        wait_until(ready_or_dead, f"{self.name} serves; its log ends:\n{self.log_end()}")
        assert self.running, f"{self.name} died at its start; its log ends:\n{self.log_end()}"

    def leads(self, password: str | None = None) -> bool:
        """Does the member say that it is the leader? With the root's password where users log in."""
        try:
            token = self.log_in(password) if password is not None else ""
            status = self.request("/v3/maintenance/status", {}, token=token, timeout_s=0.5)
        except (OSError, ValueError):
            return False
        header = status["header"]
        assert isinstance(header, dict)
        return bool(status.get("leader") == header["member_id"])

    def log_in(self, password: str, user: str = "root") -> str:
        """Give a user's token, past our own client. Raises OSError, ValueError."""
        return str(self.request("/v3/auth/authenticate", {"name": user, "password": password})["token"])

    def log_end(self) -> str:
        """The last lines of its log."""
        if not self.log.exists():
            return "(no log)"
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-8:])


class EtcdCluster:
    """One etcd cluster; started by `with`, all its processes end with it.

    Args:
        folder: data, logs and certificates go below it.
        members: 1 or 3.
        tls: serve clients over TLS and demand a client certificate.
        password: switch authentication on with user `root` and this password; None: off.
        token_ttl_s: seconds after which an unused token ends.
        extra: more arguments for every member.
    """

    def __init__(
        self,
        folder: Path,
        *,
        members: int = 1,
        tls: bool = False,
        password: str | None = None,
        token_ttl_s: int = 300,
        extra: tuple[str, ...] = (),
    ) -> None:
        self.tls = TlsFiles.create(folder / "tls") if tls else None
        self.password = password
        self.members: list[EtcdMember] = []
        self._folder = folder
        self._count = members
        self._arguments = ["--auth-token-ttl", str(token_ttl_s), "--bcrypt-cost", "4", "--log-level", "warn", *extra]

    def __enter__(self) -> Self:
        binary = etcd_binary()
        for attempt in range(START_TRIES):
            # A port that was free may be taken before etcd binds it; then all is begun again on others.
            self._prepare(binary, self._folder / f"try{attempt}")
            for member in self.members:
                member.start()
            try:
                for member in self.members:
                    member.wait_ready()
                break
            except AssertionError:
                taken = any("address already in use" in member.log_end() for member in self.members)
                self.close()
                if not taken or attempt + 1 == START_TRIES:
                    raise
        if self.password is not None:
            self._enable_auth(self.password)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def urls(self) -> tuple[str, ...]:
        """Base URLs of all members."""
        return tuple(member.url for member in self.members)

    def close(self) -> None:
        """kill -9 all."""
        for member in self.members:
            member.kill()

    def leader(self, *, besides: Collection[EtcdMember] = ()) -> EtcdMember:
        """Return the member that leads, waiting for one; `besides` are not asked."""
        found: list[EtcdMember] = []

        def look() -> bool:
            found[:] = [one for one in self.members if one not in besides and one.running and one.leads(self.password)]
            return bool(found)

        wait_until(look, "a leader")
        return found[0]

    def follower(self) -> EtcdMember:
        """Return a member that does not lead."""
        leader = self.leader()
        return next(one for one in self.members if one is not leader)

    def _prepare(self, binary: Path, folder: Path) -> None:
        folder.mkdir(parents=True)
        scheme = "https" if self.tls else "http"
        ports = free_ports(2 * self._count)
        clients, peers = ports[: self._count], ports[self._count :]
        initial = ",".join(f"m{i}=http://127.0.0.1:{port}" for i, port in enumerate(peers))
        self.members = []
        for i, (client, peer) in enumerate(zip(clients, peers, strict=True)):
            client_url, peer_url = f"{scheme}://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
            arguments = [str(binary), "--name", f"m{i}", "--data-dir", str(folder / f"m{i}")]
            arguments += ["--listen-client-urls", client_url, "--advertise-client-urls", client_url]
            arguments += ["--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url]
            arguments += ["--initial-cluster", initial, *self._arguments]
            if self.tls is not None:
                arguments += ["--cert-file", str(self.tls.server_cert), "--key-file", str(self.tls.server_key)]
                arguments += ["--trusted-ca-file", str(self.tls.ca_file), "--client-cert-auth"]
            self.members.append(EtcdMember(f"m{i}", folder, arguments, client, self.tls))

    def _enable_auth(self, password: str) -> None:
        member = self.members[0]
        member.request("/v3/auth/user/add", {"name": "root", "password": password})
        member.request("/v3/auth/user/grant", {"user": "root", "role": "root"})
        member.request("/v3/auth/enable", {})

    def token(self) -> str:
        """Log in as root past our own client."""
        assert self.password is not None
        return self.members[0].log_in(self.password)

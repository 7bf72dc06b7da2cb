"""Where the API server is and who we are to it: a pod's service account, or a kubeconfig (`kubeconfig` reads those).

Both give one record, so that our own requests and kopf's watches can never speak to two clusters.

Guarantees: a projected service account token is read again once a minute, as it is replaced about hourly; the
server's certificate is always verified unless the kubeconfig itself says not to. Does not: speak to the server.
"""

from __future__ import annotations

import ssl
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from deathless_operator.cluster.errors import NoCluster

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_FRESH_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """One API server and one identity."""

    server: str  # https://host:port, no slash at the end
    namespace: str = "default"  # where this process lives, or the context's namespace
    ca_pem: str = ""  # empty: the machine's own authorities
    certificate_pem: str = ""  # client certificate and
    key_pem: str = ""  # its key; both or neither
    insecure: bool = False  # the kubeconfig says not to verify
    tls_server_name: str = ""  # what the server's certificate is for; empty: the host of `server`
    proxy_url: str = ""  # of an HTTP proxy on the way there; empty: none
    token_source: Callable[[], str] | None = None  # asked before each request; None: no token

    def token(self) -> str:
        """Return the bearer token to send now; empty when there is none."""
        return self.token_source() if self.token_source is not None else ""

    def ssl_context(self) -> ssl.SSLContext | bool:
        """Return what aiohttp takes for `ssl`.

        A client's key must be a file for Python's ssl; it lies in a private folder for as long as it takes to read.
        """
        if not self.server.startswith("https:"):
            return False
        context = ssl.create_default_context(cadata=self.ca_pem or None)
        if self.tls_server_name:
            context = _Named(context.protocol)
            context.verify_mode, context.check_hostname = ssl.CERT_REQUIRED, True
            context.name = self.tls_server_name
            if self.ca_pem:
                context.load_verify_locations(cadata=self.ca_pem)
            else:
                context.load_default_certs()
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.certificate_pem:
            with tempfile.TemporaryDirectory(prefix="deathless-") as folder:
                both = Path(folder) / "client.pem"
                both.touch(mode=0o600)
                both.write_text(self.certificate_pem.rstrip() + "\n" + self.key_pem)
                context.load_cert_chain(both)
        return context


class _Named(ssl.SSLContext):
    """A context that asks for the certificate of one name, whatever address is connected to."""

    name = ""

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,  # noqa: ARG002 - ssl's signature
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """See ssl."""
        return super().wrap_bio(incoming, outgoing, server_side, self.name, session)


@dataclass(slots=True)
class TokenFile:
    """A token in a file that somebody else renews."""

    path: Path
    clock: Callable[[], float] = time.monotonic
    _token: str = field(default="", init=False)
    _read_at: float = field(default=float("-inf"), init=False)

    def __call__(self) -> str:
        """Return the token, at most a minute old; the last one while the file cannot be read."""
        now = self.clock()
        if now - self._read_at >= TOKEN_FRESH_S:
            try:
                self._token = self.path.read_text().strip()
                self._read_at = now
            except OSError:
                if not self._token:
                    raise
        return self._token


def from_service_account(environment: Mapping[str, str], folder: Path = SERVICE_ACCOUNT) -> Connection:
    """Return the connection of a pod."""
    host = environment["KUBERNETES_SERVICE_HOST"]
    port = environment.get("KUBERNETES_SERVICE_PORT", "443")
    try:
        return Connection(
            server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
            namespace=(folder / "namespace").read_text().strip(),
            ca_pem=(folder / "ca.crt").read_text(),
            token_source=TokenFile(folder / "token"),
        )
    except OSError as error:
        raise NoCluster(f"the service account's files cannot be read: {error}") from error

"""Where etcd is and how to speak to it: endpoints, user, TLS files, times.

Guarantees: `EtcdSettings.validate` and `EtcdTls.context` refuse what cannot work, naming the setting as the
manifest calls it; certificates and password are read again when their files change. Does not: connect, or print the
password. Imports base only.
"""

from __future__ import annotations

import logging
import os
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from deathless.base.errors import InvalidConfig

_LOG: Final = logging.getLogger("deathless.etcd")

Stamp = tuple[tuple[int, int, int], ...]
"""(inode, size, modification time) of each file named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdTls:
    """Files and names for `https` endpoints; each file is PEM."""

    ca_file: Path | None = None  # None: the system's authorities
    cert_file: Path | None = None  # client certificate; None: none is shown
    key_file: Path | None = None  # its key; None: it is in cert_file
    server_name: str | None = None  # name the server's certificate must carry; None: the endpoint's host

    def context(self) -> ssl.SSLContext:
        """Load the files.

        Raises: InvalidConfig naming the file that can't be used.
        """
        try:
            context = ssl.create_default_context(cafile=None if self.ca_file is None else str(self.ca_file))
        except (OSError, ssl.SSLError) as error:
            raise InvalidConfig(f"etcd.tls.ca {self.ca_file}: {error}") from error
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.cert_file is not None:
            try:
                context.load_cert_chain(self.cert_file, self.key_file)
            except (OSError, ssl.SSLError) as error:
                raise InvalidConfig(
                    f"etcd.tls.certificate {self.cert_file} with key {self.key_file}: {error}"
                ) from error
        return context

    def stamp(self) -> Stamp:
        """Tell the files apart from what they were; nothing is read.

        Raises: OSError when one is missing.
        """
        found = [os.stat(path) for path in (self.ca_file, self.cert_file, self.key_file) if path is not None]
        return tuple((item.st_ino, item.st_size, item.st_mtime_ns) for item in found)


class RenewedContext:
    """The context of `https` endpoints, loaded anew when a file changed: certificates end, and so do authorities.

    A connection that stands keeps what it was made with. Files that do not fit (a certificate whose key is yet to be
    written) leave the old ones in use until they change again.

    Args:
        tls: the files.

    Raises: InvalidConfig naming the file that can't be used at the start.
    """

    def __init__(self, tls: EtcdTls) -> None:
        self._tls = tls
        # The stamp comes first: files that are replaced while they are loaded are then loaded once more.
        try:
            self._stamp = tls.stamp()
        except OSError:
            self._stamp = ()
        self._context = tls.context()

    def current(self) -> ssl.SSLContext:
        """Give the context for the next connection; costs a stat per file."""
        try:
            stamp = self._tls.stamp()
        except OSError:  # being replaced
            return self._context
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._context = self._tls.context()
            except InvalidConfig as error:
                _LOG.warning("the lock store's certificates were not renewed", extra={"why": error.message})
            else:
                _LOG.info("the lock store's certificates were renewed")
        return self._context


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdSettings:
    """Where etcd is and how to speak to it; times in seconds."""

    endpoints: tuple[str, ...]  # base URLs, `http://host:port` or `https://host:port`, at least one
    username: str | None = None  # None: no login
    password: str = field(default="", repr=False)
    password_file: Path | None = None  # read anew at each login, so that a password may change while this runs
    tls: EtcdTls = field(default_factory=EtcdTls)  # used by https endpoints
    attempt_timeout_s: float = 1.0  # one endpoint gets this long to answer one request
    call_timeout_s: float = 5.0  # a call with all its attempts; Invariant: >= attempt_timeout_s

    def current_password(self) -> str:
        """Return the password to log in with now; `password` where its file can't be read at this moment."""
        if self.password_file is None:
            return self.password
        try:
            return self.password_file.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError):
            return self.password

    def validate(self) -> None:
        """Check endpoints and the relations between times.

        Raises: InvalidConfig naming the setting; the caller refuses to start.
        """
        if not self.endpoints:
            raise InvalidConfig("etcd.endpoints must name at least one endpoint")
        for endpoint in self.endpoints:
            _check_endpoint(endpoint)
        if self.attempt_timeout_s <= 0:
            raise InvalidConfig("etcd: attempt_timeout_s must be above 0")
        if self.call_timeout_s < self.attempt_timeout_s:
            raise InvalidConfig("etcd: attempt_timeout_s <= call_timeout_s must hold")
        if self.password and self.username is None:
            raise InvalidConfig("etcd: a password is set but username is not")


def _check_endpoint(endpoint: str) -> None:
    try:
        parts = urlsplit(endpoint)
        fits = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port is not None
        fits = fits and parts.path in {"", "/"} and not (parts.query or parts.fragment or parts.username)
    except ValueError:
        fits = False
    if not fits:
        raise InvalidConfig(f"etcd.endpoints: {endpoint!r} must look like https://host:2379")

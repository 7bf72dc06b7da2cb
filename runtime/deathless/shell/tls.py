"""TLS contexts of every port and every connection we open, and their renewal when the files change.

One context per setting and side lives as long as the process. `refresh` looks whether a file has changed and loads
it into the live context, so a rotated certificate serves new connections without a restart; connections that stand
keep theirs until they end. While authorities change, the `ca` file must hold the old and the new one.

Guarantees: TLS 1.2 at least; a client always checks the server's name (`server_name`, or the host it dialed) and
chain; files that can't be loaded refuse to start (InvalidConfig), and at a renewal leave the old ones in use.
Does not: issue certificates, close connections whose certificate was replaced. Imports base only.
"""

from __future__ import annotations

import logging
import os
import ssl
from dataclasses import dataclass
from typing import Final

from deathless.base.config import TlsConfig
from deathless.base.errors import InvalidConfig

_LOG: Final = logging.getLogger("deathless.tls")


class _Context(ssl.SSLContext):
    """A context that may insist on one server name, whatever host was dialed."""

    server_name: str = ""

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """See ssl.SSLContext."""
        if self.server_name and not server_side:
            server_hostname = self.server_name
        return super().wrap_bio(incoming, outgoing, server_side, server_hostname, session)


Stamp = tuple[tuple[int, int, int], ...]
"""(inode, size, modification time) of each file named."""


@dataclass(slots=True)
class _Live:
    context: _Context
    stamp: Stamp


_CONTEXTS: Final[dict[tuple[TlsConfig, bool], _Live]] = {}


def server_context(tls: TlsConfig | None) -> ssl.SSLContext | None:
    """Give the context of a listening port; None: no TLS.

    Raises: InvalidConfig when a file is missing or does not fit.
    """
    return None if tls is None else _live(tls, server=True).context


def client_context(tls: TlsConfig | None) -> ssl.SSLContext | None:
    """Give the context of a connection we open, renewed if its files changed; None: no TLS.

    Raises: InvalidConfig as above.
    """
    if tls is None:
        return None
    live = _live(tls, server=False)
    _renew(tls, live, server=False)
    return live.context


def refresh(tls: TlsConfig | None) -> bool:
    """Load changed files into the live server context. True: new connections get what is new.

    Cheap (a stat per file): call it every few seconds.
    """
    live = _CONTEXTS.get((tls, True)) if tls is not None else None
    return live is not None and tls is not None and _renew(tls, live, server=True)


def _live(tls: TlsConfig, *, server: bool) -> _Live:
    live = _CONTEXTS.get((tls, server))
    if live is None:
        try:
            context = _Context(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            context.server_name = tls.server_name
            stamp = _stamp(tls)
            _load(context, tls, server=server)
        except (OSError, ssl.SSLError) as error:
            raise InvalidConfig(f"tls: {error} ({tls.ca}, {tls.certificate}, {tls.key})") from None
        live = _CONTEXTS[tls, server] = _Live(context, stamp)
    return live


def _load(context: ssl.SSLContext, tls: TlsConfig, *, server: bool) -> None:
    if server and not tls.certificate:
        raise InvalidConfig("tls.certificate must name the server's certificate")
    if tls.require_client_certificate and server and not tls.ca:
        raise InvalidConfig("tls.ca must name the authority of clients, requireClientCertificate is set")
    if tls.certificate:
        context.load_cert_chain(tls.certificate, tls.key or None, password=_no_password)
    if tls.ca:
        context.load_verify_locations(tls.ca)
    elif not server:
        context.load_default_certs()
    if server:
        context.verify_mode = ssl.CERT_REQUIRED if tls.require_client_certificate else ssl.CERT_NONE


def _no_password() -> str:
    """Without this OpenSSL would ask the terminal for the password of an encrypted key."""
    raise InvalidConfig("tls.key is encrypted; give a key without a password, readable by this user alone")


def _stamp(tls: TlsConfig) -> Stamp:
    found = [os.stat(path) for path in (tls.ca, tls.certificate, tls.key) if path]
    return tuple((item.st_ino, item.st_size, item.st_mtime_ns) for item in found)


def _renew(tls: TlsConfig, live: _Live, *, server: bool) -> bool:
    try:
        stamp = _stamp(tls)
        if stamp == live.stamp:
            return False
        # A pair that does not fit is refused here, before the live context is touched.
        _load(_Context(live.context.protocol), tls, server=server)
        _load(live.context, tls, server=server)
    except (OSError, ssl.SSLError, InvalidConfig) as error:
        _LOG.warning("certificates not renewed", extra={"certificate": tls.certificate, "why": str(error)})
        return False
    live.stamp = stamp
    _LOG.info("certificates renewed", extra={"certificate": tls.certificate})
    return True

"""TLS contexts of every port and every connection we open, and their renewal when the files change.

One context per setting and side lives as long as the process; behind it stands the one that is in force, made anew
whenever a file has changed. So a certificate that was renewed serves new connections without a restart, and an
authority that was taken out of the `ca` file is trusted no more: by new connections from the next handshake on, which
looks at the files itself, and by standing ones from the next `refresh` on, which ends each whose other end was
vouched for by that authority. While authorities change, the `ca` file holds the old and the new one.

Guarantees: TLS 1.2 at least; a client always checks the server's name (`server_name`, or the host it dialed) and
chain; files that can't be loaded refuse to start (InvalidConfig), and at a renewal leave the old ones in use.
Does not: issue certificates, say what the holder of one may do (`core.access.authorisation`), or end a connection
because its own certificate was renewed. Imports base only.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import msgspec

from deathless.base.config import TlsConfig
from deathless.base.errors import InvalidConfig
from deathless.base.identities import Identity, read_identity
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.shell.net.certificate import certificates_of, uri_names

_LOG: Final = logging.getLogger("deathless.tls")

Stamp = tuple[tuple[int, int, int], ...]
"""(inode, size, modification time) of each file named."""

Protocols = tuple[str, ...]
"""Names of protocols that both ends of a handshake agree on one of (ALPN, RFC 7301)."""


@dataclass(frozen=True, slots=True)
class _Loaded:
    """What the files held when they were read last."""

    context: ssl.SSLContext
    stamp: Stamp
    trusted: frozenset[bytes]  # DER of each authority in the `ca` file
    identity: Identity | None  # whom our own certificate names


class _Context(ssl.SSLContext):
    """What the event loop is given once and keeps; each connection is made by the context in force at that moment."""

    tls: TlsConfig
    server: bool
    protocols: Protocols
    loaded: _Loaded
    standing: weakref.WeakKeyDictionary[asyncio.BaseProtocol, asyncio.BaseTransport]

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """See ssl.SSLContext; insists on the one server name that is configured, whatever host was dialed."""
        if self.tls.server_name and not server_side:
            server_hostname = self.tls.server_name
        _renew(self)
        return self.loaded.context.wrap_bio(incoming, outgoing, server_side, server_hostname, session)


_CONTEXTS: Final[dict[tuple[TlsConfig, bool, Protocols], _Context]] = {}


def server_context(tls: TlsConfig | None, protocols: Protocols = ()) -> ssl.SSLContext | None:
    """Give the context of a listening port; None: no TLS.

    Args:
        tls: its setting.
        protocols: that the port speaks, the one it likes best first; none: it does not say.

    Raises: InvalidConfig when a file is missing or does not fit.
    """
    return None if tls is None else _live(tls, server=True, protocols=protocols)


def client_context(tls: TlsConfig | None) -> ssl.SSLContext | None:
    """Give the context of a connection we open; None: no TLS.

    Raises: InvalidConfig as above.
    """
    return None if tls is None else _live(tls, server=False)


def certified(tls: TlsConfig | None) -> TlsConfig | None:
    """Give the setting of a port at which nobody is served without a certificate, where certificates carry names."""
    if own_identity(tls) is None or tls is None:
        return tls
    return msgspec.structs.replace(tls, require_client_certificate=True)


def common_name(transport: asyncio.BaseTransport | None) -> str:
    """Give the common name in the certificate that the other end showed; empty: it has none, or showed none."""
    subject = cast("tuple[tuple[tuple[str, str], ...], ...]", _shown(transport).get("subject", ()))
    return next((value for part in subject for field, value in part if field == "commonName"), "")


def own_identity(tls: TlsConfig | None) -> Identity | None:
    """Say whom our own certificate names; None: nobody, or there is none."""
    return None if tls is None or not tls.certificate else _live(tls, server=True).loaded.identity


def shown_identity(transport: asyncio.BaseTransport | None) -> Identity | None:
    """Say whom the certificate names that the other end of a connection showed; None: nobody, or it showed none."""
    shown = _shown(transport)
    uris = [value for kind, value in shown.get("subjectAltName", ()) if kind == "URI"]
    return read_identity(uris)


def shown_name(transport: asyncio.BaseTransport | None) -> str:
    """Give what a certificate calls its holder: its first URI, else its common name; empty: none was shown."""
    uris = [value for kind, value in _shown(transport).get("subjectAltName", ()) if kind == "URI"]
    return uris[0] if uris else common_name(transport)


def _shown(transport: asyncio.BaseTransport | None) -> dict[str, tuple[tuple[str, str], ...]]:
    """Give what the standard library tells of the other end's certificate, which TLS has verified."""
    shown = transport.get_extra_info("ssl_object") if transport is not None else None
    return (shown.getpeercert() or {}) if shown is not None else {}


def watch(protocol: asyncio.BaseProtocol, transport: asyncio.BaseTransport) -> None:
    """Have a connection ended by `refresh` once the authority that vouches for its other end is trusted no more."""
    context = transport.get_extra_info("sslcontext")
    if isinstance(context, _Context):
        context.standing[protocol] = transport


def refresh(tls: TlsConfig | None, safeguards: Safeguards = ALL_SAFEGUARDS) -> bool:
    """Look at the files of a setting, and end connections that they vouch for no more. True: something was new.

    Cheap (a stat per file): call it every few seconds. It covers every context that uses the same files.
    """
    if tls is None:
        return False
    files = (tls.ca, tls.certificate, tls.key)
    changed = False
    for context in list(_CONTEXTS.values()):
        if (context.tls.ca, context.tls.certificate, context.tls.key) == files:
            changed |= _renew(context)
            if safeguards.end_untrusted_connections:
                _end_untrusted(context)
    return changed


def _live(tls: TlsConfig, *, server: bool, protocols: Protocols = ()) -> _Context:
    context = _CONTEXTS.get((tls, server, protocols))
    if context is None:
        context = _Context(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
        context.tls, context.server, context.protocols = tls, server, protocols
        context.standing = weakref.WeakKeyDictionary()
        try:
            context.loaded = _load(tls, protocols, server=server)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise InvalidConfig(f"tls: {error} ({tls.ca}, {tls.certificate}, {tls.key})") from None
        _CONTEXTS[tls, server, protocols] = context
    return context


def _load(tls: TlsConfig, protocols: Protocols, *, server: bool) -> _Loaded:
    if server and not tls.certificate:
        raise InvalidConfig("tls.certificate must name the server's certificate")
    if tls.require_client_certificate and server and not tls.ca:
        raise InvalidConfig("tls.ca must name the authority of clients, because requireClientCertificate is set")
    stamp = _stamp(tls)  # before the files are read: what changes meanwhile is seen by the next look
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    identity, trusted = None, frozenset[bytes]()
    if tls.certificate:
        context.load_cert_chain(tls.certificate, tls.key or None, password=_no_password)
        identity = read_identity(uri_names(Path(tls.certificate).read_text("ascii", "replace")))
    if tls.ca:
        context.load_verify_locations(tls.ca)
        trusted = frozenset(certificates_of(Path(tls.ca).read_text("ascii", "replace")))
    elif not server:
        context.load_default_certs()
    if server:
        context.verify_mode = _asked(tls, identity)
    if protocols:
        context.set_alpn_protocols(list(protocols))
    return _Loaded(context, stamp, trusted, identity)


def _asked(tls: TlsConfig, identity: Identity | None) -> ssl.VerifyMode:
    """Say whether a server asks for a certificate: with names it wants to know whoever can show one."""
    if tls.require_client_certificate:
        return ssl.CERT_REQUIRED
    return ssl.CERT_OPTIONAL if tls.ca and identity is not None else ssl.CERT_NONE


def _no_password() -> str:
    """Without this OpenSSL would ask the terminal for the password of an encrypted key."""
    raise InvalidConfig("tls.key is encrypted; give a key without a password, readable only by this user")


def _stamp(tls: TlsConfig) -> Stamp:
    found = [os.stat(path) for path in (tls.ca, tls.certificate, tls.key) if path]
    return tuple((item.st_ino, item.st_size, item.st_mtime_ns) for item in found)


def _renew(context: _Context) -> bool:
    """Load files that have changed. What can't be loaded leaves the old in use, and is tried again at the next look."""
    tls = context.tls
    try:
        if _stamp(tls) == context.loaded.stamp:
            return False
        context.loaded = _load(tls, context.protocols, server=context.server)
    except (OSError, ValueError, InvalidConfig) as error:
        _LOG.warning("certificates not renewed", extra={"certificate": tls.certificate, "why": str(error)})
        return False
    _LOG.info("certificates renewed", extra={"certificate": tls.certificate})
    return True


def _end_untrusted(context: _Context) -> None:
    """End each standing connection whose other end showed a certificate of an authority that is trusted no more."""
    trusted = context.loaded.trusted
    if not context.tls.ca:
        return
    for protocol, transport in list(context.standing.items()):
        if transport.is_closing():
            del context.standing[protocol]
        elif _shown(transport) and _authority(transport) not in trusted:
            _LOG.warning(
                "connection closed: its authority is no longer trusted", extra={"shown": str(shown_identity(transport))}
            )
            cast("asyncio.Transport", transport).abort()  # uvloop has classes of its own
            del context.standing[protocol]


def _authority(transport: asyncio.BaseTransport) -> bytes:
    """Give the authority (DER) that vouched for the other end in the handshake; empty: it can't be said any more."""
    found = transport.get_extra_info("ssl_object")
    tell = getattr(found, "get_verified_chain", None)  # public since Python 3.13
    if tell is not None:
        chain = tell()
        return bytes(chain[-1]) if chain else b""
    inner = getattr(found, "_sslobj", None)
    chain = inner.get_verified_chain() if inner is not None else None
    return ssl.PEM_cert_to_DER_cert(chain[-1].public_bytes()) if chain else b""

"""Options of a source of kind `connector`, at which programs outside connect and send streams.

    options:
      listen: 127.0.0.1:7405
      cookieFile: cookie
      credits: 10000

They stand in base since the operator needs the port, and a manifest is checked before anything runs.

Guarantees: a service that listens on more than loopback asks whoever connects for a cookie, or for a certificate. Does
not: look at files. Imports base.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from deathless.base.errors import InvalidConfig

KIND: Final = "connector"
PORT: Final = 7405
STREAMS_MAX: Final = 1000  # of one source; a shard tells a gate of so many


class ConnectorOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """See docs/sources.md."""

    listen: Annotated[str, Meta(max_length=300)] = f"127.0.0.1:{PORT}"  # host:port; replica k of a laptop has port + k
    cookie_file: Annotated[str, Meta(max_length=4096)] = ""  # relative to the manifest; empty: clients show none
    credits: Annotated[int, Meta(ge=2, le=100_000)] = 10_000  # frames that a client may have under way
    max_streams: Annotated[int, Meta(ge=1, le=STREAMS_MAX)] = STREAMS_MAX  # that the source ever knows
    max_connections: Annotated[int, Meta(ge=1, le=10_000)] = 1000
    tls: bool = False  # by spec.tls, as the other ports

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]"), int(port)

    def at(self, index: int) -> str:
        """Give where replica number `index` of this machine listens, as host:port."""
        host, port = self.address
        return f"{f'[{host}]' if ':' in host else host}:{port + index if port else 0}"


def connector_options(source: str, options: Mapping[str, object]) -> ConnectorOptions:
    """Give the options of a source. Raises: InvalidConfig naming the field."""
    try:
        found = msgspec.convert(options, ConnectorOptions)
    except msgspec.ValidationError as error:
        raise InvalidConfig(f"source {source}: options: {error}") from None
    host, colon, port = found.listen.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdecimal() and int(port) <= 65_535):
        raise InvalidConfig(f"source {source}: options: listen: {found.listen!r} is not host:port")
    return found


def open_to_strangers(options: ConnectorOptions, *, certificates: bool, everywhere: bool = False) -> str:
    """Say what is wrong where anybody who reaches the port could send; empty: nothing.

    Args:
        options: of the source.
        certificates: the service's other ports ask who connects for a certificate.
        everywhere: it listens on every address, whatever the options say, as a pod does.
    """
    if options.cookie_file or (options.tls and certificates):
        return ""
    if not everywhere and is_loopback(options.address[0]):
        return ""
    return (
        "anybody who reaches it could send: it listens on more than loopback, and asks for neither a cookie nor a "
        "certificate"
    )


def is_loopback(host: str) -> bool:
    """Does this address reach no further than this machine?"""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

"""What the processes of a replica are told of certificates: paths of PEM files.

Guarantees: a frozen record that survives JSON. Does not: read the files. Imports nothing of ours.
"""

from __future__ import annotations

import msgspec


class TlsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Paths of PEM files; with `require_client_certificate` a peer must show one signed by `ca`."""

    ca: str = ""
    certificate: str = ""
    key: str = ""
    require_client_certificate: bool = False
    server_name: str = ""

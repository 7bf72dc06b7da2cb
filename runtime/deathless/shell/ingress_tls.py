"""TLS of the HTTP port, where other callers come than replicas and our own clients.

Guarantees: an unknown setting is refused. Does not: load files (tls does). Imports base only.
"""

from __future__ import annotations

import msgspec

from deathless.base.config import ReplicaConfig, TlsConfig
from deathless.base.errors import InvalidConfig


def front_tls(config: ReplicaConfig) -> TlsConfig | None:
    """What the HTTP port shows and asks for: other callers than replicas and our clients come here.

    Raises: InvalidConfig.
    """
    if config.ingress_tls not in ("", "Server", "Off"):
        raise InvalidConfig(f"ingress_tls {config.ingress_tls!r} is not Server or Off, or empty")
    if config.tls is None or config.ingress_tls == "Off":
        return None
    if config.ingress_tls == "Server":
        return msgspec.structs.replace(config.tls, require_client_certificate=False)
    return config.tls

"""TLS of the HTTP port, where other callers come than replicas and our own clients.

Guarantees: an unknown setting is refused. Does not: load files (tls does). Imports base only.
"""

from __future__ import annotations

import msgspec

from deathless.base.config import ReplicaConfig, TlsConfig
from deathless.base.errors import InvalidConfig


def certified_callers(tls: TlsConfig) -> TlsConfig:
    """Give the setting of a door at which callers show a certificate."""
    return msgspec.structs.replace(tls, require_client_certificate=True)


def callers_tls(config: ReplicaConfig) -> TlsConfig | None:
    """What the client port shows and asks for: with tokens a caller needs no certificate, replicas show theirs."""
    if config.tls is None or not config.asks_callers:
        return config.tls
    assert config.authentication is not None
    if config.authentication.type == "MTLS":
        return certified_callers(config.tls)
    return msgspec.structs.replace(config.tls, require_client_certificate=False)


def front_tls(config: ReplicaConfig) -> TlsConfig | None:
    """What the HTTP port shows and asks for: other callers than replicas and our clients come here.

    Raises: InvalidConfig.
    """
    if config.ingress_tls not in ("", "Server", "Off"):
        raise InvalidConfig(f"ingress_tls {config.ingress_tls!r} is not Server or Off, or empty")
    mutual = config.authentication is not None and config.authentication.type == "MTLS"
    if mutual and (config.tls is None or config.ingress_tls == "Off"):
        raise InvalidConfig(
            "ingress.authentication type MTLS needs TLS at the HTTP port", remedy="give spec.tls with ca"
        )
    if config.tls is None or config.ingress_tls == "Off":
        return None
    if mutual:
        return certified_callers(config.tls)
    if config.ingress_tls == "Server" or config.asks_callers:
        return msgspec.structs.replace(config.tls, require_client_certificate=False)
    return config.tls

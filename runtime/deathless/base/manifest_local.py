"""Parts of a manifest as processes on one machine are told of them.

Guarantees: functions of one part of the spec each. Does not: look whether files exist. Imports base only.
"""

from __future__ import annotations

from deathless.base.manifest_ingress import Ingress
from deathless.base.manifest_parts import TlsSpec
from deathless.base.tls import TlsConfig


def local_tls(tls: TlsSpec | None) -> TlsConfig | None:
    """Give the files of `spec.tls`; without files, what it says is for a cluster."""
    if tls is None or not (tls.ca or tls.certificate):
        return None
    return TlsConfig(
        ca=tls.ca,
        certificate=tls.certificate,
        key=tls.key,
        require_client_certificate=bool(tls.require_client_certificate),
        server_name=tls.server_name,
    )


def ingress_address(ingress: Ingress | None, index: int) -> str:
    """Give where the replica of this number serves HTTP; empty: nowhere."""
    if ingress is None:
        return ""
    return f"{ingress.listen}:{ingress.port + index if ingress.port else 0}"

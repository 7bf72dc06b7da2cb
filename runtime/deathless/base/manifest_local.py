"""Parts of a manifest as processes on one machine are told of them.

Guarantees: functions of one part of the spec each. Does not: look whether files exist. Imports base only.
"""

from __future__ import annotations

from typing import Final

from deathless.base.config import EtcdConfig, TlsConfig
from deathless.base.manifest_ingress import Ingress
from deathless.base.manifest_parts import EtcdSpec, TlsSpec

LOCAL_ENDPOINT: Final = "http://127.0.0.1:2379"
LOCAL_PREFIX: Final = "/deathless/"


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


def local_etcd(etcd: EtcdSpec) -> EtcdConfig:
    """Give how the lock store of `spec.lock.etcd` is reached from this machine."""
    files = etcd.tls
    return EtcdConfig(
        endpoints=etcd.endpoints or (LOCAL_ENDPOINT,),
        prefix=etcd.prefix or LOCAL_PREFIX,
        tls=None
        if files is None
        else TlsConfig(ca=files.ca, certificate=files.certificate, key=files.key, server_name=files.server_name),
        username=etcd.username,
        password_file=etcd.password_file,
        lease_ttl_s=etcd.lease_ttl_s,
    )


def ingress_address(ingress: Ingress | None, index: int) -> str:
    """Give where the replica of this number serves HTTP; empty: nowhere."""
    if ingress is None:
        return ""
    return f"{ingress.listen}:{ingress.port + index if ingress.port else 0}"

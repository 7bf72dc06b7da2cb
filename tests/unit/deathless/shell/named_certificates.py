"""Certificates as the operator issues them, in files: one authority, and whom each certificate names."""

from __future__ import annotations

import time
from pathlib import Path

from deathless.base.config import TlsConfig
from deathless_operator.cluster.authority import Authority, issue, new_signer

LIFE_S = 3600.0


def uri(namespace: str, service: str, role: str) -> str:
    return f"spiffe://cluster.local/ns/{namespace}/service/{service}/{role}"


def new_authority() -> Authority:
    return Authority(current=new_signer(time.time(), LIFE_S))


def write_named(folder: Path, authority: Authority, *uris: str, required: bool = True) -> TlsConfig:
    """Write ca.crt, tls.crt and tls.key as a mounted Secret has them."""
    folder.mkdir(parents=True, exist_ok=True)
    certificate, key = issue(
        authority, common_name="test", dns_names=["replica.local"], uris=uris, purpose="replicas",
        now=time.time(), life_s=LIFE_S,
    )  # fmt: skip
    for name, data in (("ca.crt", authority.bundle), ("tls.crt", certificate), ("tls.key", key)):
        fresh = folder / f"{name}.new"
        fresh.write_bytes(data)
        fresh.rename(folder / name)
    return TlsConfig(
        ca=str(folder / "ca.crt"), certificate=str(folder / "tls.crt"), key=str(folder / "tls.key"),
        require_client_certificate=required, server_name="replica.local",
    )  # fmt: skip

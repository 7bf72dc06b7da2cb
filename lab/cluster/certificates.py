"""Certificates of a cluster's control plane: three authorities and a leaf for each component.

Why: Kubernetes knows who somebody is from the subject of a certificate; the groups named here are what its roles are
bound to.

Guarantees: fresh keys for each cluster, elliptic (P-256), written with mode 0600.

Does not: renew; a cluster of the lab lives for hours, its certificates for a month.
"""

from __future__ import annotations

import base64
import datetime as dt
import ipaddress
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFE = dt.timedelta(days=30)


def _write(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def _pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    """Return a private key as PEM."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    """Return what authorities and leaves have in common."""
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + _LIFE)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    """Return what a key may be used for."""
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


class Authority:
    """An authority that lies in `folder` as NAME.crt and NAME.key and issues leaves beside them."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = (
            _builder(self._name, self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        _write(folder / f"{name}.crt", certificate.public_bytes(serialization.Encoding.PEM))
        _write(folder / f"{name}.key", _pem(self._key))

    def issue(self, name: str, common_name: str, *, group: str | None = None, hosts: Sequence[str] = ()) -> None:
        """Write NAME.crt and NAME.key for a client and server.

        Args:
            name: of the two files.
            common_name: the user, as Kubernetes sees it; empty: none.
            group: the group, likewise.
            hosts: DNS names and addresses it may serve as.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        parts = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)] if common_name else []
        if group:
            parts.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        builder = (
            _builder(x509.Name(parts), self._name, key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(usage, critical=False)
        )
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName([_host(one) for one in hosts]), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        _write(self._folder / f"{name}.crt", certificate.public_bytes(serialization.Encoding.PEM))
        _write(self._folder / f"{name}.key", _pem(key))


def _host(name: str) -> x509.GeneralName:
    """Return a DNS name or an address as a certificate names it."""
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """A cluster's certificates in one folder."""

    folder: Path
    server: str  # https address of the API server, which kubeconfigs name

    def kubeconfig(self, user: str) -> str:
        """Return a kubeconfig (JSON is YAML) with the certificate of `user` inside."""

        def data(name: str) -> str:
            return base64.b64encode((self.folder / name).read_bytes()).decode()

        cluster = {"server": self.server, "certificate-authority-data": data("ca.crt")}
        who = {"client-certificate-data": data(f"{user}.crt"), "client-key-data": data(f"{user}.key")}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "lab",
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": user}}],
            "clusters": [{"name": "lab", "cluster": cluster}],
            "users": [{"name": user, "user": who}],
        }
        return json.dumps(config, indent=1)


def make(folder: Path, *, control: str, service: str, nodes: dict[str, str]) -> Keys:
    """Make every certificate of a cluster in `folder` (which is emptied of older ones by being overwritten).

    Args:
        control: address of the API server and of etcd.
        service: address of the Service `kubernetes`.
        nodes: address of each node by name.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    ca, etcd, front = (Authority(folder, name) for name in ("ca", "etcd-ca", "front-proxy-ca"))
    etcd.issue("etcd", "etcd", hosts=["localhost", "127.0.0.1", control])
    etcd.issue("etcd-client", "kube-apiserver-etcd-client")
    front.issue("front-proxy-client", "front-proxy-client")
    names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"]
    ca.issue("apiserver", "kube-apiserver", hosts=[*names, "localhost", "127.0.0.1", service, control])
    ca.issue("apiserver-kubelet-client", "kube-apiserver-kubelet-client", group="system:masters")
    ca.issue("admin", "kubernetes-admin", group="system:masters")
    for name in ("controller-manager", "scheduler"):
        ca.issue(name, f"system:kube-{name}", hosts=["localhost", "127.0.0.1"])
    ca.issue("kube-proxy", "system:kube-proxy")
    for name, address in nodes.items():
        ca.issue(f"kubelet-{name}", f"system:node:{name}", group="system:nodes", hosts=[name, address, "127.0.0.1"])
    tokens = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    _write(folder / "sa.key", _pem(tokens))
    public = serialization.PublicFormat.SubjectPublicKeyInfo
    _write(folder / "sa.pub", tokens.public_key().public_bytes(serialization.Encoding.PEM, public))
    return Keys(folder=folder, server=f"https://{control}:6443")

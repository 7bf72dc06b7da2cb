"""The settings of etcd as a lock store, as a manifest has them.

Guarantees: as `LockSettings`. Does not: connect (shell.lock_stores.etcd), or know the store that an installation of
the operator brings along (plan.service.access). Imports etcd and tls, and what manifests are made of.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Self

import msgspec
from msgspec import Meta

from deathless.base.lock_stores.etcd import LOCAL_ENDPOINT, LOCAL_PREFIX, EtcdConfig
from deathless.base.lock_stores.settings import ClusterRule, FindFile, LockSettings, SecretUse
from deathless.base.manifest_fields import Endpoint, FilePath, SecretRef, Text, TlsFiles, told
from deathless.base.schema_check import Problem
from deathless.base.tls import TlsConfig

_GIVEN: Final = "has(self.lock) && has(self.lock.etcd)"
_RULES: Final = (
    ClusterRule(
        "lock-prefix-fixed",
        (
            "(has(self.lock) && has(self.lock.etcd) && has(self.lock.etcd.prefix) ? self.lock.etcd.prefix : '') == "
            "(has(oldSelf.lock) && has(oldSelf.lock.etcd) && has(oldSelf.lock.etcd.prefix) ? "
            "oldSelf.lock.etcd.prefix : '')"
        ),
        "lock.etcd.prefix can't change: a service with other keys is another service",
    ),
    ClusterRule(
        "lock-secrets-with-endpoints",
        (
            f"!({_GIVEN}) || "
            "!(has(self.lock.etcd.tlsSecretRef) || has(self.lock.etcd.userSecretRef)) || "
            "(has(self.lock.etcd.endpoints) && self.lock.etcd.endpoints.size() > 0)"
        ),
        "lock.etcd.endpoints is empty beside a Secret: name the endpoints that the Secret is for",
    ),
    ClusterRule(
        "lock-endpoints-alike",
        (
            f"!({_GIVEN} && has(self.lock.etcd.endpoints)) || "
            "self.lock.etcd.endpoints.all(e, e.startsWith('https://')) || "
            "(self.lock.etcd.endpoints.all(e, e.startsWith('http://')) && !has(self.lock.etcd.tlsSecretRef))"
        ),
        "lock.etcd.endpoints must be all https or all http; tlsSecretRef needs https",
    ),
)


class EtcdSpec(LockSettings, frozen=True):
    """How to reach etcd 3.5.5 or later."""

    rules: ClassVar[tuple[ClusterRule, ...]] = _RULES  # what `cluster_problems` finds, and what must not change

    endpoints: Annotated[
        tuple[Endpoint, ...],
        Meta(max_length=16),
        told(
            "Base URLs of its members. When empty: the lock store of the operator's installation; on a laptop "
            "http://127.0.0.1:2379."
        ),
    ] = ()
    prefix: Annotated[
        Annotated[str, Meta(pattern=r"^$|^/([^/\s]+/)+$", max_length=512)],
        told(
            "Prefix of keys; below it each service has its name. When empty: /deathless/<namespace>/; on a laptop "
            "/deathless/. Fixed at creation."
        ),
    ] = ""
    tls: Annotated[TlsFiles | None, told("Files for https endpoints, on a laptop. In a cluster: tlsSecretRef.")] = None
    tls_secret_ref: Annotated[
        SecretRef | None,
        told(
            "In a cluster: the Secret with ca.crt, and tls.crt with tls.key where the store asks for a client "
            "certificate."
        ),
    ] = None
    username: Annotated[Text, told("User to log in as, on a laptop. In a cluster: userSecretRef.")] = ""
    password_file: Annotated[FilePath, told("File with the password, on a laptop. In a cluster: userSecretRef.")] = ""
    user_secret_ref: Annotated[
        SecretRef | None, told("In a cluster: the Secret with username and password to log in with.")
    ] = None
    lease_ttl_s: Annotated[
        int,
        Meta(ge=2, le=3600),
        told("Seconds after which a silent holder loses the lock, even if no other replica takes it."),
    ] = 10

    def config(self) -> EtcdConfig:
        """Give how the store is reached from this machine."""
        files = self.tls
        return EtcdConfig(
            endpoints=self.endpoints or (LOCAL_ENDPOINT,),
            prefix=self.prefix or LOCAL_PREFIX,
            tls=None
            if files is None
            else TlsConfig(ca=files.ca, certificate=files.certificate, key=files.key, server_name=files.server_name),
            username=self.username,
            password_file=self.password_file,
            lease_ttl_s=self.lease_ttl_s,
        )

    def with_files(self, find: FindFile) -> Self:
        """Give the settings with absolute paths of certificates and password."""
        tls = self.tls
        if tls is not None:
            pem = "a PEM file"
            tls = msgspec.structs.replace(
                tls,
                ca=find(("tls", "ca"), tls.ca, pem),
                certificate=find(("tls", "certificate"), tls.certificate, pem),
                key=find(("tls", "key"), tls.key, pem),
            )
        password = find(("passwordFile",), self.password_file, "a file")
        return msgspec.structs.replace(self, tls=tls, password_file=password)

    def ignored_locally(self) -> tuple[str, ...]:
        """Name the references to Secrets that are set."""
        references = {"tlsSecretRef": self.tls_secret_ref, "userSecretRef": self.user_secret_ref}
        return tuple(field for field, reference in references.items() if reference is not None)

    def cluster_problems(self) -> list[Problem]:
        """Find Secrets without endpoints, and endpoints that are not alike."""
        secure = {endpoint.startswith("https:") for endpoint in self.endpoints}
        if not self.endpoints and (self.tls_secret_ref is not None or self.user_secret_ref is not None):
            return [
                Problem(("endpoints",), None, "is empty beside a Secret", "name the endpoints that the Secret is for")
            ]
        if len(secure) > 1 or (secure == {False} and self.tls_secret_ref is not None):
            remedy = "write all https or all http; tlsSecretRef needs https"
            return [Problem(("endpoints",), None, "are not alike", remedy)]
        return []

    def secrets(self) -> tuple[SecretUse, ...]:
        """Give the Secrets with certificates and with the user."""
        found = []
        if self.tls_secret_ref is not None:
            found.append(SecretUse("tlsSecretRef", self.tls_secret_ref.name, ("ca.crt",), is_read=True))
        if self.user_secret_ref is not None:
            found.append(SecretUse("userSecretRef", self.user_secret_ref.name, ("username", "password"), is_read=False))
        return tuple(found)

"""What is looked for; how it is read stands in tests/apiserver/test_seeing.py, on a real API server."""

from __future__ import annotations

import pytest

from deathless.base.manifest import ServiceSpec
from deathless.base.manifest_parts import EtcdSpec, LockSpec, LogStorage, SecretKeyRef, SecretRef
from deathless_operator.cluster.kinds import CERTIFICATE, NETWORK_POLICY
from deathless_operator.cluster.observe import LISTED, claim_name, expected_names, is_about, secret_names
from deathless_operator.plan.snapshot import Warned


def spec(**fields: object) -> ServiceSpec:
    return ServiceSpec(module="bank:bank", image="bank:1", **fields)  # type: ignore[arg-type] # per test


def test_secrets_that_the_spec_names_are_looked_at_beside_our_own() -> None:
    etcd = EtcdSpec(
        endpoints=("https://e0:2379",),
        tls_secret_ref=SecretRef(name="etcd-tls"),
        user_secret_ref=SecretRef(name="etcd-user"),
    )
    found = secret_names("bank", spec(lock=LockSpec(etcd=etcd), token_secret_ref=SecretKeyRef(name="token")))
    assert {"etcd-tls", "etcd-user", "token", "bank-tls", "bank-client-tls"} <= found
    assert secret_names("bank", None) == secret_names("bank", spec())


def test_claim_is_the_specs_or_ours() -> None:
    assert claim_name("bank", spec(log_storage=LogStorage(claim_name="nfs"))) == "nfs"
    assert claim_name("bank", spec(log_storage=LogStorage(size="1Gi"))) == claim_name("bank", None) == "bank-log"


def test_policies_that_another_tool_owns_are_not_looked_for() -> None:
    assert (NETWORK_POLICY, "bank") in expected_names("bank", LISTED, network_policies=True)
    assert (NETWORK_POLICY, "bank") not in expected_names("bank", LISTED, network_policies=False)
    assert not any(kind is CERTIFICATE for kind, _ in expected_names("bank", LISTED, network_policies=True))


@pytest.mark.parametrize(
    ("kind", "name", "about"),
    [
        ("StatefulSet", "bank", True),
        ("Pod", "bank-0", True),
        ("Pod", "bank-check-1a2b", True),
        ("PersistentVolumeClaim", "bank-log", True),
        ("StatefulSet", "bank-2", False),
        ("Pod", "bank-2-0", False),
        ("Pod", "bank", False),
        ("DeathlessService", "bank", False),
        ("Node", "bank", False),
    ],
)
def test_warning_is_about_a_service_by_kind_and_whole_name(kind: str, name: str, about: bool) -> None:
    assert is_about(Warned(kind=kind, name=name, reason="r", message="m", at=0.0), "bank") is about

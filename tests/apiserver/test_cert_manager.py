"""Certificates of a service from a real cert-manager on a real API server: asked for, awaited, used and renewed."""

from __future__ import annotations

import base64
import re
import ssl
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from cert_manager import CertManager
from chart_rights import USER, granted
from etcd_server import wait_until
from operator_process import OperatorProcess
from real_api_server import ROOT, RealApiServer
from tests.unit.charts.rendering import render
from tests.unit.deathless.shell.net.test_tls import shake_hands

from deathless.base.config import TlsConfig
from deathless.shell.net.tls import client_context, refresh, server_context
from deathless_operator.cluster import authority
from deathless_operator.cluster.kinds import CERTIFICATE, CLUSTER_ISSUER, ISSUER, SECRET, SERVICE, STATEFUL_SET, Kind

pytestmark = pytest.mark.apiserver
SECRETS = ("bank-tls", "bank-client-tls")
SPEC = {"module": "bank:bank", "image": "bank:1", "logStorage": {"size": "1Gi"}}
MERGE = "application/merge-patch+json"


@pytest.fixture(scope="module")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealApiServer]:
    """A server of its own: the tests of others need one that has no cert-manager."""
    folder = tmp_path_factory.mktemp("cert-manager")
    with RealApiServer(folder) as server:
        server.install(*sorted(Path(ROOT, "crds").glob("*.yaml")))
        with CertManager(server, folder):
            yield server


@pytest.fixture
def operator(api_server: RealApiServer, namespace: str, tmp_path: Path) -> Iterator[OperatorProcess]:
    """An operator of this namespace alone with the chart's rights, which leads."""
    values = {"operator": {"watchNamespaces": [namespace]}}
    arguments = (f"--watch-namespaces={namespace}", "--lock-endpoints=http://lock.test:2379")
    with (
        granted(api_server, namespace, values),
        OperatorProcess(api_server, tmp_path, namespace, *arguments, user=USER) as made,
    ):
        made.wait_leading()
        yield made


def make_authority(server: RealApiServer, namespace: str) -> None:
    """Make the issuer that the documents show."""
    text = (ROOT / "docs/kubernetes/certificates.md").read_text()
    block = re.search(r"^    apiVersion: cert-manager.io/v1\n(?:    .*\n)+", text, re.MULTILINE)
    assert block is not None
    for manifest in yaml.safe_load_all(textwrap.dedent(block[0])):
        kind = {ISSUER.kind: ISSUER, CERTIFICATE.kind: CERTIFICATE}[manifest["kind"]]
        server.request("POST", kind.path(namespace), manifest)


def make(
    server: RealApiServer, kind: Kind, namespace: str | None, name: str, spec: Mapping[str, object]
) -> dict[str, Any]:
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}, "spec": spec}
    made: dict[str, Any] = server.request("POST", kind.path(namespace), body)
    return made


def make_issuer(server: RealApiServer, namespace: str, name: str, spec: Mapping[str, object]) -> None:
    make(server, ISSUER, namespace, name, spec)


def make_service(server: RealApiServer, namespace: str, **reference: str) -> dict[str, Any]:
    tls = {"issuer": "CertManager", "issuerRef": {"name": "team-issuer"} | reference}
    return make(server, SERVICE, namespace, "bank", SPEC | {"tls": tls})


def told(server: RealApiServer, namespace: str) -> tuple[str, str, str]:
    """Return status, reason and message of CertificateReady."""
    status = server.request("GET", SERVICE.path(namespace, "bank")).get("status") or {}
    found = [each for each in status.get("conditions") or () if each["type"] == "CertificateReady"]
    return (found[0]["status"], found[0]["reason"], found[0]["message"]) if found else ("", "", "")


def wait_told(server: RealApiServer, namespace: str, operator: OperatorProcess, reason: str) -> str:
    """Wait for a reason, and return its message."""
    wait_until(lambda: told(server, namespace)[1] == reason, f"{reason}, see {operator.log}")
    return told(server, namespace)[2]


def data_of(server: RealApiServer, namespace: str, name: str) -> dict[str, bytes]:
    """Return what a Secret holds; nothing where there is none."""
    if b'"code":404' in server.request("GET", SECRET.path(namespace, name), raw=True):
        return {}
    data = server.request("GET", SECRET.path(namespace, name)).get("data") or {}
    return {key: base64.b64decode(value) for key, value in data.items()}


def mount(server: RealApiServer, namespace: str, name: str, folder: Path, **settings: Any) -> TlsConfig:
    """Write a Secret's files as a kubelet does, and return the settings that name them."""
    folder.mkdir(exist_ok=True)
    for key, value in data_of(server, namespace, name).items():
        (folder / key).write_bytes(value)
    return TlsConfig(
        ca=str(folder / "ca.crt"), certificate=str(folder / "tls.crt"), key=str(folder / "tls.key"), **settings
    )


def contexts(replicas: TlsConfig, clients: TlsConfig) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    server, client = server_context(replicas), client_context(clients)
    assert server is not None
    assert client is not None
    return server, client


def test_certificates_are_ready_when_cert_manager_has_issued_them_and_then_pods_are_wanted(
    api_server: RealApiServer, namespace: str, operator: OperatorProcess
) -> None:
    made = make_service(api_server, namespace)
    message = wait_told(api_server, namespace, operator, "IssuerMissing")
    assert f"spec.tls.issuerRef names Issuer team-issuer, and there is none in namespace {namespace}" in message
    for name in SECRETS:
        asked = api_server.request("GET", CERTIFICATE.path(namespace, name))
        assert asked["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]
        assert data_of(api_server, namespace, name) == {}
    assert api_server.request("GET", STATEFUL_SET.path(namespace))["items"] == []
    make_authority(api_server, namespace)
    wait_told(api_server, namespace, operator, "Issued")
    assert told(api_server, namespace)[0] == "True"
    wait_until(
        lambda: len(api_server.request("GET", STATEFUL_SET.path(namespace))["items"]) == 1,
        f"pods are wanted, see {operator.log}",
    )
    quiet = [api_server.request("GET", CERTIFICATE.path(namespace, name))["metadata"]["generation"] for name in SECRETS]
    assert quiet == [1, 1], "what was asked for is asked once"


def test_what_was_issued_serves_our_tls_and_no_stranger(
    api_server: RealApiServer, namespace: str, operator: OperatorProcess, tmp_path: Path
) -> None:
    make_authority(api_server, namespace)
    make_service(api_server, namespace)
    wait_told(api_server, namespace, operator, "Issued")
    name = f"bank.{namespace}.svc"
    replicas = mount(
        api_server, namespace, "bank-tls", tmp_path / "r", server_name=name, require_client_certificate=True
    )
    clients = mount(api_server, namespace, "bank-client-tls", tmp_path / "c", server_name=name)
    server, client = contexts(replicas, clients)
    shown = shake_hands(server, client, "10.0.0.7")
    for each in (name, f"bank-primary.{namespace}.svc.cluster.local", f"*.bank-replicas.{namespace}.svc", "localhost"):
        assert each in shown
    peer = client_context(replicas)
    assert peer is not None
    assert name in shake_hands(server, peer, "10.0.0.8"), "replicas are clients of each other"
    false_server, _ = contexts(TlsConfig(**fields(clients) | {"server_name": ""}), clients)
    with pytest.raises(ssl.SSLError):
        shake_hands(false_server, client, name)
    stranger = ssl.create_default_context(cafile=replicas.ca)
    with pytest.raises(ssl.SSLError):
        shake_hands(server, stranger, name)


def fields(tls: TlsConfig) -> dict[str, Any]:
    return {name: getattr(tls, name) for name in tls.__struct_fields__}


@pytest.mark.parametrize("how", ["deleted", "told"])
def test_renewed_certificate_is_used_and_a_lost_one_comes_back(
    api_server: RealApiServer, namespace: str, operator: OperatorProcess, tmp_path: Path, how: str
) -> None:
    make_authority(api_server, namespace)
    make_service(api_server, namespace)
    wait_told(api_server, namespace, operator, "Issued")
    name = f"bank.{namespace}.svc"
    replicas = mount(api_server, namespace, "bank-tls", tmp_path / "r", require_client_certificate=True)
    clients = mount(api_server, namespace, "bank-client-tls", tmp_path / "c", server_name=name)
    server, client = contexts(replicas, clients)
    shake_hands(server, client, name)
    before = data_of(api_server, namespace, "bank-tls")
    if how == "deleted":
        api_server.request("DELETE", SECRET.path(namespace, "bank-tls"))
    else:
        asked = api_server.request("GET", CERTIFICATE.path(namespace, "bank-tls"))
        due = {"type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "message": "as cmctl renew does"}
        conditions = {"status": {"conditions": [*asked["status"]["conditions"], due]}}
        api_server.request("PATCH", CERTIFICATE.path(namespace, "bank-tls", "status"), conditions, content=MERGE)

    def renewed() -> bool:
        found = data_of(api_server, namespace, "bank-tls")
        return bool(found) and found["tls.crt"] != before["tls.crt"] and authority.read_facts(found) is not None

    wait_until(renewed, "cert-manager issues anew")
    wait_told(api_server, namespace, operator, "Issued")
    assert data_of(api_server, namespace, "bank-tls")["tls.key"] != before["tls.key"]
    mount(api_server, namespace, "bank-tls", tmp_path / "r")
    assert refresh(replicas), "a replica loads it without a restart"
    shake_hands(server, client, name)


def test_issuer_that_is_not_ready_is_told_in_its_own_words(
    api_server: RealApiServer, namespace: str, operator: OperatorProcess
) -> None:
    make_issuer(api_server, namespace, "team-issuer", {"ca": {"secretName": "no-such-secret"}})
    make_service(api_server, namespace)
    message = wait_told(api_server, namespace, operator, "IssuerNotReady")
    assert "no-such-secret" in message


def test_issuer_that_signs_each_certificate_by_itself_is_told(
    api_server: RealApiServer, namespace: str, operator: OperatorProcess
) -> None:
    make_issuer(api_server, namespace, "team-issuer", {"selfSigned": {}})
    make_service(api_server, namespace)
    assert "SelfSigned" in wait_told(api_server, namespace, operator, "AuthoritiesDiffer")


def test_cluster_issuer_is_found_outside_the_namespace(
    api_server: RealApiServer, namespace: str, operator: OperatorProcess
) -> None:
    make_service(api_server, namespace, kind="ClusterIssuer", name=namespace)
    message = wait_told(api_server, namespace, operator, "IssuerMissing")
    assert f"ClusterIssuer {namespace}, and there is none:" in message
    make(api_server, CLUSTER_ISSUER, None, namespace, {"ca": {"secretName": namespace}})
    wait_told(api_server, namespace, operator, "IssuerNotReady")


def test_service_that_changes_to_cert_manager_says_ready_when_it_is_cert_managers(
    api_server: RealApiServer, namespace: str, operator: OperatorProcess
) -> None:
    make_authority(api_server, namespace)
    make(api_server, SERVICE, namespace, "bank", SPEC)
    wait_told(api_server, namespace, operator, "Issued")
    ours = authority.read_facts(data_of(api_server, namespace, "bank-tls"))
    tls = {"spec": {"tls": {"issuer": "CertManager", "issuerRef": {"name": "team-issuer"}}}}
    api_server.request("PATCH", SERVICE.path(namespace, "bank"), tls, content=MERGE)
    wait_until(
        lambda: "Issuer team-issuer" in told(api_server, namespace)[2] and told(api_server, namespace)[0] == "True",
        f"cert-manager has taken over, see {operator.log}",
    )
    theirs = authority.read_facts(data_of(api_server, namespace, "bank-tls"))
    assert ours is not None and theirs is not None
    assert not set(ours.trusts) & set(theirs.trusts)
    back = {"spec": {"tls": None}}
    api_server.request("PATCH", SERVICE.path(namespace, "bank"), back, content=MERGE)
    wait_until(
        lambda: (
            api_server.request("GET", CERTIFICATE.path(namespace))["items"][0]["metadata"]["name"] == "team-authority"
            and authority.read_facts(data_of(api_server, namespace, "bank-tls")) != theirs
        ),
        f"the operator signs again, see {operator.log}",
    )


def test_lock_store_gets_its_certificates_from_an_issuer_of_the_chart(
    api_server: RealApiServer, namespace: str, tmp_path: Path
) -> None:
    values = {"lockStore": {"certificates": {"source": "CertManager"}}}
    places = {ISSUER.kind: ISSUER, CERTIFICATE.kind: CERTIFICATE}
    for each in render(values, namespace=namespace):
        if each["kind"] in places:
            api_server.request("POST", places[each["kind"]].path(namespace), each)
    secrets = ("deathless-lock-store-tls", "deathless-lock-store-client-tls")
    wait_until(
        lambda: all(set(data_of(api_server, namespace, name)) >= {"ca.crt", "tls.crt", "tls.key"} for name in secrets),
        "cert-manager issues both",
    )
    member, _ = contexts(
        *(
            mount(api_server, namespace, secrets[0], tmp_path / "m", require_client_certificate=True),
            mount(api_server, namespace, secrets[1], tmp_path / "c"),
        )
    )
    name = f"deathless-lock-store-0.deathless-lock-store-members.{namespace}.svc.cluster.local"
    replica = client_context(mount(api_server, namespace, secrets[1], tmp_path / "c"))
    assert replica is not None
    shown = shake_hands(member, replica, name)
    assert "deathless-lock-store" in shown
    assert "localhost" in shown

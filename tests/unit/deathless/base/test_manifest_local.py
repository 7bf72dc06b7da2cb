"""What processes on one machine are told of certificates and front door."""

from __future__ import annotations

from deathless.base.manifest_ingress import Ingress
from deathless.base.manifest_local import ingress_address, local_tls
from deathless.base.manifest_parts import TlsSpec


def test_files_make_tls_and_nothing_else_does() -> None:
    assert local_tls(None) is None
    assert local_tls(TlsSpec(require_client_certificate=True)) is None, "it is for a cluster"
    found = local_tls(TlsSpec(ca="ca.pem", certificate="c.pem", key="k.pem", server_name="bank"))
    assert found is not None
    assert (found.ca, found.certificate, found.key, found.server_name) == ("ca.pem", "c.pem", "k.pem", "bank")
    assert not found.require_client_certificate


def test_each_replica_has_a_port_of_its_own() -> None:
    assert ingress_address(None, 2) == ""
    assert ingress_address(Ingress(port=8080), 2) == "127.0.0.1:8082"
    assert ingress_address(Ingress(port=0), 2) == "127.0.0.1:0"

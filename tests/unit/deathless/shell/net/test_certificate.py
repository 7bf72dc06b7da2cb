"""URI names read from a certificate, as another reader finds them; bytes that are none give none."""

from __future__ import annotations

import base64
from pathlib import Path

import trustme
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.deathless.shell.named_certificates import new_authority, uri, write_named

from deathless.shell.net.certificate import certificates_of, uri_names


def test_uri_is_found_beside_other_names(tmp_path: Path) -> None:
    tls = write_named(tmp_path, new_authority(), uri("a", "bank", "replica"), "https://example.org/x")
    pem = Path(tls.certificate).read_text()
    assert uri_names(pem) == (uri("a", "bank", "replica"), "https://example.org/x")
    assert len(certificates_of(pem + pem)) == 2


def test_certificate_without_uri_has_none() -> None:
    pem = trustme.CA().issue_cert("replica.local").cert_chain_pems[0].bytes().decode()
    assert uri_names(pem) == ()
    assert uri_names("") == ()
    assert uri_names("-----BEGIN CERTIFICATE-----\n????\n-----END CERTIFICATE-----") == ()


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_any_bytes_give_names_or_none(head: bytes, tail: bytes) -> None:
    der = head + bytes.fromhex("0603551d11") + tail
    pem = f"-----BEGIN CERTIFICATE-----\n{base64.b64encode(der).decode()}\n-----END CERTIFICATE-----\n"
    assert isinstance(uri_names(pem), tuple)

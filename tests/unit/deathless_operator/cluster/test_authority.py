"""Certificates that real TLS accepts and refuses, and one authority following another."""

from __future__ import annotations

import contextlib
import ssl
import time
from pathlib import Path
from typing import Literal

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from deathless_operator.cluster import authority as certificates
from deathless_operator.cluster.authority import OVERLAP_S, Authority, maintained

DAY = 86400.0
LIFE = 300 * DAY
NOW = 1_800_000_000.0
NAMES = ("bank", "bank.shop.svc", "*.bank-replicas.shop.svc.cluster.local")


def made(now: float = NOW) -> Authority:
    return maintained(None, now, LIFE)[0]


def issued(
    authority: Authority, purpose: Literal["replicas", "clients"] = "replicas", now: float = NOW, life: float = 90 * DAY
) -> dict[str, bytes]:
    certificate, key = certificates.issue(
        authority, common_name="bank", dns_names=NAMES, purpose=purpose, now=now, life_s=life
    )
    return {"ca.crt": authority.bundle, "tls.crt": certificate, "tls.key": key}


def handshake(folder: Path, server: dict[str, bytes], client: dict[str, bytes], name: str) -> None:
    """Do a TLS handshake in memory, both sides verifying; raises ssl.SSLError when one refuses."""
    sides = []
    for role, data in (("server", server), ("client", client)):
        both, ca = folder / f"{role}.pem", folder / f"{role}-ca.pem"
        both.write_bytes(data["tls.crt"] + data["tls.key"])
        ca.write_bytes(data["ca.crt"])
        purpose = ssl.Purpose.CLIENT_AUTH if role == "server" else ssl.Purpose.SERVER_AUTH
        context = ssl.create_default_context(purpose, cafile=str(ca))
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(both)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        hostname = None if role == "server" else name
        sides.append((context.wrap_bio(incoming, outgoing, role == "server", hostname), incoming, outgoing))
    (one, one_in, one_out), (other, other_in, other_out) = sides
    for _ in range(6):
        for side in (other, one):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
            one_in.write(other_out.read())
            other_in.write(one_out.read())


@pytest.fixture
def today() -> Authority:
    """An authority of now by the machine's clock, which TLS looks at."""
    return maintained(None, time.time(), LIFE)[0]


def today_issued(today: Authority, purpose: Literal["replicas", "clients"]) -> dict[str, bytes]:
    begins = x509.load_pem_x509_certificate(today.current.certificate).not_valid_before_utc.timestamp()
    return issued(today, purpose, now=begins + certificates.BACKDATED_S)


def test_replicas_and_clients_of_one_authority_accept_each_other(tmp_path: Path, today: Authority) -> None:
    replica, client = today_issued(today, "replicas"), today_issued(today, "clients")
    handshake(tmp_path, replica, client, "bank.shop.svc")
    handshake(tmp_path, replica, replica, "bank-0.bank-replicas.shop.svc.cluster.local")


def test_clients_certificate_cannot_be_a_servers(tmp_path: Path, today: Authority) -> None:
    client = today_issued(today, "clients")
    with pytest.raises(ssl.SSLError):
        handshake(tmp_path, client, client, "bank")


def test_other_names_and_other_authorities_are_refused(tmp_path: Path, today: Authority) -> None:
    replica = today_issued(today, "replicas")
    with pytest.raises(ssl.SSLError):
        handshake(tmp_path, replica, replica, "till.shop.svc")
    stranger = today_issued(maintained(None, time.time(), LIFE)[0], "replicas")
    with pytest.raises(ssl.SSLError):
        handshake(tmp_path, replica, stranger, "bank")


def test_next_authority_is_trusted_a_day_before_it_signs_and_the_old_one_while_it_lives() -> None:
    first = made()
    assert maintained(first, NOW + LIFE / 2, LIFE) == (first, None)
    due = NOW + LIFE * 0.67
    second, said = maintained(first, due, LIFE)
    assert said is not None and second.current == first.current and len(second.trusts) == 2
    assert maintained(second, due + OVERLAP_S - 1, LIFE) == (second, None)
    third, said = maintained(second, due + OVERLAP_S, LIFE)
    assert said is not None and third.current == second.next and third.trusts[1] == first.current.key_id
    fourth, said = maintained(third, NOW + LIFE + 1, LIFE)
    assert said is not None and fourth.trusts == (third.current.key_id,)


def test_certificate_of_each_stage_is_trusted_in_the_next_one() -> None:
    first = made()
    second, _ = maintained(first, NOW + LIFE * 0.67, LIFE)
    third, _ = maintained(second, NOW + LIFE * 0.67 + OVERLAP_S, LIFE)
    for signer, relying in ((first, second), (second, first), (second, third), (third, second), (first, third)):
        facts = certificates.read_facts(issued(signer, now=NOW + LIFE * 0.67 + OVERLAP_S))
        assert facts is not None and facts.signed_by in relying.trusts


def test_ended_authority_is_made_anew() -> None:
    later = NOW + LIFE + 1
    again, said = maintained(made(), later, LIFE)
    assert said is not None and again.trusts != made().trusts
    waiting, _ = maintained(made(), NOW + LIFE * 0.67, LIFE * 2)
    assert maintained(waiting, later, LIFE)[0].current == waiting.next


def test_certificate_never_outlives_its_authority_and_bears_a_clock_that_is_behind() -> None:
    facts = certificates.read_facts(issued(made(), life=10 * LIFE))
    assert facts is not None
    assert facts.not_after == NOW + LIFE and facts.not_before == NOW - certificates.BACKDATED_S
    assert facts.dns_names == NAMES


def test_two_thirds_of_a_life_make_a_certificate_due() -> None:
    certificate = issued(made())["tls.crt"]
    assert not certificates.is_due(certificate, NOW + 59 * DAY)
    assert certificates.is_due(certificate, NOW + 60 * DAY)


def test_authority_that_is_gone_stays_trusted_while_what_it_signed_may_be_in_use() -> None:
    first, until = made(), NOW + 90 * DAY
    second, said = maintained(None, NOW, LIFE, former=first.trusted, former_until=until)
    assert said is not None and "stays trusted until" in said
    assert second.trusts == (second.current.key_id, first.current.key_id)
    assert second.signs_from == NOW + OVERLAP_S and first.signs_from == 0.0
    assert maintained(second, until - 1, LIFE) == (second, None)
    third, said = maintained(second, until, LIFE)
    assert said is not None and third.trusts == (second.current.key_id,) and third.signs_from == 0.0
    assert certificates.from_data(certificates.to_data(second)) == second


def test_former_authority_that_has_ended_is_not_trusted_again() -> None:
    second, _ = maintained(None, NOW + LIFE + 1, LIFE, former=made().trusted, former_until=NOW + 2 * LIFE)
    assert second.trusts == (second.current.key_id,) and second.old_until is None


def test_time_without_former_authorities_holds_nobody_back() -> None:
    second, _ = maintained(None, NOW, LIFE, former=made().trusted, former_until=NOW + DAY)
    taken_out = {key: value for key, value in certificates.to_data(second).items() if key != "old.crt"}
    read = certificates.from_data(taken_out)
    assert read is not None and read.old_until is None and read.signs_from == 0.0


def test_time_that_is_none_leaves_former_authorities_trusted_until_they_end() -> None:
    second, _ = maintained(None, NOW, LIFE, former=made().trusted, former_until=NOW + DAY)
    for wrong in (b"soon", b"-5", b"", b"1e99", b"9" * 9999):
        read = certificates.from_data(certificates.to_data(second) | {"old.until": wrong})
        assert read is not None and read.trusts == second.trusts and read.old_until is None


def test_those_that_signed_are_found_in_what_they_signed_and_others_beside_them_are_not() -> None:
    first, stranger = made(), made()
    data = issued(first)
    data["ca.crt"] += stranger.bundle
    found, until = certificates.signers_of([data, {}, {"ca.crt": b"nonsense"}, issued(first, life=30 * DAY)])
    assert found == (first.current.certificate,)
    assert until == NOW + 90 * DAY
    assert certificates.signers_of([]) == ((), 0.0)


def test_what_a_secret_holds_is_read_back() -> None:
    whole, _ = maintained(maintained(made(), NOW + LIFE * 0.67, LIFE)[0], NOW + LIFE * 0.67 + OVERLAP_S, LIFE)
    assert certificates.from_data(certificates.to_data(whole)) == whole
    rotating, _ = maintained(made(), NOW + LIFE * 0.67, LIFE)
    assert certificates.from_data(certificates.to_data(rotating)) == rotating


@pytest.mark.parametrize("key", ["ca.crt", "tls.crt", "tls.key"])
def test_secret_that_lacks_or_mixes_keys_is_not_readable(key: str) -> None:
    good, other = issued(made()), issued(made())
    assert certificates.read_facts(good) is not None
    assert certificates.read_facts({name: value for name, value in good.items() if name != key}) is None
    assert certificates.read_facts(good | {key: b"nothing"}) is None
    if key == "tls.key":
        assert certificates.read_facts(good | {key: other[key]}) is None


def test_authority_with_another_key_is_not_readable() -> None:
    data = certificates.to_data(made())
    assert certificates.from_data(data | {"tls.key": made().current.key}) is None
    assert certificates.from_data({}) is None


def test_rsa_authority_of_a_user_signs() -> None:
    key = rsa.generate_private_key(65537, 2048)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    name = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, "ours")])
    ours = x509.load_pem_x509_certificate(made().current.certificate)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 7, ours.not_valid_before_utc, ours.not_valid_after_utc)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    read = certificates.from_data({"tls.crt": certificate.public_bytes(serialization.Encoding.PEM), "tls.key": pem})
    assert read is not None
    facts = certificates.read_facts(issued(read))
    assert facts is not None and facts.signed_by == read.current.key_id


@pytest.mark.parametrize("ids", [0, 1, 2])
def test_authority_of_a_user_without_a_key_id_signs_and_one_with_two_is_not_readable(ids: int) -> None:
    """Who deploys brings what its own tools made; what the library can't read ends nobody."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, "ours")])
    ours = x509.load_pem_x509_certificate(made().current.certificate)
    builder = x509.CertificateBuilder(
        name, name, key.public_key(), 7, ours.not_valid_before_utc, ours.not_valid_after_utc
    ).add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    for number in range(ids):
        identifier = x509.ObjectIdentifier("2.5.29.14")
        digest = bytes([4, 2, number, 7])
        builder._extensions.append(x509.Extension(identifier, False, x509.UnrecognizedExtension(identifier, digest)))
    certificate = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    read = certificates.from_data({"tls.crt": certificate, "tls.key": pem})
    assert (read is None) == (ids == 2)
    assert len(certificates.certificates_in(certificate)) == int(ids < 2)
    if read is not None:
        facts = certificates.read_facts(issued(read))
        assert facts is not None and facts.signed_by == read.current.key_id

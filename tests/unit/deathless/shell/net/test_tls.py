"""TLS settings: what must fit fits, what changes is renewed, what is broken leaves the old in use."""

from __future__ import annotations

import shutil
import ssl
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from deathless.base.config import TlsConfig
from deathless.base.errors import InvalidConfig
from deathless.shell.net.tls import client_context, refresh, server_context


def write(folder: Path, authority: trustme.CA, *names: str) -> TlsConfig:
    folder.mkdir(exist_ok=True)
    certificate = authority.issue_cert(*names)
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    certificate.private_key_pem.write_to_path(str(folder / "key.pem"))
    certificate.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    return TlsConfig(
        ca=str(folder / "ca.pem"), certificate=str(folder / "cert.pem"), key=str(folder / "key.pem"),
        require_client_certificate=True,
    )  # fmt: skip


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> str:
    """Join two contexts in memory. Returns: common text of the server's certificate's names."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname=name)
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(8):
        for side in (ours, theirs):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    theirs.write(b"x")
    assert ours.read(1) == b"x"
    shown = ours.getpeercert()
    assert shown is not None
    return str(shown["subjectAltName"])


def both(tls: TlsConfig) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    server, client = server_context(tls), client_context(tls)
    assert server is not None
    assert client is not None
    return server, client


def test_no_settings_mean_no_tls() -> None:
    assert server_context(None) is None
    assert client_context(None) is None
    assert not refresh(None)


def test_two_that_trust_one_authority_talk(tmp_path: Path) -> None:
    server, client = both(write(tmp_path / "a", trustme.CA(), "replica.local"))
    assert "replica.local" in shake_hands(server, client, "replica.local")
    assert server.minimum_version >= ssl.TLSVersion.TLSv1_2


def test_wrong_name_is_refused(tmp_path: Path) -> None:
    server, client = both(write(tmp_path / "a", trustme.CA(), "replica.local"))
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(server, client, "other.local")


def test_server_name_of_the_settings_is_asked_for_whatever_was_dialed(tmp_path: Path) -> None:
    tls = write(tmp_path / "a", trustme.CA(), "replica.local")
    named = TlsConfig(**{f: getattr(tls, f) for f in tls.__struct_fields__} | {"server_name": "replica.local"})
    server, client = both(named)
    assert "replica.local" in shake_hands(server, client, "10.0.0.7")


def test_stranger_is_refused_where_client_certificates_are_required(tmp_path: Path) -> None:
    tls = write(tmp_path / "a", trustme.CA(), "replica.local")
    server, _ = both(tls)
    bare = client_context(TlsConfig(ca=tls.ca))
    assert bare is not None
    with pytest.raises(ssl.SSLError):
        shake_hands(server, bare, "replica.local")
    open_server = server_context(TlsConfig(certificate=tls.certificate, key=tls.key))
    assert open_server is not None
    shake_hands(open_server, bare, "replica.local")


def test_client_of_another_authority_refuses(tmp_path: Path) -> None:
    server, _ = both(write(tmp_path / "a", trustme.CA(), "replica.local"))
    _, client = both(write(tmp_path / "b", trustme.CA(), "replica.local"))
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server, client, "replica.local")


def test_client_without_an_authority_uses_the_systems() -> None:
    assert client_context(TlsConfig(server_name="x")) is not None


@pytest.mark.parametrize(
    "broken",
    [
        {"certificate": ""},
        {"certificate": "missing.pem"},
        {"key": "ca.pem"},
        {"ca": "key.pem"},
        {"ca": ""},
    ],
)
def test_files_that_do_not_fit_refuse_to_start(tmp_path: Path, broken: dict[str, str]) -> None:
    tls = write(tmp_path / "a", trustme.CA(), "replica.local")
    changed = {name: str(tmp_path / "a" / value) if value else "" for name, value in broken.items()}
    settings = TlsConfig(**{f: getattr(tls, f) for f in tls.__struct_fields__} | changed)
    with pytest.raises(InvalidConfig, match="tls"):
        server_context(settings)


def test_encrypted_key_is_refused_instead_of_asking_the_terminal(tmp_path: Path) -> None:
    tls = write(tmp_path / "a", trustme.CA(), "replica.local")
    key = serialization.load_pem_private_key(Path(tls.key).read_bytes(), None)
    locked = serialization.BestAvailableEncryption(b"secret")
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked)
    Path(tls.key).write_bytes(pem)
    with pytest.raises(InvalidConfig, match="encrypted"):
        server_context(tls)


def test_renewed_certificate_serves_new_connections_of_the_same_context(tmp_path: Path) -> None:
    authority = trustme.CA()
    tls = write(tmp_path / "a", authority, "old.local")
    server, client = both(tls)
    assert not refresh(tls), "nothing has changed"
    write(tmp_path / "new", authority, "new.local")
    for name in ("cert.pem", "key.pem"):
        shutil.move(tmp_path / "new" / name, tmp_path / "a" / name)
    assert refresh(tls)
    assert server_context(tls) is server
    assert "new.local" in shake_hands(server, client, "new.local")
    assert client_context(tls) is client


def test_half_written_renewal_leaves_the_old_in_use(tmp_path: Path) -> None:
    authority = trustme.CA()
    tls = write(tmp_path / "a", authority, "replica.local")
    server, client = both(tls)
    write(tmp_path / "new", authority, "new.local")
    shutil.copy(tmp_path / "new" / "cert.pem", tls.certificate)  # the key is still the old one
    assert not refresh(tls)
    assert "replica.local" in shake_hands(server, client, "replica.local")
    Path(tls.key).unlink()
    assert not refresh(tls)
    shutil.copy(tmp_path / "new" / "key.pem", tls.key)
    assert refresh(tls)
    assert "new.local" in shake_hands(server, client, "new.local")

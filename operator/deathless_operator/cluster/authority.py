"""Certificates: an authority's key, what it signs, and how one authority follows another.

Every value is PEM bytes, time comes in as a parameter: this module is a calculation (with fresh keys), which
`trust` stores in Secrets.

    Authority   current: signs           next: already trusted, will sign after OVERLAP_S     old: trusted until it ends

At two thirds of the current authority's life a next one is made and trusted everywhere (`ca.crt` holds both). After
a day, when every mounted Secret has long been replaced and read again, it begins to sign. Certificates that the old
one signed stay good until they are renewed in their own turn, and it is trusted for as long as it lives.

An authority whose key is gone, since somebody deleted its Secret, can't sign for that day. The one in its place trusts
it for as long as a certificate of it may live (`old_until`), and until `signs_from` replaces no certificate that is
still good: by then everybody trusts the new one, too.

Guarantees: keys that are made are ECDSA P-256; a certificate begins five minutes ago, so a clock that is behind
accepts it, and never outlives its authority. Does not: decide when a service's certificate is due (the plan does), or
revoke.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

BACKDATED_S = 300
OVERLAP_S = 86400
RENEW_AT = 2 / 3
UNTIL_DIGITS_MAX = 12  # of wall seconds; what is longer, a hand wrote
AUTHORITY_NAME = "Deathless authority"
UNREADABLE = (
    KeyError,
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.ExtensionNotFound,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)  # what the library says of bytes that a person put there
SIGNING_KEYS = (ec.EllipticCurvePrivateKey, rsa.RSAPrivateKey)  # of an authority that a user brings, RSA is fine


@dataclass(frozen=True, slots=True, kw_only=True)
class Signer:
    """One authority: its certificate and its key."""

    certificate: bytes  # PEM
    key: bytes  # PEM, PKCS #8, not encrypted

    @property
    def key_id(self) -> str:
        """Subject key identifier, hex."""
        return subject_key_id(x509.load_pem_x509_certificate(self.certificate))


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """Those who may sign, and those who are trusted."""

    current: Signer
    next: Signer | None = None  # trusted already, signs after OVERLAP_S
    old: tuple[bytes, ...] = ()  # certificates that signed before, still trusted
    old_until: float | None = None  # wall seconds: `old` are trusted until then; None: until each ends

    @property
    def trusted(self) -> tuple[bytes, ...]:
        """PEM certificates that a relying party has to trust now."""
        following = (self.next.certificate,) if self.next is not None else ()
        return (self.current.certificate, *following, *self.old)

    @property
    def signs_from(self) -> float:
        """Wall seconds from when the current one is trusted by everybody; 0 where it was before it began to sign."""
        if self.old_until is None:
            return 0.0
        return _begins(self.current.certificate) + BACKDATED_S + OVERLAP_S

    @property
    def bundle(self) -> bytes:
        """What `ca.crt` holds."""
        return b"".join(each.rstrip() + b"\n" for each in self.trusted)

    @property
    def trusts(self) -> tuple[str, ...]:
        """Key ids of `trusted`, in order."""
        return tuple(subject_key_id(x509.load_pem_x509_certificate(each)) for each in self.trusted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a Secret's certificate says."""

    not_before: float  # wall seconds
    not_after: float
    dns_names: tuple[str, ...]
    uris: tuple[str, ...]  # who it names
    signed_by: str  # authority key identifier, hex; empty when it has none
    trusts: tuple[str, ...]  # key ids in ca.crt


def new_signer(now: float, life_s: float) -> Signer:
    """Make an authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, AUTHORITY_NAME)])
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_moment(now - BACKDATED_S))
        .not_valid_after(_moment(now + life_s))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Signer(certificate=certificate.public_bytes(serialization.Encoding.PEM), key=_key_pem(key))


def maintained(
    authority: Authority | None,
    now: float,
    life_s: float,
    *,
    former: Sequence[bytes] = (),
    former_until: float = 0.0,
) -> tuple[Authority, str | None]:
    """Return the authority as it has to be now, and a sentence when that is another one than before.

    Called often, it changes something three times in an authority's life: next made, next signs, old forgotten.

    Args:
        authority: as it is stored; None: none is.
        now: wall seconds.
        life_s: of an authority that is made, seconds.
        former: where none is stored: certificates of those that were, which stay trusted.
        former_until: wall seconds until when they do.
    """
    alive = tuple(each for each in former if _ends(each) > now)
    if authority is None and alive:
        made = Authority(current=new_signer(now, life_s), old=alive, old_until=former_until)
        return made, f"Made a certificate authority; the one that is gone stays trusted until {_moment(former_until)}."
    if authority is None or _ends(authority.current.certificate) <= now:
        following = authority.next if authority is not None else None
        if following is not None and _ends(following.certificate) > now:
            return Authority(current=following), "The next authority signs: the one before has ended."
        return Authority(current=new_signer(now, life_s)), "Made a certificate authority."
    if authority.next is not None and now - _begins(authority.next.certificate) >= OVERLAP_S + BACKDATED_S:
        old = (authority.current.certificate, *authority.old)
        authority = Authority(current=authority.next, old=old)
        return authority, "The next authority signs from now on; the one before stays trusted until it ends."
    if authority.next is None and is_due(authority.current.certificate, now):
        authority = replace(authority, next=new_signer(now, life_s))
        return authority, "Made the next certificate authority; it signs after a day of being trusted."
    ended = authority.old_until is not None and now >= authority.old_until
    alive = tuple(each for each in authority.old if _ends(each) > now and not ended)
    if alive != authority.old:
        until = authority.old_until if alive else None
        return replace(authority, old=alive, old_until=until), "An authority that has expired is no longer trusted."
    return authority, None


def issue(
    authority: Authority,
    *,
    common_name: str,
    dns_names: Sequence[str],
    uris: Sequence[str] = (),
    purpose: Literal["replicas", "clients"],
    now: float,
    life_s: float,
) -> tuple[bytes, bytes]:
    """Sign a new key.

    Args:
        authority: its current signer signs.
        common_name: subject; cut to the 64 characters that the field holds. Empty: none, and `uris` says who it is.
        dns_names: subject alternative names; may be empty for clients.
        uris: likewise; who the certificate names, for those who check that.
        purpose: replicas are servers and clients, clients only clients.
        now: wall seconds.
        life_s: seconds, cut to what the authority has left.

    Returns:
        Certificate and key, PEM.
    """
    signer = x509.load_pem_x509_certificate(authority.current.certificate)
    signer_key = serialization.load_pem_private_key(authority.current.key, None)
    assert isinstance(signer_key, SIGNING_KEYS), "an authority was checked when it was read"
    key = ec.generate_private_key(ec.SECP256R1())
    uses = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if purpose == "replicas":
        uses.insert(0, ExtendedKeyUsageOID.SERVER_AUTH)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:64])] if common_name else []))
        .issuer_name(signer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(max(_moment(now - BACKDATED_S), signer.not_valid_before_utc))
        .not_valid_after(min(_moment(now + life_s), signer.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier(bytes.fromhex(subject_key_id(signer)), None, None),
            critical=False,
        )
    )
    if dns_names or uris:
        names = x509.SubjectAlternativeName(
            [*(x509.DNSName(name) for name in dns_names), *(x509.UniformResourceIdentifier(uri) for uri in uris)]
        )
        # RFC 5280, 4.2.1.6: critical where the subject is empty.
        builder = builder.add_extension(names, critical=not common_name)
    certificate = builder.sign(signer_key, hashes.SHA256())
    return certificate.public_bytes(serialization.Encoding.PEM), _key_pem(key)


def read_facts(data: Mapping[str, bytes]) -> Facts | None:
    """Return what the certificate in a Secret's data says; None when a key is missing, unreadable or another's."""
    try:
        certificate = x509.load_pem_x509_certificate(data["tls.crt"])
        key = serialization.load_pem_private_key(data["tls.key"], None)
        trusted = x509.load_pem_x509_certificates(data["ca.crt"])
        if key.public_key() != certificate.public_key():
            return None
        return Facts(
            not_before=certificate.not_valid_before_utc.timestamp(),
            not_after=certificate.not_valid_after_utc.timestamp(),
            dns_names=_names(certificate, x509.DNSName),
            uris=_names(certificate, x509.UniformResourceIdentifier),
            signed_by=_authority_key_id(certificate),
            trusts=tuple(subject_key_id(each) for each in trusted),
        )
    except UNREADABLE:
        return None


def signers_of(held: Sequence[Mapping[str, bytes]]) -> tuple[tuple[bytes, ...], float]:
    """Return the authorities that signed what some Secrets hold, as PEM, and when the last of these certificates ends.

    Args:
        held: data of the Secrets, each with its own `ca.crt`; from whoever may name an authority, since it is believed.
    """
    found: dict[bytes, None] = {}
    until = 0.0
    for data in held:
        facts = read_facts(data)
        if facts is None:
            continue
        until = max(until, facts.not_after)
        for each in certificates_in(data["ca.crt"]):
            if subject_key_id(x509.load_pem_x509_certificate(each)) == facts.signed_by:
                found[each] = None
    return tuple(found), until


def is_due(certificate: bytes, now: float) -> bool:
    """Tell whether two thirds of a certificate's life are over."""
    begins, ends = _begins(certificate), _ends(certificate)
    return now >= begins + (ends - begins) * RENEW_AT


def to_data(authority: Authority) -> dict[str, bytes]:
    """Return the authority as a Secret holds it."""
    data = {"ca.crt": authority.bundle, "tls.crt": authority.current.certificate, "tls.key": authority.current.key}
    if authority.next is not None:
        data |= {"next.crt": authority.next.certificate, "next.key": authority.next.key}
    if authority.old:
        data["old.crt"] = b"".join(authority.old)
    if authority.old_until is not None:
        data["old.until"] = str(int(authority.old_until)).encode()
    return data


def from_data(data: Mapping[str, bytes]) -> Authority | None:
    """Return the authority that a Secret holds, None when it holds none that can be read."""
    try:
        current = Signer(certificate=data["tls.crt"], key=data["tls.key"])
        _check(current)
        following = None
        if data.get("next.crt") and data.get("next.key"):
            following = Signer(certificate=data["next.crt"], key=data["next.key"])
            _check(following)
    except UNREADABLE:
        return None
    old = certificates_in(data.get("old.crt", b""))
    if data.get("old.crt") and not old:
        return None
    told = data.get("old.until", b"")
    until = int(told) if old and told.isdigit() and len(told) <= UNTIL_DIGITS_MAX else None
    return Authority(current=current, next=following, old=old, old_until=until)


def certificates_in(bundle: bytes) -> tuple[bytes, ...]:
    """Return the certificates of a bundle, each as PEM; none where it can't be read."""
    try:
        found = x509.load_pem_x509_certificates(bundle)
        for each in found:
            subject_key_id(each)  # by which it will be told from others
    except UNREADABLE:
        return ()
    return tuple(each.public_bytes(serialization.Encoding.PEM) for each in found)


def subject_key_id(certificate: x509.Certificate) -> str:
    """Return a certificate's own key id, hex; of its public key where it names none."""
    try:
        return certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest.hex()
    except x509.ExtensionNotFound:
        return x509.SubjectKeyIdentifier.from_public_key(certificate.public_key()).digest.hex()


def _authority_key_id(certificate: x509.Certificate) -> str:
    try:
        found = certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier
    except x509.ExtensionNotFound:
        return ""
    return found.hex() if found else ""


def _names(certificate: x509.Certificate, kind: type[x509.DNSName | x509.UniformResourceIdentifier]) -> tuple[str, ...]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(names.get_values_for_type(kind))


def _check(signer: Signer) -> None:
    """Raise one of UNREADABLE when key and certificate do not belong together, or can't sign."""
    key = serialization.load_pem_private_key(signer.key, None)
    if not isinstance(key, SIGNING_KEYS):
        raise ValueError("the authority's key is neither EC nor RSA")  # noqa: TRY004 - its caller reads foreign bytes
    certificate = x509.load_pem_x509_certificate(signer.certificate)
    if key.public_key() != certificate.public_key():
        raise ValueError("the authority's key is another certificate's")
    subject_key_id(certificate)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=0)


def _begins(certificate: bytes) -> float:
    return x509.load_pem_x509_certificate(certificate).not_valid_before_utc.timestamp()


def _ends(certificate: bytes) -> float:
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc.timestamp()

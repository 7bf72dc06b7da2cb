"""The lock store's certificates: made once, renewed in time, never of an authority that is not stored."""

from __future__ import annotations

import asyncio
import copy
import ssl
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from deathless.base.errors import InvalidConfig
from deathless_operator.cli.certificates import AUTHORITY_LIFE_S, DAY_S, USER_URI, Wanted, ensure
from deathless_operator.cluster.errors import Conflict
from deathless_operator.cluster.kinds import Kind
from deathless_operator.cluster.trust import decoded, encoded

NOW = 1_800_000_000.0
SERVED = ("localhost", "deathless-lock-store-0.deathless-lock-store-members")
SERVER = Wanted(
    secret="tls", common_name="deathless-lock-store", dns_names=SERVED, purpose="replicas", life_s=90 * DAY_S
)
CLIENT = Wanted(secret="client", common_name="deathless-replica", dns_names=(), purpose="clients", life_s=90 * DAY_S)


class Secrets:
    """The Secrets of one namespace, with versions as the API server keeps them."""

    def __init__(self) -> None:
        self.stored: dict[str, dict[str, Any]] = {}
        self.writes = 0

    async def find(self, kind: Kind, namespace: str | None, name: str) -> dict[str, Any] | None:
        assert (kind.kind, namespace) == ("Secret", "system")
        return copy.deepcopy(self.stored.get(name))

    async def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        if manifest["metadata"]["name"] in self.stored:
            raise Conflict("it is there", status=409)
        return self._write(manifest)

    async def replace(self, manifest: dict[str, Any]) -> dict[str, Any]:
        before = self.stored[manifest["metadata"]["name"]]
        if manifest["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]:
            raise Conflict("it was changed", status=409)
        return self._write(manifest)

    def _write(self, manifest: dict[str, Any]) -> dict[str, Any]:
        self.writes += 1
        written = copy.deepcopy(manifest)
        written["metadata"]["resourceVersion"] = str(self.writes)
        self.stored[written["metadata"]["name"]] = written
        return written

    def certificate(self, name: str) -> x509.Certificate:
        return x509.load_pem_x509_certificate(decoded(self.stored[name])["tls.crt"])


def run(secrets: Secrets, *wanted: Wanted, now: float = NOW) -> list[str]:
    """Run the command's work once."""
    return asyncio.run(ensure(secrets, namespace="system", ca_secret="ca", wanted=wanted or (SERVER, CLIENT), now=now))


def uses(certificate: x509.Certificate) -> set[x509.ObjectIdentifier]:
    return set(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)


def test_first_run_makes_authority_and_both_certificates() -> None:
    secrets = Secrets()
    assert len(run(secrets)) == 3
    server, client = secrets.certificate("tls"), secrets.certificate("client")
    assert uses(server) == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    assert uses(client) == {ExtendedKeyUsageOID.CLIENT_AUTH}
    assert server.subject.rfc4514_string() == "CN=deathless-lock-store"
    assert client.subject.rfc4514_string() == "CN=deathless-replica"
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert tuple(names.get_values_for_type(x509.DNSName)) == SERVED
    with pytest.raises(x509.ExtensionNotFound):
        client.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    for name in ("tls", "client"):
        secrets.certificate(name).verify_directly_issued_by(secrets.certificate("ca"))
        assert ssl.create_default_context(cadata=decoded(secrets.stored[name])["ca.crt"].decode()).cert_store_stats()[
            "x509"
        ]


def test_client_secret_never_holds_the_authority_key() -> None:
    secrets = Secrets()
    run(secrets)
    key = decoded(secrets.stored["ca"])["tls.key"]
    assert all(key not in decoded(secrets.stored[name]).values() for name in ("tls", "client"))


def test_second_run_changes_nothing() -> None:
    secrets = Secrets()
    run(secrets)
    before = copy.deepcopy(secrets.stored)
    assert run(secrets, now=NOW + 59 * DAY_S) == []
    assert secrets.stored == before


def test_certificates_are_renewed_at_two_thirds_and_the_authority_stays() -> None:
    secrets = Secrets()
    run(secrets)
    before = copy.deepcopy(secrets.stored)
    done = run(secrets, now=NOW + 61 * DAY_S)
    assert [line.split(":")[0] for line in done] == ["Secret tls", "Secret client"]
    assert secrets.stored["ca"] == before["ca"]
    assert secrets.stored["tls"] != before["tls"]


def test_other_names_are_signed_at_once() -> None:
    secrets = Secrets()
    run(secrets)
    more = Wanted(
        secret="tls", common_name="deathless-lock-store", dns_names=("a", "b"), purpose="replicas", life_s=DAY_S
    )
    assert run(secrets, more, CLIENT) == ["Secret tls: made again for other names."]


def test_unreadable_certificate_is_made_again() -> None:
    secrets = Secrets()
    run(secrets)
    secrets.stored["tls"]["data"]["tls.key"] = encoded({"x": b"nonsense"})["x"]
    assert run(secrets) == ["Secret tls: made again, it could not be read."]


def test_unreadable_authority_is_refused_not_replaced() -> None:
    secrets = Secrets()
    run(secrets)
    secrets.stored["ca"]["data"] = {}
    before = copy.deepcopy(secrets.stored)
    with pytest.raises(InvalidConfig, match="system/ca"):
        run(secrets)
    assert secrets.stored == before


def test_authority_of_the_user_signs_and_is_never_changed() -> None:
    secrets = Secrets()
    run(secrets)
    del secrets.stored["ca"]["metadata"]["labels"]
    before = copy.deepcopy(secrets.stored["ca"])
    assert len(run(secrets, now=NOW + AUTHORITY_LIFE_S * 0.9)) == 2
    assert secrets.stored["ca"] == before


def test_next_authority_is_trusted_before_it_signs() -> None:
    secrets = Secrets()
    run(secrets)
    late = NOW + AUTHORITY_LIFE_S * 0.67
    run(secrets, now=late)
    first = secrets.certificate("ca")
    secrets.certificate("tls").verify_directly_issued_by(first)
    assert decoded(secrets.stored["tls"])["ca.crt"].count(b"BEGIN CERTIFICATE") == 2
    run(secrets, now=late + 8 * DAY_S)
    assert secrets.certificate("ca") != first
    secrets.certificate("tls").verify_directly_issued_by(secrets.certificate("ca"))


def test_authority_that_was_deleted_stays_trusted_and_certificates_stay_for_a_day() -> None:
    secrets = Secrets()
    run(secrets)
    first = secrets.certificate("ca")
    before = {name: decoded(secrets.stored[name]) for name in ("tls", "client")}
    del secrets.stored["ca"]
    done = run(secrets, now=NOW + DAY_S)
    assert [line.partition(": ")[2] for line in done[1:]] == ["given the authorities that are trusted now."] * 2
    second = secrets.certificate("ca")
    assert second != first
    for name, data in before.items():
        now = decoded(secrets.stored[name])
        assert (now["tls.crt"], now["tls.key"]) == (data["tls.crt"], data["tls.key"])
        assert x509.load_pem_x509_certificates(now["ca.crt"]) == [second, first]
    assert run(secrets, now=NOW + 2 * DAY_S - 1) == []
    assert len(run(secrets, now=NOW + 8 * DAY_S)) == 2
    for name in before:
        secrets.certificate(name).verify_directly_issued_by(second)
        assert len(x509.load_pem_x509_certificates(decoded(secrets.stored[name])["ca.crt"])) == 2
    done = run(secrets, now=NOW + 91 * DAY_S)
    assert "no longer trusted" in done[0]
    assert x509.load_pem_x509_certificates(decoded(secrets.stored["tls"])["ca.crt"]) == [second]


def test_authority_that_was_deleted_with_its_certificates_is_not_trusted() -> None:
    secrets = Secrets()
    run(secrets)
    secrets.stored.clear()
    run(secrets)
    for name in ("tls", "client"):
        assert x509.load_pem_x509_certificates(decoded(secrets.stored[name])["ca.crt"]) == [secrets.certificate("ca")]


def test_certificate_that_ends_within_the_day_is_replaced_though_the_authority_is_new() -> None:
    secrets = Secrets()
    run(secrets)
    del secrets.stored["ca"]
    late = NOW + 90 * DAY_S - 3600
    done = run(secrets, now=late)
    assert [line.partition(": ")[2] for line in done[1:]] == ["renewed, two thirds of its life are over."] * 2


def test_of_two_runs_at_once_the_second_fails_and_leaves_what_the_first_stored() -> None:
    secrets = Secrets()
    other = Secrets()
    run(other)

    async def overtaken(kind: Kind, namespace: str | None, name: str) -> None:
        secrets.stored = copy.deepcopy(other.stored)

    secrets.find = overtaken  # type: ignore[method-assign]
    with pytest.raises(Conflict):
        run(secrets)
    assert secrets.stored == other.stored


def test_certificate_of_those_who_log_in_has_no_common_name_and_is_renewed_like_others() -> None:
    user = Wanted(secret="user", common_name="", dns_names=(), uris=(USER_URI,), purpose="clients", life_s=90 * DAY_S)
    secrets = Secrets()
    run(secrets, user)
    certificate = secrets.certificate("user")
    assert certificate.subject.rfc4514_string() == ""
    named = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert named.critical and named.value.get_values_for_type(x509.UniformResourceIdentifier) == [USER_URI]
    assert run(secrets, user) == []
    assert run(secrets, user, now=NOW + 61 * DAY_S) == ["Secret user: renewed, two thirds of its life are over."]

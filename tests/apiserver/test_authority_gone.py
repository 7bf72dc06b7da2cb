"""The authority's Secret deleted by hand, spoilt, or taken away as the page says, on a real API server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from etcd_server import wait_until
from operator_process import OperatorProcess
from real_api_server import Reached, RealApiServer
from test_refused import denying
from test_services import conditions, exists, make_service
from tests.cluster.pages import block, walk

from deathless_operator.cluster import authority
from deathless_operator.cluster.api import Api
from deathless_operator.cluster.kinds import CONFIG_MAP, SECRET
from deathless_operator.cluster.trust import Trust, certificate_facts, decoded, encoded
from deathless_operator.model import names
from deathless_operator.model.values import JsonObject
from deathless_operator.plan.actions import IssueCertificate, TrustAuthorities

pytestmark = pytest.mark.apiserver

NOW, LIFE, CERTIFICATE_LIFE = 1_800_000_000.0, 3e7, 3e6
PAGE = "kubernetes/certificates.md"


class Installation:
    """An authority, and the certificate that it signed for one service."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api, self.namespace = api, namespace
        self.trust = self.restarted()

    def restarted(self) -> Trust:
        """An operator that remembers nothing."""
        self.trust = Trust(self.api, namespace=self.namespace, life_s=LIFE, certificate_life_s=CERTIFICATE_LIFE)
        return self.trust

    async def begin(self) -> str:
        """Make the authority and a certificate; gives the authority's key id."""
        await self.trust.maintain(NOW)
        place: JsonObject = {"namespace": self.namespace, "name": "bank-tls"}
        secret: JsonObject = {"apiVersion": "v1", "kind": "Secret", "metadata": place}
        await self.trust.issue(
            IssueCertificate(
                manifest=secret, purpose="replicas", common_name="bank", dns_names=("bank",), uris=(),
                life_s=int(CERTIFICATE_LIFE), why="there is none yet",
            ), NOW,
        )  # fmt: skip
        return self.trust.facts().signs

    async def held(self) -> dict[str, bytes]:
        """What the service's Secret holds."""
        return decoded(await self.api.get(SECRET, self.namespace, "bank-tls"))

    async def patch(self, change: dict[str, Any]) -> None:
        """Somebody edits the authority's Secret."""
        await self.api.patch(SECRET, self.namespace, names.AUTHORITY_SECRET, change)


@pytest.mark.asyncio
@pytest.mark.parametrize("by", ["delete", "spoil"])
async def test_authority_that_is_gone_stays_trusted_and_what_it_signed_stays(
    api_server: RealApiServer, namespace: str, by: str
) -> None:
    async with Api(api_server.connection()) as api:
        place = Installation(api, namespace)
        first, before = await place.begin(), await place.held()
        if by == "delete":
            await api.delete(SECRET, namespace, names.AUTHORITY_SECRET)
        else:
            await place.patch({"data": encoded({"tls.key": b"nonsense"})})
        said = await place.restarted().maintain(NOW + 60)
        facts = place.trust.facts()
        assert said is not None and "stays trusted until" in said
        assert facts.signs != first and set(facts.trusts) == {facts.signs, first}
        assert facts.signs_from == NOW + 60 + authority.OVERLAP_S
        uid = str((await api.get(SECRET, namespace, "bank-tls"))["metadata"]["uid"])
        await place.trust.trust(namespace, TrustAuthorities(secret="bank-tls", uid=uid, why="has changed"))
        after = await place.held()
        assert after == before | {"ca.crt": after["ca.crt"]}
        read = authority.read_facts(after)
        assert read is not None and read.signed_by == first and set(read.trusts) == set(facts.trusts)
        assert await place.restarted().maintain(NOW + 60 + CERTIFICATE_LIFE - 1) is None
        assert await place.restarted().maintain(NOW + 60 + CERTIFICATE_LIFE) is not None
        assert place.trust.facts().trusts == (facts.signs,)


@pytest.mark.asyncio
async def test_authority_that_is_taken_away_is_trusted_no_more_and_does_not_come_back(
    api_server: RealApiServer, namespace: str
) -> None:
    async with Api(api_server.connection()) as api:
        place = Installation(api, namespace)
        first = await place.begin()
        server = Reached(api_server)
        walk(server, block(PAGE, "An authority that is gone, or taken away"), **{"deathless-system": namespace})
        said = await place.restarted().maintain(NOW + 60)
        second = place.trust.facts()
        assert said is not None and "no longer trusted" in said
        assert second.trusts == (second.signs,) and second.signs != first and second.signs_from == 0.0
        assert await place.restarted().maintain(NOW + 90) is None, "the annotation went with the former one"
        await api.delete(SECRET, namespace, names.AUTHORITY_SECRET)
        await place.restarted().maintain(NOW + 120)
        assert first not in place.trust.facts().trusts and second.signs in place.trust.facts().trusts


@pytest.mark.asyncio
async def test_overlap_is_ended_by_taking_the_former_authority_out(api_server: RealApiServer, namespace: str) -> None:
    async with Api(api_server.connection()) as api:
        place = Installation(api, namespace)
        first = await place.begin()
        await api.delete(SECRET, namespace, names.AUTHORITY_SECRET)
        await place.trust.maintain(NOW + 60)
        assert first in place.trust.facts().trusts
        server = Reached(api_server)
        walk(server, block(PAGE, "An authority that is gone, or taken away", 1), **{"deathless-system": namespace})
        await place.trust.maintain(NOW + 75)
        assert place.trust.facts().trusts == (place.trust.facts().signs,)
        assert place.trust.facts().signs_from == 0.0, "who is trusted alone signs"


@pytest.mark.asyncio
async def test_without_secret_and_note_nobody_of_before_is_trusted(api_server: RealApiServer, namespace: str) -> None:
    async with Api(api_server.connection()) as api:
        place = Installation(api, namespace)
        first = await place.begin()
        await api.delete(SECRET, namespace, names.AUTHORITY_SECRET)
        await api.delete(CONFIG_MAP, namespace, names.AUTHORITY_CONFIG_MAP)
        await place.trust.maintain(NOW + 60)
        assert first not in place.trust.facts().trusts


@pytest.mark.asyncio
async def test_note_that_is_refused_keeps_nobody_from_having_certificates(
    api_server: RealApiServer, namespace: str
) -> None:
    written = {"metadata": {"name": "written"}}
    api_server.request("POST", CONFIG_MAP.path(namespace), written)
    with denying(api_server, namespace, CONFIG_MAP, "written"):
        async with Api(api_server.connection()) as api:
            place = Installation(api, namespace)
            assert await place.begin()
            assert await place.trust.maintain(NOW + 60) is None
            assert not exists(api_server, CONFIG_MAP, namespace, names.AUTHORITY_CONFIG_MAP)


def test_running_operator_overlaps_what_was_deleted_and_drops_what_was_taken_away(
    api_server: RealApiServer, namespace: str, tmp_path: Path
) -> None:
    def secret(name: str) -> dict[str, Any]:
        found: dict[str, Any] = api_server.request("GET", SECRET.path(namespace, name))
        return found

    def trusts(name: str) -> list[x509.Certificate]:
        return x509.load_pem_x509_certificates(decoded(secret(name))["ca.crt"])

    def signer() -> str:
        return certificate_facts(secret("bank-tls")).signed_by

    arguments = (f"--watch-namespaces={namespace}", "--lock-endpoints=http://lock.test:2379")
    with OperatorProcess(api_server, tmp_path, namespace, *arguments) as operator:
        operator.wait_leading()
        make_service(api_server, namespace)
        wait_until(lambda: exists(api_server, SECRET, namespace, "bank-client-tls"), f"see {operator.log}")
        before, first = decoded(secret("bank-tls")), signer()
        api_server.request("DELETE", SECRET.path(namespace, names.AUTHORITY_SECRET))
        held = ("bank-tls", "bank-client-tls")
        wait_until(lambda: all(len(trusts(name)) == 2 for name in held), f"they name both, see {operator.log}")
        assert (decoded(secret("bank-tls"))["tls.crt"], signer()) == (before["tls.crt"], first)
        told = {each["type"]: each for each in conditions(api_server, namespace)}["CertificateReady"]
        assert "Secret was gone and is new" in told["message"]
        server = Reached(api_server)
        walk(server, block(PAGE, "An authority that is gone, or taken away"), **{"deathless-system": namespace})
        wait_until(lambda: len(trusts("bank-tls")) == 1 and signer() != first, f"it is replaced, see {operator.log}")

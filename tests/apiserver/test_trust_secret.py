"""The authority's Secret on a real API server: made once, changed as read, a user's own left alone."""

from __future__ import annotations

from typing import Any

import pytest
from real_api_server import RealApiServer

from deathless.base.errors import InvalidConfig
from deathless_operator.cluster import authority
from deathless_operator.cluster.api import Api
from deathless_operator.cluster.errors import Conflict, NotFound
from deathless_operator.cluster.kinds import SECRET
from deathless_operator.cluster.trust import Trust, decoded, encoded
from deathless_operator.plan.actions import CopySecret, IssueCertificate, MakeToken

pytestmark = [pytest.mark.apiserver, pytest.mark.asyncio]

NOW, LIFE = 1_800_000_000.0, 3e7


def manifest(namespace: str, name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": namespace, "name": name}}


def wanted(namespace: str) -> IssueCertificate:
    return IssueCertificate(
        manifest=manifest(namespace, "bank-tls"),
        purpose="replicas",
        common_name="bank",
        dns_names=("bank",),
        uris=("spiffe://cluster.local/ns/shop/service/bank/replica",),
        life_s=86400,
        why="there is none yet",
    )


async def test_authority_is_made_once_and_found_again(api_server: RealApiServer, namespace: str) -> None:
    async with Api(api_server.connection()) as api:
        first, second = (Trust(api, namespace=namespace, life_s=LIFE, certificate_life_s=86400) for _ in range(2))
        assert not first.facts().ready
        assert await first.maintain(NOW) is not None
        assert await second.maintain(NOW) is None
        assert first.facts() == second.facts() and first.facts().ready


async def test_two_that_make_one_at_once_cannot_both_store_it(api_server: RealApiServer, namespace: str) -> None:
    async with Api(api_server.connection()) as api:
        trust = Trust(api, namespace=namespace, life_s=LIFE, certificate_life_s=86400)
        await trust.maintain(NOW)
        stale = await api.get(SECRET, namespace, "deathless-ca")
        await api.patch(SECRET, namespace, "deathless-ca", {"metadata": {"labels": {"a": "b"}}})
        made, _ = authority.maintained(None, NOW, LIFE)
        with pytest.raises(Conflict):
            await trust._store(stale, made)
        with pytest.raises(Conflict):
            await trust._store(None, made)


async def test_due_authority_gets_a_successor_that_certificates_trust(
    api_server: RealApiServer, namespace: str
) -> None:
    async with Api(api_server.connection()) as api:
        trust = Trust(api, namespace=namespace, life_s=LIFE, certificate_life_s=86400)
        await trust.maintain(NOW)
        before = trust.facts()
        assert await trust.maintain(NOW + LIFE * 0.7) is not None
        after = trust.facts()
        assert after.signs == before.signs and len(after.trusts) == 2
        await trust.issue(wanted(namespace), NOW)
        facts = authority.read_facts(decoded(await api.get(SECRET, namespace, "bank-tls")))
        assert facts is not None and facts.signed_by == before.signs and set(facts.trusts) == set(after.trusts)


async def test_users_own_authority_signs_and_is_never_changed(api_server: RealApiServer, namespace: str) -> None:
    own, _ = authority.maintained(None, NOW, LIFE)
    async with Api(api_server.connection()) as api:
        await api.create(manifest(namespace, "deathless-ca") | {"data": encoded(authority.to_data(own))})
        trust = Trust(api, namespace=namespace, life_s=LIFE, certificate_life_s=86400)
        assert await trust.maintain(NOW + LIFE * 0.9) is None
        assert trust.facts().signs == own.current.key_id and len(trust.facts().trusts) == 1
        await api.patch(SECRET, namespace, "deathless-ca", {"data": encoded({"tls.key": b"broken"})})
        with pytest.raises(InvalidConfig, match="deathless-ca"):
            await trust.maintain(NOW)


async def test_secret_is_copied_with_its_values_and_a_missing_one_is_refused(
    api_server: RealApiServer, namespace: str
) -> None:
    async with Api(api_server.connection()) as api:
        await api.create(manifest(namespace, "source") | {"data": encoded({"username": b"bank"})})
        trust = Trust(api, namespace=namespace, life_s=LIFE, certificate_life_s=86400)
        copy = manifest(namespace, "copy")
        await trust.copy(CopySecret(source="source", manifest=copy, why="it has changed"))
        assert decoded(await api.get(SECRET, namespace, "copy")) == {"username": b"bank"}
        with pytest.raises(NotFound):
            await trust.copy(CopySecret(source="none", manifest=copy, why="it has changed"))


async def test_token_is_made_once_and_never_replaced(api_server: RealApiServer, namespace: str) -> None:
    async with Api(api_server.connection()) as api:
        trust = Trust(api, namespace=namespace, life_s=LIFE, certificate_life_s=86400)
        action = MakeToken(manifest=manifest(namespace, "bank-operator-token"), why="there is none")
        await trust.make_token(action)
        first = decoded(await api.get(SECRET, namespace, "bank-operator-token"))
        await trust.make_token(action)
        assert decoded(await api.get(SECRET, namespace, "bank-operator-token")) == first
        assert len(first["token"]) >= 32

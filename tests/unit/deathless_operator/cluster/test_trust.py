"""What plans may know of Secrets; the authority's own Secret is tried in tests/apiserver/test_trust_secret.py."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from deathless_operator.cluster import authority
from deathless_operator.cluster.errors import NotFound, Unacceptable
from deathless_operator.cluster.kinds import CONFIG_MAP, Kind
from deathless_operator.cluster.trust import (
    Trust,
    certificate_facts,
    decoded,
    encoded,
    is_managed,
    is_withdrawn,
    login_of,
    secret_facts,
)
from deathless_operator.model import names
from deathless_operator.plan.actions import CopySecret

NOW = 1_800_000_000.0


def secret(data: dict[str, bytes], *, managed: bool = True) -> dict[str, Any]:
    labels = {names.LABEL_MANAGED_BY: names.FIELD_MANAGER} if managed else {}
    meta = {"name": "bank-tls", "uid": "u1", "labels": labels, "annotations": {names.SOURCE_ANNOTATION: "d1"}}
    return {"metadata": meta, "data": encoded(data)}


def signed() -> tuple[authority.Authority, dict[str, bytes]]:
    made, _ = authority.maintained(None, NOW, 1e7)
    pem = authority.issue(made, common_name="bank", dns_names=["bank"], purpose="replicas", now=NOW, life_s=1e6)
    return made, {"ca.crt": made.bundle, "tls.crt": pem[0], "tls.key": pem[1]}


def test_certificate_is_told_without_its_key() -> None:
    made, data = signed()
    facts = certificate_facts(secret(data))
    assert (facts.secret, facts.uid, facts.readable, facts.managed) == ("bank-tls", "u1", True, True)
    assert facts.signed_by == made.current.key_id and facts.trusts == made.trusts and facts.dns_names == ("bank",)
    assert data["tls.key"].decode() not in repr(facts)


def test_certificate_that_cannot_be_read_says_so() -> None:
    _, data = signed()
    assert not certificate_facts(secret(data | {"tls.crt": b"x"})).readable
    assert not certificate_facts({"metadata": {"name": "bank-tls"}}).readable


def test_digest_follows_keys_and_values_and_tells_neither() -> None:
    facts = secret_facts(secret({"username": b"bank", "password": b"hunter2"}, managed=False))
    assert facts.keys == ("password", "username") and facts.source == "d1" and not facts.managed
    assert "hunter2" not in repr(facts) and encoded({"x": b"hunter2"})["x"] not in repr(facts)
    others = [
        {"username": b"bank", "password": b"hunter3"},
        {"username": b"bank"},
        {"usernamepassword": b"bankhunter2"},
    ]
    assert len({facts.digest, *(secret_facts(secret(each)).digest for each in others)}) == 4
    assert facts.digest == secret_facts(secret({"password": b"hunter2", "username": b"bank"})).digest


def test_values_that_are_no_base64_are_left_out() -> None:
    assert decoded({"metadata": {}, "data": {"good": "YQ==", "bad": "%%"}}) == {"good": b"a"}
    assert not is_managed({"metadata": {}})


TABLE = {"shop.bank": b"of bank", "shop.cafe": b"of cafe", "shop.new.drawn": b"not granted"}


def test_login_is_one_services_and_its_digest_follows_nobody_elses() -> None:
    login = login_of(secret(TABLE), "shop.bank")
    assert login is not None and decoded(login) == {"username": b"shop.bank", "password": b"of bank"}
    other = login_of(secret(TABLE | {"shop.cafe": b"changed"}), "shop.bank")
    assert other is not None and secret_facts(login).digest == secret_facts(other).digest
    assert login_of(secret(TABLE), "shop.new") is None and login_of(None, "shop.bank") is None
    withdrawn = secret(TABLE)
    assert not is_withdrawn(withdrawn)
    withdrawn["metadata"]["annotations"][names.WITHDRAWN_ANNOTATION] = "true"
    assert is_withdrawn(withdrawn)


class Kept:
    """An API server that holds the table, and what is applied."""

    def __init__(self) -> None:
        self.applied: list[dict[str, Any]] = []

    async def get(self, *_: object) -> dict[str, Any]:
        return secret(TABLE)

    async def apply(self, manifest: dict[str, Any], *, force: bool) -> None:
        assert force
        self.applied.append(manifest)


class Refusing:
    """An API server that notes authorities, and takes no Secret."""

    def __init__(self) -> None:
        self.notes: list[dict[str, Any]] = []
        self.refuses = True

    async def find(self, kind: Kind, namespace: str, name: str) -> dict[str, Any] | None:
        return self.notes[-1] if kind is CONFIG_MAP and self.notes else None

    async def apply(self, manifest: dict[str, Any], *, force: bool) -> None:
        self.notes.append(manifest)

    async def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        if self.refuses:
            raise Unacceptable("a quota", status=403)
        return manifest


def test_authority_that_could_not_be_stored_is_not_trusted_later() -> None:
    server = Refusing()
    trust = Trust(server, namespace="ops", life_s=1e7, certificate_life_s=1e6)  # type: ignore[arg-type]  # as far as asked
    for _ in range(2):
        with pytest.raises(Unacceptable):
            asyncio.run(trust.maintain(NOW))
    assert server.notes == []
    server.refuses = False
    asyncio.run(trust.maintain(NOW))
    assert trust.facts().trusts == (trust.facts().signs,) and len(server.notes) == 1


def test_service_is_handed_its_own_login_and_no_other() -> None:
    kept = Kept()
    trust = Trust(kept, namespace="ops", life_s=1.0, certificate_life_s=1.0)  # type: ignore[arg-type]  # as far as asked
    action = CopySecret(source=names.LOCK_USERS_SECRET, manifest={"kind": "Secret"}, why="", user="shop.bank")
    asyncio.run(trust.copy(action))
    assert decoded(kept.applied[0]) == {"username": b"shop.bank", "password": b"of bank"}
    with pytest.raises(NotFound, match=r"no user shop\.new"):
        asyncio.run(trust.copy(CopySecret(source="t", manifest={"kind": "Secret"}, why="", user="shop.new")))

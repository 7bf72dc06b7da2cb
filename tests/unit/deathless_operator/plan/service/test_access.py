"""Where a service's lock store is, and what its pods mount to open it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from tests.unit.deathless_operator.plan.plan_world import SETTINGS, SPEC, World

from deathless_operator.model.settings import OperatorSettings
from deathless_operator.plan.actions import CopySecret
from deathless_operator.plan.service.access import Access, plan_access, store_mark
from deathless_operator.plan.service.objects import Objects
from deathless_operator.plan.snapshot import SecretFacts

COPY = f"bank-lock-tls-{store_mark(SETTINGS)}"
USER = msgspec.structs.replace(SETTINGS, lock_user_secret="etcd-user")


def access(world: World, settings: OperatorSettings = SETTINGS) -> Access:
    """What is planned."""
    snapshot = world.snapshot()
    assert snapshot.resource.spec is not None
    objects = Objects(snapshot.resource, snapshot.resource.spec, settings)
    return plan_access(snapshot, snapshot.resource.spec, settings, objects)


def named(**etcd: Any) -> World:
    """A service that names its own store."""
    return World(spec={**SPEC, "lock": {"etcd": {"endpoints": ["https://e:2379"], **etcd}}})


def test_installation_store_is_used_with_a_copy_of_its_secret() -> None:
    found = access(World())
    assert found.lock is not None
    assert (found.lock.endpoints, found.lock.prefix) == (SETTINGS.lock_endpoints, "/deathless/prod/")
    assert (found.lock.tls_secret, found.lock.tls_has_certificate) == (COPY, True)
    (action,) = found.actions
    assert isinstance(action, CopySecret)
    assert action.source == "etcd-client"


@pytest.mark.parametrize(("source", "digest", "copies"), [("d1", "d1", 0), ("d0", "d0", 1), ("d1", "edited", 1)])
def test_copy_follows_its_source(source: str, digest: str, copies: int) -> None:
    world = World()
    world.secrets[COPY] = SecretFacts(name=COPY, source=source, digest=digest, managed=True)
    assert len(access(world).actions) == copies


def test_copy_outlives_its_source() -> None:
    world = World()
    world.sources.clear()
    assert access(world).reason == "SecretMissing"
    world.secrets[COPY] = SecretFacts(name=COPY, source="d0", managed=True, keys=("ca.crt",))
    found = access(world)
    assert found.lock is not None
    assert (found.lock.tls_has_certificate, found.actions) == (False, ())


def test_secret_of_somebody_else_is_not_overwritten() -> None:
    world = World()
    world.secrets[COPY] = SecretFacts(name=COPY)
    assert access(world).reason == "SecretNotOurs"


def test_user_of_the_installation_is_copied_too() -> None:
    world = World()
    world.sources["etcd-user"] = SecretFacts(name="etcd-user", keys=("username", "password"), digest="d2")
    found = access(world, USER)
    assert found.lock is not None
    assert (found.lock.user_secret, len(found.actions)) == (f"bank-lock-user-{store_mark(USER)}", 2)


def test_named_store_needs_no_copies() -> None:
    found = access(named(prefix="/x/", leaseTtlS=7))
    assert (found.lock.prefix, found.lock.lease_ttl_s, found.lock.tls_secret) == ("/x/", 7, "")  # type: ignore[union-attr]


def test_named_secret_that_may_not_be_looked_at_asks_its_owner_only_where_its_keys_decide() -> None:
    world = named(tlsSecretRef={"name": "tls"}, userSecretRef={"name": "user"})
    world.secrets["user"] = SecretFacts(name="user", hidden=True)
    world.secrets["tls"] = SecretFacts(name="tls", hidden=True)
    found = access(world)
    assert (found.lock, found.reason) == (None, "SecretHidden")
    assert "kubectl label secret tls deathless.dev/readable=true" in found.message
    world.secrets["tls"] = SecretFacts(name="tls", keys=("ca.crt",))
    lock = access(world).lock
    assert lock is not None and (lock.tls_secret, lock.user_secret) == ("tls", "user")


def test_named_secrets_must_be_there_and_whole() -> None:
    world = named(tlsSecretRef={"name": "tls"}, userSecretRef={"name": "user"})
    assert "tlsSecretRef names Secret tls" in access(world).message
    world.secrets["tls"] = SecretFacts(name="tls", keys=("ca.crt",))
    assert "userSecretRef names Secret user" in access(world).message
    world.secrets["user"] = SecretFacts(name="user", keys=("username",))
    assert (access(world).reason, access(world).lock) == ("SecretIncomplete", None)
    world.secrets["user"] = replace(world.secrets["user"], keys=("username", "password"))
    found = access(world).lock
    assert found is not None
    assert (found.tls_secret, found.tls_has_certificate, found.user_secret) == ("tls", False, "user")

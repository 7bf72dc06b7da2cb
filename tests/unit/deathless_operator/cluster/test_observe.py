"""What is looked for; how it is read stands in tests/apiserver/test_seeing.py, on a real API server."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from tests.unit.deathless_operator.plan.plan_world import running

from deathless.base.manifest import ServiceSpec
from deathless.base.manifest_parts import Driver, EtcdSpec, LockSpec, LogStorage, SecretKeyRef, SecretRef
from deathless.base.source_kinds.settings import Source
from deathless.base.topics.sinks import ColumnsOptions, Sink
from deathless_operator.cluster.errors import Forbidden, NotFound, Unacceptable
from deathless_operator.cluster.kinds import CERTIFICATE, CONFIG_MAP, DRILL, NETWORK_POLICY, REHEARSAL, Kind
from deathless_operator.cluster.observe import (
    LISTED,
    Observer,
    claim_name,
    expected_names,
    is_about,
    lock_copies,
    secret_names,
)
from deathless_operator.cluster.trust import secret_facts
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.plan.service.reading import show_time
from deathless_operator.plan.snapshot import Failure, Measured, Warned

NOW = 1_800_000_000.0
BACK_OFF_S = 1000.0
"""Of a controller that is refused again and again, at most (client-go, DefaultTypedControllerRateLimiter)."""


def spec(**fields: object) -> ServiceSpec:
    return ServiceSpec(module="bank:bank", image="bank:1", **fields)  # type: ignore[arg-type] # per test


def test_secrets_that_the_spec_names_are_looked_at_beside_our_own() -> None:
    etcd = EtcdSpec(
        endpoints=("https://e0:2379",),
        tls_secret_ref=SecretRef(name="etcd-tls"),
        user_secret_ref=SecretRef(name="etcd-user"),
    )
    found = secret_names("bank", spec(lock=LockSpec(etcd=etcd), token_secret_ref=SecretKeyRef(name="token")))
    assert {"etcd-tls", "etcd-user", "token", "bank-tls", "bank-client-tls"} <= found
    assert secret_names("bank", None) == secret_names("bank", spec())
    driver = Driver(name="ledger", kind="postgresql", secret_ref=SecretRef(name="db"))
    assert secret_names("bank", spec(drivers=(driver,))) == secret_names("bank", None) | {"db"}
    options = ColumnsOptions(store="postgresql", table="facts", dsn_file="facts.dsn")
    sink = Sink(name="facts", kind="columns", topic="sales", options=options, secret_ref=SecretRef(name="reports"))
    source = Source(name="in", kind="files", input="in", secret_ref=SecretRef(name="broker"))
    assert secret_names("bank", spec(sources=(source,))) == secret_names("bank", None) | {"broker"}
    assert secret_names("bank", spec(sinks=(sink,))) == secret_names("bank", None) | {"reports"}


def test_claim_is_the_specs_or_ours() -> None:
    assert claim_name("bank", spec(log_storage=LogStorage(claim_name="nfs"))) == "nfs"
    assert claim_name("bank", spec(log_storage=LogStorage(size="1Gi"))) == claim_name("bank", None) == "bank-log"


def test_policies_that_another_tool_owns_are_not_looked_for() -> None:
    assert (NETWORK_POLICY, "bank") in expected_names("bank", LISTED, network_policies=True)
    assert (NETWORK_POLICY, "bank") not in expected_names("bank", LISTED, network_policies=False)
    assert not any(kind is CERTIFICATE for kind, _ in expected_names("bank", LISTED, network_policies=True))


def test_objects_of_every_shard_are_looked_for() -> None:
    found = {(kind.kind, name) for kind, name in expected_names("bank", LISTED, 2, network_policies=True)}
    assert {("StatefulSet", "bank"), ("StatefulSet", "bank-s1"), ("Service", "bank-s1-primary")} <= found
    assert {
        ("Service", "bank-s1-replicas"),
        ("PodDisruptionBudget", "bank-s1"),
    } <= found
    assert not any(name.startswith("bank-s1") for _, name in expected_names("bank", LISTED, network_policies=True))
    warned = Warned(kind="StatefulSet", name="bank-s1", reason="r", message="m", at=0.0)
    assert is_about(warned, "bank", 2)
    assert not is_about(warned, "bank"), "it is another service's"


@pytest.mark.parametrize(
    ("kind", "name", "about"),
    [
        ("StatefulSet", "bank", True),
        ("Pod", "bank-0", True),
        ("Pod", "bank-check-1a2b", True),
        ("Pod", "bank-s1-0", True),
        ("PersistentVolumeClaim", "bank-log", True),
        ("StatefulSet", "bank-2", False),
        ("Pod", "bank-2-0", False),
        ("Pod", "bank", False),
        ("DeathlessService", "bank", False),
        ("Node", "bank", False),
    ],
)
def test_warning_is_about_a_service_by_kind_and_whole_name(kind: str, name: str, about: bool) -> None:
    assert is_about(Warned(kind=kind, name=name, reason="r", message="m", at=0.0), "bank") is about


class Refusals:
    """An API server that holds a StatefulSet's warnings, so many seconds old, and nothing else."""

    def __init__(self, *ages_s: float) -> None:
        self.ages_s = ages_s

    async def list(self, *_: object, **__: object) -> list[dict[str, object]]:
        return [
            {
                "type": "Warning",
                "reason": "FailedCreate",
                "message": "no",
                "involvedObject": {"kind": "StatefulSet", "name": "bank"},
                "lastTimestamp": show_time(NOW - age_s),
            }
            for age_s in self.ages_s
        ]


def test_warning_stands_until_its_controller_has_tried_again() -> None:
    api = Refusals(0.0, BACK_OFF_S + 300.0, 3600.0)  # it need not be served at once, and clocks differ
    settings = OperatorSettings()
    observer = Observer(api, None, settings, wall=lambda: NOW)  # type: ignore[arg-type]  # as far as they are asked
    found = asyncio.run(observer.warnings("ns", lambda each: is_about(each, "bank")))
    assert [NOW - warned.at for warned in found] == [0.0, BACK_OFF_S + 300.0]


class Lists:
    """An API server that holds nothing, and of what kinds it was asked for lists."""

    def __init__(self) -> None:
        self.kinds: list[Kind] = []

    async def list(self, kind: Kind, *_: object, **__: object) -> list[dict[str, object]]:
        self.kinds.append(kind)
        return []

    async def find(self, *_: object) -> None:
        return None

    async def look(self, *_: object) -> None:
        return None


class Hiding(Lists):
    """Another tenant's Secrets are there, and may not be looked at."""

    async def look(self, *_: object) -> None:
        raise Forbidden("look at Secret prod/x: no", status=403)


def test_secret_that_may_not_be_looked_at_is_there_and_tells_nothing() -> None:
    observer = Observer(Hiding(), None, OperatorSettings())  # type: ignore[arg-type]  # as far as they are asked
    found = asyncio.run(observer._secrets("prod", {"x", ""}, []))
    facts = [secret_facts(each) for each in found]
    assert [(each.name, each.hidden, each.managed, each.keys) for each in facts] == [("x", True, False, ())]


class Denying(Lists):
    """An admission policy denies every change of a Secret, and so a look as well."""

    async def look(self, *_: object) -> None:
        raise Unacceptable("look at Secret prod/x: denied", status=422)


def test_secret_whose_look_a_policy_denies_is_told_and_does_not_end_the_look_at_its_service() -> None:
    observer = Observer(Denying(), None, OperatorSettings())  # type: ignore[arg-type]  # as far as they are asked
    hidden: list[Failure] = []
    assert asyncio.run(observer._secrets("prod", {"x"}, hidden)) == ()
    assert [(each.kind, each.name, each.status) for each in hidden] == [("Secret", "x", 422)]


def test_certificates_are_read_as_soon_as_cert_manager_is_there_whatever_is_remembered() -> None:
    api = Lists()
    observer = Observer(api, None, OperatorSettings())  # type: ignore[arg-type]  # as far as they are asked
    resource = running().snapshot().resource

    async def read() -> None:
        for cert_manager in (False, False, True):
            await observer._belongings(resource, cert_manager=cert_manager)

    asyncio.run(read())
    assert (api.kinds.count(CONFIG_MAP), api.kinds.count(CERTIFICATE)) == (2, 1)


def test_secrets_of_services_that_log_in_are_looked_for_beside_those_of_before() -> None:
    plain = OperatorSettings(lock_endpoints=("https://e0:2379",), lock_tls_secret="client-tls")
    users = msgspec.structs.replace(plain, lock_users=True)
    before, found = lock_copies("bank", plain, []), lock_copies("bank", users, [])
    assert before < found and len(before - {""}) == 1
    assert sorted(name.rpartition("-")[0] for name in found - before) == ["bank-lock-tls", "bank-lock-user"]


class OneObject(Lists):
    """An object of one name stands there."""

    async def find(self, kind: Kind, namespace: str, name: str) -> dict[str, object] | None:  # type: ignore[override]
        self.kinds.append(kind)
        return {"metadata": {"name": name, "namespace": namespace}, "spec": {}} if name == "nightly" else None


def test_drills_that_a_ramp_names_are_looked_at_and_no_others() -> None:
    world = running()
    world.ask("second", "bank:other", ramp=[{"shards": 1, "drill": "nightly"}, {"shards": 2, "drill": "absent"}])
    world.ask("third", "bank:other", ramp=[{"shards": 1}])
    api = OneObject()
    observer = Observer(api, None, OperatorSettings())  # type: ignore[arg-type]  # as far as they are asked
    found = asyncio.run(observer._drills("prod", world.snapshot().live_upgrades))
    assert [each.name for each in found] == ["nightly"]
    assert api.kinds == [DRILL, DRILL]


def test_numbers_that_a_ramp_waits_for_are_asked_for_until_the_upgrade_has_ended() -> None:
    world = running()
    metrics = [{"name": "errors", "query": "errors", "max": 0.0}]
    world.ask("second", "bank:other", ramp=[{"shards": 1, "metrics": metrics}])
    asked: list[str] = []

    async def measure(query: str) -> Measured:
        asked.append(query)
        return Measured(value=1.0)

    async def look(phase: str) -> dict[str, Measured]:
        shard = {"shard": 0, "completionTime": "2026-01-01T00:00:00Z"}
        world.live_upgrades["second"]["status"] = {"phase": phase, "shards": [shard]}
        observer = Observer(OneObject(), None, OperatorSettings(), measure=measure)  # type: ignore[arg-type]  # likewise
        return await observer._measured(world.snapshot().live_upgrades)

    assert asyncio.run(look("Ramping")) == {"errors": Measured(value=1.0)}
    assert asyncio.run(look("Succeeded")) == {}
    assert asked == ["errors"]


def test_a_rehearsal_that_an_upgrade_names_is_looked_at() -> None:
    world = running()
    world.ask("second", "bank:other", rehearsal="nightly")
    api = OneObject()
    observer = Observer(api, None, OperatorSettings())  # type: ignore[arg-type]  # as far as they are asked
    found = asyncio.run(observer._rehearsals("prod", world.snapshot().live_upgrades))
    assert [each.name for each in found] == ["nightly"]
    assert api.kinds == [REHEARSAL]


def test_live_upgrades_are_none_where_their_kind_is_not_served() -> None:
    class Missing:
        async def list(self, *_: object) -> list[object]:
            raise NotFound("there is no such kind", status=404, reason="NotFound")

    observer = Observer(Missing(), None, OperatorSettings())  # type: ignore[arg-type]  # as far as it is asked
    assert asyncio.run(observer.live_upgrades("prod", "bank")) == ()

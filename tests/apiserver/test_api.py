"""`cluster.api` on a real API server: what each verb does there, what is refused, and what an outage does to it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from real_api_server import RealApiServer

from deathless_operator.cluster.api import Api
from deathless_operator.cluster.errors import ApiUnreachable, Conflict, Forbidden, NotFound, Unacceptable
from deathless_operator.cluster.kinds import BUDGET, CERTIFICATE, CONFIG_MAP, NODE, POD, SERVICE

pytestmark = [pytest.mark.apiserver, pytest.mark.asyncio]


def config_map(namespace: str, name: str = "settings", **data: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": namespace, "name": name},
        "data": data,
    }


def service(namespace: str, name: str = "bank") -> dict[str, Any]:
    return {
        "apiVersion": "deathless.dev/v1alpha1",
        "kind": "DeathlessService",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"module": "bank:bank", "image": "bank:1", "logStorage": {"size": "1Gi"}},
    }


def status_of(namespace: str, version: str) -> dict[str, Any]:
    return {
        "apiVersion": "deathless.dev/v1alpha1",
        "kind": "DeathlessService",
        "metadata": {"namespace": namespace, "name": "bank", "resourceVersion": version},
        "status": {"primary": "bank-0"},
    }


def pod(namespace: str, name: str = "bank-0") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"containers": [{"name": "replica", "image": "bank:1"}]},
    }


async def test_applying_twice_changes_nothing_and_dropped_fields_go_away(
    api_server: RealApiServer, namespace: str
) -> None:
    async with Api(api_server.connection()) as api:
        first = await api.apply(config_map(namespace, a="1", b="2"), force=True)
        again = await api.apply(config_map(namespace, a="1", b="2"), force=True)
        assert first["metadata"]["resourceVersion"] == again["metadata"]["resourceVersion"]
        changed = await api.apply(config_map(namespace, a="1"), force=True)
        assert changed["data"] == {"a": "1"}


async def test_field_of_another_manager_is_a_conflict_unless_forced(api_server: RealApiServer, namespace: str) -> None:
    path = CONFIG_MAP.path(namespace) + "?fieldManager=somebody"
    api_server.request("POST", path, config_map(namespace, a="theirs"))
    async with Api(api_server.connection()) as api:
        with pytest.raises(Conflict, match="somebody"):
            await api.apply(config_map(namespace, a="ours"), force=False)
        forced = await api.apply(config_map(namespace, a="ours"), force=True)
        assert forced["data"] == {"a": "ours"}


async def test_status_is_written_without_touching_the_spec(api_server: RealApiServer, namespace: str) -> None:
    async with Api(api_server.connection()) as api:
        made = await api.create(service(namespace))
        status = status_of(namespace, made["metadata"]["resourceVersion"])
        written = await api.apply_status(status)
        assert written["status"]["primary"] == "bank-0" and written["spec"] == made["spec"]
        assert written["metadata"]["generation"] == made["metadata"]["generation"]
        with pytest.raises(AssertionError):
            await api.apply_status(status | {"spec": {}})


async def test_status_for_an_older_version_or_a_successor_is_not_written(
    api_server: RealApiServer, namespace: str
) -> None:
    async with Api(api_server.connection()) as api:
        old = (await api.create(service(namespace)))["metadata"]["resourceVersion"]
        changed = await api.patch(SERVICE, namespace, "bank", {"metadata": {"labels": {"a": "b"}}})
        with pytest.raises(Conflict):
            await api.apply_status(status_of(namespace, old))
        await api.delete(SERVICE, namespace, "bank")
        await api.create(service(namespace))
        with pytest.raises(Conflict):
            await api.apply_status(status_of(namespace, changed["metadata"]["resourceVersion"]))


async def test_delete_by_uid_never_hits_a_successor(api_server: RealApiServer, namespace: str) -> None:
    async with Api(api_server.connection()) as api:
        first = await api.create(pod(namespace))
        assert await api.delete(POD, namespace, "bank-0", uid=first["metadata"]["uid"], grace_s=0)
        second = await api.create(pod(namespace))
        assert not await api.delete(POD, namespace, "bank-0", uid=first["metadata"]["uid"], grace_s=0)
        assert (await api.get(POD, namespace, "bank-0"))["metadata"]["uid"] == second["metadata"]["uid"]
        assert not await api.delete(POD, namespace, "bank-9", uid="none")


async def test_long_lists_come_whole_with_kinds(api_server: RealApiServer, namespace: str) -> None:
    async with Api(api_server.connection()) as api:
        await asyncio.gather(*(api.create(config_map(namespace, f"c{index}")) for index in range(7)))
        found = await api._pages(CONFIG_MAP, namespace, dict[str, Any], "", "", 2)
        assert {each["metadata"]["name"] for each in found} >= {f"c{index}" for index in range(7)}
        assert {each["kind"] for each in found} == {"ConfigMap"}
        assert await api.list(CONFIG_MAP, namespace, labels="none=such") == []


async def test_refusals_name_verb_object_and_reason(api_server: RealApiServer, namespace: str) -> None:
    wrong = service(namespace)
    wrong["spec"] |= {"replicas": 99}
    async with Api(api_server.connection()) as api, Api(api_server.connection("nobody")) as stranger:
        with pytest.raises(Unacceptable, match=r"create DeathlessService .*replicas"):
            await api.create(wrong)
        with pytest.raises(NotFound, match=f"get ConfigMap {namespace}/none"):
            await api.get(CONFIG_MAP, namespace, "none")
        with pytest.raises(Forbidden, match="nobody"):
            await stranger.get(CONFIG_MAP, namespace, "none")
        assert await api.find(CONFIG_MAP, namespace, "none") is None
        assert await api.may("watch", NODE) and not await stranger.may("watch", NODE)


async def test_served_kinds_are_told_from_others(api_server: RealApiServer) -> None:
    async with Api(api_server.connection()) as api:
        assert await api.serves(SERVICE) and await api.serves(POD)
        assert not await api.serves(CERTIFICATE)


async def test_eviction_respects_the_budget_and_the_uid(api_server: RealApiServer, namespace: str) -> None:
    other = "11111111-2222-3333-4444-555555555555"
    async with Api(api_server.connection()) as api:
        made = pod(namespace)
        made["metadata"]["labels"] = {"app": "bank"}
        uid = (await api.create(made))["metadata"]["uid"]
        status = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
        await api.patch(POD, namespace, "bank-0", status, subresource="status")
        budget = {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "bank"}}}
        meta = {"namespace": namespace, "name": "bank"}
        await api.create({"apiVersion": "policy/v1", "kind": BUDGET.kind, "metadata": meta, "spec": budget})
        assert await api.evict(namespace, "bank-0", uid=other) and await api.evict(namespace, "bank-7", uid=other)
        assert not await api.evict(namespace, "bank-0", uid=uid)
        await api.delete(BUDGET, namespace, "bank")
        assert await api.evict(namespace, "bank-0", uid=uid)


async def test_outage_is_waited_out_and_then_told(api_server: RealApiServer, namespace: str) -> None:
    async with (
        Api(api_server.connection(), patience_s=60) as api,
        Api(api_server.connection(), patience_s=0.3) as short,
    ):
        await api.apply(config_map(namespace, a="1"), force=True)
        api_server.kill()
        try:
            with pytest.raises(ApiUnreachable):
                await short.get(CONFIG_MAP, namespace, "settings")
            patient = asyncio.create_task(api.apply(config_map(namespace, a="2"), force=True))
        finally:
            await asyncio.to_thread(api_server.restart)
        assert (await patient)["data"] == {"a": "2"}

"""Actions on a real API server: what each one does, twice, and to what is not meant."""

from __future__ import annotations

from typing import Any

import pytest
from real_api_server import RealApiServer

from deathless_operator.cluster.api import Api
from deathless_operator.cluster.carry_out import Performer, Scene
from deathless_operator.cluster.events import Subject
from deathless_operator.cluster.kinds import CONFIG_MAP, NODE, POD, SERVICE
from deathless_operator.cluster.trust import Trust
from deathless_operator.model import names
from deathless_operator.model.status import ServiceStatus
from deathless_operator.plan.actions import Apply, DeleteObject, DeletePod, PatchMetadata
from deathless_operator.plan.drill.snapshot import DrillAction, EvictPod, SetCordon

pytestmark = [pytest.mark.apiserver, pytest.mark.asyncio]

OTHER = "11111111-2222-3333-4444-555555555555"


def config_map(namespace: str, name: str, value: str) -> dict[str, Any]:
    meta = {"namespace": namespace, "name": name}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"a": value}}


def pod(namespace: str, image: str = "bank:1") -> dict[str, Any]:
    meta = {"namespace": namespace, "name": "bank-0"}
    spec = {"containers": [{"name": "replica", "image": image}], "nodeName": "n1"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def mark(name: str, uid: str) -> PatchMetadata:
    return PatchMetadata(api_version="v1", kind="ConfigMap", name=name, uid=uid, labels={"x": "y"}, why="mark")


def scene(namespace: str, *, ours: bool = True) -> Scene:
    return Scene(namespace=namespace, now=1e9, is_ours=lambda _: ours)


def performer(api: Api, namespace: str) -> Performer:
    return Performer(api, Trust(api, namespace=namespace, life_s=1e7, certificate_life_s=1e6))


async def test_run_ends_at_the_first_refusal_and_tells_it(api_server: RealApiServer, namespace: str) -> None:
    api_server.request("POST", CONFIG_MAP.path(namespace) + "?fieldManager=somebody", config_map(namespace, "b", "x"))
    actions = [Apply(manifest=config_map(namespace, name, "1"), why="new") for name in ("a", "b", "c")]
    async with Api(api_server.connection()) as api:
        failure = await performer(api, namespace).perform(scene(namespace, ours=False), actions)
        assert failure is not None
        assert (failure.kind, failure.name, failure.status, failure.reason) == ("ConfigMap", "b", 409, "Conflict")
        assert "somebody" in failure.message
        assert await api.find(CONFIG_MAP, namespace, "a") and not await api.find(CONFIG_MAP, namespace, "c")
        assert await performer(api, namespace).perform(scene(namespace), actions) is None


async def test_pod_that_is_there_is_not_changed_by_applying_it(api_server: RealApiServer, namespace: str) -> None:
    async with Api(api_server.connection()) as api:
        does = performer(api, namespace)
        assert await does.perform(scene(namespace), [Apply(manifest=pod(namespace), why="check")]) is None
        again = Apply(manifest=pod(namespace, "other:2"), why="check")
        assert await does.perform(scene(namespace), [again]) is None
        assert (await api.get(POD, namespace, "bank-0"))["spec"]["containers"][0]["image"] == "bank:1"


async def test_deleting_and_patching_pass_over_what_is_gone_or_another(
    api_server: RealApiServer, namespace: str
) -> None:
    async with Api(api_server.connection()) as api:
        await api.create(pod(namespace))
        made = await api.create(config_map(namespace, "a", "1"))
        does = performer(api, namespace)
        stale: list[DrillAction] = [
            DeletePod(name="bank-0", uid=OTHER, grace_s=None, force=True, why="lost"),
            DeletePod(name="bank-9", uid=OTHER, grace_s=None, force=True, why="lost"),
            DeleteObject(api_version="v1", kind="ConfigMap", name="a", uid=OTHER, why="not wanted"),
            mark("a", OTHER),
            mark("none", OTHER),
            EvictPod(name="bank-0", uid=OTHER, why="drain"),
        ]
        assert await does.perform(scene(namespace), stale) is None
        kept = await api.get(CONFIG_MAP, namespace, "a")
        assert "labels" not in kept["metadata"] and await api.find(POD, namespace, "bank-0")
        meant = mark("a", made["metadata"]["uid"])
        assert await does.perform(scene(namespace), [meant]) is None
        assert (await api.get(CONFIG_MAP, namespace, "a"))["metadata"]["labels"] == {"x": "y"}


async def test_lost_pod_goes_at_once_when_forced_and_waits_otherwise(api_server: RealApiServer, namespace: str) -> None:
    async with Api(api_server.connection()) as api:
        uid = (await api.create(pod(namespace)))["metadata"]["uid"]
        does = performer(api, namespace)
        polite = DeletePod(name="bank-0", uid=uid, grace_s=20, force=False, why="roll")
        assert await does.perform(scene(namespace), [polite]) is None
        assert (await api.get(POD, namespace, "bank-0"))["metadata"]["deletionGracePeriodSeconds"] == 20
        forced = DeletePod(name="bank-0", uid=uid, grace_s=None, force=True, why="its node is lost")
        assert await does.perform(scene(namespace), [forced, forced]) is None
        assert await api.find(POD, namespace, "bank-0") is None


async def test_node_is_cordoned_with_its_mark_and_set_free(api_server: RealApiServer, namespace: str) -> None:
    async with Api(api_server.connection()) as api:
        api_server.request("POST", NODE.path(None), {"metadata": {"name": namespace}})
        does = performer(api, namespace)
        cordon = SetCordon(node=namespace, cordon=True, mark="shop/weekly/1", why="drain")
        assert await does.perform(scene(namespace), [cordon, cordon]) is None
        node = await api.get(NODE, None, namespace)
        assert node["spec"]["unschedulable"] and node["metadata"]["annotations"][names.DRILL_ANNOTATION]
        free = SetCordon(node=namespace, cordon=False, mark=None, why="over")
        gone = SetCordon(node="no-such-node", cordon=False, mark=None, why="over")
        assert await does.perform(scene(namespace), [free, gone]) is None
        node = await api.get(NODE, None, namespace)
        assert not node["spec"].get("unschedulable") and names.DRILL_ANNOTATION not in str(node["metadata"])
        await api.delete(NODE, None, namespace)


async def test_status_is_written_when_it_differs_and_only_to_what_was_read(
    api_server: RealApiServer, namespace: str
) -> None:
    async with Api(api_server.connection()) as api:
        spec = {"module": "bank:bank", "image": "bank:1", "logStorage": {"size": "1Gi"}}
        meta = {"namespace": namespace, "name": "bank"}
        made = await api.create(
            {"apiVersion": SERVICE.api_version, "kind": SERVICE.kind, "metadata": meta, "spec": spec}
        )
        does, before, after = performer(api, namespace), ServiceStatus(), ServiceStatus(primary="bank-0")
        bank = Subject(kind=SERVICE, namespace=namespace, name="bank", uid=made["metadata"]["uid"])
        version = made["metadata"]["resourceVersion"]
        assert await does.write_status(bank, version, before, before)
        assert await does.write_status(bank, version, before, after)
        assert not await does.write_status(bank, version, before, ServiceStatus(primary="bank-1"))
        found = await api.get(SERVICE, namespace, "bank")
        assert found["status"]["primary"] == "bank-0" and found["spec"] == made["spec"]

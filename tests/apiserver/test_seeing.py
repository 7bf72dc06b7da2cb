"""Snapshots from a real API server: everything that is there, nothing secret, and a blind spot that harms nobody."""

from __future__ import annotations

from typing import Any

import pytest
from real_api_server import RealApiServer

from deathless_operator.cluster.api import Api
from deathless_operator.cluster.kinds import (
    CLAIM,
    CONFIG_MAP,
    CORE_EVENT,
    KUBE_SERVICE,
    POD,
    SECRET,
    SERVICE,
    STATEFUL_SET,
)
from deathless_operator.cluster.observe import REMEMBERED_S, Observer
from deathless_operator.cluster.trust import Trust
from deathless_operator.model import names
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.plan.snapshot import Failure

pytestmark = [pytest.mark.apiserver, pytest.mark.asyncio]


def observer(api: Api, namespace: str) -> Observer:
    settings = OperatorSettings(namespace=namespace, lock_tls_secret="lock-tls")
    return Observer(api, Trust(api, namespace=namespace, life_s=1e7, certificate_life_s=1e6), settings)


def meta(namespace: str, name: str, *, labelled: bool = True, **more: Any) -> dict[str, Any]:
    labels = names.labels("bank") if labelled else {}
    return {"namespace": namespace, "name": name, "labels": labels} | more


def fill(server: RealApiServer, namespace: str) -> None:
    """Make a service and some of its objects."""
    spec = {"module": "bank:bank", "image": "bank:1", "logStorage": {"size": "1Gi"}}
    bank = {"apiVersion": SERVICE.api_version, "kind": SERVICE.kind, "metadata": {"name": "bank"}, "spec": spec}
    server.request("POST", SERVICE.path(namespace), bank)
    ports = {"ports": [{"port": 80}]}
    server.request("POST", KUBE_SERVICE.path(namespace), {"metadata": meta(namespace, "bank"), "spec": ports})
    theirs = {"metadata": meta(namespace, "bank-primary", labelled=False), "spec": ports}
    server.request("POST", KUBE_SERVICE.path(namespace), theirs)
    noted = {names.LOCK_SECRETS_ANNOTATION: "bank-lock-tls-former"}
    settings = {"metadata": meta(namespace, "bank-config-a", annotations=noted)}
    server.request("POST", CONFIG_MAP.path(namespace), settings)
    server.request("POST", CONFIG_MAP.path(namespace), {"metadata": meta(namespace, "left-over")})
    containers = {"containers": [{"name": "replica", "image": "bank:1"}], "nodeName": "lost"}
    server.request("POST", POD.path(namespace), {"metadata": meta(namespace, "bank-0"), "spec": containers})
    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    server.request("POST", CLAIM.path(namespace), {"metadata": meta(namespace, "bank-log"), "spec": claim})
    hidden = {"password": "aHVudGVyMg=="}
    for name in ("bank-tls", "bank-lock-tls-former", "bank-lock-tls-of-others", "lock-tls"):
        server.request("POST", SECRET.path(namespace), {"metadata": meta(namespace, name), "data": hidden})
    involved = {"kind": "Pod", "namespace": namespace, "name": "bank-0"}
    event = {"type": "Warning", "reason": "FailedMount", "message": "no volume", "involvedObject": involved}
    server.request("POST", CORE_EVENT.path(namespace), {"metadata": {"name": "e1"}} | event)


async def test_everything_of_a_service_is_seen_and_no_secret_value(api_server: RealApiServer, namespace: str) -> None:
    fill(api_server, namespace)
    failure = Failure(kind="Service", name="bank", status=403, reason="Forbidden", message="no")
    async with Api(api_server.connection()) as api:
        seen = await observer(api, namespace).observe(namespace, "bank", [failure])
    assert seen is not None
    snapshot = seen.snapshot
    assert snapshot.resource.spec is not None and snapshot.resource.spec.image == "bank:1"
    children = {(child.kind, child.name): child for child in snapshot.children}
    assert {("Service", "bank"), ("ConfigMap", "left-over"), ("PersistentVolumeClaim", "bank-log")} <= set(children)
    assert children["Service", "bank-primary"].labels == {}, "what merely has our name is seen, too"
    assert [pod.name for pod in snapshot.pods] == ["bank-0"] and snapshot.node("lost") is None
    assert snapshot.claim is not None and snapshot.claim.phase == "Pending"
    assert [facts.secret for facts in snapshot.certificates] == ["bank-tls"]
    assert [facts.name for facts in snapshot.lock_secrets] == ["bank-lock-tls-former"], "a ConfigMap tells of it"
    assert [facts.name for facts in snapshot.lock_sources] == ["lock-tls"]
    # The API server may warn of the Service besides, when its repair of addresses comes before its allocator.
    of_pods = [(warned.reason, warned.name) for warned in snapshot.warnings if warned.name != "bank"]
    assert of_pods == [("FailedMount", "bank-0")]
    assert snapshot.failures == (failure,) and not snapshot.cert_manager
    assert "aHVudGVyMg" not in repr(snapshot) and "hunter2" not in repr(snapshot)


async def test_belongings_are_read_anew_when_they_are_forgotten_late_or_the_spec_is_another(
    api_server: RealApiServer, namespace: str
) -> None:
    fill(api_server, namespace)
    now = [100.0]
    async with Api(api_server.connection()) as api:
        settings = OperatorSettings(namespace=namespace)
        trust = Trust(api, namespace=namespace, life_s=1e7, certificate_life_s=1e6)
        watching = Observer(api, trust, settings, monotonic=lambda: now[0])

        async def maps() -> list[str]:
            seen = await watching.observe(namespace, "bank")
            assert seen is not None
            return sorted(child.name for child in seen.snapshot.children if child.kind == CONFIG_MAP.kind)

        assert await maps() == ["bank-config-a", "left-over"]
        api_server.request("DELETE", CONFIG_MAP.path(namespace, "left-over"))
        assert await maps() == ["bank-config-a", "left-over"], "nobody told of it"
        watching.forget(namespace, "bank")
        assert await maps() == ["bank-config-a"]
        api_server.request("POST", CONFIG_MAP.path(namespace), {"metadata": meta(namespace, "second")})
        now[0] += REMEMBERED_S
        assert await maps() == ["bank-config-a", "second"]
        api_server.request("DELETE", CONFIG_MAP.path(namespace, "second"))
        bank = api_server.request("GET", SERVICE.path(namespace, "bank"))
        bank["spec"]["replicas"] = 1
        api_server.request("PUT", SERVICE.path(namespace, "bank"), bank)
        assert await maps() == ["bank-config-a"]


async def test_belongings_of_a_former_service_of_the_same_name_are_not_remembered(
    api_server: RealApiServer, namespace: str
) -> None:
    fill(api_server, namespace)
    bank = api_server.request("GET", SERVICE.path(namespace, "bank"))
    async with Api(api_server.connection()) as api:
        watching = observer(api, namespace)
        assert await watching.observe(namespace, "bank") is not None
        api_server.request("DELETE", CONFIG_MAP.path(namespace, "left-over"))
        api_server.request("DELETE", SERVICE.path(namespace, "bank"))
        again = {key: bank[key] for key in ("apiVersion", "kind", "spec")} | {"metadata": {"name": "bank"}}
        made = api_server.request("POST", SERVICE.path(namespace), again)
        assert made["metadata"]["generation"] == bank["metadata"]["generation"]
        seen = await watching.observe(namespace, "bank")
    assert seen is not None
    assert "left-over" not in {child.name for child in seen.snapshot.children}


async def test_pods_and_stateful_sets_are_never_remembered(api_server: RealApiServer, namespace: str) -> None:
    fill(api_server, namespace)
    async with Api(api_server.connection()) as api:
        watching = observer(api, namespace)
        seen = await watching.observe(namespace, "bank")
        assert seen is not None and [pod.name for pod in seen.snapshot.pods] == ["bank-0"]
        template = {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "replica", "image": "bank:1"}]},
        }
        sets = {"selector": {"matchLabels": {"a": "b"}}, "serviceName": "bank", "template": template, "replicas": 0}
        api_server.request("POST", STATEFUL_SET.path(namespace), {"metadata": meta(namespace, "bank"), "spec": sets})
        api_server.request("DELETE", POD.path(namespace, "bank-0"), {"gracePeriodSeconds": 0})
        seen = await watching.observe(namespace, "bank")
        assert seen is not None and seen.snapshot.pods == ()
        assert ("StatefulSet", "bank") in {(child.kind, child.name) for child in seen.snapshot.children}


async def test_service_that_is_gone_is_none(api_server: RealApiServer, namespace: str) -> None:
    async with Api(api_server.connection()) as api:
        assert await observer(api, namespace).observe(namespace, "bank") is None


async def test_node_that_may_not_be_read_is_shown_as_fine_and_not_as_gone(
    api_server: RealApiServer, namespace: str
) -> None:
    fill(api_server, namespace)
    everything = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    groups = "/apis/rbac.authorization.k8s.io/v1/namespaces/" + namespace
    api_server.request("POST", f"{groups}/roles", {"metadata": {"name": "all"}, "rules": everything})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "all"}
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "operators"}]
    body = {"metadata": {"name": "all"}, "roleRef": reference, "subjects": subjects}
    api_server.request("POST", f"{groups}/rolebindings", body)
    async with Api(api_server.connection("operator"), patience_s=1) as api:
        seen = await observer(api, namespace).observe(namespace, "bank")
    assert seen is not None
    node = seen.snapshot.node("lost")
    assert node is not None and node.ready and not node.unreachable

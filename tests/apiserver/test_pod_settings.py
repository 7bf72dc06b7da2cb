"""The lock store of an installation is another one: pods keep what they mount until they go, then it is deleted.

The operator is the real one, and so is the API server; the test makes pods, and says what a StatefulSet's controller
says.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from etcd_server import wait_until
from operator_process import OperatorProcess
from real_api_server import RealApiServer
from test_services import conditions, exists, make_service, mounted

from deathless_operator.cluster.kinds import CONFIG_MAP, NETWORK_POLICY, POD, SECRET, SERVICE, STATEFUL_SET, Kind
from deathless_operator.cluster.trust import secret_facts
from deathless_operator.model import names
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.plan.actions import CopySecret
from deathless_operator.plan.service.access import plan_access
from deathless_operator.plan.service.objects import Objects, code_of
from deathless_operator.plan.service.placement import Mounted
from deathless_operator.plan.service.reading import read_resource
from deathless_operator.plan.snapshot import Snapshot

pytestmark = pytest.mark.apiserver


class Installation:
    """An operator that is told of one lock store at a time."""

    def __init__(self, server: RealApiServer, namespace: str, folder: Path) -> None:
        self.server, self.namespace, self.folder = server, namespace, folder
        for store in "ab":
            body = {"metadata": {"name": f"store-{store}"}, "stringData": {"ca.crt": f"authority of {store}"}}
            server.request("POST", SECRET.path(namespace), body)

    def with_store(self, store: str) -> OperatorProcess:
        """The operator, told of a store."""
        words = (f"--lock-endpoints=https://{store}.test:2379", f"--lock-tls-secret=store-{store}")
        return OperatorProcess(self.server, self.folder, self.namespace, f"--watch-namespaces={self.namespace}", *words)

    def make_pod(self) -> None:
        """The controller makes bank-0 from the template as it stands, and says that it has read it."""
        found = self.server.request("GET", STATEFUL_SET.path(self.namespace, "bank"))
        template = found["spec"]["template"]
        labels = template["metadata"]["labels"]
        body = {"metadata": {"name": "bank-0", "labels": labels}, "spec": template["spec"]}
        self.server.request("POST", POD.path(self.namespace), body)
        self.read_set()

    def read_set(self) -> None:
        """The controller has read the StatefulSet as it stands."""
        path = STATEFUL_SET.path(self.namespace, "bank")
        generation = self.server.request("GET", path)["metadata"]["generation"]
        status = {"status": {"observedGeneration": generation, "replicas": 1}}
        self.server.request("PATCH", f"{path}/status", status, content="application/merge-patch+json")

    def held(self) -> tuple[str, str]:
        """Names of the ConfigMap and the Secret that the template mounts."""
        return mounted(self.server, self.namespace), mounted(self.server, self.namespace, "secret")

    def content(self, held: tuple[str, str]) -> tuple[Any, Any]:
        """What they hold."""
        config, secret = held
        shown = self.server.request("GET", CONFIG_MAP.path(self.namespace, config))
        return shown["data"], self.server.request("GET", SECRET.path(self.namespace, secret))["data"]


def is_gone(server: RealApiServer, kind: Kind, namespace: str, name: str) -> bool:
    """Is an object not there any more?"""
    return not exists(server, kind, namespace, name)


def test_pods_keep_the_settings_and_secrets_of_their_template_and_nothing_is_left_of_them_afterwards(
    api_server: RealApiServer, namespace: str, tmp_path: Path
) -> None:
    installation = Installation(api_server, namespace, tmp_path)
    with installation.with_store("a") as operator:
        operator.wait_leading()
        make_service(api_server, namespace, replicas=1)
        wait_until(lambda: exists(api_server, STATEFUL_SET, namespace, "bank"), f"it is made, see {operator.log}")
        installation.make_pod()
    first = installation.held()
    before = installation.content(first)
    assert api_server.request("GET", CONFIG_MAP.path(namespace, first[0]))["immutable"] is True

    with installation.with_store("b") as operator:
        operator.wait_leading()
        wait_until(lambda: installation.held() != first, f"the template is of the other store, see {operator.log}")
        second = installation.held()
        assert not set(first) & set(second)
        assert installation.content(first) == before, "a pod mounts these"
        installation.read_set()
        wait_until(lambda: not exists(api_server, POD, namespace, "bank-0"), f"it is rolled, see {operator.log}")
        installation.make_pod()
        for kind, name in ((CONFIG_MAP, first[0]), (SECRET, first[1])):
            wait_until(partial(is_gone, api_server, kind, namespace, name), f"{name} is gone, see {operator.log}")
        assert installation.content(second)[1] == api_server.request("GET", SECRET.path(namespace, "store-b"))["data"]


def former_objects(installation: Installation, made: dict[str, Any]) -> list[dict[str, Any]]:
    """What a former operator has applied: one ConfigMap and one Secret for every content, and the StatefulSet."""
    settings = OperatorSettings(
        namespace=installation.namespace, lock_endpoints=("https://a.test:2379",), lock_tls_secret="store-a"
    )
    resource = read_resource(made)
    assert resource.spec is not None
    source = installation.server.request("GET", SECRET.path(installation.namespace, "store-a"))
    objects = Objects(resource, resource.spec, settings)
    snapshot = Snapshot(now=time.time(), resource=resource, lock_sources=(secret_facts(source),))
    access = plan_access(snapshot, resource.spec, settings, objects, former=True)
    (copy,) = access.actions
    assert access.lock is not None and isinstance(copy, CopySecret)
    mounts = Mounted(
        config_map="bank-config", claim="bank-log", tls="bank-tls", lock_tls="bank-lock-tls",
        operator_token="bank-operator-token",
    )  # fmt: skip
    code = code_of(resource.spec)
    return [
        objects.config_map(access.lock, code, former=True),
        {**copy.manifest, "data": source["data"]},
        objects.stateful_set(mounts, access.lock, code, replicas=1),
    ]


def test_service_of_a_former_operator_is_left_as_it_is_until_its_template_changes(
    api_server: RealApiServer, namespace: str, tmp_path: Path
) -> None:
    installation = Installation(api_server, namespace, tmp_path)
    made = make_service(api_server, namespace, replicas=1)
    kinds = {each.kind: each for each in (CONFIG_MAP, SECRET, STATEFUL_SET)}
    objects = former_objects(installation, made)
    for each in objects:
        path = kinds[each["kind"]].path(namespace)
        api_server.request("POST", f"{path}?fieldManager={names.FIELD_MANAGER}", each)
    paths = [kinds[each["kind"]].path(namespace, each["metadata"]["name"]) for each in objects]

    def versions() -> list[tuple[str, int]]:
        found = [api_server.request("GET", path)["metadata"] for path in paths]
        return [(each["uid"], each.get("generation", 0)) for each in found]

    before = versions()
    with installation.with_store("a") as operator:
        operator.wait_leading()
        told = f"all else is made, see {operator.log}"
        wait_until(lambda: exists(api_server, NETWORK_POLICY, namespace, "bank"), told)
        wait_until(lambda: bool(conditions(api_server, namespace)), told)
        looks = operator.metric("deathless_operator_reconciles_total")
        merge = "application/merge-patch+json"
        seen: dict[str, Any] = {"metadata": {"annotations": {"somebody": "was here"}}}
        api_server.request("PATCH", SERVICE.path(namespace, "bank"), seen, content=merge)
        wait_until(lambda: operator.metric("deathless_operator_reconciles_total") > looks, "it is looked at again")
        assert versions() == before and installation.held() == ("bank-config", "bank-lock-tls")
        change: dict[str, Any] = {"spec": {"resources": {"requests": {"cpu": "1"}}}}
        api_server.request("PATCH", SERVICE.path(namespace, "bank"), change, content=merge)
        wait_until(lambda: installation.held()[0].startswith("bank-config-"), f"they are named, see {operator.log}")
        assert installation.held()[1].startswith("bank-lock-tls-")

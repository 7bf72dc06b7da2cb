"""What a real API server stores otherwise than it was written needs no second thought, and hides no change.

No operator process: each look is a snapshot, a plan and its actions, one after the other.
"""

from __future__ import annotations

from typing import Any

import pytest
from real_api_server import RealApiServer

from deathless_operator.cluster.api import Api
from deathless_operator.cluster.carry_out import Performer, scene_of
from deathless_operator.cluster.kinds import CLAIM, SERVICE, STATEFUL_SET
from deathless_operator.cluster.observe import Observer
from deathless_operator.cluster.trust import Trust
from deathless_operator.model import names
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.plan.actions import Apply
from deathless_operator.plan.service.plan import make_plan

pytestmark = [pytest.mark.apiserver, pytest.mark.asyncio]

SPEC: dict[str, Any] = {
    "module": "bank:bank",
    "image": "bank:1",
    "logStorage": {"size": "1024Mi"},
    "tls": {"issuer": "Off"},
    "resources": {"requests": {"cpu": "1000m", "memory": "0.5Gi"}, "limits": {"cpu": "2.0"}},
    "podTemplate": {
        "volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "1024Mi"}}],
        "env": [{"name": "CPUS", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1000m"}}}],
    },
}


class Looks:
    """Looks at service `bank` of a namespace."""

    def __init__(self, api: Api, namespace: str) -> None:
        trust = Trust(api, namespace=namespace, life_s=1e7, certificate_life_s=1e6)
        self._settings = OperatorSettings(namespace=namespace, lock_endpoints=("http://lock.test:2379",))
        self._observer = Observer(api, trust, self._settings)
        self._performer = Performer(api, trust)
        self._namespace = namespace

    async def look(self) -> list[str]:
        """Carry out one plan; gives what was applied, by kind and name."""
        seen = await self._observer.observe(self._namespace, "bank")
        assert seen is not None
        actions = make_plan(seen.snapshot, self._settings).actions
        assert await self._performer.perform(scene_of(seen.snapshot), actions) is None
        self._observer.forget(self._namespace, "bank")
        manifests: list[Any] = [action.manifest for action in actions if isinstance(action, Apply)]
        return [f"{found['kind']} {found['metadata']['name']}" for found in manifests]


def make_service(server: RealApiServer, namespace: str, spec: dict[str, Any]) -> None:
    annotations = {names.INSTALLATION_ANNOTATION: namespace}  # it is claimed
    metadata = {"name": "bank", "annotations": annotations}
    body = {"apiVersion": SERVICE.api_version, "kind": SERVICE.kind, "metadata": metadata, "spec": spec}
    server.request("POST", SERVICE.path(namespace), body)


async def test_quantities_in_other_words_need_nothing_at_the_next_plan(
    api_server: RealApiServer, namespace: str
) -> None:
    plain = {key: value for key, value in SPEC.items() if key != "podTemplate"}
    make_service(api_server, namespace, plain)
    async with Api(api_server.connection()) as api:
        looks = Looks(api, namespace)
        assert {"StatefulSet bank", "PersistentVolumeClaim bank-log"} <= set(await looks.look())
        made = api_server.request("GET", STATEFUL_SET.path(namespace, "bank"))["spec"]["template"]["spec"]
        assert made["containers"][0]["resources"] == {
            "requests": {"cpu": "1", "memory": "512Mi"},
            "limits": {"cpu": "2"},
        }
        claim = api_server.request("GET", CLAIM.path(namespace, "bank-log"))
        assert claim["spec"]["resources"] == {"requests": {"storage": "1Gi"}}
        assert await looks.look() == []


async def test_other_rewritten_fields_are_applied_once_more_and_a_change_of_theirs_is_mended(
    api_server: RealApiServer, namespace: str
) -> None:
    make_service(api_server, namespace, SPEC)
    path = STATEFUL_SET.path(namespace, "bank")

    def limit() -> Any:
        volumes = api_server.request("GET", path)["spec"]["template"]["spec"]["volumes"]
        return next(found for found in volumes if found["name"] == "scratch")["emptyDir"]["sizeLimit"]

    async with Api(api_server.connection()) as api:
        looks = Looks(api, namespace)
        await looks.look()
        assert limit() == "1Gi"
        assert [await looks.look(), await looks.look()] == [["StatefulSet bank"], []]
        before = api_server.request("GET", path)["metadata"]
        assert await looks.look() == [] and api_server.request("GET", path)["metadata"] == before
        volume = {"name": "scratch", "emptyDir": {"sizeLimit": "2Gi"}}
        theirs = {"spec": {"template": {"spec": {"volumes": [volume]}}}}
        api_server.request("PATCH", path, theirs, content="application/strategic-merge-patch+json")
        assert limit() == "2Gi"
        assert await looks.look() == ["StatefulSet bank"] and limit() == "1Gi"
        assert [await looks.look(), await looks.look()] == [["StatefulSet bank"], []]

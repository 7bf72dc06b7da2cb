"""Two operators of two installations see one service on a real API server: one works on it, the other says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from etcd_server import wait_until
from operator_process import OperatorProcess
from real_api_server import Reached, RealApiServer
from test_services import exists, make_service, mounted
from tests.cluster.pages import block, walk

from deathless_operator.cluster.kinds import CONFIG_MAP, EVENT, SERVICE, STATEFUL_SET

pytestmark = pytest.mark.apiserver


class Two:
    """Two operators that look after one namespace, each of an installation with a lock store of its own."""

    def __init__(self, server: RealApiServer, namespace: str, folder: Path) -> None:
        self.server, self.namespace = server, namespace
        self.homes = [f"{namespace}-a", f"{namespace}-b"]
        self.operators = []
        for home in self.homes:
            server.request("POST", "/api/v1/namespaces", {"metadata": {"name": home}})
            words = (f"--watch-namespaces={namespace}", f"--lock-endpoints=http://{home}.test:2379")
            self.operators.append(OperatorProcess(server, folder, home, *words))

    def config(self) -> dict[str, Any]:
        """The ConfigMap that both would write."""
        name = mounted(self.server, self.namespace)
        found: dict[str, Any] = self.server.request("GET", CONFIG_MAP.path(self.namespace, name))
        return found

    def names(self, home: str) -> bool:
        """Whether it names the lock store of an installation."""
        return f"{home}.test" in self.config()["data"]["replica.json"]

    def events(self) -> list[dict[str, Any]]:
        """What the one that steps back told."""
        items = self.server.request("GET", EVENT.path(self.namespace))["items"]
        return [each for each in items if each["reason"] == "OtherInstallation"]

    def annotate(self, key: str, value: str) -> None:
        """Write an annotation on the service."""
        change = {"metadata": {"annotations": {key: value}}}
        path = SERVICE.path(self.namespace, "bank")
        self.server.request("PATCH", path, change, content="application/merge-patch+json")

    def looks(self) -> float:
        """How often both have looked."""
        return sum(each.metric("deathless_operator_reconciles_total") for each in self.operators)


def test_one_of_two_installations_looks_after_a_service_and_a_person_moves_it(
    api_server: RealApiServer, namespace: str, tmp_path: Path
) -> None:
    two = Two(api_server, namespace, tmp_path)
    with two.operators[0] as first, two.operators[1] as second:
        first.wait_leading()
        second.wait_leading()
        make_service(api_server, namespace)
        wait_until(lambda: exists(api_server, STATEFUL_SET, namespace, "bank"), f"it is made, see {first.log}")
        wait_until(lambda: bool(two.events()), f"one steps back, see {first.log} and {second.log}")
        owner = api_server.request("GET", SERVICE.path(namespace, "bank"))["status"]["installation"]
        other = two.homes[1 - two.homes.index(owner)]
        assert two.names(owner)
        assert f"deathless.dev/installation={other}" in two.events()[0]["note"]
        version, before = two.config()["metadata"]["resourceVersion"], two.looks()
        for number in range(5):
            two.annotate("somebody", str(number))
        wait_until(lambda: two.looks() >= before + 4, "both have looked again")
        assert two.config()["metadata"]["resourceVersion"] == version, "they would apply in turn"
        server = Reached(api_server)
        walk(server, block("runbooks/conditions.md", "OtherInstallation"), **{
            "NS": namespace, "SERVICE": "bank", "deathless-system": other,
        })  # fmt: skip
        wait_until(lambda: two.names(other), "the other one looks after it now")

"""The objects of a pipeline: what its service is told, and what its drivers' pods are made of."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.unit.deathless_operator.plan.pipelines.pipeline_world import SETTINGS, resource

from deathless.base.pipelines.agents import CONFIG_VARIABLE, AgentConfig
from deathless_operator.model import names
from deathless_operator.model.service import read_spec
from deathless_operator.plan.pipelines.objects import PipelineObjects


def objects(**spec: Any) -> PipelineObjects:
    """Of a pipeline with these fields of spec."""
    found = resource(**spec)
    assert found.pipeline is not None, found.problems
    return PipelineObjects(found.pipeline, "shop", "u", SETTINGS)


def pod_of(made: PipelineObjects) -> dict[str, Any]:
    """The pod of a driver."""
    found: Any = made.stateful_set()
    pod: dict[str, Any] = found["spec"]["template"]["spec"]
    return pod


def config_of(made: PipelineObjects) -> AgentConfig:
    """What its agent is told."""
    environment = {each["name"]: each.get("value") for each in pod_of(made)["containers"][0]["env"]}
    return msgspec.json.decode(environment[CONFIG_VARIABLE], type=AgentConfig)


def test_its_service_is_one_that_the_operator_takes() -> None:
    made: Any = objects().service()
    assert made["spec"]["logStorage"] == {"size": "5Gi"}
    [peer] = made["spec"]["peers"]
    assert (peer["addresses"], peer["serverName"]) == (["airports-primary.shop.svc:7401"], "airports.shop.svc")
    spec, problems = read_spec(made)
    assert (problems, spec is not None) == ((), True)


def test_services_that_say_where_they_are_are_sent_to_there() -> None:
    services = [{"name": "far", "addresses": ["far:1"]}, {"name": "wide", "shards": 2}]
    made: Any = objects(services=services).service()
    far, wide = made["spec"]["peers"]
    assert (far["addresses"], "serverName" in far) == (["far:1"], False)
    assert (wide["shards"], wide["addresses"]) == (2, []), "the operator finds a service of several shards"


def test_agents_are_told_where_the_service_is_and_where_topics_are_read() -> None:
    services = [{"name": "airports"}, {"name": "far", "urls": ["https://a:8443", "https://b"]}]
    config = config_of(objects(services=services, tokenSecretRef={"name": "t", "key": "k"}, trigger="2s"))
    assert config.addresses == ("delays-primary.shop.svc:7401",)
    assert config.services == {"airports": "https://airports.shop.svc", "far": "https://a:8443,https://b"}
    assert config.tls is not None
    assert config.tls.server_name == "delays.shop.svc"
    assert config.service_token_file == config.token_file == "/etc/deathless-token/k"
    assert (config.trigger, config.conf["spark.ui.port"]) == ("2 seconds", "4040")


@pytest.mark.parametrize("url", ["http://a:99999", "http://a:port", "https://[fd00::1", "http://u:p@a:80"])
def test_a_url_that_is_none_is_a_problem_of_its_field(url: str) -> None:
    """It stops at the spec, with its place, before anything is made of it."""
    found = resource(services=[{"name": "far", "urls": [url]}])
    assert found.pipeline is None
    [problem] = found.problems
    assert "spec.services[0].urls[0]" in problem
    assert "a base URL without user and password" in problem


def test_drivers_may_call_the_ports_of_urls() -> None:
    made: Any = objects(services=[{"name": "far", "urls": ["https://a:8443", "https://b", "http://[fd00::1]"]}])
    ports = made.network_policy()["spec"]["egress"][1]["ports"]
    assert {8443, 443, 80, 7401} <= {each["port"] for each in ports}


def test_without_certificates_nothing_is_mounted_and_nothing_encrypted() -> None:
    made = objects(tls={"issuer": "Off"})
    assert config_of(made).tls is None
    assert config_of(made).services == {"airports": "http://airports.shop.svc"}
    assert [each["name"] for each in pod_of(made)["volumes"]] == ["deathless-run"]


def test_pods_fit_the_standard_restricted_and_hold_no_secret() -> None:
    pod = pod_of(objects(tokenSecretRef={"name": "t"}))
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    [container] = pod["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    secrets = [each["secret"]["secretName"] for each in pod["volumes"] if "secret" in each]
    assert secrets == ["delays-client-tls", "t"]
    assert all("hostPath" not in volume for volume in pod["volumes"])


def test_a_change_of_the_configuration_makes_the_pods_anew() -> None:
    assert pod_of(objects(conf={"spark.x": "1"})) != pod_of(objects(conf={"spark.x": "2"}))
    assert pod_of(objects(replicas=2)) == pod_of(objects(replicas=3)), "replicas of the service are no drivers"


def test_resources_are_handed_on() -> None:
    given = {"requests": {"cpu": "500m", "memory": "2Gi"}, "limits": {"memory": "3Gi"}}
    assert pod_of(objects(drivers={"resources": given}))["containers"][0]["resources"] == given


def test_replicas_ask_for_processor_time_unless_something_else_is_said() -> None:
    made: Any = objects().service()
    assert made["spec"]["resources"] == {"requests": {"cpu": "200m", "memory": "128Mi"}}, "a driver takes all there is"
    given = {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}
    changed: Any = objects(resources=given).service()
    assert changed["spec"]["resources"] == given


def test_pods_may_patch_pods_of_their_set_and_nothing_else() -> None:
    account, role, binding = objects().access()
    found: Any = role
    [rule] = found["rules"]
    assert (rule["resources"], rule["verbs"]) == (["pods"], ["patch"])
    assert all(name.startswith("delays-drivers-") for name in rule["resourceNames"])
    bound: Any = binding
    assert bound["subjects"][0]["name"] == bound["roleRef"]["name"] == "delays-drivers"
    assert account["automountServiceAccountToken"] is False


def test_drivers_are_called_by_nobody_and_call_services_and_the_api_server() -> None:
    policy: Any = objects(services=[{"name": "far", "urls": ["https://a:9443"]}]).network_policy()
    spec = policy["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in spec
    assert [port["port"] for port in spec["egress"][1]["ports"]] == [443, 6443, 7401, 8080, 9443]


def test_a_database_is_reached_with_what_stands_in_a_secret() -> None:
    """Both are files and rules of the drivers alone: the pipeline's service has neither."""
    block = {"ipBlock": {"cidr": "10.0.0.7/32"}}
    made = objects(drivers={"secretRef": {"name": "facts"}, "allowTo": [block]})
    [container] = pod_of(made)["containers"]
    assert {"name": "deathless-secret", "mountPath": "/etc/deathless-secret", "readOnly": True} in container[
        "volumeMounts"
    ]
    policy: Any = made.network_policy()
    assert policy["spec"]["egress"][2] == {"to": [block]}
    assert "facts" not in str(made.service())


def test_pages_of_spark_are_those_of_the_driver_that_drives() -> None:
    made: Any = objects().ui()
    assert made["spec"]["selector"][names.LABEL_ROLE] == names.ROLE_DRIVER
    assert made["metadata"]["name"] == "delays-ui"


def test_no_object_is_found_by_the_selector_of_replicas() -> None:
    made: Any = objects().stateful_set()
    labels = made["spec"]["template"]["metadata"]["labels"]
    assert labels[names.LABEL_NAME] != names.selector("delays")[names.LABEL_NAME]
    assert names.LABEL_SERVICE not in labels

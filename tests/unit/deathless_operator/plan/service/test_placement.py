"""The pods of a service: restricted, and made anew only for a reason."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.deathless_operator.plan.plan_world import SETTINGS, SPEC, World

from deathless.base.manifest import ServiceSpec
from deathless.shell.disk.spool_files import SPOOL_FACTOR
from deathless.shell.pod.pod_config import OPERATOR_TOKEN_PATH
from deathless_operator.model import names
from deathless_operator.model.grace import DRAIN_S
from deathless_operator.plan.service.placement import (
    SPILL_FACTOR,
    Former,
    Mounted,
    digest,
    pod_template,
    stateful_set,
    template_hash,
)

MOUNTED = Mounted(config_map="bank-config", claim="shared", tls="bank-tls", lock_tls="l", lock_user="u", token="t")
EVERYTHING = {
    "labels": {"team": "x", names.LABEL_SERVICE: "forged"},
    "annotations": {"note": "y"},
    "nodeSelector": {"disk": "fast"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}, {"key": "k", "value": "v", "tolerationSeconds": 0}],
    "affinity": {"nodeAffinity": {}},
    "topologySpreadConstraints": [{"topologyKey": "rack", "maxSkew": 2, "whenUnsatisfiable": "DoNotSchedule"}],
    "priorityClassName": "high",
    "imagePullSecrets": [{"name": "pull"}],
    "securityContext": {"runAsUser": 1000, "runAsGroup": 1001, "fsGroup": 1002, "supplementalGroups": [7]},
    "env": [{"name": "A", "value": "b"}, {"name": "C", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
    "volumes": [{"name": "data", "emptyDir": {}}],
    "volumeMounts": [{"name": "data", "mountPath": "/data", "subPath": "x", "readOnly": True}],
    "terminationGracePeriodSeconds": 60,
}


def spec_of(**spec: Any) -> ServiceSpec:
    """A spec with these fields."""
    found = World(spec={**SPEC, **spec}).snapshot().resource
    assert found.spec is not None, found.problems
    return found.spec


def template(mounted: Mounted = MOUNTED, **spec: Any) -> Any:
    """The pod template."""
    return pod_template("bank", spec_of(**spec), SETTINGS, mounted, image="bank:1", config="c1")


def test_pod_fits_the_restricted_standard() -> None:
    pod = template()["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_pod_has_probes_on_its_health_port_and_time_to_hand_over() -> None:
    pod = template()["spec"]
    (container,) = pod["containers"]
    paths = [container[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")]
    assert paths == ["/livez", "/livez", "/readyz"]
    assert {"name": "health", "containerPort": 8081, "protocol": "TCP"} in container["ports"]
    assert container["lifecycle"] == {"preStop": {"sleep": {"seconds": DRAIN_S}}}
    assert pod["terminationGracePeriodSeconds"] == 30
    assert [item["name"] for item in container["env"]] == [
        "POD_NAME", "POD_NAMESPACE", "POD_UID", "POD_IP", "POD_NODE", "POD_IMAGE",
    ]  # fmt: skip


def test_replicas_avoid_each_other() -> None:
    pod = template()["spec"]
    assert "preferredDuringSchedulingIgnoredDuringExecution" in pod["affinity"]["podAntiAffinity"]
    assert pod["topologySpreadConstraints"][0]["topologyKey"] == "topology.kubernetes.io/zone"


def test_everything_that_a_spec_may_change_is_changed() -> None:
    found = template(podTemplate=EVERYTHING, resources={"requests": {"cpu": 1}, "limits": {"memory": "1Gi"}})
    pod, (container,) = found["spec"], found["spec"]["containers"]
    assert found["metadata"]["labels"]["team"] == "x"
    assert found["metadata"]["labels"][names.LABEL_SERVICE] == "bank", "the operator's labels win"
    assert pod["tolerations"] == [
        {"key": "gpu", "operator": "Exists"},
        {"key": "k", "operator": "Equal", "value": "v", "tolerationSeconds": 0},
    ]
    assert pod["affinity"] == {"nodeAffinity": {}}
    assert pod["topologySpreadConstraints"][0]["maxSkew"] == 2
    assert (pod["priorityClassName"], pod["imagePullSecrets"]) == ("high", [{"name": "pull"}])
    assert pod["securityContext"]["runAsUser"] == 1000
    assert pod["securityContext"]["supplementalGroups"] == [7]
    assert container["env"][-1] == {"name": "C", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    assert container["volumeMounts"][-1] == {"name": "data", "mountPath": "/data", "readOnly": True, "subPath": "x"}
    assert container["resources"] == {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}
    assert (pod["nodeSelector"], pod["terminationGracePeriodSeconds"]) == ({"disk": "fast"}, 60)


def test_secrets_are_mounted_where_there_are_any() -> None:
    def mounts(mounted: Mounted) -> list[str]:
        return [item["mountPath"] for item in template(mounted)["spec"]["containers"][0]["volumeMounts"]]

    plain = ["/etc/deathless", "/var/lib/deathless/log", "/tmp"]
    secret = ["/etc/deathless-tls", "/etc/deathless-lock-tls", "/etc/deathless-lock-user", "/etc/deathless-token"]
    assert mounts(Mounted(config_map="c", claim="s")) == plain
    assert mounts(MOUNTED) == plain + secret


@pytest.mark.parametrize(
    ("spec", "same"),
    [
        ({}, True),
        ({"replicas": 5}, True),
        ({"suspend": True}, True),
        ({"resources": {"requests": {"cpu": "1"}}}, False),
        ({"podTemplate": {"env": [{"name": "A", "value": "b"}]}}, False),
    ],
)
def test_hash_changes_with_what_makes_a_pod(spec: dict[str, Any], same: bool) -> None:
    assert (template_hash(template(**spec)) == template_hash(template())) == same


def test_stateful_set_leaves_the_order_to_us() -> None:
    found: Any = stateful_set("bank", spec_of(), SETTINGS, MOUNTED, image="bank:1", config="c1", replicas=2)
    assert (found["podManagementPolicy"], found["updateStrategy"]) == ("Parallel", {"type": "OnDelete"})
    assert (found["replicas"], found["serviceName"]) == (2, "bank-replicas")
    assert found["selector"]["matchLabels"].items() <= found["template"]["metadata"]["labels"].items()


def test_digest_does_not_depend_on_the_order_of_keys() -> None:
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1}) != digest({"a": 1, "b": 3})


def test_operators_token_is_mounted_where_replicas_look_for_it_and_keeps_no_pod_waiting() -> None:
    spec = template(Mounted(config_map="c", claim="l", operator_token="bank-operator-token"))["spec"]
    (volume,) = [each for each in spec["volumes"] if each["name"] == "deathless-operator-token"]
    assert volume["secret"]["secretName"] == "bank-operator-token"
    assert volume["secret"]["optional"] is True
    (mount,) = [each for each in spec["containers"][0]["volumeMounts"] if each["name"] == volume["name"]]
    assert mount["readOnly"] is True and "subPath" not in mount, "a file of a subPath is never renewed"
    assert f"{mount['mountPath']}/{names.OPERATOR_TOKEN_KEY}" == OPERATOR_TOKEN_PATH


def test_room_for_an_outboxs_files_is_what_the_runtime_takes_of_it() -> None:
    assert SPILL_FACTOR == SPOOL_FACTOR, "else kubelet evicts a pod whose outbox is full"
    of_two = _sizes({"limits": {"outboxBytesMax": 2 << 30}})
    of_one = _sizes({"limits": {"outboxBytesMax": 1 << 30}})
    assert [(high - low) << 20 for low, high in zip(of_one, of_two, strict=True)] == [SPOOL_FACTOR << 30]


def _sizes(spec: dict[str, Any]) -> list[int]:
    """Limits of the pod's own folders that depend on the outbox, MiB."""
    volumes = template(**spec)["spec"]["volumes"]
    limits = [volume["emptyDir"].get("sizeLimit", "") for volume in volumes if "emptyDir" in volume]
    return [int(limit.removesuffix("Mi")) for limit in limits if limit]


def test_callers_tokens_and_their_issuers_authorities_are_mounted() -> None:
    spec = template(Mounted(config_map="c", claim="l", callers="callers", issuer_ca="login-ca"))["spec"]
    mounted = {each["name"]: each["mountPath"] for each in spec["containers"][0]["volumeMounts"]}
    assert mounted["deathless-callers"] == "/etc/deathless-callers"
    assert mounted["deathless-issuer-ca"] == "/etc/deathless-issuer-ca"
    named = {each["name"]: each.get("secret", {}).get("secretName") for each in spec["volumes"]}
    assert (named["deathless-callers"], named["deathless-issuer-ca"]) == ("callers", "login-ca")


def test_former_code_runs_beside_a_replica_in_its_own_image() -> None:
    former = Former(image="bank:0", config_map="bank-config-0", fingerprint="bb" * 16)
    spec = spec_of(podTemplate=EVERYTHING, resources={"requests": {"cpu": "1"}})
    found: Any = pod_template("bank", spec, SETTINGS, MOUNTED, image="bank:1", config="c1", former=former)
    replica, beside = found["spec"]["containers"]
    assert (replica["image"], beside["image"], beside["name"]) == ("bank:1", "bank:0", "former")
    config = "/etc/deathless/replica.json"
    assert beside["command"] == ["deathless", "former", "--listen", "/tmp/former.sock", "-f", config]
    for key in ("resources", "securityContext"):
        assert beside[key] == replica[key]
    assert {"name": "POD_IMAGE", "value": "bank:0"} in beside["env"]
    assert "readinessProbe" not in beside
    assert "ports" not in beside
    assert found["metadata"]["annotations"][names.UPGRADING_TO_ANNOTATION] == "bb" * 16


def test_former_code_reads_the_log_and_has_no_secret_of_ours_and_no_token() -> None:
    former = Former(image="bank:0", config_map="bank-config-0", fingerprint="bb" * 16)
    found: Any = pod_template("bank", spec_of(), SETTINGS, MOUNTED, image="bank:1", config="c1", former=former)
    mounts = {mount["mountPath"]: mount for mount in found["spec"]["containers"][1]["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in found["spec"]["volumes"]}
    assert volumes[mounts["/etc/deathless"]["name"]]["configMap"]["name"] == "bank-config-0"
    assert mounts["/var/lib/deathless/log"]["readOnly"] is True
    assert mounts["/tmp"]["name"] == found["spec"]["containers"][0]["volumeMounts"][2]["name"], "the socket is in it"
    assert volumes[mounts["/tmp"]["name"]]["emptyDir"] == {}, "it holds the whole state"
    assert "emptyDir" in volumes[mounts["/var/run/secrets/kubernetes.io/serviceaccount"]["name"]]
    assert not [mount for mount in mounts.values() if "secret" in volumes[mount["name"]]]


def test_annotation_of_an_upgrade_is_nobody_elses() -> None:
    found = template(podTemplate={"annotations": {names.UPGRADING_TO_ANNOTATION: "bb" * 16}})
    assert names.UPGRADING_TO_ANNOTATION not in found["metadata"]["annotations"]

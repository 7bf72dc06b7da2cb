"""What the chart installs: it renders, it fits together, and it asks for no more than the strictest pod standard."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from collections import Counter
from typing import Any

import pytest
import yaml
from lab import kubernetes
from tests.unit.charts.rendering import (
    ALL_ON,
    CHART,
    CRD_CHART,
    KUBERNETES,
    NAMESPACE,
    ROOT,
    VARIANTS,
    Object,
    Refused,
    find,
    helm,
    pod_labels,
    pod_specs,
    render,
    render_text,
)

from deathless_operator.cli import certificates, run
from deathless_operator.cluster.connection import Connection
from deathless_operator.handlers.process import RunOptions

EVERY = pytest.mark.parametrize("values", VARIANTS.values(), ids=VARIANTS)
LOCK_STORE_KINDS = {"StatefulSet", "Service", "PodDisruptionBudget", "NetworkPolicy"}


def operator_arguments(objects: list[Object]) -> list[str]:
    """Return what the operator is started with, below `run`."""
    container = find(objects, "Deployment", "deathless-operator")["spec"]["template"]["spec"]["containers"][0]
    assert container["command"] == ["deathless-operator"]
    assert container["args"][0] == "run"
    return list(container["args"][1:])


def container_ports(spec: Object) -> dict[str, int]:
    """Return the named ports of a pod."""
    ports = [port for container in spec["containers"] for port in container.get("ports", ())]
    return {port["name"]: port["containerPort"] for port in ports}


# ---------------------------------------------------------------- rendering


def test_helm_finds_nothing_to_complain_about() -> None:
    said = helm("lint", "--strict", f"--kube-version={KUBERNETES}", str(CHART), str(CRD_CHART))
    assert "0 chart(s) failed" in said


@EVERY
def test_every_object_is_named_once_and_placed(values: Object) -> None:
    objects = render(values)
    wide = {"ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    keys: Counter[tuple[Any, ...]] = Counter()
    for each in objects:
        meta = each["metadata"]
        assert each["apiVersion"] and each["kind"] and meta["name"]
        assert ("namespace" not in meta) == (each["kind"] in wide), each
        keys[each["kind"], meta.get("namespace"), meta["name"]] += 1
    assert [key for key, count in keys.items() if count > 1] == []


@pytest.mark.parametrize("watched", [[], ["blue", "green"]])
def test_namespaced_installation_holds_nothing_of_the_whole_cluster(watched: list[str]) -> None:
    objects = render({"scope": "Namespaced", "operator": {"watchNamespaces": watched}})
    assert [each for each in objects if "namespace" not in each["metadata"]] == []
    places = {each["metadata"]["namespace"] for each in objects if each["kind"] == "Role"}
    assert places == {NAMESPACE, *watched}
    told = find(objects, "Deployment", "deathless-operator")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert f"--watch-namespaces={','.join(watched) or NAMESPACE}" in told


def test_namespaced_installation_drains_no_nodes() -> None:
    with pytest.raises(Refused, match="nodes belong to no namespace"):
        render({"scope": "Namespaced", "drills": {"nodeDrain": {"enabled": True}}})


@pytest.mark.parametrize("values", [{}, {"operator": {"watchNamespaces": ["blue"]}}, ALL_ON])
def test_policies_hold_the_operator_s_account_alone(values: Object) -> None:
    objects = render(values)
    place = values.get("namespaceOverride", NAMESPACE)
    account = f"system:serviceaccount:{place}:{values.get('serviceAccount', {}).get('name', 'deathless-operator')}"
    found = {each["metadata"]["name"]: each["spec"] for each in objects if each["kind"] == "ValidatingAdmissionPolicy"}
    bound = {each["spec"]["policyName"] for each in objects if each["kind"] == "ValidatingAdmissionPolicyBinding"}
    assert bound == set(found)
    (warns,) = [name for name in found if "callers" in name]
    del found[warns]
    for name, spec in found.items():
        if any(word in name for word in ("places", "pipelines", "drills")):
            # It meets everybody, since parameters are looked for first: so it is about our own label alone.
            labels = spec["matchConstraints"]["objectSelector"]["matchExpressions"]
            assert labels[0]["values"] == ["deathless-operator"] and "matchConditions" not in spec
        else:
            assert spec["matchConditions"][0]["expression"] == f"request.userInfo.username == '{account}'"
        assert spec["failurePolicy"] == "Fail"
    assert len(found) == (5 if values is ALL_ON else 4)
    assert not any("Admission" in each["kind"] for each in render(values | {"admissionPolicy": {"enabled": False}})), (
        "who has no right to make them leaves them out"
    )


def test_policy_about_callers_warns_and_refuses_nothing() -> None:
    objects = [each["spec"] for each in render({}) if "callers" in each["metadata"]["name"]]
    policy, binding = objects
    assert binding["validationActions"] == ["Warn"]
    assert policy["failurePolicy"] == "Ignore"
    (rule,) = policy["matchConstraints"]["resourceRules"]
    assert rule["resources"] == ["deathlessservices"], "a status is written all the time"


@pytest.mark.parametrize("made", [True, False])
def test_policy_about_callers_goes_by_the_services_own_network_policies(made: bool) -> None:
    """As condition OpenAccess does: the installation's own NetworkPolicies hold nobody off a service."""
    values: Object = {"operator": {"serviceNetworkPolicies": made}, "networkPolicy": {"enabled": not made}}
    policy = next(each["spec"] for each in render(values) if "callers" in each["metadata"]["name"])
    assert f"({str(made).lower()} && object.spec.?networkPolicy" in policy["validations"][0]["expression"]


@pytest.mark.parametrize(
    ("url", "port"),
    [("http://p.monitoring:9090", 9090), ("http://p.monitoring/prom", 80), ("https://p.monitoring", 443), ("", None)],
)
def test_operator_is_told_of_prometheus_and_let_out_to_it(url: str, port: int | None) -> None:
    found = render({"operator": {"prometheusUrl": url}, "networkPolicy": {"enabled": True}})
    (container,) = find(found, "Deployment", "deathless-operator")["spec"]["template"]["spec"]["containers"]
    assert [each for each in container["args"] if "prometheus" in each] == [f"--prometheus-url={url}"] * bool(url)
    egress = find(found, "NetworkPolicy", "deathless-operator")["spec"]["egress"]
    assert [each["ports"][0]["port"] for each in egress[2:]] == [port] * bool(url)


@EVERY
def test_every_object_of_the_release_carries_its_labels(values: Object) -> None:
    for each in render(values):
        if each["metadata"]["name"] in {"one", "two"}:
            continue
        labels = each["metadata"]["labels"]
        assert labels["app.kubernetes.io/part-of"] == "deathless"
        assert labels["app.kubernetes.io/name"] == f"deathless-{labels['app.kubernetes.io/component']}"
        assert (values.get("commonLabels") or {}).items() <= labels.items()


def test_second_release_in_a_namespace_has_the_names_of_the_first_so_helm_refuses_it() -> None:
    # They would be one installation to the services' status, with one Lease and two lock stores.
    told = helm("template", "another", str(CHART), f"--namespace={NAMESPACE}", f"--kube-version={KUBERNETES}")
    others = [found for found in yaml.safe_load_all(told) if found]
    for kind, name in (("Deployment", "deathless-operator"), ("StatefulSet", "deathless-lock-store")):
        assert find(others, kind, name)["metadata"]["namespace"] == NAMESPACE
        assert find(render({}), kind, name)["metadata"]["namespace"] == NAMESPACE


def test_rendering_twice_gives_the_same() -> None:
    # A certificate made while rendering would differ, and tools that deploy by rendering would replace it each time.
    first = render_text(CHART, {})
    assert first == helm("template", "deathless", str(CHART), f"-n={NAMESPACE}", f"--kube-version={KUBERNETES}")


def test_namespace_can_be_another_than_the_release() -> None:
    placed = {each["metadata"].get("namespace") for each in render(ALL_ON)}
    assert placed == {"elsewhere", "blue", "green", None}


def test_extra_objects_are_templates_as_objects_and_as_text() -> None:
    objects = render(ALL_ON)
    assert find(objects, "ConfigMap", "one")
    assert find(objects, "ConfigMap", "two")["metadata"]["namespace"] == "elsewhere"


def test_two_installations_do_not_share_objects_of_the_cluster() -> None:
    def names(namespace: str) -> set[str]:
        return {o["metadata"]["name"] for o in render({}, namespace=namespace) if "namespace" not in o["metadata"]}

    assert names("one").isdisjoint(names("two"))


@pytest.mark.parametrize(("version", "fits"), [("1.29.9", False), ("1.30.0", True), ("1.35.0", True), ("1.40.0", True)])
def test_kubernetes_below_the_range_is_refused(version: str, fits: bool) -> None:
    for chart in (CHART, CRD_CHART):
        if fits:
            assert render_text(chart, {}, kube_version=version)
        else:
            with pytest.raises(Refused, match="kubeVersion"):
                render_text(chart, {}, kube_version=version)


def test_both_charts_and_the_package_have_one_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for chart in (CHART, CRD_CHART):
        described = yaml.safe_load((chart / "Chart.yaml").read_text())
        assert (described["version"], described["appVersion"]) == (version, version)


# ---------------------------------------------------------------- pods


@EVERY
def test_every_pod_fits_the_restricted_standard(values: Object) -> None:
    allowed = {"configMap", "emptyDir", "secret", "projected", "downwardAPI", "persistentVolumeClaim", "csi", "name"}
    specs = pod_specs(render(values))
    assert specs
    for name, spec in specs:
        pod = spec["securityContext"]
        host_path = any("hostPath" in volume for volume in spec.get("volumes", ()))
        assert host_path == ("HostPath" in json.dumps(values) and name.startswith("StatefulSet")), name
        assert pod["runAsNonRoot"] is not host_path, name
        assert pod["seccompProfile"]["type"] == "RuntimeDefault", name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys(), name
        for volume in spec.get("volumes", ()):
            assert volume.keys() <= allowed or (host_path and "hostPath" in volume), name
        for container in [*spec["containers"], *spec.get("initContainers", ())]:
            own = container["securityContext"]
            assert own["allowPrivilegeEscalation"] is False, name
            assert own["readOnlyRootFilesystem"] is True, name
            assert own["capabilities"] == {"drop": ["ALL"]}, name
            assert container["resources"]["requests"] and container["resources"]["limits"]["memory"], name


@EVERY
def test_every_mount_has_its_volume(values: Object) -> None:
    objects = render(values)
    for name, spec in pod_specs(objects):
        claims = [
            template["metadata"]["name"]
            for each in objects
            if each["kind"] == "StatefulSet"
            for template in each["spec"].get("volumeClaimTemplates", ())
        ]
        volumes = {volume["name"] for volume in spec.get("volumes", ())} | set(claims)
        mounted = {mount["name"] for container in spec["containers"] for mount in container.get("volumeMounts", ())}
        assert mounted <= volumes, name


@EVERY
def test_every_selector_selects_a_pod_of_the_chart(values: Object) -> None:
    objects = render(values)
    labels = list(pod_labels(objects).values())

    def selects(selector: dict[str, str]) -> bool:
        return any(selector.items() <= each.items() for each in labels)

    for each in objects:
        spec = each.get("spec") or {}
        selector = {
            "Service": lambda s: s["selector"],
            "PodDisruptionBudget": lambda s: s["selector"]["matchLabels"],
            "NetworkPolicy": lambda s: s["podSelector"]["matchLabels"],
            "Deployment": lambda s: s["selector"]["matchLabels"],
            "StatefulSet": lambda s: s["selector"]["matchLabels"],
            "PodMonitor": lambda s: s["selector"].get("matchLabels", {}),
        }.get(each["kind"])
        if selector is not None:
            assert selects(selector(spec)), f"{each['kind']} {each['metadata']['name']}"


@EVERY
def test_every_named_port_is_one_of_its_pods(values: Object) -> None:
    objects = render(values)
    known = {name for _, spec in pod_specs(objects) for name in container_ports(spec)} | {"health"}
    for each in objects:
        spec = each.get("spec") or {}
        if each["kind"] == "Service":
            assert {port["targetPort"] for port in spec["ports"]} <= known
        if each["kind"] == "PodMonitor":
            assert {end["port"] for end in spec["podMetricsEndpoints"]} <= known
        if each["kind"] == "NetworkPolicy":
            rules = [*spec.get("ingress", ()), *spec.get("egress", ())]
            named = {p["port"] for rule in rules for p in rule.get("ports", ()) if isinstance(p["port"], str)}
            assert named <= known


def test_selectors_hold_nothing_that_an_upgrade_changes() -> None:
    for kind, name in (("Deployment", "deathless-operator"), ("StatefulSet", "deathless-lock-store")):
        selector = find(render({}), kind, name)["spec"]["selector"]["matchLabels"]
        assert selector.keys() == {"app.kubernetes.io/name", "app.kubernetes.io/component"}


# ---------------------------------------------------------------- the operator


@EVERY
def test_the_operator_takes_the_arguments_it_is_given(values: Object) -> None:
    arguments = operator_arguments(render(values))
    context = run.command.make_context("run", arguments)
    options = run.run_options(context.params, Connection(server="https://x.example"))
    assert options.ports == (8081, 8080)
    assert options.settings.image == find_image(render(values))


def find_image(objects: list[Object]) -> str:
    """Return the image of the operator."""
    spec = find(objects, "Deployment", "deathless-operator")["spec"]["template"]["spec"]
    return str(spec["containers"][0]["image"])


def test_values_reach_the_operator() -> None:
    def settings(values: Object) -> RunOptions:
        context = run.command.make_context("run", operator_arguments(render(values)))
        return run.run_options(context.params, Connection(server="https://x.example"))

    plain, full, minimal = settings({}), settings(ALL_ON), settings(VARIANTS["minimal"])
    assert plain.namespaces == () and full.namespaces == ("blue", "green")
    assert plain.elect and not minimal.elect
    assert plain.settings.lock_tls_secret == "deathless-lock-store-client-tls"
    assert len(plain.settings.lock_endpoints) == 3
    assert minimal.settings.lock_endpoints == ("https://etcd-0.example:2379", "https://etcd-1.example:2379")
    assert (minimal.settings.lock_tls_secret, minimal.settings.lock_user_secret) == ("etcd-tls", "etcd-user")
    assert not plain.settings.drill_agents and not plain.settings.drill_node_drain
    assert full.settings.drill_agents and full.settings.drill_node_drain
    assert full.settings.drill_agent_account == "deathless-drill-agent"
    assert find(render(ALL_ON), "ServiceAccount", "deathless-drill-agent")["automountServiceAccountToken"] is False


def test_image_is_named_by_digest_where_one_is_given() -> None:
    assert find_image(render({})).endswith("deathless:0.1.0")
    assert find_image(render({"image": {"tag": "2"}})).endswith("deathless:2")
    assert find_image(render(ALL_ON)).endswith("deathless@sha256:" + "a" * 64)


# ---------------------------------------------------------------- the lock store


def etcd_arguments(values: Object) -> dict[str, str]:
    """Return the members' arguments."""
    spec = find(render(values), "StatefulSet", "deathless-lock-store")["spec"]["template"]["spec"]
    pairs = (argument.removeprefix("--").partition("=") for argument in spec["containers"][0]["args"])
    return {name: value for name, _, value in pairs}


@pytest.mark.parametrize("name", ["default", "all-on", "small"])
def test_etcd_knows_every_argument(name: str) -> None:
    etcd = kubernetes.ensure("etcd")["etcd"]
    told = subprocess.run([str(etcd), "--help"], capture_output=True, text=True, timeout=30, check=False)
    known = set(re.findall(r"^\s+--([a-z0-9-]+)", told.stdout + told.stderr, re.MULTILINE))
    assert etcd_arguments(VARIANTS[name]).keys() - known == set()


def test_members_find_each_other_by_names_that_their_certificate_carries() -> None:
    for values in ({}, {"namespaceOverride": "elsewhere", "clusterDomain": "other.example"}):
        arguments = etcd_arguments(values)
        names = certificate_arguments(values)["--dns-names"].split(",")
        hosts = re.findall(r"https://([^:]+):2380", arguments["initial-cluster"])
        assert len(hosts) == 3 and set(hosts) <= set(names)
        endpoints = operator_arguments(render(values))
        joined = next(a for a in endpoints if a.startswith("--lock-endpoints="))
        assert set(re.findall(r"https://([^:]+):2379", joined)) == set(hosts)


def test_a_client_of_the_lock_store_cannot_pass_for_a_member() -> None:
    arguments, told = etcd_arguments({}), certificate_arguments({})
    assert arguments["peer-cert-allowed-cn"] == told["--server-name"] != told["--client-name"]
    assert {"client-cert-auth", "peer-client-cert-auth"} <= arguments.keys()
    mounted = find(render({}), "StatefulSet", "deathless-lock-store")["spec"]["template"]["spec"]["volumes"]
    assert [v["secret"]["secretName"] for v in mounted if "secret" in v] == [told["--server-secret"]]


def certificate_arguments(values: Object) -> dict[str, str]:
    """Return the arguments of the Job, which the command has to take."""
    jobs = [spec for name, spec in pod_specs(render(values)) if name.startswith("Job/deathless-certificates-")]
    arguments = jobs[0]["containers"][0]["args"]
    assert arguments[0] == "certificates"
    certificates.command.make_context("certificates", list(arguments[1:]))  # or it refuses
    return dict(argument.split("=", 1) for argument in arguments[1:])


def test_job_and_cron_job_run_the_same() -> None:
    specs = dict(pod_specs(render({})))
    job = next(spec for name, spec in specs.items() if name.startswith("Job/"))
    assert job == specs["CronJob/deathless-certificates"]


def test_another_job_has_another_name() -> None:
    def name(values: Object) -> str:
        return next(str(o["metadata"]["name"]) for o in render(values) if o["kind"] == "Job")

    assert name({}) == name({"operator": {"replicas": 3}})
    assert name({}) != name({"image": {"tag": "other"}})


@pytest.mark.parametrize("keep", [True, False])
def test_uninstalling_leaves_what_services_need_unless_told_otherwise(keep: bool) -> None:
    values: Object = {} if keep else VARIANTS["no-keep"]
    kept: set[tuple[str, str]] = set()
    gone: set[tuple[str, str]] = set()
    for each in render(values):
        held = (each["metadata"].get("annotations") or {}).get("helm.sh/resource-policy") == "keep"
        (kept if held else gone).add((each["kind"], each["metadata"]["name"]))
    needed = {
        ("StatefulSet", "deathless-lock-store"),
        ("Service", "deathless-lock-store"),
        ("Service", "deathless-lock-store-members"),
        ("PodDisruptionBudget", "deathless-lock-store"),
        ("NetworkPolicy", "deathless-lock-store"),
        ("ServiceAccount", "deathless-certificates"),
        ("Role", "deathless-certificates"),
        ("RoleBinding", "deathless-certificates"),
        ("CronJob", "deathless-certificates"),
        ("NetworkPolicy", "deathless-certificates"),
    }
    assert kept == (needed if keep else set())
    assert ("Deployment", "deathless-operator") in gone


def test_lock_store_of_the_user_makes_none_of_the_chart() -> None:
    names = {each["metadata"]["name"] for each in render(VARIANTS["minimal"])}
    assert not any("lock-store" in name or "certificates" in name for name in names)


def test_data_of_a_member_outlive_the_stateful_set() -> None:
    spec = find(render({}), "StatefulSet", "deathless-lock-store")["spec"]
    assert spec["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    assert spec["volumeClaimTemplates"][0]["spec"]["accessModes"] == ["ReadWriteOnce"]


def test_an_upgrade_of_the_chart_alone_does_not_restart_members() -> None:
    template = find(render({}), "StatefulSet", "deathless-lock-store")["spec"]["template"]
    assert "0.1.0" not in json.dumps(template)


# ---------------------------------------------------------------- switches


def test_monitoring_objects_are_made_where_the_kinds_are() -> None:
    def kinds(*arguments: str) -> set[str]:
        text = helm("template", "x", str(CHART), f"--kube-version={KUBERNETES}", *arguments)
        return {each["kind"] for each in yaml.safe_load_all(text) if each}

    both = {"PodMonitor", "PrometheusRule"}
    assert not kinds() & both
    known = "--api-versions=monitoring.coreos.com/v1/PodMonitor,monitoring.coreos.com/v1/PrometheusRule"
    assert both <= kinds(known)
    assert not kinds(known, "--set=podMonitor.mode=Never,alerts.mode=Never") & both


def test_policies_deny_what_they_do_not_name() -> None:
    policies = [each for each in render({}) if each["kind"] == "NetworkPolicy"]
    assert {each["metadata"]["name"] for each in policies} == {
        "deathless-operator",
        "deathless-lock-store",
        "deathless-certificates",
    }
    assert all(each["spec"]["policyTypes"] == ["Ingress", "Egress"] for each in policies)
    store = find(render({}), "NetworkPolicy", "deathless-lock-store")
    assert all(rule.get("from") for rule in store["spec"]["ingress"])


def test_notes_and_test_pod_are_there() -> None:
    pod = find(render({}), "Pod", "deathless-test-installation")
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    script = pod["spec"]["containers"][0]["args"][0]
    assert script == (CHART / "files" / "installation_test.py").read_text()


def test_section_of_the_documents_that_the_notes_name_is_there() -> None:
    notes = (CHART / "templates" / "NOTES.txt").read_text()
    named = re.findall(r"^(.+), so that .*: (docs/\S+\.md), section of that name\.$", notes, re.MULTILINE)
    assert named
    for heading, page in named:
        assert f"\n## {heading}\n" in (ROOT / page).read_text()

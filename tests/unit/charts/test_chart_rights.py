"""Rights: what the operator does it may do, what it grants it has, and beyond that there is nothing."""

from __future__ import annotations

import itertools

import pytest
from tests.unit.charts.rendering import ALL_ON, NAMESPACE, VARIANTS, Object, find, render

from deathless.base.manifest import ServiceSpec
from deathless_operator.cluster import kinds
from deathless_operator.cluster.kinds import Kind
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.plan.objects import Objects
from deathless_operator.plan.snapshot import ResourceView

READ = ("get", "list", "watch")
WRITE = ("create", "patch", "delete")
# What the operator does with each kind, in the namespaces of services.
NEEDED: dict[Kind, tuple[str, ...]] = {
    kinds.SERVICE: (*READ, "patch"),
    kinds.DRILL: (*READ, "patch"),
    kinds.POD: (*READ, *WRITE),
    kinds.SECRET: ("get", *WRITE),
    kinds.CONFIG_MAP: (*READ, *WRITE),
    kinds.KUBE_SERVICE: (*READ, *WRITE),
    kinds.SERVICE_ACCOUNT: (*READ, *WRITE),
    kinds.CLAIM: (*READ, *WRITE),
    kinds.STATEFUL_SET: (*READ, *WRITE),
    kinds.BUDGET: (*READ, *WRITE),
    kinds.ROLE: (*READ, *WRITE),
    kinds.ROLE_BINDING: (*READ, *WRITE),
    kinds.NETWORK_POLICY: (*READ, *WRITE),
    kinds.CERTIFICATE: (*READ, *WRITE),
    kinds.ISSUER: ("get",),
    kinds.EVENT: ("create", "patch"),
    kinds.CORE_EVENT: ("list",),
}
ELSEWHERE = {kinds.NODE, kinds.LEASE, kinds.CLUSTER_ISSUER}


def allowed(rules: list[Object]) -> set[tuple[str, str, str, str]]:
    """Return what rules allow as (group, resource, name or *, verb)."""
    return {
        one
        for rule in rules
        for one in itertools.product(
            rule["apiGroups"], rule["resources"], rule.get("resourceNames") or ["*"], rule["verbs"]
        )
    }


def group(kind: Kind) -> str:
    return kind.api_version.rpartition("/")[0]


def rules_of(values: Object, kind: str, name: str, namespace: str | None = None) -> list[Object]:
    return list(find(render(values), kind, name, namespace)["rules"])


@pytest.mark.parametrize(
    ("values", "kind", "name", "namespace"),
    [
        ({}, "ClusterRole", f"deathless-operator:{NAMESPACE}", None),
        (ALL_ON, "Role", "deathless-operator", "blue"),
        (ALL_ON, "Role", "deathless-operator", "green"),
    ],
)
def test_operator_may_do_what_it_does(values: Object, kind: str, name: str, namespace: str | None) -> None:
    may = allowed(rules_of(values, kind, name, namespace))
    for each, verbs in NEEDED.items():
        for verb in verbs:
            assert (group(each), each.plural, "*", verb) in may, f"{verb} {each.plural}"
    for plural in ("deathlessservices", "failoverdrills"):
        assert ("deathless.dev", f"{plural}/status", "*", "patch") in may
        assert ("deathless.dev", f"{plural}/finalizers", "*", "update") in may  # to be an owner that blocks deletion


def test_every_kind_of_the_operator_is_in_the_table() -> None:
    assert set(kinds.ALL) == NEEDED.keys() | ELSEWHERE


def test_operator_holds_what_it_grants_to_each_service() -> None:
    # Nobody can grant what he does not have.
    spec = ServiceSpec(module="bank:bank", image="bank:1")
    resource = ResourceView(namespace="default", name="bank", uid="1", generation=1, spec=spec)
    granted = [each for each in Objects(resource, spec, OperatorSettings()).access() if each["kind"] == "Role"]
    may = allowed(rules_of({}, "ClusterRole", f"deathless-operator:{NAMESPACE}"))
    given = {(group, what, "*", verb) for role in granted for group, what, _, verb in allowed(as_rules(role["rules"]))}
    assert given and given <= may


def as_rules(rules: object) -> list[Object]:
    """Take the rules of a planned Role for what they are."""
    assert isinstance(rules, list)
    return rules


@pytest.mark.parametrize("values", VARIANTS.values(), ids=VARIANTS)
def test_no_role_has_wildcards_or_lifts_itself(values: Object) -> None:
    for each in render(values):
        for rule in each.get("rules") or () if each["kind"] in {"Role", "ClusterRole"} else ():
            words = {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
            assert not words & {
                "*",
                "escalate",
                "bind",
                "impersonate",
                "pods/exec",
                "pods/attach",
                "pods/ephemeralcontainers",
            }


@pytest.mark.parametrize("values", VARIANTS.values(), ids=VARIANTS)
def test_nobody_lists_secrets(values: Object) -> None:
    for each in render(values):
        for rule in each.get("rules") or () if each["kind"] in {"Role", "ClusterRole"} else ():
            if "secrets" in rule["resources"]:
                assert not {"list", "watch", "deletecollection"} & set(rule["verbs"]), each["metadata"]["name"]


def test_named_namespaces_leave_no_right_elsewhere() -> None:
    may = allowed(rules_of(ALL_ON, "ClusterRole", "deathless-operator:elsewhere"))
    read = {"nodes", "namespaces", "customresourcedefinitions", "clusterissuers"}
    assert {resource for _, resource, _, _ in may} == read
    bound = [each for each in render(ALL_ON) if each["kind"] == "RoleBinding"]
    assert {each["metadata"]["namespace"] for each in bound} == {"blue", "green", "elsewhere"}


@pytest.mark.parametrize(("values", "may"), [({}, False), ({"drills": {"nodeDrain": {"enabled": True}}}, True)])
def test_nodes_are_changed_only_where_drills_may_drain_them(values: Object, may: bool) -> None:
    rights = allowed(rules_of(values, "ClusterRole", f"deathless-operator:{NAMESPACE}"))
    assert (("", "nodes", "*", "patch") in rights) is may
    assert (("", "pods/eviction", "*", "create") in rights) is may


def test_own_rights_are_limited_to_names() -> None:
    rights = allowed(rules_of({}, "Role", "deathless-operator-own"))
    assert ("coordination.k8s.io", "leases", "deathless-operator", "update") in rights
    assert ("", "secrets", "deathless-ca", "update") in rights
    assert ("", "secrets", "deathless-lock-store-client-tls", "get") in rights
    unnamed = {(resource, verb) for _, resource, name, verb in rights if name == "*"}
    named_later = {("configmaps", verb) for verb in ("get", "list", *WRITE)}  # records of services' keys
    named_later |= {("pods", verb) for verb in (*READ, "create", "delete")}  # what erases them; agents
    made = {("leases", "create"), ("secrets", "create"), ("events", "create"), ("events", "patch")}
    assert unnamed == made | named_later


def test_authority_of_the_lock_store_is_for_its_command_alone() -> None:
    holders = {
        each["metadata"]["name"]
        for each in render({})
        for rule in each.get("rules") or ()
        if "deathless-lock-store-ca" in rule.get("resourceNames", ())
    }
    assert holders == {"deathless-certificates"}


def test_viewers_read_and_editors_write_our_kinds() -> None:
    def aggregated(who: str) -> set[tuple[str, str, str, str]]:
        role = find(render({}), "ClusterRole", f"deathless-{who}:{NAMESPACE}")
        assert role["metadata"]["labels"][f"rbac.authorization.k8s.io/aggregate-to-{who}"] == "true"
        return allowed(role["rules"])

    assert {verb for _, _, _, verb in aggregated("view")} == {"get", "list", "watch"}
    assert aggregated("view") < aggregated("edit") == aggregated("admin")
    assert not any(resource.endswith("/status") and verb != "get" for _, resource, _, verb in aggregated("admin"))


def test_no_role_is_made_where_the_user_makes_them() -> None:
    kinds_made = {each["kind"] for each in render(VARIANTS["minimal"])}
    assert not kinds_made & {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "ServiceAccount"}

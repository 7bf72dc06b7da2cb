"""Rights: what the operator does it may do, what it grants it has, and beyond that there is nothing."""

from __future__ import annotations

import ast
import itertools

import pytest
from tests.unit.charts.rendering import ALL_ON, NAMESPACE, ROOT, VARIANTS, Object, find, render
from tests.unit.deathless_operator.plan.pipelines.pipeline_world import resource as pipeline_resource

from deathless.base.manifest import ServiceSpec
from deathless.base.manifest_parts import LogStorage
from deathless_operator.cluster import kinds, observe
from deathless_operator.cluster.kinds import Kind
from deathless_operator.handlers import watches
from deathless_operator.handlers.process import LATER
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.plan.pipelines.objects import PipelineObjects
from deathless_operator.plan.service.objects import Code, Lock, Objects
from deathless_operator.plan.service.placement import Mounted
from deathless_operator.plan.snapshot import ResourceView

READ = ("get", "list", "watch")
APPLY = ("create", "patch")  # server-side apply asks for both
# What the operator does with each kind, in the namespaces of services. What it owns goes by the garbage collector.
NEEDED: dict[Kind, tuple[str, ...]] = {
    kinds.SERVICE: (*READ, *APPLY),  # that of a pipeline; policies admit no other
    kinds.PIPELINE: READ,
    kinds.DRILL: (*READ, "patch"),  # its finalizer
    kinds.LIVE_UPGRADE: READ,
    kinds.REPLAY: (*READ, "delete"),  # one that has ended, after its time
    kinds.REHEARSAL: (*READ, "delete"),
    kinds.POD: (*READ, *APPLY, "delete"),
    kinds.SECRET: (*APPLY, "delete"),  # looked at by a dry run
    kinds.CONFIG_MAP: (*READ, *APPLY, "delete"),  # of settings that no pod has any more
    kinds.KUBE_SERVICE: (*READ, *APPLY),
    kinds.SERVICE_ACCOUNT: (*READ, *APPLY),
    kinds.CLAIM: (*READ, *APPLY),
    kinds.STATEFUL_SET: (*READ, *APPLY),
    kinds.BUDGET: (*READ, *APPLY),
    kinds.ROLE: (*READ, *APPLY),
    kinds.ROLE_BINDING: (*READ, *APPLY),
    kinds.NETWORK_POLICY: (*READ, *APPLY, "delete"),  # the spec may want it no longer
    kinds.CERTIFICATE: (*READ, *APPLY, "delete"),
    kinds.ISSUER: ("get",),
    kinds.EVENT: ("get", "create", "patch"),
    kinds.CORE_EVENT: ("list",),
}
# Of subresources: resource, verb.
NEEDED_BELOW = {
    ("deathless.dev", f"{kind.plural}/{part}", verb)
    for kind in (kinds.SERVICE, kinds.DRILL)
    for part, verb in (("status", "patch"), ("finalizers", "update"))
} | {
    ("deathless.dev", f"{kind.plural}/status", "patch")
    for kind in (kinds.LIVE_UPGRADE, kinds.REPLAY, kinds.REHEARSAL, kinds.PIPELINE)
}
DRAINS = {("", "pods/eviction", "create")}  # where drills may drain nodes
# Of the whole cluster, whatever namespaces are served.
WIDE = {
    *(("", "nodes", verb) for verb in READ),
    *(("", "namespaces", verb) for verb in READ),
    *(("apiextensions.k8s.io", "customresourcedefinitions", verb) for verb in READ),
    ("cert-manager.io", "clusterissuers", "get"),
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
def test_operator_may_do_what_it_does_and_nothing_else(
    values: Object, kind: str, name: str, namespace: str | None
) -> None:
    may = {(group, what, verb) for group, what, _, verb in allowed(rules_of(values, kind, name, namespace))}
    needed = {(group(each), each.plural, verb) for each, verbs in NEEDED.items() for verb in verbs} | NEEDED_BELOW
    needed |= WIDE if kind == "ClusterRole" else set()
    needed |= DRAINS if values.get("drills", {}).get("nodeDrain") else set()
    assert needed - may == set(), "it needs these and may not"
    assert may - needed == set(), "it may and needs not"


VERBS = {
    "get": "get", "find": "get", "list": "list", "create": "create", "replace": "update", "patch": "patch",
    "delete": "delete", "look": "patch",
}  # fmt: skip


def asked_by_the_code() -> set[tuple[Kind, str]]:
    """What the operator's process asks of kinds that its source names; the plugin and commands are other accounts."""
    found = set()
    for path in (ROOT / "operator" / "deathless_operator").rglob("*.py"):
        if path.parent.name in {"cli", "drill"}:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
                continue
            first, verb = node.args[0], VERBS.get(node.func.attr)
            kind = getattr(kinds, first.id, None) if isinstance(first, ast.Name) else None
            if verb is not None and isinstance(kind, Kind):
                found.add((kind, verb))
    return found


def test_every_verb_of_the_code_is_in_the_table() -> None:
    asked = asked_by_the_code()
    assert (kinds.POD, "delete") in asked and (kinds.SECRET, "get") in asked, "the source is read"
    asked.remove((kinds.SECRET, "get"))  # in its own namespace, by name: `test_own_rights_are_limited_to_names`
    missing = {(kind, verb) for kind, verb in asked if kind not in ELSEWHERE and verb not in NEEDED[kind]}
    assert missing == set()


def test_every_kind_that_is_listed_watched_or_made_is_in_the_table() -> None:
    for kind in observe.LISTED:
        assert {"get", "list"} <= set(NEEDED[kind])
    for kind in (*watches.OWNED, kinds.CERTIFICATE, kinds.SERVICE, kinds.DRILL, *LATER):
        assert {"list", "watch"} <= set(NEEDED[kind])
    spec = ServiceSpec(module="bank:bank", image="bank:1", log_storage=LogStorage(size="1Gi"))
    resource = ResourceView(namespace="default", name="bank", uid="1", generation=1, spec=spec)
    objects = Objects(resource, spec, OperatorSettings())
    lock, code = Lock(endpoints=("https://e:1",), prefix="/d/"), Code(image="bank:1", module="bank:bank")
    claim = objects.claim()
    assert claim is not None
    made = [*objects.supports(lock, [code]), claim]
    made.append(objects.stateful_set(Mounted(config_map="c", claim="l"), lock, code, replicas=3))
    made += pipeline_objects().all()
    applied = {kinds.kind_of(manifest) for manifest in made}
    assert applied == {kind for kind, verbs in NEEDED.items() if set(APPLY) <= set(verbs)} - {
        kinds.POD, kinds.SECRET, kinds.CERTIFICATE, kinds.EVENT,
    }  # fmt: skip


def pipeline_objects() -> PipelineObjects:
    """What is made for a pipeline."""
    found = pipeline_resource().pipeline
    assert found is not None
    return PipelineObjects(found, "shop", "u", OperatorSettings())


def test_every_kind_of_the_operator_is_in_the_table() -> None:
    assert set(kinds.ALL) == NEEDED.keys() | ELSEWHERE


def test_operator_holds_what_it_grants_to_each_service() -> None:
    # Nobody can grant what he does not have.
    spec = ServiceSpec(module="bank:bank", image="bank:1")
    resource = ResourceView(namespace="default", name="bank", uid="1", generation=1, spec=spec)
    made = [*Objects(resource, spec, OperatorSettings()).access(), *pipeline_objects().access()]
    granted = [each for each in made if each["kind"] == "Role"]
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
    assert {verb for _, what, name, verb in rights if what in {"leases", "secrets"} and name != "*"} == {
        "get",
        "update",
    }
    assert ("", "secrets", "deathless-ca", "update") in rights
    assert ("", "secrets", "deathless-lock-store-client-tls", "get") in rights
    unnamed = {(resource, verb) for _, resource, name, verb in rights if name == "*"}
    named_later = {("configmaps", verb) for verb in ("get", "list", *APPLY, "delete")}  # records of services' keys
    named_later |= {("pods", verb) for verb in (*READ, "create", "delete")}  # what erases them; agents
    made = {("leases", "create"), ("secrets", "create"), *(("events", verb) for verb in ("get", "create", "patch"))}
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

"""Users of the lock store in the chart: one setting, least rights for the pod that carries them, nothing when off."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from tests.unit.charts.rendering import CHART, NAMESPACE, VARIANTS, Object, Refused, find, render, render_text
from tests.unit.charts.test_chart_rendering import operator_arguments
from tests.unit.charts.test_network_policies import API, ETCD, GUARDED, NAMES, passing, scene

from deathless_operator.cli import certificates, lock_users
from deathless_operator.cli.certificates import USER_URI
from deathless_operator.model import names

ON: Object = {"lockStore": {"users": {"enabled": True}}}
WITHDRAW: Object = {"lockStore": {"users": {"withdraw": True}}}
NAMED: Object = {"operator": {"watchNamespaces": ["blue"]}, **ON}
SECRETS = {names.LOCK_USERS_SECRET, names.LOCK_ADMIN_SECRET}


def container(objects: list[Object], kind: str, name: str) -> Object:
    """The one container of what makes pods."""
    found: Object = find(objects, kind, name)["spec"]["template"]["spec"]["containers"][0]
    return found


def allowed(role: Object) -> set[tuple[str, str, str]]:
    """What a role allows, as (resource, name or *, verb)."""
    return {
        each
        for rule in role["rules"]
        for each in itertools.product(rule["resources"], rule.get("resourceNames") or ["*"], rule["verbs"])
    }


@pytest.mark.parametrize("name", [each for each in VARIANTS if not each.startswith("users")])
def test_nothing_of_it_is_there_while_it_is_off(name: str) -> None:
    text = render_text(CHART, VARIANTS[name])
    assert not [word for word in ("lock-users", names.LOCK_USERS_TLS_SECRET, names.LOCK_ADMIN_SECRET) if word in text]


@pytest.mark.parametrize("values", [ON, WITHDRAW, NAMED])
def test_pod_and_operator_are_told_what_they_understand(values: Object) -> None:
    objects = render(values)
    assert "--lock-users" in operator_arguments(objects)
    found = container(objects, "Deployment", "deathless-lock-users")
    assert (found["command"], found["args"][0]) == (["deathless-operator"], "lock-users")
    given = lock_users.command.make_context("lock-users", list(found["args"][1:])).params
    operator = dict(each.partition("=")[::2] for each in operator_arguments(objects))
    assert given["endpoints"] == operator["--lock-endpoints"], "both tell the same store"
    assert given["watch_namespaces"] == operator.get("--watch-namespaces", "")
    assert (given["namespace"], given["withdraw"]) == (NAMESPACE, values is WITHDRAW)
    spec = find(objects, "Deployment", "deathless-lock-users")["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    mounted = [each["secret"]["secretName"] for each in spec["template"]["spec"]["volumes"] if "secret" in each]
    assert mounted == [names.LOCK_USERS_TLS_SECRET]


def test_certificate_without_a_common_name_is_made_by_either_source() -> None:
    objects = render(ON)
    job = next(each for each in objects if each["kind"] == "Job")["spec"]["template"]["spec"]["containers"][0]
    given = certificates.command.make_context("certificates", list(job["args"][1:])).params
    assert given["user_secret"] == names.LOCK_USERS_TLS_SECRET
    role = find(objects, "Role", "deathless-certificates")
    assert ("secrets", names.LOCK_USERS_TLS_SECRET, "update") in allowed(role)
    issued = find(render(VARIANTS["users-named"]), "Certificate", "deathless-lock-store-user")["spec"]
    assert (issued["secretName"], issued["uris"]) == (names.LOCK_USERS_TLS_SECRET, [USER_URI])
    assert "commonName" not in issued and "dnsNames" not in issued


@pytest.mark.parametrize(
    ("values", "kind", "name"),
    [(ON, "ClusterRole", f"deathless-lock-users:{NAMESPACE}"), (NAMED, "Role", "deathless-lock-users")],
)
def test_pod_lists_who_opens_the_store_and_writes_two_secrets(values: Object, kind: str, name: str) -> None:
    objects = render(values)
    listed = {("deathlessservices", "*", "list"), ("statefulsets", "*", "list"), ("pods", "*", "list")}
    assert allowed(find(objects, kind, name)) == listed
    own = allowed(find(objects, "Role", "deathless-lock-users-own"))
    written = {("secrets", secret, verb) for secret in SECRETS for verb in ("get", "update")}
    assert own == written | {("secrets", "*", "create")}
    subjects = {
        (each["roleRef"]["name"], each["metadata"].get("namespace"))
        for each in objects
        if each["kind"].endswith("RoleBinding") and each["subjects"][0]["name"] == "deathless-lock-users"
    }
    assert subjects == {("deathless-lock-users-own", NAMESPACE), (name, "blue" if values is NAMED else None)}


def test_policy_holds_what_it_makes_to_these_secrets_without_a_type() -> None:
    policy = find(render(ON), "ValidatingAdmissionPolicy", f"deathless-lock-users.{NAMESPACE}")["spec"]
    (rule,) = policy["matchConstraints"]["resourceRules"]
    assert (rule["resources"], rule["operations"]) == (["secrets"], ["CREATE", "UPDATE"])
    assert f"system:serviceaccount:{NAMESPACE}:deathless-lock-users'" in policy["matchConditions"][0]["expression"]
    (validation,) = policy["validations"]
    assert all(f"'{name}'" in validation["expression"] for name in (*SECRETS, "Opaque", NAMESPACE))


def test_operator_reads_two_secrets_more_and_no_administrators_password() -> None:
    before, after = (allowed(find(render(each), "Role", "deathless-operator-own")) for each in ({}, ON))
    more: set[Any] = {("secrets", names.LOCK_USERS_TLS_SECRET, "get"), ("secrets", names.LOCK_USERS_SECRET, "get")}
    assert after - before == more and before <= after


def test_pod_reaches_lock_store_and_api_server_and_nobody_reaches_it() -> None:
    rules, pods = scene(ON)
    users = pods["lock-users"]
    reached = {name: found for name in (*GUARDED, "names", "outside") if (found := passing(rules, users, pods[name]))}
    assert reached == {"lock-store": {ETCD}, "names": {*NAMES, *API}, "outside": {*NAMES, *API}}
    assert not [name for name, pod in pods.items() if pod is not users and passing(rules, pod, users)]


def test_etcd_of_ones_own_is_refused() -> None:
    with pytest.raises(Refused, match=r"about the chart's own lock store"):
        render_text(CHART, {"lockStore": {"enabled": False, "users": {"enabled": True}}})

#!/usr/bin/env python3
"""Writes the table of docs/kubernetes/rights.md: what `kubectl auth can-i` says of operator and pods.

Why: what an account may do is spread over roles in a chart and roles that the operator makes. The page is computed from
the rendered chart and from the operator's own objects, and a test asks a real API server the same questions
(tests/apiserver/test_rights_page.py).

Guarantees: `--check` fails where the page is not as it would be written. Does not: know admission policies; the page
says beside the tables what they hold back.

    python tools/rights.py            write
    python tools/rights.py --check    exit 1 when the page differs
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a script
from lab import kubernetes

from deathless.base.manifest import ServiceSpec
from deathless.base.manifest_parts import LogStorage
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.plan.service.objects import Objects
from deathless_operator.plan.snapshot import ResourceView

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "kubernetes" / "rights.md"
OPERATOR = "deathless-system"  # its namespace
SHOP = "shop"  # of a service
OTHER = "other"  # of somebody else, who has none
FIRST = "| can it |"  # begins the table; a line without text ends it


class Question(NamedTuple):
    """What `kubectl auth can-i` is asked."""

    verb: str
    group: str
    resource: str
    namespace: str  # empty: in all namespaces, or of no namespace
    name: str = ""

    @property
    def shown(self) -> str:
        """As the page shows it."""
        what = f"{self.verb} {self.resource}" + (f"/{self.name}" if self.name else "")
        return f"`{what}`" + (f" in `{self.namespace}`" if self.namespace else "")


QUESTIONS = tuple(
    Question(*each)
    for each in (
        ("get", "", "secrets", SHOP),
        ("list", "", "secrets", SHOP),
        ("patch", "", "secrets", SHOP),
        ("get", "", "secrets", "kube-system"),
        ("patch", "", "secrets", "kube-system"),
        ("patch", "", "secrets", OTHER),
        ("delete", "", "secrets", SHOP),
        ("delete", "", "secrets", "kube-system"),
        ("delete", "", "configmaps", SHOP),
        ("get", "", "secrets", OPERATOR, "deathless-ca"),
        ("get", "", "secrets", OPERATOR, "deathless-lock-users"),
        ("get", "", "secrets", OPERATOR, "deathless-lock-admin"),
        ("get", "", "secrets", OPERATOR, "another"),
        ("create", "", "pods", SHOP),
        ("create", "", "pods", OTHER),
        ("create", "", "pods", "kube-system"),
        ("delete", "", "pods", SHOP),
        ("get", "", "pods", SHOP, "bank-0"),
        ("patch", "", "pods", SHOP, "bank-0"),
        ("patch", "", "pods", SHOP, "another-0"),
        ("create", "", "pods/exec", SHOP),
        ("create", "apps", "statefulsets", SHOP),
        ("create", "apps", "statefulsets", OTHER),
        ("delete", "", "persistentvolumeclaims", SHOP),
        ("patch", "deathless.dev", "deathlessservices", SHOP),
        ("patch", "deathless.dev", "deathlessservices/status", SHOP),
        ("create", "deathless.dev", "deathlessservices", SHOP),
        ("create", "rbac.authorization.k8s.io", "roles", SHOP),
        ("create", "rbac.authorization.k8s.io", "clusterroles", ""),
        ("create", "rbac.authorization.k8s.io", "clusterrolebindings", ""),
        ("create", "", "serviceaccounts/token", SHOP),
        ("impersonate", "", "users", ""),
        ("get", "", "nodes", ""),
        ("patch", "", "nodes", ""),
        ("list", "", "namespaces", ""),
        ("create", "admissionregistration.k8s.io", "validatingadmissionpolicies", ""),
    )
)
VALUES: Mapping[str, tuple[str, ...]] = {
    "operator, cluster": (),
    "operator, named": ("--set=operator.watchNamespaces={shop}",),
    "operator, namespaced": ("--set=operator.watchNamespaces={shop}", "--set=scope=Namespaced"),
}
PODS = "pods of `bank`"
LOCK_USERS = "lock users"
LOCK_USERS_ACCOUNT = "deathless-lock-users"
LOCK_USERS_VALUES = ("--set=lockStore.users.enabled=true",)


class Rule(NamedTuple):
    """A rule and where it holds; an empty namespace: everywhere."""

    namespace: str
    body: Mapping[str, Any]


def account_rules(arguments: Iterable[str], account: str = "deathless-operator") -> list[Rule]:
    """Give the rules that a release grants an account of its own."""
    chart = [str(kubernetes.ensure("helm")["helm"]), "template", "deathless", str(ROOT / "charts" / "deathless")]
    chart += [f"--namespace={OPERATOR}", "--kube-version=1.35.0", *arguments]
    text = subprocess.run(chart, check=True, capture_output=True, text=True).stdout
    objects = [each for each in yaml.safe_load_all(text) if each]
    roles = {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each["rules"]
        for each in objects
        if each["kind"] in ("Role", "ClusterRole")
    }
    found = []
    for each in objects:
        if not each["kind"].endswith("RoleBinding") or each["subjects"][0]["name"] != account:
            continue
        place = each["metadata"].get("namespace", "")
        kind = each["roleRef"]["kind"]
        rules = roles[kind, place if kind == "Role" else "", each["roleRef"]["name"]]
        found += [Rule(place, rule) for rule in rules]
    return found


def pod_rules() -> list[Rule]:
    """Give the rules that the operator grants to a service's pods."""
    spec = ServiceSpec(module="bank:bank", image="bank:1", log_storage=LogStorage(size="1Gi"))
    view = ResourceView(namespace=SHOP, name="bank", uid="u", generation=1, spec=spec)
    role = next(each for each in Objects(view, spec, OperatorSettings()).access() if each["kind"] == "Role")
    rules: Any = role["rules"]
    return [Rule(SHOP, rule) for rule in rules]


def may(rules: Iterable[Rule], asked: Question) -> bool:
    """Answer as RBAC does."""
    return any(
        rule.namespace in ("", asked.namespace)
        and asked.group in rule.body["apiGroups"]
        and asked.resource in rule.body["resources"]
        and asked.verb in rule.body["verbs"]
        and (not rule.body.get("resourceNames") or asked.name in rule.body["resourceNames"])
        for rule in rules
    )


def answers() -> dict[str, list[bool]]:
    """Give what each account may, in the order of the questions."""
    accounts = {name: account_rules(values) for name, values in VALUES.items()} | {PODS: pod_rules()}
    accounts[LOCK_USERS] = account_rules(LOCK_USERS_VALUES, LOCK_USERS_ACCOUNT)
    return {name: [may(rules, asked) for asked in QUESTIONS] for name, rules in accounts.items()}


def page() -> str:
    """Give the page's text with its table as it is to be."""
    found = answers()
    lines = [f"{FIRST} {' | '.join(found)} |", "| --- |" + " --- |" * len(found)]
    for number, asked in enumerate(QUESTIONS):
        cells = " | ".join("yes" if each[number] else "no" for each in found.values())
        lines.append(f"| {asked.shown} | {cells} |")
    head, _, rest = PAGE.read_text().partition(FIRST)
    return head + "\n".join(lines) + "\n\n" + rest.partition("\n\n")[2]


def main() -> int:
    """Write or check; returns the exit code."""
    text = page()
    if "--check" in sys.argv[1:]:
        return int(PAGE.read_text() != text)
    PAGE.write_text(text)
    print(PAGE.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Renders the charts with a real helm, for the tests beside it.

Guarantees: each set of values is rendered once per process. Does not: talk to a cluster, so `lookup` finds nothing.
"""

from __future__ import annotations

import functools
import json
import pickle
import subprocess
from pathlib import Path
from typing import Any

import yaml
from lab import kubernetes

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "charts" / "deathless"
CRD_CHART = ROOT / "charts" / "deathless-crds"
NAMESPACE = "deathless-system"
KUBERNETES = "1.35.0"

Object = dict[str, Any]

#: Everything that can be switched on, and every free-form value set.
ALL_ON: Object = {
    "image": {"digest": "sha256:" + "a" * 64, "pullSecrets": [{"name": "pull"}]},
    "namespaceOverride": "elsewhere",
    "commonLabels": {"team": "blue"},
    "commonAnnotations": {"note": "yes"},
    "extraObjects": [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", "namespace": "elsewhere"}},
        'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: two, namespace: {{ include "deathless.namespace" . }}}',
    ],
    "operator": {
        "replicas": 3,
        "watchNamespaces": ["blue", "green"],
        "extraArgs": ["--log-level=debug"],
        "extraEnv": [{"name": "X", "value": "y"}],
        "extraVolumes": [{"name": "x", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "x", "mountPath": "/x"}],
        "podAnnotations": {"a": "b"},
        "podLabels": {"c": "d"},
        "nodeSelector": {"e": "f"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "high",
    },
    "serviceAccount": {"name": "other", "annotations": {"g": "h"}},
    "drills": {"nodeDrain": {"enabled": True}, "privileged": {"enabled": True}},
    "networkPolicy": {"metricsFrom": [{"podSelector": {}}]},
    "lockStore": {
        "fsync": False,
        "extraArgs": ["--log-level=warn"],
        "antiAffinity": "Preferred",
        "podAnnotations": {"i": "j"},
        "nodeSelector": {"k": "l"},
        "tolerations": [{"operator": "Exists"}],
        "priorityClassName": "higher",
        "storage": {"storageClassName": "fast"},
    },
    "podMonitor": {"mode": "Always", "labels": {"release": "prom"}},
    "alerts": {"mode": "Always", "runbookUrl": "https://docs.example/alerts/", "alertLabels": {"team": "blue"}},
    "dashboards": {"enabled": True, "annotations": {"folder": "x"}},
}
#: The least that works: one of each, a lock store of one's own.
MINIMAL: Object = {
    "operator": {"replicas": 1, "leaderElection": {"enabled": False}, "spread": False},
    "serviceAccount": {"create": False, "name": "mine"},
    "rbac": {"create": False},
    "networkPolicy": {"enabled": False},
    "lockStore": {
        "enabled": False,
        "external": {
            "endpoints": ["https://etcd-0.example:2379", "https://etcd-1.example:2379"],
            "tlsSecret": "etcd-tls",
            "userSecret": "etcd-user",
        },
    },
    "podMonitor": {"mode": "Never"},
    "alerts": {"mode": "Never"},
    "tests": {"enabled": False},
}
#: A laptop's cluster of one node.
SMALL: Object = {
    "lockStore": {
        "members": 1,
        "storage": {"type": "HostPath"},
        "antiAffinity": "Off",
        "certificates": {"source": "CertManager"},
    }
}
VARIANTS: dict[str, Object] = {
    "default": {},
    "all-on": ALL_ON,
    "minimal": MINIMAL,
    "small": SMALL,
    "no-keep": {"lockStore": {"keepOnUninstall": False}},
    "users": {"lockStore": {"users": {"enabled": True}}},
    "users-named": {
        "operator": {"watchNamespaces": ["blue"]},
        "lockStore": {"users": {"enabled": True, "withdraw": True}, "certificates": {"source": "CertManager"}},
    },
    "empty-dir": {"lockStore": {"members": 1, "storage": {"type": "EmptyDir"}, "certificates": {"source": "Secrets"}}},
}


class Refused(Exception):
    """Helm would not render; the message is its own."""


def helm(*arguments: str, values: Object | None = None) -> str:
    """Run helm and return what it prints.

    Raises:
        Refused: it failed.
        kubernetes.GoMissing: there is none, and none can be built.
    """
    program = kubernetes.ensure("helm")["helm"]
    done = subprocess.run(
        [str(program), *arguments],
        input=json.dumps(values or {}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode != 0:
        raise Refused(done.stderr)
    return done.stdout


def render_text(chart: Path, values: Object, *, namespace: str = NAMESPACE, kube_version: str = KUBERNETES) -> str:
    """Render a chart as `helm template` does."""
    return _render(chart, json.dumps(values, sort_keys=True), namespace, kube_version)


@functools.cache
def _render(chart: Path, values: str, namespace: str, kube_version: str) -> str:
    return helm(
        "template",
        "deathless",
        str(chart),
        f"--namespace={namespace}",
        f"--kube-version={kube_version}",
        "--values=-",
        values=json.loads(values),
    )


def render(values: Object, chart: Path = CHART, *, namespace: str = NAMESPACE) -> list[Object]:
    """Render a chart and return its objects."""
    found: list[Object] = pickle.loads(_read(render_text(chart, values, namespace=namespace)))
    return found


@functools.cache
def _read(text: str) -> bytes:
    """Read what was rendered, once for all who want it; each gets objects of its own."""
    return pickle.dumps([found for found in yaml.load_all(text, yaml.CSafeLoader) if found])


def find(objects: list[Object], kind: str, name: str, namespace: str | None = None) -> Object:
    """Return the one object of that kind and name."""
    found = [
        each
        for each in objects
        if each["kind"] == kind
        and each["metadata"]["name"] == name
        and namespace in {None, each["metadata"].get("namespace")}
    ]
    assert len(found) == 1, f"{kind} {name}: {len(found)} of them"
    return found[0]


def pod_specs(objects: list[Object]) -> list[tuple[str, Object]]:
    """Return every pod spec with the name of what it belongs to."""
    found = []
    for each in objects:
        name, spec = f"{each['kind']}/{each['metadata']['name']}", each.get("spec") or {}
        if each["kind"] == "Pod":
            found.append((name, spec))
        elif each["kind"] in {"Deployment", "StatefulSet", "Job"}:
            found.append((name, spec["template"]["spec"]))
        elif each["kind"] == "CronJob":
            found.append((name, spec["jobTemplate"]["spec"]["template"]["spec"]))
    return found


def pod_labels(objects: list[Object]) -> dict[str, dict[str, str]]:
    """Return the labels of the pods that each workload makes."""
    found: dict[str, dict[str, str]] = {}
    for each in objects:
        if each["kind"] in {"Deployment", "StatefulSet", "Job"}:
            found[f"{each['kind']}/{each['metadata']['name']}"] = each["spec"]["template"]["metadata"]["labels"]
        elif each["kind"] == "Pod":
            found[f"Pod/{each['metadata']['name']}"] = each["metadata"]["labels"]
    return found

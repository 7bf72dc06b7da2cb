"""The charts on a real API server: every object is one it takes, and installing, testing and removing work.

Releases of their own in namespaces of their own, but for the last test, which takes the installation of `installed.py`
away and puts it back. The kinds are the cluster's, and stay.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from lab.cluster.machine import ROOT, CommandFailed, wait_until
from tests.cluster import installed as lab
from tests.cluster.installed import IMAGE, VALUES, Lab, Ledger
from tests.cluster.under_load import called
from tests.unit.charts.rendering import CHART, CRD_CHART, VARIANTS, pod_specs, render

pytestmark = pytest.mark.cluster

# Kinds of other projects, which the cluster does not have; tests/apiserver has them.
FOREIGN = ("monitoring.coreos.com/", "cert-manager.io/")
RELEASE = "other"
PLACES = ("chart-rendered", "blue", "green", "elsewhere")
#: One of each, beside whatever else is installed: two installations do not share names.
SMALL: dict[str, Any] = {
    "image": {"repository": IMAGE, "pullPolicy": "IfNotPresent"},
    "operator": {"replicas": 1, "watchNamespaces": ["default"]},
    "lockStore": VALUES["lockStore"] | {"members": 1, "fsync": False, "storage": {"type": "EmptyDir"}},
}


@pytest.fixture(scope="module")
def kinds(cluster: Lab) -> None:
    """The kinds of the tree as it is."""
    cluster.helm("upgrade", "--install", "deathless-crds", str(CRD_CHART))


@pytest.fixture(scope="module")
def places(cluster: Lab, kinds: None) -> Iterator[None]:
    """The namespaces that rendered objects name, under the strictest pod standard."""
    for name in PLACES:
        cluster.kubectl("create", "namespace", name)
        cluster.kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
    try:
        yield
    finally:
        cluster.kubectl("delete", "namespace", *PLACES, "--wait=false")


def dry_run(cluster: Lab, objects: list[dict[str, Any]]) -> str:
    """Have the API server admit objects without storing them; unknown fields are refused."""
    whole = {"apiVersion": "v1", "kind": "List", "items": objects}
    command = ("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-")
    return cluster.kubectl(*command, stdin=json.dumps(whole))


@pytest.mark.parametrize("values", VARIANTS.values(), ids=VARIANTS)
def test_api_server_takes_every_rendered_object(cluster: Lab, places: None, values: dict[str, Any]) -> None:
    given = {key: value for key, value in values.items() if key != "namespaceOverride"}
    rendered = [each for each in render(given, namespace=PLACES[0]) if not each["apiVersion"].startswith(FOREIGN)]
    # A pod is only taken where its account stands; pods have a test of their own.
    objects = [each for each in rendered if each["kind"] != "Pod"]
    told = dry_run(cluster, objects)
    assert told.count("serverside-applied (server dry run)") == len(objects)


@pytest.mark.parametrize("name", ["default", "all-on"])
def test_pods_are_admitted_where_the_strictest_standard_is_enforced(cluster: Lab, places: None, name: str) -> None:
    objects = render(VARIANTS[name] | {"namespaceOverride": PLACES[0]})
    pods: list[dict[str, Any]] = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"pod-{number}", "namespace": PLACES[0]},
            # Accounts and claims are made by others; the standard looks at what the pod is allowed.
            "spec": {key: part for key, part in spec.items() if key not in {"serviceAccountName", "priorityClassName"}},
        }
        for number, (_, spec) in enumerate(pod_specs(objects))
    ]
    for pod in pods:
        pod["spec"].setdefault("volumes", []).extend(missing_volumes(pod["spec"]))
    assert dry_run(cluster, pods).count("dry run") == len(pods) >= 4


def missing_volumes(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Give volumes for mounts whose claims a StatefulSet would make."""
    have = {volume["name"] for volume in spec.get("volumes", ())}
    mounts = {mount["name"] for container in spec["containers"] for mount in container.get("volumeMounts", ())}
    return [{"name": name, "emptyDir": {}} for name in sorted(mounts - have)]


def test_api_server_takes_the_examples(cluster: Lab, kinds: None) -> None:
    told = cluster.kubectl(
        "apply", "--dry-run=server", "--validate=strict", "-f", str(ROOT / "examples" / "kubernetes")
    )
    assert "deathlessservice" in told and "failoverdrill" in told


def fresh(name: str) -> str:
    """A namespace that no run before has left to be taken away."""
    return f"{name}-{uuid.uuid4().hex[:5]}"


@contextmanager
def installed(cluster: Lab, namespace: str, folder: Path) -> Iterator[tuple[str, ...]]:
    """A release of its own with a lock store of one member; gives what to upgrade it with."""
    values = folder / "values.json"
    values.write_text(json.dumps(SMALL))
    command = ("upgrade", "--install", RELEASE, str(CHART), "--namespace", namespace, "--values", str(values))
    cluster.kubectl("create", "namespace", namespace)
    try:
        cluster.helm(*command, "--wait", "--timeout", "240s")
        yield command
    finally:
        # The release first: it has objects outside of its namespace, too.
        cluster.helm("uninstall", RELEASE, "--namespace", namespace, "--ignore-not-found")
        cluster.kubectl("delete", "namespace", namespace, "--wait=false")


def names_of(cluster: Lab, namespace: str, kinds: str) -> set[str]:
    """The names of what is there, with their kinds."""
    return set(cluster.kubectl("-n", namespace, "get", kinds, "-o", "name").split())


def secrets_of(cluster: Lab, namespace: str) -> dict[str, Any]:
    """The data of the lock store's Secrets."""
    names = ("deathless-lock-store-ca", "deathless-lock-store-tls", "deathless-lock-store-client-tls")
    return {name: cluster.get("secret", name, namespace)["data"] for name in names}


def test_install_upgrade_uninstall_and_install_again_keep_the_lock_store(
    cluster: Lab, image: str, kinds: None, tmp_path: Path
) -> None:
    place = fresh("chart-life")
    with installed(cluster, place, tmp_path) as command:
        told = cluster.helm("test", RELEASE, "--namespace", place, "--logs")
        assert "the installation works" in told
        before, member = secrets_of(cluster, place), cluster.pod(place, "deathless-lock-store-0")

        cluster.helm(*command, "--set", "operator.logLevel=debug", "--wait", "--timeout", "240s")
        assert secrets_of(cluster, place) == before
        assert cluster.pod(place, "deathless-lock-store-0").uid == member.uid

        cluster.helm("uninstall", RELEASE, "--namespace", place, "--wait")
        assert names_of(cluster, place, "deployment") == set()
        assert "statefulset.apps/deathless-lock-store" in names_of(cluster, place, "statefulset")
        assert "cronjob.batch/deathless-certificates" in names_of(cluster, place, "cronjob")
        assert cluster.pod(place, "deathless-lock-store-0").uid == member.uid
        assert secrets_of(cluster, place) == before

        cluster.helm(*command, "--wait", "--timeout", "240s")
        assert cluster.pod(place, "deathless-lock-store-0").uid == member.uid
        assert secrets_of(cluster, place) == before
        assert "the installation works" in cluster.helm("test", RELEASE, "--namespace", place, "--logs")


def test_running_lock_store_keeps_its_number_of_members(cluster: Lab, image: str, kinds: None, tmp_path: Path) -> None:
    with installed(cluster, fresh("chart-members"), tmp_path) as command, pytest.raises(CommandFailed, match="members"):
        cluster.helm(*command, "--set", "lockStore.members=3")


def test_renewed_certificates_reach_the_lock_store_without_a_restart(
    cluster: Lab, image: str, kinds: None, tmp_path: Path
) -> None:
    place = fresh("chart-renewal")
    with installed(cluster, place, tmp_path):
        before, member = secrets_of(cluster, place), cluster.pod(place, "deathless-lock-store-0")
        cluster.kubectl("-n", place, "delete", "secret", "deathless-lock-store-client-tls")
        cluster.kubectl("-n", place, "create", "job", "again", "--from=cronjob/deathless-certificates")
        cluster.kubectl("-n", place, "wait", "--for=condition=Complete", "job/again", "--timeout=180s", timeout_s=190)
        after = secrets_of(cluster, place)
        assert after["deathless-lock-store-ca"] == before["deathless-lock-store-ca"]
        assert after["deathless-lock-store-tls"] == before["deathless-lock-store-tls"]
        assert after["deathless-lock-store-client-tls"] != before["deathless-lock-store-client-tls"]
        assert "the installation works" in cluster.helm("test", RELEASE, "--namespace", place, "--logs")
        assert cluster.pod(place, "deathless-lock-store-0").uid == member.uid


def test_lock_store_lets_nobody_in_without_a_certificate(cluster: Lab, image: str, kinds: None, tmp_path: Path) -> None:
    place = fresh("chart-stranger")
    script = (
        "import ssl, sys, urllib.request\n"
        "context = ssl.create_default_context(cafile='/etc/lock-tls/ca.crt')\n"
        "try:\n"
        "    urllib.request.urlopen(sys.argv[1] + '/health', timeout=10, context=context).read()\n"
        "except OSError as error:\n"
        "    print('refused:', error)\n"
        "else:\n"
        "    sys.exit('it answered')\n"
    )
    with installed(cluster, place, tmp_path):
        tested = next(pod for name, pod in pod_specs(render(SMALL, namespace=place)) if name.startswith("Pod/"))
        tested["containers"][0] |= {"command": ["python", "-I", "-c", script]}
        environment = {each["name"]: each["value"] for each in tested["containers"][0]["env"]}
        tested["containers"][0]["args"] = [environment["LOCK_ENDPOINTS"]]
        labels = {"app.kubernetes.io/name": "deathless-test", "app.kubernetes.io/component": "test"}
        metadata = {"name": "stranger", "namespace": place, "labels": labels}
        cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": tested})

        def ended() -> bool:
            return cluster.get("pod", "stranger", place)["status"]["phase"] in {"Succeeded", "Failed"}

        wait_until(ended, "the stranger's pod has ended", within_s=180)
        assert "refused:" in cluster.kubectl("-n", place, "logs", "stranger")


def test_services_outlive_the_operator_and_are_taken_over_by_the_next(cluster: Lab, deathless: None) -> None:
    def members() -> set[str]:
        return {pod.uid for pod in cluster.pods(lab.NAMESPACE, lab.LOCK_STORE)}

    with Ledger(cluster, "orphan") as ledger:
        before = members()
        with called(ledger) as callers:
            try:
                cluster.helm("uninstall", lab.RELEASE, "--namespace", lab.NAMESPACE, "--wait")
                callers.wait_more()
                primary = ledger.primary()
                cluster.delete_pod(primary, grace_s=0)
                ledger.wait_other_primary(primary)
                callers.wait_more()
            finally:  # else the tests to come have no operator
                lab.install_for_tests(cluster)
        assert members() == before
